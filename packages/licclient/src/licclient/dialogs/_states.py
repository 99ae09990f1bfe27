"""Pure: the dialog that asks for a license key, and the one that offers an update (D-85 to D-87).

A dialog is a state: `step` takes an event, and returns the next state and a command for the driver. `view` is
what the window shows, in one shape for both dialogs and toolkits: a heading, a line below it, a body with its
label (the field for a key, or the changelog), a message, links that help with it, a bar, up to three buttons.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from licclient._computers.protocol import ComputerList
from licclient._core.model import License, MoveObstacle, Outage, Reason
from licclient._core.settings import ClientSettings
from licclient._core.texts import amount, format_date, join_sentences, span, text_of, to_local
from licclient._core.typed_key import Mistyped, repair_key
from licclient._core.update_model import Downloaded, Update
from licclient._sentences import describe_offer, join_all, sentence_of
from licclient.dialogs._full_license import Choice, FullLicense
from licclient.errors import (
    DownloadCancelledError,
    LicclientError,
    LicenseFileError,
    LicenseRefusedError,
    MistypedKeyError,
    MoveError,
    NotActivatedError,
    NotEntitledError,
    ServiceUnavailableError,
    StateUnreadableError,
    UntrustedResponseError,
)
from licclient.install._plan import UpdatePlan

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
    LEAVE = "leave"  # the button that Escape presses; Escape means the same without this button
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
        choices: The items of a list, which then takes the place of the body; the label is that of the list.
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
    choices: tuple[Choice, ...] = ()

    def buttons(self) -> dict[Action, Button | None]:
        """Return what stands at the place of each button."""
        return {Action.GO: self.go, Action.LEAVE: self.leave, Action.SKIP: self.skip}


# --- events and commands ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Typed:
    """The field holds another text now."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Opened:
    """The window is shown."""


@dataclass(frozen=True, slots=True)
class Pressed:
    """A button, its key, or the window's own way to be closed."""

    action: Action


@dataclass(frozen=True, slots=True)
class Chosen:
    """An item of the list is chosen now."""

    index: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far a download is: bytes, bytes in all, bytes a second."""

    done: int
    total: int
    speed: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a command: `outcome` is its result, or its exception."""

    outcome: object


Event = Opened | Typed | Chosen | Pressed | Progressed | Ended


class Command(StrEnum):
    """What the driver does for a dialog; each but the last two ends in an `Ended`."""

    ACTIVATE = "activate"  # verify the key in the field, and remember it when it is good
    CHECK = "check"  # ask about the key of this computer, unless that was done less than a minute ago
    CHECK_AGAIN = "check_again"  # ask about it in any case
    START_TRIAL = "start_trial"  # start the trial of this computer, and remember its key
    LIST_COMPUTERS = "list_computers"  # list the computers that use the license
    MOVE = "move"  # move the license from the chosen one to this computer
    DOWNLOAD = "download"  # download the update; `Progressed` comes again and again
    SKIP = "skip"  # remember that this version is not wanted
    STOP = "stop"  # cancel the download, whose `Ended` is still to come
    CLOSE = "close"  # close the window, and cancel the running call


# --- the dialogs ------------------------------------------------------------------------------


class _Phase(StrEnum):
    CHECKING = "checking"
    UNCHECKED = "unchecked"
    TYPING = "typing"
    ASKING = "asking"
    LISTING = "listing"
    CHOOSING = "choosing"
    MOVING = "moving"
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
class ActivationState(_Dialog):
    """The dialog that asks for a license key, or checks the one that is there.

    `problem` is why there is no license, `hint` the end of the key that was entered before, `typed` the text
    in the field, `outcome` the license. If the service has not been asked about that key, the dialog does so
    as soon as it is shown, and closes with the license.

    If all computers of the license are in use, they are listed, and a person may choose the one to move it
    from: `full`. `asked` is the key that was refused: empty for the one that is there, None for a trial.
    """

    problem: BaseException | None = None
    typed: str = field(default="", repr=False)
    outcome: License | None = None
    phase: _Phase = _Phase.TYPING
    offers_trial: bool = False
    hint: str | None = None
    asked: str | None = field(default=None, repr=False)
    full: FullLicense | None = None

    @classmethod
    def begin(
        cls,
        language: str,
        problem: BaseException | None,
        *,
        hint: str | None,
        offers_trial: bool,
        settings: ClientSettings,
    ) -> "ActivationState":
        """Return the first state."""
        phase = _Phase.TYPING
        if hint is not None and can_help(problem):
            is_new = isinstance(problem, ServiceUnavailableError) and problem.outage is Outage.PENDING
            phase = _Phase.CHECKING if is_new else _Phase.UNCHECKED
        elif hint is not None and _is_full(problem):
            phase = _Phase.LISTING
        asked = None if hint is None else ""
        state = cls(language, problem, phase=phase, offers_trial=offers_trial, hint=hint, settings=settings)
        return replace(state, asked=asked)

    def step(self, event: Event) -> tuple["ActivationState", Command | None]:
        """Return the state after an event, and the command to run."""
        if event in (Pressed(Action.LEAVE), Pressed(Action.CLOSE)):
            return self, Command.CLOSE
        match self.phase, self.full:
            case ((_Phase.CHECKING | _Phase.UNCHECKED), _):
                return self._step_of_check(event)
            case _Phase.LISTING, _:
                return self._step_of_list(event)
            case _Phase.CHOOSING, FullLicense() as full:
                return self._step_of_choice(full, event)
            case _Phase.MOVING, FullLicense() as full:
                return self._step_of_move(full, event)
            case _:
                return self._step_of_key(event)

    def _step_of_key(self, event: Event) -> tuple["ActivationState", Command | None]:
        """As `step`, while a person types a key, and while that is verified."""
        match event, self.phase:
            case Pressed(Action.SKIP), _Phase.TYPING if self._can_check_again():
                return self._check_again()
            case Typed(text), _Phase.TYPING if text != self.typed:
                # Follow a flaw that was shown, and show none before (D-86); a refusal was of another key.
                repaired = _repair(text) if isinstance(self.problem, MistypedKeyError) else None
                return replace(
                    self, typed=text, problem=None if isinstance(repaired, str) else repaired
                ), None
            case Pressed(Action.GO), _Phase.TYPING:
                repaired = _repair(self.typed)
                if isinstance(repaired, MistypedKeyError):
                    return replace(self, problem=repaired), None
                # The field then shows the repaired key.
                asking = replace(self, typed=repaired, asked=repaired, problem=None, phase=_Phase.ASKING)
                return asking, Command.ACTIVATE
            case Pressed(Action.SKIP), _Phase.TYPING if self._can_start_trial():
                return replace(self, asked=None, problem=None, phase=_Phase.ASKING), Command.START_TRIAL
            case Pressed(Action.GO), _Phase.LICENSED:
                return self, Command.CLOSE
            case Ended(License() as license_), _Phase.ASKING:
                return replace(self, outcome=license_, phase=_Phase.LICENSED), None
            case Ended(BaseException() as problem), _Phase.ASKING:
                return self._refused(problem)
            case _:
                return self, None

    def _refused(self, problem: BaseException) -> tuple["ActivationState", Command | None]:
        """Return what follows from a problem with a key: of a full license, the computers are listed."""
        if self.asked is not None and _is_full(problem):
            return replace(self, problem=problem, full=None, phase=_Phase.LISTING), Command.LIST_COMPUTERS
        return replace(self, problem=problem, phase=_Phase.TYPING), None

    def _check_again(self) -> tuple["ActivationState", Command | None]:
        return replace(self, asked="", problem=None, full=None, phase=_Phase.CHECKING), Command.CHECK_AGAIN

    def _step_of_list(self, event: Event) -> tuple["ActivationState", Command | None]:
        """As `step`, while the computers of a full license are listed."""
        match event:
            case Opened():
                return self, Command.LIST_COMPUTERS
            case Ended(ComputerList() as computers) if computers.computers:
                obstacle = None if self.full is None else self.full.obstacle
                full = FullLicense(computers, obstacle=obstacle)
                return replace(self, full=full, phase=_Phase.CHOOSING), None
            case Ended(LicenseRefusedError() as problem):
                return replace(self, problem=problem, phase=_Phase.TYPING), None
            case Ended():  # the refusal is shown, as without a list
                return replace(self, full=None, phase=_Phase.TYPING), None
            case _:
                return self, None

    def _step_of_choice(self, full: FullLicense, event: Event) -> tuple["ActivationState", Command | None]:
        """As `step`, while a person may choose the computer to move the license from."""
        match event:
            case Chosen(index):
                return replace(self, full=full.choose(index)), None
            case Pressed(Action.SKIP):
                return replace(self, full=None, phase=_Phase.TYPING), None
            case Pressed(Action.GO) if full.is_movable and full.is_ready:
                return replace(self, phase=_Phase.MOVING), Command.MOVE
            case Pressed(Action.GO) if full.is_movable:
                return replace(self, full=full.complain()), None
            case Pressed(Action.GO) if self.asked:
                return replace(self, problem=None, full=None, phase=_Phase.ASKING), Command.ACTIVATE
            case Pressed(Action.GO):
                return self._check_again()
            case _:
                return self, None

    def _step_of_move(self, full: FullLicense, event: Event) -> tuple["ActivationState", Command | None]:
        """As `step`, while the license is moved."""
        match event:
            case Ended(License() as license_):
                return replace(self, outcome=license_, phase=_Phase.LICENSED), None
            case Ended(MoveError(obstacle=MoveObstacle.COMPUTER_NOT_FOUND) as problem):
                stale = replace(full, obstacle=problem)
                return replace(self, full=stale, phase=_Phase.LISTING), Command.LIST_COMPUTERS
            case Ended(LicenseRefusedError() as problem):
                return self._refused(problem)
            case Ended(BaseException() as problem):
                return replace(self, full=replace(full, obstacle=problem), phase=_Phase.CHOOSING), None
            case _:
                return self, None

    def _step_of_check(self, event: Event) -> tuple["ActivationState", Command | None]:
        """As `step`, while the key that is there is checked, or could not be checked."""
        match event, self.phase:
            case Opened(), _Phase.CHECKING:
                return self, Command.CHECK
            case Ended(License() as license_), _Phase.CHECKING:
                return replace(self, outcome=license_), Command.CLOSE  # without another click
            case Ended(BaseException() as problem), _Phase.CHECKING:
                if can_help(problem):
                    return replace(self, problem=problem, phase=_Phase.UNCHECKED), None
                return self._refused(problem)
            case Pressed(Action.GO), _Phase.UNCHECKED:
                return self._check_again()
            case Pressed(Action.SKIP), _Phase.UNCHECKED:
                return replace(self, problem=None, phase=_Phase.TYPING), None
            case _:
                return self, None

    def view(self) -> View:
        """Return what the window shows."""
        heading, label = self._heading(), self._say("activation.label")
        view = View(title=heading, heading=heading, intro=self._intro(), label=label, body=self.typed)
        activate, leave = self._button("button.activate"), self._button("button.not_now")
        again = self._button("button.again")
        match self._shown_phase():
            case _Phase.CHOOSING | _Phase.MOVING if self.full is not None:
                return self._view_of_full(self.full, replace(view, leave=leave))
            case _Phase.CHECKING:
                again = replace(again, is_enabled=False)
                message = self._say("activation.asking")
                return replace(view, body=self.hint or "", message=message, bar=Bar(), go=again, leave=leave)
            case _Phase.UNCHECKED:
                return replace(
                    view,
                    body=self.hint or "",
                    message=self._remark(),
                    tone=Tone.BAD,
                    links=links_for(self.problem, self.settings, self.language),
                    go=again,
                    leave=leave,
                    skip=self._button("button.other_key"),
                )
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
                    skip=self._second_button(),
                )

    def _shown_phase(self) -> _Phase:
        """Return the phase to show: listing computers is a part of checking the key."""
        if self.phase is not _Phase.LISTING:
            return self.phase
        return _Phase.ASKING if self.asked else _Phase.CHECKING

    def _view_of_full(self, full: FullLicense, view: View) -> View:
        """Return what the window shows of the computers that use the license."""
        is_moving = self.phase is _Phase.MOVING
        go = self._button("button.move" if full.is_movable else "button.again", is_enabled=not is_moving)
        choices = full.choices(self.language, is_moving=is_moving)
        view = replace(view, label=self._say("activation.computers"), choices=choices, go=go)
        if is_moving:
            return replace(view, message=self._say("activation.moving"), bar=Bar())
        message = full.remark(self.language)
        if full.obstacle is not None:
            message = say_problem(full.obstacle, self.language)
        return replace(
            view,
            message=message,
            tone=Tone.BAD if message else Tone.PLAIN,
            links=links_for(self.problem, self.settings, self.language),
            skip=self._button("button.other_key"),
        )

    def _heading(self) -> str:
        match self._shown_phase(), self.problem:
            case ((_Phase.CHOOSING | _Phase.MOVING), _) if self.full is not None:
                return self.full.heading(self.language)
            case ((_Phase.CHECKING | _Phase.UNCHECKED), _):
                return self._say("activation.check_title")
            case _Phase.LICENSED, _ if self.outcome is not None and self.outcome.is_trial:
                return self._say("activation.trial_title")
            case _Phase.LICENSED, _:
                return self._of_product("activation.done_title", "activation.done_alone")
            case _, LicenseRefusedError(reason=Reason.TRIAL_ENDED) | LicenseRefusedError(
                reason=Reason.EXPIRED, is_trial=True
            ):
                return self._say("activation.trial_over_title")
            case _, LicenseRefusedError(reason=Reason.EXPIRED):
                return self._say("activation.expired_title")
            case _:
                return self._of_product("activation.title", "activation.title_alone")

    def _of_product(self, code: str, code_alone: str) -> str:
        product = self.settings.product
        return self._say(code, cut_short(product)) if product else self._say(code_alone)

    def _intro(self) -> str:
        match self._shown_phase():
            case _Phase.CHECKING | _Phase.UNCHECKED:
                return self._say("activation.known")
            case _Phase.LICENSED:
                return ""
            case _Phase.CHOOSING | _Phase.MOVING if self.full is not None:
                return self.full.intro(self.language)
            case _:
                return self._say("activation.intro" if self.hint is None else "activation.intro_other")

    def _second_button(self) -> Button | None:
        if self._can_start_trial():
            return self._button("button.trial")
        return self._button("button.again") if self._can_check_again() else None

    def _can_start_trial(self) -> bool:
        is_over = isinstance(self.problem, LicenseRefusedError) and (
            self.problem.is_trial or self.problem.reason is Reason.TRIAL_ENDED
        )
        return self.offers_trial and not is_over

    def _can_check_again(self) -> bool:
        """Whether the key that is there was refused: it may have been renewed, or a slot freed, since."""
        is_of_this_key = self.hint is not None and not self.typed
        return (
            is_of_this_key and not self._can_start_trial() and isinstance(self.problem, LicenseRefusedError)
        )

    def _remark(self) -> str:
        # A person who opens the dialog to enter a key knows that it is missing.
        if self.problem is None or isinstance(self.problem, NotActivatedError):
            return ""
        remark = say_problem(self.problem, self.language)
        # License files need pinned keys.
        if self.settings.trust.public_keys and is_offline(self.problem):
            remark = join_sentences(remark, self._say("activation.never_online"), self.language)
        return remark

    def _thanks(self) -> str:
        moved = "" if self.full is None else self.full.thanks(self.language)
        return join_all([*filter(None, [moved]), self._thank()], self.language)

    def _thank(self) -> str:
        license_ = self.outcome
        if license_ is None or license_.expiry is None:
            return self._say("activation.done")
        code = "activation.trial_until" if license_.is_trial else "activation.done_until"
        return self._say(code, format_date(license_.expiry, self.language))


def is_urgent(update: Update) -> bool:
    """Return whether an update cannot be skipped; it can be postponed."""
    return update.is_required or update.is_critical or update.is_security


def _is_full(problem: BaseException | None) -> bool:
    """Return whether all computers of the license are in use."""
    return isinstance(problem, LicenseRefusedError) and problem.reason is Reason.ENVIRONMENT


def can_help(problem: BaseException | None) -> bool:
    """Return whether the same key may be found good if it is checked again, and nothing else would help."""
    return isinstance(problem, ServiceUnavailableError | UntrustedResponseError | StateUnreadableError)


def is_offline(problem: BaseException | None) -> bool:
    """Return whether a problem is an outage that ends when the computer is online."""
    return isinstance(problem, ServiceUnavailableError) and problem.outage.is_offline


def _repair(typed: str) -> str | MistypedKeyError:
    key = repair_key(typed)
    return MistypedKeyError(key.flaw, key.detail) if isinstance(key, Mistyped) else key


def _is_cut(problem: BaseException | None) -> bool:
    """Return whether a download was interrupted; it goes on when the person tries again."""
    return is_offline(problem) or (
        isinstance(problem, ServiceUnavailableError) and problem.outage is Outage.UNUSABLE
    )


@dataclass(frozen=True, slots=True)
class OfferState(_Dialog):
    """The dialog that offers an update.

    `problem` is why the last download failed, `far` its progress, `outcome` the file. `changelog` is plain
    text, converted once, because each step makes a view. `plan` is what installing does here: where another
    program updates the app, there is nothing to download (D-355).
    """

    update: Update
    problem: BaseException | None = None
    far: Progressed | None = None
    outcome: Downloaded | None = None
    phase: _Phase = _Phase.OFFERED
    changelog: str = field(default="", repr=False)
    plan: UpdatePlan | None = None

    def step(self, event: Event) -> tuple["OfferState", Command | None]:
        """Return the state after an event, and the command to run."""
        match event, self.phase:
            case Pressed(Action.GO), _Phase.OFFERED if self._has_updater():
                return self, None
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
                is_bad = not isinstance(self.problem, DownloadCancelledError | None)
                return replace(
                    view,
                    message=self._remark(),
                    tone=Tone.BAD if is_bad else Tone.PLAIN,
                    links=self._links(),
                    go=self._go_button(),
                    leave=self._button("button.remind" if self.update.is_security else "button.later"),
                    skip=None if is_urgent(self.update) else self._button("button.skip"),
                )

    def _has_updater(self) -> bool:
        """Return whether another program updates the app, or a framework with windows of its own."""
        return self.plan is not None and self.plan.updater is not None

    def _go_button(self) -> Button | None:
        if self._has_updater():
            return None
        return self._button("button.again" if self.problem else "button.download")

    def _facts(self) -> str:
        day = to_local(self.update.last_updated).date()
        installed = self.settings.version
        facts = [] if installed is None else [self._say("update.installed", installed)]
        facts.append(self._say("update.published", format_date(day, self.language)))
        if self.update.size is not None:
            facts.append(self._say("update.size", amount(self.update.size, self.language)))
        if self.update.updates_until is not None:
            facts.append(self._say("update.until", format_date(self.update.updates_until, self.language)))
        return " \u00b7 ".join(facts)

    def _remark(self) -> str:
        if _is_cut(self.problem):
            return self._say("update.cut")
        if self.problem is not None:
            return say_problem(self.problem, self.language)
        remarks = describe_offer(self.update, self.language)
        if self.update.is_required:
            remarks.insert(0, self._say("update.required"))
        elif self.update.is_critical and not self.update.is_security:
            remarks.insert(0, self._say("update.important"))
        if self.plan is not None and self._has_updater():
            remarks.append(sentence_of(self.plan, self.language))
        return cut_short(join_all(remarks, self.language))

    def _links(self) -> tuple[Link, ...]:
        """Return the links that help with a problem; without one, those about the update."""
        if self.problem is not None:
            return links_for(self.problem, self.settings, self.language)
        pages = (
            ("link.advisory", self.update.advisory if self.update.is_security else None),
            ("link.renew", self.settings.pages.buy if self.update.is_covered else None),
        )
        return tuple(Link(self._say(code), url) for code, url in pages if url)

    def _how_far(self) -> str:
        if self.far is None:
            return self._say("update.connecting")
        done, total, speed = (
            amount(size, self.language) for size in (self.far.done, self.far.total, self.far.speed)
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
        return cut_short(sentence_of(problem, language))
    return text_of("problem.unexpected", language)


def without_browser(view: View, url: str, language: str) -> View:
    """Return a view with the address of a page that no browser could be opened for."""
    return replace(view, message=text_of("link.no_browser", language, url), tone=Tone.BAD)


def links_for(problem: BaseException | None, settings: ClientSettings, language: str) -> tuple[Link, ...]:
    """Return the links that help with a problem, most helpful first; only those that the app has."""
    buy, lost = ("link.buy", settings.pages.buy), ("link.lost", settings.pages.support)
    manage, support = ("link.manage", settings.pages.manage), ("link.support", settings.pages.support)
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
            pages = (manage if settings.pages.manage else support, buy)
        case LicenseFileError():
            pages = (support,)
        case LicenseRefusedError() | NotEntitledError() | LicclientError(_texts=str()):
            pages = (buy, support)
        case _:
            pages = (support,)
    return tuple(Link(text_of(code, language), url) for code, url in pages if url)
