"""Pure: the dialog in which a person enters a license key (D-85, D-86)."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from licclient._model import License
from licclient._texts import format_date, text_of
from licclient._typed_key import Mistyped, repair_key
from licclient.dialogs._view import (
    NO_URLS,
    Action,
    Bar,
    Button,
    Command,
    Ended,
    Event,
    Pressed,
    Tone,
    Typed,
    Urls,
    View,
    links_for,
    say_problem,
)
from licclient.errors import MistypedKeyError, NotActivatedError, ServiceUnavailableError


class _Phase(StrEnum):
    TYPING = "typing"
    ASKING = "asking"
    LICENSED = "licensed"


@dataclass(frozen=True, slots=True)
class Activation:
    """The state of the dialog; each step returns a new one.

    `problem` is why there is no license, `typed` the text in the field, `outcome` the license; `takes_files`
    whether the app pins keys, so that license files can be installed.
    """

    language: str
    product: str | None = None
    problem: BaseException | None = None
    typed: str = field(default="", repr=False)
    outcome: License | None = None
    phase: _Phase = _Phase.TYPING
    urls: Urls = NO_URLS
    offers_trial: bool = False
    takes_files: bool = False

    def step(self, event: Event) -> tuple["Activation", Command | None]:
        """Return the state after an event, and what is to be done."""
        match event, self.phase:
            case Typed(text), _Phase.TYPING if text != self.typed:
                return replace(self, typed=text, problem=self._still_wrong(text)), None
            case Pressed(Action.GO), _Phase.TYPING:
                return self._judge_typed()
            case Pressed(Action.SKIP), _Phase.TYPING if self.offers_trial:
                return replace(self, problem=None, phase=_Phase.ASKING), Command.START_TRIAL
            case (Pressed(Action.GO), _Phase.LICENSED) | (Pressed(Action.LEAVE | Action.CLOSE), _):
                return self, Command.CLOSE
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
        # The field then shows the repaired key.
        return replace(self, typed=key, problem=None, phase=_Phase.ASKING), Command.ACTIVATE

    def _still_wrong(self, text: str) -> MistypedKeyError | None:
        """Return the flaw that is left, once one was shown; never one before that (D-86)."""
        if not isinstance(self.problem, MistypedKeyError):
            return None  # a refusal was about another key
        key = repair_key(text)
        return MistypedKeyError(key.flaw, key.detail) if isinstance(key, Mistyped) else None

    def view(self) -> View:
        """Return what the window shows."""
        speak = self.language
        title = "activation.title" if self.product else "activation.title_alone"
        view = View(
            title=text_of(title, speak, self.product or ""),
            heading=text_of(title, speak, self.product or ""),
            intro=text_of("activation.intro", speak),
            label=text_of("activation.label", speak),
            body=self.typed,
        )
        match self.phase:
            case _Phase.TYPING:
                # A person who opens the dialog to enter a key knows that there is none.
                is_shown = self.problem is not None and not isinstance(self.problem, NotActivatedError)
                return replace(
                    view,
                    is_editable=True,
                    message=self._remark() if is_shown else "",
                    tone=Tone.BAD if is_shown else Tone.PLAIN,
                    links=links_for(self.problem or NotActivatedError(), self.urls, speak),
                    go=Button(text_of("button.activate", speak)),
                    leave=Button(text_of("button.not_now", speak)),
                    skip=Button(text_of("button.trial", speak)) if self.offers_trial else None,
                )
            case _Phase.ASKING:
                return replace(
                    view,
                    message=text_of("activation.asking", speak),
                    bar=Bar(),
                    go=Button(text_of("button.activate", speak), is_enabled=False),
                    leave=Button(text_of("button.not_now", speak)),
                )
            case _Phase.LICENSED:
                return replace(
                    view, message=self._thanks(), tone=Tone.GOOD, go=Button(text_of("button.close", speak))
                )

    def _remark(self) -> str:
        remark = say_problem(self.problem, self.language) if self.problem else ""
        if self.takes_files and isinstance(self.problem, ServiceUnavailableError):
            hint = text_of("activation.never_online", self.language)
            return f"{remark} {hint}"
        return remark

    def _thanks(self) -> str:
        if self.outcome is None or self.outcome.expiry is None:
            return text_of("activation.done", self.language)
        return text_of(
            "activation.done_until", self.language, format_date(self.outcome.expiry, self.language)
        )
