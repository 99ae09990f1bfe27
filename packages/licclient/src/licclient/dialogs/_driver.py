"""Runs a dialog: handles its events, does its commands on threads, draws its views; what both toolkits share.

No toolkit is named here. Everything but the work itself happens on the thread of the windows.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from licclient._base_client import BaseClient
from licclient._client import LicenseClient
from licclient._computers.protocol import Computer
from licclient._core.arguments import check_call, check_flag, check_text, wrong_type
from licclient._core.environment import open_page
from licclient._core.model import License
from licclient._core.runners import Deliver
from licclient._core.storage import read_folder
from licclient._core.texts import pick_tag
from licclient._core.update_model import Downloaded
from licclient._explain import system_languages
from licclient._updates.check import check_update, installed_version
from licclient.dialogs._full_license import FullLicense
from licclient.dialogs._states import (
    Action,
    ActivationState,
    Chosen,
    Command,
    Ended,
    Event,
    OfferState,
    Opened,
    Pressed,
    Progressed,
    Tone,
    Typed,
    View,
    without_browser,
)
from licclient.errors import LicclientError, StateUnreadableError

if TYPE_CHECKING:
    from licclient._core.update_model import Update

State = ActivationState | OfferState


class Window(Protocol):
    """A window of a toolkit; its methods are called on the thread of the windows."""

    def draw(self, view: View) -> None:
        """Show a view; first called before there is a driver."""

    def leave(self) -> None:
        """Close the window: the dialog is over."""


_queue: Final[list["tuple[Driver, Callable[[], object]]"]] = []
"""The dialog that is shown, and those that wait, each with what shows it; for the windows' thread alone."""

watchers: Final[list[Callable[["Driver"], object]]] = []
"""Called in the event loop, once a dialog is shown and after each change; for `licclient.testing`."""


class Driver:
    """One dialog from its opening to its end; `drive_activation` and `drive_update` return one.

    Its methods are for the thread of the windows, `close` for every thread.
    """

    def __init__(
        self, window: Window, deliver: Deliver, client: LicenseClient, state: State, to: Path | None = None
    ) -> None:
        self.state: State = state
        # None at the end: threads hold the driver, and a window must be freed on its own thread.
        self._window: Window | None = window
        self._deliver = deliver
        self._client = client
        self._to = to
        self._cancel = threading.Event()
        self._thread = threading.get_ident()
        client._dialogs.add(self)  # noqa: SLF001 - not for apps
        window.draw(state.view())

    def show_in_turn(self, show: Callable[[], object]) -> None:
        """Show the window when no other dialog is open: now, or when those before it are closed."""
        if any(driver is self for driver, _ in _queue):
            return
        _queue.append((self, partial(self._show, show)))
        if len(_queue) == 1:
            self._show(show)

    def _show(self, show: Callable[[], object]) -> None:
        if not self.is_over:
            show()
            self.handle(Opened())
            self._report()

    def _report(self) -> None:
        for watcher in watchers:
            self._deliver(partial(watcher, self))

    @property
    def view(self) -> View:
        """What the window shows now."""
        return self.state.view()

    @property
    def license(self) -> License | None:
        """The license of a dialog that asks for a key; None before it is known."""
        outcome = self.state.outcome
        return outcome if isinstance(outcome, License) else None

    @property
    def file(self) -> Downloaded | None:
        """The file of a dialog that offers an update, whole and verified; None before it has arrived."""
        outcome = self.state.outcome
        return outcome if isinstance(outcome, Downloaded) else None

    @property
    def is_over(self) -> bool:
        """Whether the window is closed, or about to be."""
        return self._window is None

    def end(self) -> None:
        """Take note that the window is gone: cancel a download; a verify that runs is completed."""
        self._window = None
        self._cancel.set()
        self.leave_queue()

    def leave_queue(self) -> None:
        """Let the next dialog be shown."""
        was_first = bool(_queue) and _queue[0][0] is self
        _queue[:] = [waiting for waiting in _queue if waiting[0] is not self]
        if was_first and _queue:
            driver, show = _queue[0]
            driver._deliver(show)  # noqa: SLF001 - later, when this window is gone

    def close(self) -> None:
        """Close the window, on whichever thread this is called."""
        if threading.get_ident() == self._thread:
            self.press(Action.CLOSE)
        else:
            self._deliver(partial(self.press, Action.CLOSE))

    def press(self, action: Action) -> None:
        """Handle a click on a button, its key, or the closing of the window."""
        self.handle(Pressed(action))

    def type_text(self, text: str) -> None:
        """Take what the field for the key holds now: typed, pasted, or just drawn."""
        if text != self.view.body:
            self.handle(Typed(text))

    def choose(self, index: int) -> None:
        """Choose an item of the list; the first one is 0."""
        self.handle(Chosen(index))

    def open_link(self, url: str) -> None:
        """Open a page in the browser, on a thread: some browsers are waited for."""
        work = partial(self._open_page, url)
        threading.Thread(target=work, name="licclient-link", daemon=True).start()

    def _open_page(self, url: str) -> None:
        if not open_page(url):
            self._deliver(partial(self._draw_address, url))

    def _draw_address(self, url: str) -> None:
        """Show the address of a page that could not be opened, until the next event."""
        if self._window is not None:
            self._window.draw(without_browser(self.state.view(), url, self.state.language))
            self._report()

    def handle(self, event: Event) -> None:
        """Handle an event, on the thread of the windows."""
        window = self._window
        if window is None:
            return
        before = self.state
        self.state, command = before.step(event)
        match command:
            case Command.CLOSE:
                self.end()
                window.leave()
                return
            case Command.STOP:
                self._cancel.set()
            case Command():
                self._cancel = threading.Event()
                # A daemon: what it leaves is whole, or goes on next time, so the app's end need not wait.
                work = (command, self._cancel)
                threading.Thread(target=self._run, args=work, name="licclient-dialog", daemon=True).start()
            case None:
                pass
        if self.state is not before:
            window.draw(self.state.view())
            self._report()

    # --- on the thread ------------------------------------------------------------------------

    def _run(self, work: Command, cancel: threading.Event) -> None:
        outcome: object
        try:
            outcome = self._do(work, cancel)
        except Exception as problem:  # noqa: BLE001 - a mistake must not leave a person before a dead window
            outcome = problem
            if not isinstance(problem, LicclientError | OSError):
                arguments = (type(problem), problem, problem.__traceback__, threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(arguments))
        self._send(Ended(outcome))

    def _do(self, work: Command, cancel: threading.Event) -> object:
        match work, self.state:
            case Command.CHECK, ActivationState():
                return self._client.require()
            case Command.CHECK_AGAIN, ActivationState():
                return self._client.verify(force=True)
            case Command.ACTIVATE, ActivationState(typed=key):
                return self._client.activate(key)
            case Command.START_TRIAL, ActivationState():
                return self._client.start_trial()
            case Command.LIST_COMPUTERS, ActivationState(asked=str(key)):
                return self._client.computers.list(key or None)
            case Command.MOVE, ActivationState(
                asked=str(key), full=FullLicense(chosen=Computer() as computer)
            ):
                return self._client.computers.move_here(computer, key or None)
            case Command.DOWNLOAD, OfferState(update=update) if self._to is not None:
                return self._client.download(
                    update, self._to, lambda *progress: self._send(Progressed(*progress)), cancel
                )
            case Command.SKIP, OfferState(update=update):
                self._client.skip_update(update)
                return None
            case _:
                raise AssertionError(f"{work} is not what {type(self.state).__name__} wants")

    def _send(self, event: Event) -> None:
        if not self.is_over:
            self._deliver(lambda: self.handle(event))


# --- where the dialogs begin ------------------------------------------------------------------


def check_client(client: object) -> None:
    """Raise `TypeError` for anything but a `LicenseClient` (D-88)."""
    if not isinstance(client, LicenseClient):
        advice = ": create LicenseClient(client.settings) for them" if isinstance(client, BaseClient) else ""
        raise TypeError(f"client must be a LicenseClient, not {type(client).__name__}{advice}")


def wrong_thread(toolkit: str, deliver: str) -> RuntimeError:
    """Return the error for a dialog that is opened on another thread than that of the windows."""
    name = threading.current_thread().name
    return RuntimeError(
        f"dialogs open on the thread of {toolkit}'s main loop, and this is {name!r}: create there deliver ="
        f" {deliver} (licclient.deliver), and call deliver(lambda: …) here, or give it to client.start"
    )


def drive_activation(
    client: LicenseClient,
    window: Window,
    deliver: Deliver,
    *,
    problem: BaseException | None = None,
    language: str | None = None,
    trial: bool = False,
) -> Driver:
    """Return the driver of a window that asks a person for a license key; it has drawn its first view.

    Args:
        client: Verifies the key, and remembers it when it is good.
        window: Shows it.
        deliver: Runs a function on the thread of the windows, whichever thread calls it, and in order.
        problem: Why the app asks, such as what `require` raised; shown at first.
        language: As for `explain`; None for the language of the system.
        trial: Whether a button starts the trial of this computer; needs a client with `slug`.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: `trial`, and the client was made without `slug`.
    """
    state = begin_activation(client, problem, language, trial=trial)
    return Driver(_check_window(window), _check_deliver(deliver), client, state)


def drive_update(
    client: LicenseClient,
    window: Window,
    deliver: Deliver,
    update: "Update",
    to: str | PathLike[str],
    *,
    language: str | None = None,
) -> Driver:
    """Return the driver of a window that offers an update, and downloads it if the person wants it.

    `update` is that of `check_for_update`, `to` the folder for the file; the others are as for
    `drive_activation`. A version that was skipped is offered as well: ask `client.is_skipped` before.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The client was made without `slug` or `version`.
    """
    state = begin_offer(client, update, language)
    return Driver(_check_window(window), _check_deliver(deliver), client, state, read_folder("to", to))


def _check_window(window: Window) -> Window:
    for name in ("draw", "leave"):
        if not callable(getattr(window, name, None)):
            raise TypeError(f"window must have {name}(), as a Window of licclient.dialogs has")
    return window


def _check_deliver(deliver: Deliver) -> Deliver:
    check_call("deliver", deliver)
    if deliver is None:
        raise wrong_type("deliver", "a function that runs another one on the thread of the windows", deliver)
    return deliver


MOST_LETTERS: Final = 100_000
"""How much of a changelog is shown."""

LONGEST_LINE: Final = 1_000
"""Letters after which a line is broken: toolkits need minutes to lay out one of a million."""


def begin_activation(
    client: LicenseClient, problem: BaseException | None, language: str | None, *, trial: bool = False
) -> ActivationState:
    """Return the first state of the dialog that asks for a key; `ValueError` for a trial without a slug."""
    check_client(client)
    if problem is not None and not isinstance(problem, BaseException):
        raise wrong_type("problem", "an error or None", problem)
    if check_flag("trial", trial) and client.settings.slug is None:
        raise ValueError("a trial needs slug= when the client is made")
    return ActivationState.begin(
        _pick_tag(language), problem, hint=_find_hint(client), offers_trial=trial, settings=client.settings
    )


def _find_hint(client: LicenseClient) -> str | None:
    """Return the end of the key that was entered on this computer, to show."""
    with suppress(StateUnreadableError):
        activation = client._session.activations.find()  # noqa: SLF001 - not for apps
        return None if activation is None else activation.hint
    return None


def begin_offer(client: LicenseClient, update: "Update", language: str | None) -> OfferState:
    """Return the first state of the dialog that offers an update; `ValueError` without slug or version."""
    check_client(client)
    check_update(update)
    installed_version(client.settings)
    changelog = in_short_lines(update.changelog_text)
    tag, plan = _pick_tag(language), None
    with suppress(OSError):  # without it the update is offered for download
        plan = client.plan_update()
    return OfferState(tag, update, changelog=changelog, settings=client.settings, plan=plan)


def _pick_tag(language: str | None) -> str:
    check_text("language", language, 'a string such as "de", or None')
    return pick_tag(system_languages() if language is None else [language])


def in_short_lines(text: str) -> str:
    """Cut a text so that a window shows it at once, however long it is and however long its lines are."""
    pieces = [
        line[at : at + LONGEST_LINE]
        for line in text[:MOST_LETTERS].split("\n")
        for at in range(0, len(line) or 1, LONGEST_LINE)
    ]
    return "\n".join(pieces) + ("\n…" if len(text) > MOST_LETTERS else "")


# --- how they look ----------------------------------------------------------------------------

KEY_LETTERS: Final = 40
"""Room for a key, and a little more."""

LIST_LINES: Final = 6
"""So many items of a list are shown at once."""

LINK_COLOURS: Final = ("#1a56c4", "#8ab8ff")
"""On light and on dark ground; each colour has a contrast of at least 4.5 to white or to black."""

_COLOURS: Final = {Tone.GOOD: ("#1b6e2d", "#7ddc8f"), Tone.BAD: ("#b3261e", "#ff9d94")}
_MARKS: Final = {Tone.PLAIN: "", Tone.GOOD: "\u2713\u00a0", Tone.BAD: "\u26a0\u00a0"}


def colour_of(tone: Tone, *, on_dark: bool) -> str | None:
    """Return the colour of a message, as `#rrggbb`; None for the toolkit's own colour of text."""
    return _COLOURS[tone][on_dark] if tone in _COLOURS else None


def marked(view: View) -> str:
    """Return the message with a mark before it: errors must be visible without colours."""
    return f"{_MARKS[view.tone]}{view.message}" if view.message else ""


def split_mnemonic(text: str) -> tuple[str, int | None]:
    """Return a text without its `&`, and the index of the letter that this marks, for Tk."""
    at = text.find("&")
    return (text, None) if at < 0 else (text[:at] + text[at + 1 :], at)
