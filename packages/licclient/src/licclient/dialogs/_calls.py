"""Calls on the thread of Tk's windows, and what an app's calls wait for: a dialog whose caller waits.

A call that opened another window within the loop of that dialog would keep the first caller waiting for both.
"""

import queue
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    import tkinter as tk

    from licclient._core.runners import Deliver

_TK_MILLISECONDS: Final = 50

TK_ROOTS: Final[WeakSet["tk.Misc"]] = WeakSet()
"""Main windows of Tk that calls were made for, as long as they are not freed."""


def post_to_tk(window: "tk.Misc") -> "Deliver":
    """Run calls of any thread in Tk's main loop, until the window is gone.

    Tk may be touched by its own thread alone, so the calls wait in a queue that it looks into.
    """
    waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
    TK_ROOTS.add(window.nametowidget("."))

    def look() -> None:
        look_later()
        for _ in range(waiting.qsize()):
            if not waiting.empty():  # a loop within a call takes others
                waiting.get()()

    command = window.register(look)  # which ends with the window: then there is nothing to complain of

    def look_later() -> None:
        window.tk.call("after", _TK_MILLISECONDS, "catch", command)

    look_later()
    return waiting.put


# For the thread of the windows alone.
_loops: Final[list[object]] = []
"""One item for each dialog whose caller waits."""

_held: Final[list[Callable[[], object]]] = []
"""Functions that deliver a call again, one for each call that waits."""


@contextmanager
def caller_waits() -> Iterator[None]:
    """Hold the calls of `after_dialogs` during the block; deliver them again afterwards."""
    _loops.append(None)
    try:
        yield
    finally:
        _loops.pop()
        if not _loops:
            held, _held[:] = _held[:], []
            for deliver_again in held:
                deliver_again()


def after_dialogs(deliver: "Deliver") -> "Deliver":
    """Return a `deliver` whose calls run in order, and not while the caller of a dialog waits (D-181)."""
    calls: deque[Callable[[], object]] = deque()

    def take(call: Callable[[], object]) -> None:
        calls.append(call)
        run_next()

    def run_next() -> None:
        if _loops:
            _held.append(partial(deliver, run_next))
        else:
            calls.popleft()()

    return lambda call: deliver(partial(take, call))
