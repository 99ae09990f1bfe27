"""Detect calls from the event loop of Tk or Qt, as from a click, which must not wait (D-59)."""

import sys
from types import FrameType
from typing import Any, Final

_QT: Final = ("PySide6", "PyQt6", "PySide2", "PyQt5")


def limit_wait(wait: float | None) -> float | None:
    """Return for how many seconds a caller may be kept waiting; None for as long as a request may take.

    `wait` is what the caller chose; without a choice, a call in the event loop of windows does not wait.
    """
    return 0.0 if wait is None and is_in_window_loop() else wait


def is_in_window_loop() -> bool:
    """Return whether the event loop of Tk or Qt has called us, on this thread; loads neither of them."""
    return _is_in_tk() or _is_in_qt()


def _is_in_tk() -> bool:
    """Return whether this is a callback of Tk: tkinter calls each of them through one class."""
    wrapper = getattr(sys.modules.get("tkinter"), "CallWrapper", None)
    if wrapper is None:
        return False
    code = wrapper.__call__.__code__
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - documented; `inspect` loads much
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


def _is_in_qt() -> bool:
    """Return whether Qt's main loop runs on this thread."""
    for name in _QT:
        core: Any = sys.modules.get(f"{name}.QtCore")
        if core is None:
            continue
        app = core.QCoreApplication.instance()
        if app is not None and app.inherits("QGuiApplication"):
            thread = core.QThread.currentThread()
            return bool(app.thread() == thread and thread.loopLevel() > 0)
    return False
