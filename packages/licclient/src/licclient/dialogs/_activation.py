"""Pure: the dialog in which a person enters a license key (D-85, D-86)."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from licclient._model import License
from licclient._typed_key import Mistyped, repair_key
from licclient.dialogs._view import (
    Action,
    Activate,
    Bar,
    Button,
    Close,
    Command,
    Ended,
    Event,
    Pressed,
    Tone,
    Typed,
    View,
)
from licclient.dialogs._words import say, say_problem
from licclient.errors import MistypedKeyError, NotActivatedError


class _Phase(StrEnum):
    TYPING = "typing"
    ASKING = "asking"
    LICENSED = "licensed"


@dataclass(frozen=True, slots=True)
class Activation:
    """Where the dialog stands; each step makes a new one.

    Attributes:
        language: One of `_texts.LANGUAGES`.
        product: What the app is called; None when the client was not told.
        problem: Why there is no license: what the person is told.
        typed: What is in the field.
        outcome: What the service said yes to.
    """

    language: str
    product: str | None = None
    problem: BaseException | None = None
    typed: str = field(default="", repr=False)
    outcome: License | None = None
    phase: _Phase = _Phase.TYPING

    def step(self, event: Event) -> tuple["Activation", Command | None]:
        """Take what has happened; say where the dialog stands now, and what it wants done."""
        match event, self.phase:
            case Typed(text), _Phase.TYPING if text != self.typed:
                return replace(self, typed=text, problem=self._still_wrong(text)), None
            case Pressed(Action.GO), _Phase.TYPING:
                return self._judge_typed()
            case (Pressed(Action.GO), _Phase.LICENSED) | (Pressed(Action.LEAVE | Action.CLOSE), _):
                return self, Close()
            case Ended(License() as license_), _Phase.ASKING:
                return replace(self, outcome=license_, phase=_Phase.LICENSED), None
            case Ended(BaseException() as problem), _Phase.ASKING:
                return replace(self, problem=problem, phase=_Phase.TYPING), None
            case _:
                return self, None

    def _judge_typed(self) -> tuple["Activation", Command | None]:
        key = repair_key(self.typed)
        if isinstance(key, Mistyped):
            return replace(self, problem=MistypedKeyError(key.flaw, key.detail)), None
        # The field then shows the key that was understood.
        return replace(self, typed=key, problem=None, phase=_Phase.ASKING), Activate(key)

    def _still_wrong(self, text: str) -> MistypedKeyError | None:
        """Follow what is typed once a flaw was shown, until it is mended; never complain before (D-86)."""
        if not isinstance(self.problem, MistypedKeyError):
            return None  # what the service said was about another key
        key = repair_key(text)
        return MistypedKeyError(key.flaw, key.detail) if isinstance(key, Mistyped) else None

    def view(self) -> View:
        """Say what the window shows."""
        speak = self.language
        title = "activation.title" if self.product else "activation.title_alone"
        view = View(
            title=say(title, speak, self.product or ""),
            heading=say(title, speak, self.product or ""),
            intro=say("activation.intro", speak),
            label=say("activation.label", speak),
            body=self.typed,
        )
        match self.phase:
            case _Phase.TYPING:
                # Who opens the dialog to enter a key need not be told that there is none.
                is_told = self.problem is not None and not isinstance(self.problem, NotActivatedError)
                return replace(
                    view,
                    is_editable=True,
                    message=say_problem(self.problem, speak) if self.problem and is_told else "",
                    tone=Tone.BAD if is_told else Tone.PLAIN,
                    go=Button(say("button.activate", speak)),
                    leave=Button(say("button.not_now", speak)),
                )
            case _Phase.ASKING:
                return replace(
                    view,
                    message=say("activation.asking", speak),
                    bar=Bar(),
                    go=Button(say("button.activate", speak), is_enabled=False),
                    leave=Button(say("button.not_now", speak)),
                )
            case _Phase.LICENSED:
                return replace(
                    view, message=self._thanks(), tone=Tone.GOOD, go=Button(say("button.close", speak))
                )

    def _thanks(self) -> str:
        if self.outcome is None or self.outcome.expiry is None:
            return say("activation.done", self.language)
        return say("activation.done_until", self.language, self.outcome.expiry.isoformat())
