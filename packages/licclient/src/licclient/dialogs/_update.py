"""Pure: the dialog that offers an update and shows its download (D-85, D-87)."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from licclient._model import Update
from licclient._part_file import Downloaded
from licclient._texts import amount, span
from licclient.dialogs._view import (
    Action,
    Bar,
    Button,
    Close,
    Command,
    Download,
    Ended,
    Event,
    Pressed,
    Progressed,
    Skip,
    Stop,
    Tone,
    View,
    cut_short,
)
from licclient.dialogs._words import say, say_problem
from licclient.errors import DownloadCancelledError, ServiceUnavailableError


class _Phase(StrEnum):
    OFFERED = "offered"
    COMING = "coming"
    STOPPING = "stopping"
    HERE = "here"
    SKIPPING = "skipping"


@dataclass(frozen=True, slots=True)
class Offer:
    """Where the dialog stands; each step makes a new one.

    Attributes:
        language: One of `_texts.LANGUAGES`.
        update: What is offered.
        installed: The version that the app has; None when the client was not told.
        problem: Why the last download did not arrive.
        far: How far the download is.
        outcome: What has arrived.
        changelog: What is new, as a window shows it; read once, because a view is made for each step.
    """

    language: str
    update: Update
    installed: str | None = None
    problem: BaseException | None = None
    far: Progressed | None = None
    outcome: Downloaded | None = None
    phase: _Phase = _Phase.OFFERED
    changelog: str = field(default="", repr=False)

    def step(self, event: Event) -> tuple["Offer", Command | None]:
        """Take what has happened; say where the dialog stands now, and what it wants done."""
        match event, self.phase:
            case Pressed(Action.GO), _Phase.OFFERED:
                return replace(self, problem=None, far=None, phase=_Phase.COMING), Download()
            case Pressed(Action.SKIP), _Phase.OFFERED:
                return replace(self, problem=None, phase=_Phase.SKIPPING), Skip()
            case Pressed(Action.LEAVE), _Phase.COMING:
                return replace(self, phase=_Phase.STOPPING), Stop()
            case (Pressed(Action.GO), _Phase.HERE) | (Pressed(Action.LEAVE | Action.CLOSE), _):
                return self, Close()
            case Progressed() as far, _Phase.COMING:
                return replace(self, far=far), None
            # Also when it came whole in the moment that it was to be cancelled.
            case Ended(Downloaded() as file), _Phase.COMING | _Phase.STOPPING:
                return replace(self, outcome=file, phase=_Phase.HERE), None
            case Ended(BaseException() as problem), _Phase.COMING | _Phase.STOPPING:
                return replace(self, problem=problem, phase=_Phase.OFFERED), None
            case Ended(), _Phase.SKIPPING:
                return self, Close()
            case _:
                return self, None

    def view(self) -> View:
        """Say what the window shows."""
        speak, update = self.language, self.update
        view = View(
            title=say("update.title", speak),
            heading=say("update.heading", speak, f"{cut_short(update.name)} {update.version}"),
            intro=self._facts(),
            label=say("update.label", speak),
            body=self.changelog,
        )
        match self.phase:
            case _Phase.OFFERED:
                was_cancelled = isinstance(self.problem, DownloadCancelledError)
                return replace(
                    view,
                    message=self._what_went_wrong(),
                    tone=Tone.PLAIN if self.problem is None or was_cancelled else Tone.BAD,
                    go=Button(say("button.again" if self.problem else "button.download", speak)),
                    leave=Button(say("button.later", speak)),
                    skip=Button(say("button.skip", speak)),
                )
            case _Phase.COMING:
                return replace(
                    view, message=self._how_far(), bar=self._bar(), leave=Button(say("button.cancel", speak))
                )
            case _Phase.STOPPING:
                return replace(
                    view,
                    message=say("update.stopping", speak),
                    bar=self._bar(),
                    leave=Button(say("button.cancel", speak), is_enabled=False),
                )
            case _Phase.HERE:
                return replace(
                    view,
                    message=say("update.here", speak),
                    tone=Tone.GOOD,
                    bar=Bar(1.0),
                    go=Button(say("button.continue", speak)),
                )
            case _Phase.SKIPPING:
                return replace(view, leave=Button(say("button.later", speak), is_enabled=False))

    def _facts(self) -> str:
        speak, update = self.language, self.update
        facts = [say("update.published", speak, f"{update.last_updated:%Y-%m-%d}")]
        if self.installed is not None:
            facts.insert(0, say("update.installed", speak, self.installed))
        if update.size is not None:
            facts.append(say("update.size", speak, amount(update.size, speak)))
        return " \u00b7 ".join(facts)

    def _what_went_wrong(self) -> str:
        if isinstance(self.problem, ServiceUnavailableError):
            return say("update.cut", self.language)
        return say_problem(self.problem, self.language) if self.problem else ""

    def _bar(self) -> Bar:
        return Bar(min(self.far.done / self.far.total, 1.0) if self.far and self.far.total else None)

    def _how_far(self) -> str:
        speak, far = self.language, self.far
        if far is None:
            return say("update.connecting", speak)
        words = [say("update.progress", speak, amount(far.done, speak), amount(far.total, speak))]
        if far.speed > 0:
            words.append(f"{amount(far.speed, speak)}/s")
            if left := span((far.total - far.done) / far.speed):
                words.append(say("update.left", speak, left))
        return " \u00b7 ".join(words)
