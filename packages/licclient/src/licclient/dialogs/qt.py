"""Ready dialogs for Qt (PySide6): one asks for a license key, one offers an update and downloads it.

::

    from licclient.dialogs.qt import ask_for_key, offer_update

    license_ = ask_for_key(client, window)                          # None: closed without one
    file = offer_update(client, update, downloads_folder, window)   # None: not now

Call these on the thread of Qt's main loop, which goes on while a dialog is open; the service is called on
other threads. Needs the extra `licclient[qt]`.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

try:
    from PySide6.QtCore import QEventLoop, QSignalBlocker, Qt, QThread, QTimer
    from PySide6.QtGui import QCloseEvent, QFontDatabase, QFontMetrics, QPalette
    from PySide6.QtWidgets import (
        QApplication,
        QDialog,
        QDialogButtonBox,
        QGridLayout,
        QLabel,
        QLayout,
        QLineEdit,
        QListWidget,
        QPlainTextEdit,
        QProgressBar,
        QPushButton,
        QVBoxLayout,
        QWidget,
    )
except ModuleNotFoundError as problem:
    if (problem.name or "").partition(".")[0] != "PySide6":
        raise
    raise ImportError("licclient.dialogs.qt needs PySide6: pip install 'licclient[qt]'") from problem

from licclient._core.arguments import check_flag, wrong_type
from licclient._core.model import License
from licclient._core.storage import read_folder
from licclient._core.update_model import Downloaded
from licclient.deliver import post_to_qt
from licclient.dialogs._calls import caller_waits
from licclient.dialogs._driver import (
    KEY_LETTERS,
    LINK_COLOURS,
    LIST_LINES,
    Driver,
    State,
    begin_activation,
    begin_offer,
    check_client,
    colour_of,
    marked,
    wrong_thread,
)
from licclient.dialogs._interrupts import LOOK_MILLISECONDS, interruptible
from licclient.dialogs._states import Action, Bar, Link, View

if TYPE_CHECKING:
    from licclient._client import LicenseClient
    from licclient._core.update_model import Update
    from licclient.errors import LicclientError

__all__ = ["ActivationDialog", "UpdateDialog", "ask_for_key", "offer_update"]

_WHOLE_BAR: Final = 1000
_LIST_GAP: Final = 2
_DARK: Final = 128  # half of the lightness that Qt's colours have

_ROLES: Final = {
    Action.GO: QDialogButtonBox.ButtonRole.AcceptRole,
    Action.LEAVE: QDialogButtonBox.ButtonRole.RejectRole,
    Action.SKIP: QDialogButtonBox.ButtonRole.ResetRole,
}


def ask_for_key(
    client: "LicenseClient",
    parent: QWidget | None = None,
    *,
    problem: "LicclientError | None" = None,
    language: str | None = None,
    trial: bool = False,
) -> "License | None":
    """Ask a person for a license key, until the service accepts one or the dialog is closed.

    Args:
        client: Verifies the key, and remembers it when it is good.
        parent: The window in front of which the dialog stands; the app takes no input meanwhile.
        problem: Why the app asks, such as what `require` handed to `otherwise`; shown at first.
        language: As for `explain`; None for the language of the system.
        trial: Whether a button starts the trial of this computer; needs a client with `slug`.

    Returns:
        The license; None when the dialog was closed without one.

    Raises:
        TypeError: `client` is no `LicenseClient`.
        RuntimeError: This is not the thread of Qt's main loop, or a coroutine in it, or there is no
            `QApplication` yet.
        ValueError: `trial`, and the client was made without `slug`.
    """
    return ActivationDialog(client, parent, problem=problem, language=language, trial=trial).run()


def offer_update(
    client: "LicenseClient",
    update: "Update",
    to: str | PathLike[str],
    parent: QWidget | None = None,
    *,
    asked: bool = False,
    language: str | None = None,
) -> "Downloaded | None":
    """Offer an update, and download it if the person wants it.

    Args:
        client: Downloads and verifies it.
        update: `update` of `check_for_update`, or that of `on_update`.
        to: The folder for the file.
        parent: As for `ask_for_key`.
        asked: Whether the person asked for updates: then also a version is offered that was skipped (D-87).
        language: As for `ask_for_key`.

    Returns:
        The file, verified if `is_verified` is true; None when the person does not want it now, or skipped
        this version.

    Raises:
        ValueError: The client was made without `slug` or `version`.
        TypeError, RuntimeError: As for `ask_for_key`.
    """
    check_client(client)
    _check_thread()
    if not check_flag("asked", asked) and client.is_skipped(update):
        return None
    return UpdateDialog(client, update, to, parent, language=language).run()


def _check_thread() -> None:
    """Raise `RuntimeError` where Qt would end the process, or hang."""
    app = QApplication.instance()
    if app is None or not app.inherits("QApplication"):
        raise RuntimeError("dialogs need a QApplication: create it first")
    if app.thread() != QThread.currentThread():
        raise wrong_thread("Qt", "to_qt()")


def _check_task() -> None:
    """Raise `RuntimeError` in a coroutine: no other task can run while it waits, with qasync ever after."""
    asyncio, task = sys.modules.get("asyncio"), None  # an app without it does not load it
    if asyncio is not None:
        with suppress(RuntimeError):  # no loop runs
            task = asyncio.current_task()
    if task is not None:
        raise RuntimeError(
            "no dialog can be waited for in a coroutine, as other tasks would hang: call deliver(lambda: …)"
            " with deliver = to_qt() (licclient.deliver), or give it to client.start"
        )


class _Dialog(QDialog):
    """What both windows have in common; `_states` decides what they show and do."""

    def __init__(
        self, parent: QWidget | None, client: "LicenseClient", state: State, to: Path | None = None
    ) -> None:
        _check_thread()
        if parent is not None and not isinstance(parent, QWidget):
            raise wrong_type("parent", "a QWidget or None", parent)
        super().__init__(parent)
        self._build()
        self._driver = Driver(self, post_to_qt(), client, state, to)
        # Also when the app's window takes this one along; the driver is not a Qt object, so it still exists.
        self.destroyed.connect(self._driver.end)

    def setVisible(self, visible: bool) -> None:  # noqa: N802 - Qt's name
        """Show the window when no other dialog is open; Qt calls this for `show`, `open` and `exec`."""
        change = partial(super().setVisible, visible)
        if not visible:
            change()
            self._driver.leave_queue()
        elif not self._driver.is_over:
            self._driver.show_in_turn(change)

    def _wait(self) -> None:
        _check_task()
        loop = QEventLoop()  # that of `exec` does not end if the dialog is closed before its turn
        self.finished.connect(loop.quit)
        self.destroyed.connect(loop.quit)
        self.setModal(True)
        self.show()
        try:
            with caller_waits(), interruptible(self._repeat, partial(self.done, QDialog.DialogCode.Rejected)):
                loop.exec(QEventLoop.ProcessEventsFlag.DialogExec)
        finally:
            with suppress(RuntimeError):  # the app's window took it along
                self.deleteLater()  # now, and not only when the parent goes, which may be at the app's end

    def _repeat(self, look: Callable[[], bool]) -> None:
        """Call `look` every now and then until it returns False, or the window is gone."""
        timer = QTimer(self, interval=LOOK_MILLISECONDS)

        def look_again() -> None:
            if not look():
                timer.stop()

        timer.timeout.connect(look_again)
        timer.start()

    # --- what the driver asks for -------------------------------------------------------------

    def draw(self, view: View) -> None:
        """Show a view."""
        self.setWindowTitle(view.title)
        self._heading.setText(view.heading)
        self._intro.setText(view.intro)
        self._label.setText(view.label)
        self._draw_body(view)
        self._message.setText(marked(view))
        palette = self.palette()
        on_dark = palette.color(QPalette.ColorRole.Window).lightness() < _DARK
        if colour := colour_of(view.tone, on_dark=on_dark):
            palette.setColor(QPalette.ColorRole.WindowText, colour)
        self._message.setPalette(palette)
        # A screen reader reads it with the field.
        self._body.setAccessibleDescription(view.message)
        self._draw_bar(view.bar)
        self._draw_links(view.links, LINK_COLOURS[on_dark])
        self._draw_buttons(view)
        # A line in a taller font, as for Japanese, must not be cut off.
        self._rows.activate()
        self.resize(self.width(), max(self.height(), self._rows.totalHeightForWidth(self.width())))

    def leave(self) -> None:
        """Close the window."""
        came = self._driver.state.outcome is not None
        self.done(QDialog.DialogCode.Accepted if came else QDialog.DialogCode.Rejected)

    # --- drawing ------------------------------------------------------------------------------

    def _build(self) -> None:
        self._rows = rows = QVBoxLayout(self)
        rows.setSpacing(10)
        rows.setContentsMargins(20, 18, 20, 16)
        self._heading, self._intro, self._message = (self._line() for _ in range(3))
        bold = self._heading.font()
        bold.setBold(True)
        bold.setPointSizeF(bold.pointSizeF() * 1.3)
        self._heading.setFont(bold)
        self._label = QLabel(self)  # the only one in which `&` marks a letter: it has a buddy
        self._body = self._make_body()
        fixed = QFontMetrics(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self._body.setMinimumWidth(fixed.horizontalAdvance("0") * (KEY_LETTERS + 10))
        self._label.setBuddy(self._body)
        # Room for two lines, so that the window does not jump when a message comes.
        self._message.setMinimumHeight(2 * self._message.fontMetrics().lineSpacing())
        self._message.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._bar = QProgressBar(self)
        self._bar.setTextVisible(False)
        policy = self._bar.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self._bar.setSizePolicy(policy)
        for widget in (self._heading, self._intro, self._label, self._body, self._message):
            rows.addWidget(widget, int(widget is self._body))
        self._links = QLabel(self)
        self._links.setTextFormat(Qt.TextFormat.RichText)
        self._links.setTextInteractionFlags(Qt.TextInteractionFlag.TextBrowserInteraction)
        self._links.linkActivated.connect(self._follow)
        place = QGridLayout()  # links and bar take turns
        place.addWidget(self._bar, 0, 0)
        place.addWidget(self._links, 0, 0)
        rows.addLayout(place)
        rows.addWidget(self._make_buttons())
        rows.setSizeConstraint(QLayout.SizeConstraint.SetMinimumSize)

    def _line(self) -> QLabel:
        line = QLabel(self)
        line.setTextFormat(Qt.TextFormat.PlainText)  # a product's name is no HTML
        line.setWordWrap(True)
        return line

    def _make_buttons(self) -> QDialogButtonBox:
        box = QDialogButtonBox(self)
        self._buttons = {}
        for action, role in _ROLES.items():
            button = self._buttons[action] = QPushButton(self)
            button.clicked.connect(lambda _=False, action=action: self._driver.press(action))
            box.addButton(button, role)
        self._buttons[Action.GO].setDefault(True)
        return box

    def _make_body(self) -> QWidget:
        raise NotImplementedError

    def _draw_body(self, view: View) -> None:
        raise NotImplementedError

    def _draw_bar(self, bar: Bar | None) -> None:
        self._bar.setVisible(bar is not None)
        part = 0.0 if bar is None else bar.part
        self._bar.setMaximum(0 if part is None else _WHOLE_BAR)  # 0 is Qt's value for unknown
        self._bar.setValue(0 if part is None else round(part * _WHOLE_BAR))

    def _draw_links(self, links: tuple[Link, ...], colour: str) -> None:
        shown = (
            f'<a style="color: {colour}" href="{escape(link.url)}">{escape(link.text)}</a>' for link in links
        )
        self._links.setText("&nbsp;&nbsp;&nbsp; ".join(shown))
        self._links.setVisible(bool(links))

    def _draw_buttons(self, view: View) -> None:
        focused = self.focusWidget()
        standing = []
        for action, shown in view.buttons().items():
            button = self._buttons[action]
            button.setVisible(shown is not None)
            if shown is None:
                continue
            button.setText(shown.text)
            button.setEnabled(shown.is_enabled)
            if shown.is_enabled:
                standing.append(button)
        # The focus must not stay on a button that is gone.
        if focused in self._buttons.values() and focused not in standing:
            (standing[0] if standing else self._body).setFocus()

    # --- what comes in ------------------------------------------------------------------------

    def _follow(self, url: str) -> None:
        self._driver.open_link(url)

    def reject(self) -> None:
        """Take Escape; Qt's own name for it."""
        self._driver.press(Action.LEAVE)

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: N802 - Qt's name
        """Take the window's own way to be closed."""
        self._driver.press(Action.CLOSE)
        event.accept()


class ActivationDialog(_Dialog):
    """The window of `ask_for_key`, for apps that do not want to wait for it; arguments as there."""

    def __init__(
        self,
        client: "LicenseClient",
        parent: QWidget | None = None,
        *,
        problem: "LicclientError | None" = None,
        language: str | None = None,
        trial: bool = False,
    ) -> None:
        super().__init__(parent, client, begin_activation(client, problem, language, trial=trial))
        self._field.textChanged.connect(self._take_text)
        self._field.setFocus()

    @property
    def license(self) -> "License | None":
        """The license; None before it is known."""
        return self._driver.license

    def run(self) -> "License | None":
        """Show the dialog, and wait until it is closed; nothing else of the app takes input meanwhile."""
        self._wait()
        return self.license

    def _build(self) -> None:
        super()._build()
        self._list = QListWidget(self)
        self._list.setSpacing(_LIST_GAP)
        self._list.hide()
        self._list.itemSelectionChanged.connect(self._take_choice)
        self._rows.insertWidget(self._rows.indexOf(self._body) + 1, self._list, 1)

    def _make_body(self) -> QWidget:
        self._field = QLineEdit(self)
        self._field.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self._field.setMinimumHeight(round(self._field.fontMetrics().lineSpacing() * 1.9))
        return self._field

    def _take_text(self, text: str) -> None:
        """Take what a person typed, dictated or had filled in; what was drawn is known."""
        self._driver.type_text(text)

    def _take_choice(self) -> None:
        for index in self._list.selectedIndexes():
            self._driver.choose(index.row())

    def _draw_list(self, view: View) -> None:
        """Show the list in the place of the field, or the reverse."""
        shown: QWidget = self._list if view.choices else self._field
        if shown is not self._body:
            self._body.hide()
            shown.show()
            self._body = shown
            self._label.setBuddy(shown)
            shown.setFocus()
        blocker = QSignalBlocker(self._list)
        texts = [choice.text for choice in view.choices]
        if [self._list.item(row).text() for row in range(self._list.count())] != texts:
            self._list.clear()
            self._list.addItems(texts)
            lines = min(len(texts), LIST_LINES) * (self._list.sizeHintForRow(0) + 2 * _LIST_GAP)
            self._list.setMinimumHeight(lines + 2 * self._list.frameWidth())
        for row, choice in enumerate(view.choices):
            group = QPalette.ColorGroup.Normal if choice.is_enabled else QPalette.ColorGroup.Disabled
            item = self._list.item(row)
            item.setForeground(self.palette().color(group, QPalette.ColorRole.Text))
            item.setSelected(choice.is_chosen)
        blocker.unblock()

    def _draw_body(self, view: View) -> None:
        self._draw_list(view)
        if self._field.text() != view.body:
            self._field.setText(view.body)
        if view.is_editable and self._field.isReadOnly():
            self._field.setFocus()
        self._field.setReadOnly(not view.is_editable)


class UpdateDialog(_Dialog):
    """The window of `offer_update`, for apps that do not want to wait for it; arguments as there.

    It also opens for a version that was skipped.
    """

    def __init__(
        self,
        client: "LicenseClient",
        update: "Update",
        to: str | PathLike[str],
        parent: QWidget | None = None,
        *,
        language: str | None = None,
    ) -> None:
        super().__init__(parent, client, begin_offer(client, update, language), read_folder("to", to))
        self._buttons[Action.GO].setFocus()

    @property
    def file(self) -> "Downloaded | None":
        """The file, whole and verified; None before the download has ended."""
        return self._driver.file

    def run(self) -> "Downloaded | None":
        """Show the dialog, and wait until it is closed; nothing else of the app takes input meanwhile."""
        self._wait()
        return self.file

    def _make_body(self) -> QWidget:
        self._changelog = QPlainTextEdit(self)
        self._changelog.setReadOnly(True)
        self._changelog.setTabChangesFocus(True)
        return self._changelog

    def _draw_body(self, view: View) -> None:
        self._label.setVisible(bool(view.body))
        self._changelog.setVisible(bool(view.body))
        if self._changelog.toPlainText() != view.body:
            self._changelog.setPlainText(view.body)
