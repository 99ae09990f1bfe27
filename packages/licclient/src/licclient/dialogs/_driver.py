"""Runs a dialog: takes what its window tells, does what is wanted on threads, and draws what comes of it.

No toolkit is named here. Everything but the work itself happens on the thread of the windows.
"""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from licclient._explain import system_languages
from licclient._texts import pick_language
from licclient.deliver import Deliver
from licclient.dialogs._activation import Activation
from licclient.dialogs._update import Offer
from licclient.dialogs._view import (
    Action,
    Activate,
    Close,
    Command,
    Download,
    Ended,
    Event,
    Pressed,
    Progressed,
    Skip,
    Stop,
    Typed,
    View,
    Work,
    in_short_lines,
)
from licclient.errors import LicclientError

if TYPE_CHECKING:
    from licclient._client import LicenseClient
    from licclient._model import Update


class State(Protocol):
    """Where a dialog stands: `Activation` or `Offer`."""

    @property
    def outcome(self) -> object:
        """What has come of it; None as long as nothing has."""
        ...

    def step(self, event: Event) -> tuple[Self, Command | None]:
        """Take what has happened."""
        ...

    def view(self) -> View:
        """Say what the window shows."""
        ...


StateT = TypeVar("StateT", bound=State)


class Window(Protocol):
    """What a toolkit brings."""

    def draw(self, view: View) -> None:
        """Show this, and nothing else."""
        ...

    def leave(self) -> None:
        """Close the window."""
        ...


class Driver(Generic[StateT]):
    """One dialog from its opening to its end.

    Args:
        window: What to draw on; done at once.
        deliver: Runs a function on the thread of the windows; called by others.
        client: Whom to ask.
        state: Where the dialog begins.
        to: The folder for downloads.

    Attributes:
        state: Where it stands.
    """

    def __init__(
        self, window: Window, deliver: Deliver, client: "LicenseClient", state: StateT, to: Path | None = None
    ) -> None:
        self.state = state
        # Let go at the end: threads hold the driver, and a window must be freed on its own thread.
        self._window: Window | None = window
        self._deliver = deliver
        self._client = client
        self._to = to
        self._cancel = threading.Event()
        window.draw(state.view())

    @property
    def is_over(self) -> bool:
        """Whether the window is closed, or about to be."""
        return self._window is None

    def typed(self, text: str) -> None:
        """Take what the field holds now."""
        self._tell(Typed(text))

    def pressed(self, action: Action) -> None:
        """Take a click on a button, its key, or the window's closing."""
        self._tell(Pressed(action))

    def end(self) -> None:
        """Tell nobody any more, and cancel a download; a key on its way is seen through (D-85)."""
        self._window = None
        self._cancel.set()

    def _tell(self, event: Event) -> None:
        window = self._window
        if window is None:
            return
        before = self.state
        self.state, command = before.step(event)
        match command:
            case Close():
                self.end()
                window.leave()
                return
            case Stop():
                self._cancel.set()
            case Activate() | Download() | Skip():
                self._begin(command)
            case None:
                pass
        if self.state is not before:
            window.draw(self.state.view())

    def _begin(self, work: Work) -> None:
        self._cancel = threading.Event()
        # A daemon: what it leaves on the disk is whole or goes on next time, so the app's end need not wait.
        run = threading.Thread(
            target=self._run, args=(work, self._cancel), name="licclient-dialog", daemon=True
        )
        run.start()

    # --- on the thread ------------------------------------------------------------------------

    def _run(self, work: Work, cancel: threading.Event) -> None:
        outcome: object
        try:
            outcome = self._do(work, cancel)
        except (LicclientError, OSError) as problem:
            outcome = problem
        except Exception as problem:  # noqa: BLE001 - a mistake must not leave a person before a dead window
            outcome = problem
            told = (type(problem), problem, problem.__traceback__, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(told))
        self._send(Ended(outcome))

    def _do(self, work: Work, cancel: threading.Event) -> object:
        match work, self.state:
            case Activate(key), _:
                return self._client.activate(key)
            case Download(), Offer(update=update) if self._to is not None:
                return self._client.download(update, self._to, self._progressed, cancel)
            case Skip(), Offer(update=update):
                self._client.skip_update(update)
                return None
            case _:
                raise AssertionError(f"{work} is not what {type(self.state).__name__} wants")

    def _progressed(self, done: int, total: int, speed: float) -> None:
        self._send(Progressed(done, total, speed))

    def _send(self, event: Event) -> None:
        if not self.is_over:
            self._deliver(lambda: self._tell(event))


# --- where the dialogs begin ------------------------------------------------------------------


def begin_activation(
    client: "LicenseClient", problem: BaseException | None, language: str | None
) -> Activation:
    """Begin to ask for a key; arguments are those of `ask_for_key`."""
    return Activation(_tongue(language), client._context.settings.product, problem)  # noqa: SLF001 - of the house


def begin_offer(client: "LicenseClient", update: "Update", language: str | None) -> Offer:
    """Begin to offer an update; arguments are those of `offer_update`.

    Raises:
        ValueError: The client was made without `slug` or `version`.
    """
    settings = client._context.settings  # noqa: SLF001 - of the house
    if settings.slug is None or settings.version is None:
        raise ValueError("updates need slug= and version= when the client is made")
    changelog = in_short_lines(update.changelog_text)
    return Offer(_tongue(language), update, settings.version, changelog=changelog)


def _tongue(language: str | None) -> str:
    return pick_language(system_languages() if language is None else [language])
