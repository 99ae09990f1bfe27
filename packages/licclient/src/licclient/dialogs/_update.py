"""Pure: the dialog that offers an update and shows its download (D-85, D-87)."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from licclient._model import Update
from licclient._part_file import Downloaded
from licclient._texts import amount, format_date, span, text_of
from licclient.dialogs._view import (
    NO_URLS,
    Action,
    Bar,
    Button,
    Command,
    Ended,
    Event,
    Pressed,
    Progressed,
    Tone,
    Urls,
    View,
    cut_short,
    links_for,
    say_problem,
)
from licclient.errors import DownloadCancelledError, ServiceUnavailableError


class _Phase(StrEnum):
    OFFERED = "offered"
    COMING = "coming"
    STOPPING = "stopping"
    HERE = "here"
    SKIPPING = "skipping"


@dataclass(frozen=True, slots=True)
class Offer:
    """The state of the dialog; each step returns a new one.

    `problem` is why the last download failed, `far` its progress, `outcome` the file. `changelog` is plain
    text, converted once, because each step makes a view.
    """

    language: str
    update: Update
    installed: str | None = None
    problem: BaseException | None = None
    far: Progressed | None = None
    outcome: Downloaded | None = None
    phase: _Phase = _Phase.OFFERED
    changelog: str = field(default="", repr=False)
    urls: Urls = NO_URLS

    def step(self, event: Event) -> tuple["Offer", Command | None]:
        """Return the state after an event, and what is to be done."""
        match event, self.phase:
            case Pressed(Action.GO), _Phase.OFFERED:
                return replace(self, problem=None, far=None, phase=_Phase.COMING), Command.DOWNLOAD
            case Pressed(Action.SKIP), _Phase.OFFERED:
                return replace(self, problem=None, phase=_Phase.SKIPPING), Command.SKIP
            case Pressed(Action.LEAVE), _Phase.COMING:
                return replace(self, phase=_Phase.STOPPING), Command.STOP
            case (Pressed(Action.GO), _Phase.HERE) | (Pressed(Action.LEAVE | Action.CLOSE), _):
                return self, Command.CLOSE
            case Progressed() as far, _Phase.COMING:
                return replace(self, far=far), None
            # Also when it was complete in the moment that it was to be cancelled.
            case Ended(Downloaded() as file), _Phase.COMING | _Phase.STOPPING:
                return replace(self, outcome=file, phase=_Phase.HERE), None
            case Ended(BaseException() as problem), _Phase.COMING | _Phase.STOPPING:
                return replace(self, problem=problem, phase=_Phase.OFFERED), None
            case Ended(), _Phase.SKIPPING:
                return self, Command.CLOSE
            case _:
                return self, None

    def view(self) -> View:
        """Return what the window shows."""
        speak, update = self.language, self.update
        view = View(
            title=text_of("update.title", speak),
            heading=text_of("update.heading", speak, f"{cut_short(update.name)} {update.version}"),
            intro=self._facts(),
            label=text_of("update.label", speak),
            body=self.changelog,
        )
        match self.phase:
            case _Phase.OFFERED:
                is_urgent = update.is_required or update.is_critical
                was_cancelled = isinstance(self.problem, DownloadCancelledError)
                return replace(
                    view,
                    message=self._remark(),
                    tone=Tone.PLAIN if self.problem is None or was_cancelled else Tone.BAD,
                    links=links_for(self.problem, self.urls, speak),
                    go=Button(text_of("button.again" if self.problem else "button.download", speak)),
                    leave=Button(text_of("button.later", speak)),
                    skip=None if is_urgent else Button(text_of("button.skip", speak)),
                )
            case _Phase.COMING:
                return replace(
                    view,
                    message=self._how_far(),
                    bar=self._bar(),
                    leave=Button(text_of("button.cancel", speak)),
                )
            case _Phase.STOPPING:
                return replace(
                    view,
                    message=text_of("update.stopping", speak),
                    bar=self._bar(),
                    leave=Button(text_of("button.cancel", speak), is_enabled=False),
                )
            case _Phase.HERE:
                return replace(
                    view,
                    message=text_of("update.here", speak),
                    tone=Tone.GOOD,
                    bar=Bar(1.0),
                    go=Button(text_of("button.continue", speak)),
                )
            case _Phase.SKIPPING:
                return replace(view, leave=Button(text_of("button.later", speak), is_enabled=False))

    def _facts(self) -> str:
        speak, update = self.language, self.update
        facts = [
            text_of("update.published", speak, format_date(update.last_updated.astimezone().date(), speak))
        ]
        if self.installed is not None:
            facts.insert(0, text_of("update.installed", speak, self.installed))
        if update.size is not None:
            facts.append(text_of("update.size", speak, amount(update.size, speak)))
        return " \u00b7 ".join(facts)

    def _remark(self) -> str:
        if isinstance(self.problem, ServiceUnavailableError):
            return text_of("update.cut", self.language)
        if self.problem is not None:
            return say_problem(self.problem, self.language)
        if self.update.is_required:
            return text_of("update.required", self.language)
        return text_of("update.important", self.language) if self.update.is_critical else ""

    def _bar(self) -> Bar:
        return Bar(min(self.far.done / self.far.total, 1.0) if self.far and self.far.total else None)

    def _how_far(self) -> str:
        speak, far = self.language, self.far
        if far is None:
            return text_of("update.connecting", speak)
        words = [text_of("update.progress", speak, amount(far.done, speak), amount(far.total, speak))]
        if far.speed > 0:
            words.append(f"{amount(far.speed, speak)}/s")
            if left := span((far.total - far.done) / far.speed):
                words.append(text_of("update.left", speak, left))
        return " \u00b7 ".join(words)
