"""A notes app in Qt (PySide6). Writing is free; exporting needs a license, and updates come with it.

Start a store to play with, and then this, with the address that it prints; enter one of its keys::

    licserver demo
    python examples/notes_qt.py --server http://127.0.0.1:8080
"""

import argparse
import html
import threading
from collections.abc import Callable
from pathlib import Path

from PySide6.QtWidgets import QApplication, QMainWindow, QPlainTextEdit, QPushButton, QToolBar

from licclient import LicclientError, LicenseClient, LicenseStatus, Update, explain
from licclient.deliver import to_qt
from licclient.dialogs.qt import ask_for_key, offer_update

VERSION = "1.0.0"


def main() -> None:
    """Read the arguments, and run the app."""
    parser = argparse.ArgumentParser(description="A notes app whose export needs a license.")
    parser.add_argument("--server", required=True, help="address of the license service")
    parser.add_argument("--product", default="Demo Notes", help="name of the product")
    parser.add_argument("--slug", default="demo-notes", help="its slug, for updates")
    parser.add_argument("--state-dir", help="folder for the app's state; the platform's unless given")
    parser.add_argument("--folder", type=Path, default=Path(), help="folder for exports and downloads")
    told = parser.parse_args()
    settings = {"product": told.product, "slug": told.slug, "version": VERSION, "state_dir": told.state_dir}
    app = QApplication([told.product])
    with LicenseClient(told.server, **settings) as client:
        window = Notes(client, told.product, told.folder)
        window.show()
        app.exec()


class Notes(QMainWindow):
    """The app's window."""

    def __init__(self, client: LicenseClient, product: str, folder: Path) -> None:
        super().__init__()
        self.licenses, self.folder = client, folder
        self.setWindowTitle(product)
        self.resize(640, 420)
        self.build()
        self.back = to_qt()  # what runs on other threads comes back through this
        # Without a license this calls `locked` instead, and nothing is written.
        self.export = client.licensed(otherwise=self.locked)(self.write_file)
        # Behind the app: keeps the license fresh, looks for updates, tells both on this thread.
        client.start(on_status=self.show_status, on_update=self.offer, deliver=self.back)

    def build(self) -> None:
        """Put up the buttons, the page and the status line."""
        bar = QToolBar(self)
        bar.setMovable(False)
        self.addToolBar(bar)
        for text, act in (
            ("&Export", self.on_export),
            ("License &key …", self.on_key),
            ("Check for &updates", self.on_check),
        ):
            button = QPushButton(text, self)
            button.clicked.connect(lambda _=False, act=act: act())
            bar.addWidget(button)
        self.page = QPlainTextEdit("Milk, bread, and a license key.\n", self)
        self.setCentralWidget(self.page)
        self.page.setFocus()

    def say(self, text: str) -> None:
        """Show something in the status line."""
        self.statusBar().showMessage(text)

    # --- the gated feature --------------------------------------------------------------------

    def on_export(self) -> None:
        """Export; on a thread, because the gate may have to ask the service when nothing remembered holds."""
        text = self.page.toPlainText()
        self.behind(lambda: self.export(text))

    def write_file(self, text: str) -> None:
        """Write the page as HTML: what customers pay for."""
        file = self.folder / "notes.html"
        file.write_text(
            f"<!doctype html><meta charset=utf-8><pre>{html.escape(text)}</pre>\n", encoding="utf-8"
        )
        self.back(lambda: self.say(f"Exported to {file.name}."))

    def locked(self, problem: LicclientError) -> None:
        """Come back to the windows' thread, with the reason why there is no license."""
        self.back(lambda: self.unlock(problem))

    def unlock(self, problem: LicclientError) -> None:
        """Say why it is locked, and take up what was wanted when a key has been entered."""
        if self.on_key(problem):
            self.on_export()

    # --- license and updates ------------------------------------------------------------------

    def on_key(self, problem: LicclientError | None = None) -> bool:
        """Ask for a license key; tells whether there is a license now."""
        return ask_for_key(self.licenses, self, problem=problem) is not None

    def show_status(self, status: LicenseStatus) -> None:
        """Say where the license stands."""
        self.say(explain(status))

    def on_check(self) -> None:
        """Look for an update, because the person wants to know."""
        self.say("Looking for updates …")
        self.behind(self.check)

    def check(self) -> None:
        """Ask the service; on a thread."""
        update = self.licenses.check_for_update(force=True)
        self.back(lambda: self.offer(update, asked=True))

    def offer(self, update: Update | None, *, asked: bool = False) -> None:
        """Offer an update; what has been downloaded and verified is yours to install."""
        self.say("" if update else self.licenses.last_update_check.message)  # up to date, or why not known
        if update and (file := offer_update(self.licenses, update, self.folder, self, asked=asked)):
            self.say(f"Version {file.version} is here: {file.path.name}")

    def behind(self, work: Callable[[], object]) -> None:
        """Do something on a thread, so that the window stays alive."""
        threading.Thread(target=work, daemon=True).start()


if __name__ == "__main__":
    main()
