"""Runs a dialog: handles its events, does its commands on threads, and draws its views.

No toolkit is named here. Everything but the work itself happens on the thread of the windows.
"""

import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from licclient._explain import system_languages
from licclient._texts import pick_tag
from licclient._worker import Deliver
from licclient.dialogs._states import Activation, Offer
from licclient.dialogs._view import (
    Action,
    Command,
    Ended,
    Event,
    Pressed,
    Progressed,
    Typed,
    Urls,
    View,
    in_short_lines,
)
from licclient.errors import LicclientError

if TYPE_CHECKING:
    from licclient._client import LicenseClient
    from licclient._model import Update
    from licclient._settings import ClientSettings


State = Activation | Offer


class Window(Protocol):
    """What a toolkit brings: `draw` shows a view, `leave` closes the window."""

    def draw(self, view: View) -> None: ...

    def leave(self) -> None: ...


_queue: Final[list["tuple[Driver, Callable[[], object]]"]] = []
"""The dialog that is shown, and those that wait, each with what shows it; for the windows' thread alone."""


class Driver:
    """One dialog from its opening, when its first view is drawn, to its end.

    `deliver` runs a function on the thread of the windows, for other threads; `to` takes downloads.
    """

    def __init__(
        self, window: Window, deliver: Deliver, client: "LicenseClient", state: State, to: Path | None = None
    ) -> None:
        self.state: State = state
        # None at the end: threads hold the driver, and a window must be freed on its own thread.
        self._window: Window | None = window
        self._deliver = deliver
        self._client = client
        self._to = to
        self._cancel = threading.Event()
        window.draw(state.view())

    def show_in_turn(self, show: Callable[[], object]) -> None:
        """Show the window when no other dialog is open: now, or when those before it are closed (D-181)."""
        if any(driver is self for driver, _ in _queue):
            return
        _queue.append((self, show))
        if len(_queue) == 1:
            show()

    @property
    def is_first(self) -> bool:
        """Whether it is this dialog's turn."""
        return bool(_queue) and _queue[0][0] is self

    @property
    def is_over(self) -> bool:
        """Whether the window is closed, or about to be."""
        return self._window is None

    def typed(self, text: str) -> None:
        """Handle a change of the field."""
        self._handle(Typed(text))

    def pressed(self, action: Action) -> None:
        """Handle a click on a button, its key, or the closing of the window."""
        self._handle(Pressed(action))

    def end(self) -> None:
        """Ignore what still comes, and cancel a download; a verify that runs is completed (D-85)."""
        self._window = None
        self._cancel.set()
        self.leave_queue()

    def leave_queue(self) -> None:
        """Let the next dialog be shown."""
        was_first = self.is_first
        _queue[:] = [waiting for waiting in _queue if waiting[0] is not self]
        if was_first and _queue:
            driver, show = _queue[0]
            driver._deliver(show)  # noqa: SLF001 - later, when this window is gone

    def open_link(self, url: str) -> None:
        """Open a page in the browser, on a thread: some browsers are waited for."""
        threading.Thread(target=webbrowser.open, args=(url,), name="licclient-link", daemon=True).start()

    def _handle(self, event: Event) -> None:
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
                self._begin(command)
            case None:
                pass
        if self.state is not before:
            window.draw(self.state.view())

    def _begin(self, work: Command) -> None:
        self._cancel = threading.Event()
        # A daemon: what it leaves on the disk is whole or goes on next time, so the app's end need not wait.
        run = threading.Thread(
            target=self._run, args=(work, self._cancel), name="licclient-dialog", daemon=True
        )
        run.start()

    # --- on the thread ------------------------------------------------------------------------

    def _run(self, work: Command, cancel: threading.Event) -> None:
        outcome: object
        try:
            outcome = self._do(work, cancel)
        except (LicclientError, OSError) as problem:
            outcome = problem
        except Exception as problem:  # noqa: BLE001 - a mistake must not leave a person before a dead window
            outcome = problem
            arguments = (type(problem), problem, problem.__traceback__, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(arguments))
        self._send(Ended(outcome))

    def _do(self, work: Command, cancel: threading.Event) -> object:
        match work, self.state:
            case Command.ACTIVATE, Activation(typed=key):
                return self._client.activate(key)
            case Command.START_TRIAL, Activation():
                return self._client.start_trial()
            case Command.DOWNLOAD, Offer(update=update) if self._to is not None:
                return self._client.download(update, self._to, self._progressed, cancel)
            case Command.SKIP, Offer(update=update):
                self._client.skip_update(update)
                return None
            case _:
                raise AssertionError(f"{work} is not what {type(self.state).__name__} wants")

    def _progressed(self, done: int, total: int, speed: float) -> None:
        self._send(Progressed(done, total, speed))

    def _send(self, event: Event) -> None:
        if not self.is_over:
            self._deliver(lambda: self._handle(event))


# --- where the dialogs begin ------------------------------------------------------------------


def begin_activation(
    client: "LicenseClient", problem: BaseException | None, language: str | None, *, trial: bool = False
) -> Activation:
    """Return the first state of the dialog that asks for a key; `ValueError` for a trial without a slug."""
    settings = client.settings
    if trial and settings.slug is None:
        raise ValueError("a trial needs slug= when the client is made")
    return Activation(
        _pick_tag(language),
        settings.product,
        problem,
        urls=_urls(settings),
        offers_trial=trial,
        takes_files=bool(settings.public_keys),
    )


def begin_offer(client: "LicenseClient", update: "Update", language: str | None) -> Offer:
    """Return the first state of the dialog that offers an update; `ValueError` without slug or version."""
    settings = client.settings
    if settings.slug is None or settings.version is None:
        raise ValueError("updates need slug= and version= when the client is made")
    changelog = in_short_lines(update.changelog_text)
    return Offer(_pick_tag(language), update, settings.version, changelog=changelog, urls=_urls(settings))


def _urls(settings: "ClientSettings") -> Urls:
    return Urls(settings.buy_url, settings.support_url, settings.manage_url)


def _pick_tag(language: str | None) -> str:
    return pick_tag(system_languages() if language is None else [language])
