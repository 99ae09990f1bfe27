"""Ctrl-C in the terminal while a caller waits for a dialog of Tk or Qt, which wait for events in C.

Python runs the handler of a signal between two of its own instructions. So a timer runs some, and ends the
dialog: an exception within a callback would be printed by the toolkit, and the wait would go on.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

    Repeat = Callable[[Callable[[], bool]], None]

LOOK_MILLISECONDS: Final = 200


class TerminalInterrupt(KeyboardInterrupt, SystemExit):
    """Ctrl-C while a dialog was open.

    Also a `SystemExit`: that is the only exception with which a callback, such as that of a button of the
    app, ends the main loop. As `code` it has what shells report of a program that Ctrl-C has ended.
    """

    code = 130


@contextmanager
def interruptible(repeat: "Repeat", close: Callable[[], object]) -> Iterator[None]:
    """Close a dialog on Ctrl-C, and raise `TerminalInterrupt` after the block.

    `repeat` has the toolkit call a function every `LOOK_MILLISECONDS`, until that returns False.

    Only on the main thread, which gets the signals, and not if the app handles them itself: then its handler
    runs in time. A second Ctrl-C does what it does without a dialog.
    """
    is_interrupted = False

    def note(number: int, frame: "FrameType | None") -> None:
        nonlocal is_interrupted
        if is_interrupted:
            signal.default_int_handler(number, frame)
        is_interrupted = True

    def look() -> bool:
        if is_interrupted:
            close()
        return not is_interrupted

    repeat(look)
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if is_ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if is_interrupted:
        raise TerminalInterrupt
