"""Where `client.start` calls the app back: on the thread of its windows, or in its event loop.

::

    client.start(on_status=show, on_update=offer, deliver=to_tk(root))

Call these functions on the thread that is to be called back on. Without `deliver` the synchronous client
calls back on its own background thread, and the asynchronous one in its event loop.

While `ask_for_key` or `offer_update` waits for a person, what `to_tk` and `to_qt` deliver waits as well.
"""

import atexit
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from licclient._core.arguments import wrong_type
from licclient.dialogs._calls import after_dialogs, post_to_tk

if TYPE_CHECKING:
    import tkinter as tk
    from asyncio import AbstractEventLoop

    from licclient._core.runners import Deliver

__all__ = ["to_loop", "to_qt", "to_tk"]


def to_tk(root: "tk.Misc") -> "Deliver":
    """Call back in Tk's main loop, which looks for calls twenty times a second, until the window is gone.

    Args:
        root: The app's main window.
    """
    if not (callable(getattr(root, "register", None)) and hasattr(root, "tk")):
        raise wrong_type("root", "a window of Tk, such as the app's tkinter.Tk()", root)
    return after_dialogs(post_to_tk(root))


def to_qt() -> "Deliver":
    """Call back in Qt's main loop, on the thread on which this is called.

    Raises:
        ImportError: PySide6 is not installed.
    """
    return after_dialogs(post_to_qt())


def post_to_qt() -> "Deliver":
    """As `to_qt`, for the dialogs themselves: also while the caller of one waits."""
    try:
        from PySide6.QtCore import QCoreApplication, QObject, Qt, Signal, Slot  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as problem:
        raise ImportError("licclient.deliver.to_qt needs PySide6: pip install 'licclient[qt]'") from problem

    class Post(QObject):
        """Lives on the thread that made it; Qt delivers its signals there."""

        come: Any = Signal(object)

        def __init__(self) -> None:
            # Qt's own child: whichever thread lets go of it last does not free it.
            super().__init__(QCoreApplication.instance())
            self.come.connect(self.take, Qt.ConnectionType.QueuedConnection)

        @Slot(object)
        def take(self, call: Callable[[], object]) -> None:
            """Run what has come."""
            call()

    post = Post()
    emitting, has_ended = _watch_process_end()

    def deliver(call: Callable[[], object]) -> None:
        with emitting:
            if not has_ended.is_set():
                with suppress(RuntimeError):  # the app has ended before the process
                    post.come.emit(call)

    return deliver


@cache
def _watch_process_end() -> tuple[threading.Lock, threading.Event]:
    """Return what a thread holds while it emits, and what is set once it must no longer.

    At the end of the process PySide6 frees the app; a thread that emitted then would crash it. Functions of
    atexit run in reverse order, so this one runs first, if PySide6 was imported before.
    """
    emitting, has_ended = threading.Lock(), threading.Event()

    @atexit.register
    def end() -> None:
        with emitting:
            has_ended.set()

    return emitting, has_ended


def to_loop(loop: "AbstractEventLoop") -> "Deliver":
    """Call back in an event loop of asyncio, from whichever thread.

    Args:
        loop: As from `asyncio.get_running_loop()`. Once it is closed, no callback runs.
    """
    if not callable(getattr(loop, "call_soon_threadsafe", None)):
        raise wrong_type("loop", "an event loop of asyncio", loop)

    def deliver(call: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed, maybe just now
            loop.call_soon_threadsafe(call)

    return deliver
