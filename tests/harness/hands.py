"""A person in front of a dialog of either toolkit, whose own events take the way of real ones."""

# ruff: noqa: D102 - what a hand does is in its name

import gc
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness.screen import without
from licclient.dialogs._states import Action

_DONT_WAIT = 2
"""`TCL_DONT_WAIT` of Tcl's manual."""

_KEYSYMS = {"-": "minus", " ": "space", "\n": "Return"}


def qt_app() -> Any:
    """Return the process's one application, on Qt's own screen; raise ImportError without PySide6."""
    from PySide6.QtWidgets import QApplication  # noqa: PLC0415 - an extra

    return QApplication.instance() or QApplication(["test", "-platform", "offscreen"])


class Hands:
    """What both toolkits have in common."""

    dialog: Any = None
    kit: Any
    parent: Any

    def turn(self) -> None:
        """Let the toolkit do what is waiting."""
        raise NotImplementedError

    def between(self) -> None:
        """Called by `turn` where a person's next click would be heard: for a test that measures pauses."""

    def until(self, holds: Callable[[], object], seconds: float = 10) -> None:
        """Let it work until something holds."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"it never came to that; the window says: {self.message()!r}"
            self.turn()
            time.sleep(0.005)

    def message(self) -> str:
        """Read the message."""
        raise NotImplementedError

    def key(self, name: str) -> None:
        """Press a key that both toolkits call by the same name."""
        raise NotImplementedError

    def rest(self) -> None:
        """Let it work for a while."""
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            self.turn()

    def tab(self) -> None:
        self.key("Tab")

    def enter(self) -> None:
        self.key("Return")

    def escape(self) -> None:
        self.key("Escape")


class TkHands(Hands):
    """Tk's windows, on the virtual screen."""

    def __init__(self, display: str) -> None:
        import tkinter as tk  # noqa: PLC0415 - not every Python has it

        from licclient.dialogs import tk as dialogs  # noqa: PLC0415 - as above

        self.kit = dialogs
        self.parent = tk.Tk(screenName=display or None)
        self.parent.geometry("300x200+50+50")
        self.parent.update()

    def open(self, dialog: Any) -> None:
        """Take a dialog that was just made, once it has the keyboard."""
        self.dialog = dialog
        self.until(lambda: dialog.focus_lastfor() is not dialog)  # Tk sees to it when the window is mapped
        dialog.focus_lastfor().focus_force()
        self.until(lambda: dialog.focus_get() is not None)

    def show(self, dialog: Any) -> None:
        """Nothing: Tk's dialogs show themselves."""

    def is_shown(self, dialog: Any) -> bool:
        return bool(dialog.winfo_exists() and dialog.winfo_viewable())

    def close(self, dialog: Any) -> None:
        dialog.destroy()
        self.turn()

    def destroy(self, dialog: Any) -> None:
        dialog.tk.eval(f"destroy {dialog}")
        self.turn()

    def links(self) -> list[str]:
        return [str(link["text"]) for link in self._links()]

    def _links(self) -> list[Any]:
        return [link for link in self.dialog._links.winfo_children() if link.winfo_ismapped()]

    def follow(self, text: str) -> None:
        (link,) = (link for link in self._links() if link["text"] == text)
        link.focus_force()
        link.event_generate("<KeyPress-Return>")
        self.turn()

    def control_a(self) -> None:
        self.dialog.focus_get().event_generate("<Control-a>")
        self.turn()

    def turn(self) -> None:
        while self.parent.tk.dooneevent(_DONT_WAIT):
            self.between()
        self.parent.update()  # and what the screen had not yet sent

    def is_open(self) -> bool:
        return bool(self.dialog.winfo_exists())

    def choices(self) -> list[str]:
        """The items of the list; none while it is not shown."""
        shown = self.dialog._list
        return [str(text) for text in shown.get(0, "end")] if shown.winfo_ismapped() else []

    def chosen(self) -> list[str]:
        return [str(self.dialog._list.get(index)) for index in self.dialog._list.curselection()]

    def choose(self, index: int) -> None:
        """Click an item of the list."""
        x, y, width, height = self.dialog._list.bbox(index)
        for event in ("<ButtonPress-1>", "<ButtonRelease-1>"):
            self.dialog._list.event_generate(event, x=x + width // 2, y=y + height // 2)
        self.turn()

    def type(self, text: str) -> None:
        for letter in text:
            self.key(_KEYSYMS.get(letter, letter))

    def paste(self, text: str) -> None:
        self.dialog.clipboard_clear()
        self.dialog.clipboard_append(text)
        self.dialog.focus_get().event_generate("<<Paste>>")
        self.turn()

    def key(self, keysym: str) -> None:
        self.dialog.focus_get().event_generate(f"<KeyPress-{keysym}>")
        self.turn()

    def alt(self, letter: str) -> None:
        self.dialog.focus_get().event_generate(f"<Alt-{letter}>")
        self.turn()

    def space(self) -> None:
        self.key("space")

    def click(self, action: Action) -> None:
        button = self.dialog._buttons[action]
        for event in ("<Enter>", "<ButtonPress-1>", "<ButtonRelease-1>"):
            button.event_generate(event, x=5, y=5)
        self.turn()

    def close_window(self) -> None:
        self.dialog.tk.call(*self.dialog.tk.splitlist(self.dialog.protocol("WM_DELETE_WINDOW")))
        self.turn()

    def message(self) -> str:
        return str(self.dialog._message["text"]) if self.is_open() else ""

    def colour(self) -> str:
        return str(self.dialog._message["foreground"])

    def body(self) -> str:
        return str(self.dialog._target.get(*([] if hasattr(self.dialog, "_field") else ["1.0", "end-1c"])))

    def heading(self) -> str:
        return str(self.dialog._heading["text"])

    def bar(self) -> float | None:
        bar = self.dialog._bar
        if not bar.winfo_ismapped():
            return None
        return float(bar["value"]) / 100 if str(bar["mode"]) == "determinate" else 0.0

    def _shown(self) -> list[Any]:
        return [button for button in self.dialog._buttons.values() if button.winfo_ismapped()]

    def buttons(self) -> list[str]:
        """The texts of the visible buttons, from left to right."""
        return [
            str(button_["text"]) for button_ in sorted(self._shown(), key=lambda button: button.winfo_rootx())
        ]

    def cut_off(self) -> list[str]:
        """The buttons that are too narrow for their text, or that reach outside the window."""
        right = self.dialog.winfo_rootx() + self.dialog.winfo_width()
        return [
            str(button["text"])
            for button in self._shown()
            if button.winfo_width() < button.winfo_reqwidth()
            or button.winfo_rootx() + button.winfo_width() > right
        ]

    def focus(self) -> str:
        """What has the keyboard: a button's text, `body` or `links`."""
        focused = self.dialog.focus_get()
        if focused.master is self.dialog._links:
            return "links"
        return "body" if focused is self.dialog._target else str(focused["text"])

    def end(self) -> None:
        if self.parent is not None:
            self.parent.destroy()
        self.parent = None


class QtHands(Hands):
    """Qt's windows, on its own screen within the process."""

    def __init__(self) -> None:
        from PySide6 import QtCore, QtGui, QtTest, QtWidgets  # noqa: PLC0415 - an extra

        from licclient.dialogs import qt as dialogs  # noqa: PLC0415 - as above

        self.app = qt_app()
        self.core, self.gui, self.test, self.kit = QtCore, QtGui, QtTest.QTest, dialogs
        self.parent = QtWidgets.QWidget()
        self.parent.resize(300, 200)
        self.parent.show()

    def open(self, dialog: Any) -> None:
        self.dialog = dialog
        dialog.open()
        self.until(dialog.isActiveWindow)

    def show(self, dialog: Any) -> None:
        dialog.open()

    def is_shown(self, dialog: Any) -> bool:
        return bool(dialog.isVisible())

    def close(self, dialog: Any) -> None:
        dialog.close()
        self.turn()

    def destroy(self, dialog: Any) -> None:
        dialog.deleteLater()
        self.app.sendPostedEvents(None, self.core.QEvent.Type.DeferredDelete.value)
        self.turn()

    def links(self) -> list[str]:
        return re.findall(">([^<]+)</a>", self.dialog._links.text())

    def follow(self, text: str) -> None:
        self.dialog._links.setFocus()
        self.key("Tab")
        self.dialog._links.setFocus(self.core.Qt.FocusReason.TabFocusReason)
        self.key("Return")

    def control_a(self) -> None:
        self.key("A", "Control")

    def turn(self) -> None:
        self.app.processEvents()

    def is_open(self) -> bool:
        return bool(self.dialog.isVisible())

    def choices(self) -> list[str]:
        """The items of the list; none while it is not shown."""
        shown = self.dialog._list
        return [shown.item(row).text() for row in range(shown.count())] if shown.isVisible() else []

    def chosen(self) -> list[str]:
        return [str(item.text()) for item in self.dialog._list.selectedItems()]

    def choose(self, index: int) -> None:
        """Click an item of the list."""
        shown = self.dialog._list
        at = shown.visualItemRect(shown.item(index)).center()
        self.test.mouseClick(shown.viewport(), self.core.Qt.MouseButton.LeftButton, pos=at)
        self.turn()

    def type(self, text: str) -> None:
        self.test.keyClicks(self.dialog.focusWidget(), text)

    def paste(self, text: str) -> None:
        self.app.clipboard().setText(text)
        self.key("V", "Control")

    def key(self, name: str, modifier: str = "No") -> None:
        key = getattr(self.core.Qt.Key, f"Key_{name}")
        held = getattr(self.core.Qt.KeyboardModifier, f"{modifier}Modifier")
        self.test.keyClick(self.dialog.focusWidget() or self.dialog, key, held)
        self.turn()

    def alt(self, letter: str) -> None:
        self.key(letter.upper(), "Alt")

    def space(self) -> None:
        self.key("Space")

    def click(self, action: Action) -> None:
        self.test.mouseClick(self.dialog._buttons[action], self.core.Qt.MouseButton.LeftButton)
        self.turn()

    def close_window(self) -> None:
        self.dialog.close()
        self.turn()

    def message(self) -> str:
        return str(self.dialog._message.text())

    def colour(self) -> str:
        role = self.gui.QPalette.ColorRole.WindowText
        return str(self.dialog._message.palette().color(role).name())

    def body(self) -> str:
        body = self.dialog._body
        return str(body.text() if hasattr(body, "text") else body.toPlainText())

    def heading(self) -> str:
        return str(self.dialog._heading.text())

    def bar(self) -> float | None:
        bar = self.dialog._bar
        return bar.value() / 1000 if bar.isVisible() else None

    def _shown(self) -> list[Any]:
        return [button for button in self.dialog._buttons.values() if button.isVisible()]

    def buttons(self) -> list[str]:
        shown = sorted(self._shown(), key=lambda button: button.mapToGlobal(button.rect().topLeft()).x())
        return [button.text().replace("&", "") for button in shown]

    def cut_off(self) -> list[str]:
        inside = self.dialog.rect()
        return [
            button.text()
            for button in self._shown()
            if button.width() < button.minimumSizeHint().width()
            or not inside.contains(button.mapTo(self.dialog, button.rect().bottomRight()))
        ]

    def focus(self) -> str:
        focused = self.dialog.focusWidget()
        names = {self.dialog._body: "body", self.dialog._links: "links"}
        return names.get(focused) or focused.text().replace("&", "")

    def end(self) -> None:
        if self.parent is not None:
            self.parent.deleteLater()  # and with it the dialogs that a test left open
        self.parent = None
        self.app.sendPostedEvents(None, self.core.QEvent.Type.DeferredDelete.value)
        self.turn()


@contextmanager
def _handlers_raise() -> Iterator[None]:
    """Raise at a block's end what an event handler raised in it: both toolkits only print it."""
    raised: list[BaseException] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "excepthook", lambda _type, error, _traceback: raised.append(error))
        if tkinter := sys.modules.get("tkinter"):
            patch.setattr(
                tkinter.Tk, "report_callback_exception", lambda _, *caught: raised.append(caught[1])
            )
        yield
    if raised:
        raise raised[0]


@pytest.fixture(params=["tk", "qt"])
def hands(request: pytest.FixtureRequest) -> Iterator[TkHands | QtHands]:
    """Somebody in front of the windows of one toolkit."""
    made: TkHands | QtHands
    if request.param == "tk":
        try:
            import tkinter as tk  # noqa: F401, PLC0415 - asked whether it is there
        except ImportError as missing:
            without(f"this Python has no Tk: {missing} (apt: python3-tk)")
        made = TkHands(request.getfixturevalue("screen").display)
    else:
        try:
            made = QtHands()
        except ImportError as missing:
            without(f"PySide6 cannot be used: {missing}")
    with _handlers_raise():
        yield made
        made.end()
    made.dialog = None
    gc.collect()  # here, and not on a thread of the next test
