"""Pure: the dialog that asks for a license key, and the one that offers an update (D-85 to D-87).

A dialog is a state: `step` takes an event, and returns the next state and a command for the driver. `view` is
what the window shows, in one shape for both dialogs and toolkits: a heading, a line below it, a body with its
label (the field for a key, or the changelog), a message, links that help with it, a bar, up to three buttons.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from licclient._explain import explain
from licclient._model import License, Reason, Update
from licclient._part_file import Downloaded
from licclient._settings import ClientSettings
from licclient._texts import amount, format_date, span, text_of
from licclient._typed_key import Mistyped, repair_key
from licclient.errors import (
    DownloadCancelledError,
    LicclientError,
    LicenseRefusedError,
    MistypedKeyError,
    NoSeatError,
    NotActivatedError,
    NotEntitledError,
    QuotaExceededError,
    ServiceUnavailableError,
)

MOST_WORDS: Final = 500
"""How much of a name or a sentence of the server is shown: the window must fit the screen."""

# --- what a window shows ----------------------------------------------------------------------


class Tone(StrEnum):
    """The kind of a message; shown by more than its colour."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"


class Action(StrEnum):
    """What a person can do beside typing. Each button has a place of its own in the window."""

    GO = "go"  # the button that Enter presses
    LEAVE = "leave"  # the button that Escape presses; Escape means the same where there is none
    SKIP = "skip"  # the button that stands apart
    CLOSE = "close"  # the window's own way to be closed


@dataclass(frozen=True, slots=True)
class Button:
    """A button; `&` in its text stands before the letter that presses it together with Alt."""

    text: str
    is_enabled: bool = True


@dataclass(frozen=True, slots=True)
class Link:
    """A link below the message; the text is plain."""

    text: str
    url: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A progress bar, 0 to 1; None while the progress is unknown."""

    part: float | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What a window shows; all of it plain text, whatever characters are in it.

    Attributes:
        label: What the body is called; `&` as in a button.
        body: The key as typed, or the changelog; empty, a changelog is not shown.
        is_editable: Whether a person can type into the body.
        message: What to show now; may be empty.
        links: What helps with the message.
    """

    title: str
    heading: str
    intro: str
    label: str
    body: str = field(repr=False)
    is_editable: bool = False
    message: str = ""
    tone: Tone = Tone.PLAIN
    links: tuple[Link, ...] = ()
    bar: Bar | None = None
    go: Button | None = None
    leave: Button | None = None
    skip: Button | None = None

    def buttons(self) -> dict[Action, Button | None]:
        """Return what stands at the place of each button."""
        return {Action.GO: self.go, Action.LEAVE: self.leave, Action.SKIP: self.skip}


# --- events and commands ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Typed:
    """The field holds another text now."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pressed:
    """A button, its key, or the window's own way to be closed."""

    action: Action


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far a download is: bytes, bytes in all, bytes a second."""

    done: int
    total: int
    speed: float


@dataclass(frozen=True, slots=True)
class Ended:
    """What was wanted has been done, or went wrong: `outcome` is what came of it, or the exception."""

    outcome: object


Event = Typed | Pressed | Progressed | Ended


class Command(StrEnum):
    """What the driver does for a dialog; each but the last two ends in an `Ended`."""

    ACTIVATE = "activate"  # verify the key in the field, and remember it when it is good
    START_TRIAL = "start_trial"  # start the trial of this computer, and remember its key
    DOWNLOAD = "download"  # download the update; `Progressed` comes again and again
    SKIP = "skip"  # remember that this version is not wanted
    STOP = "stop"  # cancel the download, whose `Ended` is still to come
    CLOSE = "close"  # close the window, and cancel what is running


# --- the dialogs ------------------------------------------------------------------------------


class _Phase(StrEnum):
    TYPING = "typing"
    ASKING = "asking"
    LICENSED = "licensed"

    OFFERED = "offered"
    COMING = "coming"
    STOPPING = "stopping"
    HERE = "here"
    SKIPPING = "skipping"


@dataclass(frozen=True, slots=True)
class _Dialog:
    """`settings` are the app's: its product, version and pages."""

    language: str
    settings: ClientSettings = field(default=ClientSettings(""), kw_only=True)

    def _say(self, code: str, *details: str) -> str:
        return text_of(code, self.language, *details)

    def _button(self, code: str, *, is_enabled: bool = True) -> Button:
        return Button(self._say(code), is_enabled)


@dataclass(frozen=True, slots=True)
class Activation(_Dialog):
    """The dialog that asks for a license key.

    `problem` is why there is no license, `typed` the text in the field, `outcome` the license.
    """

    problem: BaseException | None = None
    typed: str = field(default="", repr=False)
    outcome: License | None = None
    phase: _Phase = _Phase.TYPING
    offers_trial: bool = False

    def step(self, event: Event) -> tuple["Activation", Command | None]:
        """Return the state after an event, and what is to be done."""
        match event, self.phase:
            case Typed(text), _Phase.TYPING if text != self.typed:
                # Follow a flaw that was shown, and show none before (D-86); a refusal was of another key.
                found = _repair(text) if isinstance(self.problem, MistypedKeyError) else None
                return replace(self, typed=text, problem=None if isinstance(found, str) else found), None
            case Pressed(Action.GO), _Phase.TYPING:
                found = _repair(self.typed)
                if isinstance(found, MistypedKeyError):
                    return replace(self, problem=found), None
                # The field then shows the repaired key.
                return replace(self, typed=found, problem=None, phase=_Phase.ASKING), Command.ACTIVATE
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

    def view(self) -> View:
        """Return what the window shows."""
        product = self.settings.product
        title = self._say("activation.title", product) if product else self._say("activation.title_alone")
        intro, label = self._say("activation.intro"), self._say("activation.label")
        view = View(title=title, heading=title, intro=intro, label=label, body=self.typed)
        activate, leave = self._button("button.activate"), self._button("button.not_now")
        match self.phase:
            case _Phase.ASKING:
                activate = replace(activate, is_enabled=False)
                return replace(
                    view, message=self._say("activation.asking"), bar=Bar(), go=activate, leave=leave
                )
            case _Phase.LICENSED:
                close = self._button("button.close")
                return replace(view, message=self._thanks(), tone=Tone.GOOD, go=close)
            case _:
                message = self._remark()
                return replace(
                    view,
                    is_editable=True,
                    message=message,
                    tone=Tone.BAD if message else Tone.PLAIN,
                    links=links_for(self.problem or NotActivatedError(), self.settings, self.language),
                    go=activate,
                    leave=leave,
                    skip=self._button("button.trial") if self.offers_trial else None,
                )

    def _remark(self) -> str:
        # A person who opens the dialog to enter a key knows that there is none.
        if self.problem is None or isinstance(self.problem, NotActivatedError):
            return ""
        remark = say_problem(self.problem, self.language)
        # License files need pinned keys.
        if self.settings.public_keys and isinstance(self.problem, ServiceUnavailableError):
            remark += " " + self._say("activation.never_online")
        return remark

    def _thanks(self) -> str:
        if self.outcome is None or self.outcome.expiry is None:
            return self._say("activation.done")
        return self._say("activation.done_until", format_date(self.outcome.expiry, self.language))


def _repair(typed: str) -> str | MistypedKeyError:
    key = repair_key(typed)
    return MistypedKeyError(key.flaw, key.detail) if isinstance(key, Mistyped) else key


@dataclass(frozen=True, slots=True)
class Offer(_Dialog):
    """The dialog that offers an update.

    `problem` is why the last download failed, `far` its progress, `outcome` the file. `changelog` is plain
    text, converted once, because each step makes a view.
    """

    update: Update
    problem: BaseException | None = None
    far: Progressed | None = None
    outcome: Downloaded | None = None
    phase: _Phase = _Phase.OFFERED
    changelog: str = field(default="", repr=False)

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
        heading = self._say("update.heading", f"{cut_short(self.update.name)} {self.update.version}")
        title, label = self._say("update.title"), self._say("update.label")
        view = View(title=title, heading=heading, intro=self._facts(), label=label, body=self.changelog)
        far, cancel = self.far, self._button("button.cancel")
        bar = Bar(min(far.done / far.total, 1.0) if far and far.total else None)
        match self.phase:
            case _Phase.COMING:
                return replace(view, message=self._how_far(), bar=bar, leave=cancel)
            case _Phase.STOPPING:
                cancel = replace(cancel, is_enabled=False)
                return replace(view, message=self._say("update.stopping"), bar=bar, leave=cancel)
            case _Phase.HERE:
                is_verified = self.outcome is not None and self.outcome.is_verified
                message = self._say("update.here" if is_verified else "update.unverified")
                tone = Tone.GOOD if is_verified else Tone.PLAIN
                return replace(
                    view, message=message, tone=tone, bar=Bar(1.0), go=self._button("button.continue")
                )
            case _Phase.SKIPPING:
                return replace(view, leave=self._button("button.later", is_enabled=False))
            case _:
                is_urgent = self.update.is_required or self.update.is_critical
                is_bad = not isinstance(self.problem, DownloadCancelledError | None)
                return replace(
                    view,
                    message=self._remark(),
                    tone=Tone.BAD if is_bad else Tone.PLAIN,
                    links=links_for(self.problem, self.settings, self.language),
                    go=self._button("button.again" if self.problem else "button.download"),
                    leave=self._button("button.later"),
                    skip=None if is_urgent else self._button("button.skip"),
                )

    def _facts(self) -> str:
        day = self.update.last_updated.astimezone().date()
        installed = self.settings.version
        facts = [] if installed is None else [self._say("update.installed", installed)]
        facts.append(self._say("update.published", format_date(day, self.language)))
        if self.update.size is not None:
            facts.append(self._say("update.size", amount(self.update.size, self.language)))
        return " \u00b7 ".join(facts)

    def _remark(self) -> str:
        if isinstance(self.problem, ServiceUnavailableError):
            return self._say("update.cut")
        if self.problem is not None:
            return say_problem(self.problem, self.language)
        if self.update.is_required:
            return self._say("update.required")
        return self._say("update.important") if self.update.is_critical else ""

    def _how_far(self) -> str:
        if self.far is None:
            return self._say("update.connecting")
        done, total, speed = (
            amount(one, self.language) for one in (self.far.done, self.far.total, self.far.speed)
        )
        words = [self._say("update.progress", done, total)]
        if self.far.speed > 0:
            words.append(f"{speed}/s")
            if left := span((self.far.total - self.far.done) / self.far.speed):
                words.append(self._say("update.left", left))
        return " \u00b7 ".join(words)


# --- words ------------------------------------------------------------------------------------


def cut_short(text: str) -> str:
    """Cut what stands in a label."""
    return text if len(text) <= MOST_WORDS else text[:MOST_WORDS] + "…"


def say_problem(problem: BaseException, language: str) -> str:
    """Return what went wrong; an unexpected exception is not quoted: it may contain anything."""
    if isinstance(problem, LicclientError | OSError):
        return cut_short(explain(problem, language))
    return text_of("problem.unexpected", language)


def links_for(problem: BaseException | None, settings: ClientSettings, language: str) -> tuple[Link, ...]:
    """Return the links that help with a problem, most helpful first; only those that the app has."""
    buy, lost = ("link.buy", settings.buy_url), ("link.lost", settings.support_url)
    manage, support = ("link.manage", settings.manage_url), ("link.support", settings.support_url)
    pages: tuple[tuple[str, str | None], ...]
    match problem:
        case None | ServiceUnavailableError() | DownloadCancelledError() | OSError():
            pages = ()
        case NotActivatedError() | MistypedKeyError():
            pages = (buy, lost)
        case LicenseRefusedError(reason=Reason.NOT_FOUND | Reason.INVALID_FORMAT):
            pages = (lost, buy)
        case LicenseRefusedError(reason=Reason.TRIAL_ENDED | Reason.TRIAL_NOT_OFFERED | Reason.TRIAL_LIMIT):
            pages = (buy, lost)
        case LicenseRefusedError(reason=Reason.ENVIRONMENT):
            pages = (manage, buy)
        case LicenseRefusedError() | NotEntitledError() | QuotaExceededError() | NoSeatError():
            pages = (buy, support)
        case _:
            pages = (support,)
    return tuple(Link(text_of(code, language), url) for code, url in pages if url)
