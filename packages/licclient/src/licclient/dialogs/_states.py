"""Pure: the dialog that asks for a license key, and the one that offers an update (D-85 to D-87)."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from licclient._model import License, Update
from licclient._part_file import Downloaded
from licclient._texts import amount, format_date, span, text_of
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
    Progressed,
    Tone,
    Typed,
    Urls,
    View,
    cut_short,
    links_for,
    say_problem,
)
from licclient.errors import (
    DownloadCancelledError,
    MistypedKeyError,
    NotActivatedError,
    ServiceUnavailableError,
)


class _KeyPhase(StrEnum):
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
    phase: _KeyPhase = _KeyPhase.TYPING
    urls: Urls = NO_URLS
    offers_trial: bool = False
    takes_files: bool = False

    def step(self, event: Event) -> tuple["Activation", Command | None]:
        """Return the state after an event, and what is to be done."""
        match event, self.phase:
            case Typed(text), _KeyPhase.TYPING if text != self.typed:
                return replace(self, typed=text, problem=self._still_wrong(text)), None
            case Pressed(Action.GO), _KeyPhase.TYPING:
                return self._judge_typed()
            case Pressed(Action.SKIP), _KeyPhase.TYPING if self.offers_trial:
                return replace(self, problem=None, phase=_KeyPhase.ASKING), Command.START_TRIAL
            case (Pressed(Action.GO), _KeyPhase.LICENSED) | (Pressed(Action.LEAVE | Action.CLOSE), _):
                return self, Command.CLOSE
            case Ended(License() as license_), _KeyPhase.ASKING:
                return replace(self, outcome=license_, phase=_KeyPhase.LICENSED), None
            case Ended(BaseException() as problem), _KeyPhase.ASKING:
                return replace(self, problem=problem, phase=_KeyPhase.TYPING), None
            case _:
                return self, None

    def _judge_typed(self) -> tuple["Activation", Command | None]:
        key = repair_key(self.typed)
        if isinstance(key, Mistyped):
            return replace(self, problem=MistypedKeyError(key.flaw, key.detail)), None
        # The field then shows the repaired key.
        return replace(self, typed=key, problem=None, phase=_KeyPhase.ASKING), Command.ACTIVATE

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
            case _KeyPhase.TYPING:
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
            case _KeyPhase.ASKING:
                return replace(
                    view,
                    message=text_of("activation.asking", speak),
                    bar=Bar(),
                    go=Button(text_of("button.activate", speak), is_enabled=False),
                    leave=Button(text_of("button.not_now", speak)),
                )
            case _KeyPhase.LICENSED:
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


class _OfferPhase(StrEnum):
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
    phase: _OfferPhase = _OfferPhase.OFFERED
    changelog: str = field(default="", repr=False)
    urls: Urls = NO_URLS

    def step(self, event: Event) -> tuple["Offer", Command | None]:
        """Return the state after an event, and what is to be done."""
        match event, self.phase:
            case Pressed(Action.GO), _OfferPhase.OFFERED:
                return replace(self, problem=None, far=None, phase=_OfferPhase.COMING), Command.DOWNLOAD
            case Pressed(Action.SKIP), _OfferPhase.OFFERED:
                return replace(self, problem=None, phase=_OfferPhase.SKIPPING), Command.SKIP
            case Pressed(Action.LEAVE), _OfferPhase.COMING:
                return replace(self, phase=_OfferPhase.STOPPING), Command.STOP
            case (Pressed(Action.GO), _OfferPhase.HERE) | (Pressed(Action.LEAVE | Action.CLOSE), _):
                return self, Command.CLOSE
            case Progressed() as far, _OfferPhase.COMING:
                return replace(self, far=far), None
            # Also when it was complete in the moment that it was to be cancelled.
            case Ended(Downloaded() as file), _OfferPhase.COMING | _OfferPhase.STOPPING:
                return replace(self, outcome=file, phase=_OfferPhase.HERE), None
            case Ended(BaseException() as problem), _OfferPhase.COMING | _OfferPhase.STOPPING:
                return replace(self, problem=problem, phase=_OfferPhase.OFFERED), None
            case Ended(), _OfferPhase.SKIPPING:
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
            case _OfferPhase.OFFERED:
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
            case _OfferPhase.COMING:
                return replace(
                    view,
                    message=self._how_far(),
                    bar=self._bar(),
                    leave=Button(text_of("button.cancel", speak)),
                )
            case _OfferPhase.STOPPING:
                return replace(
                    view,
                    message=text_of("update.stopping", speak),
                    bar=self._bar(),
                    leave=Button(text_of("button.cancel", speak), is_enabled=False),
                )
            case _OfferPhase.HERE:
                is_verified = self.outcome is not None and self.outcome.is_verified
                return replace(
                    view,
                    message=text_of("update.here" if is_verified else "update.unverified", speak),
                    tone=Tone.GOOD if is_verified else Tone.PLAIN,
                    bar=Bar(1.0),
                    go=Button(text_of("button.continue", speak)),
                )
            case _OfferPhase.SKIPPING:
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
