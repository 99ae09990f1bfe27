"""A notes app in Qt (PySide6). Writing is free; exporting needs a license, and updates come with it.

Start a demo store, then this app with the address that the store prints; enter a key of the store::

    licserver demo
    python notes_qt.py --server http://127.0.0.1:8080
"""

import argparse
import html
import threading
from pathlib import Path

from PySide6.QtWidgets import QApplication, QMainWindow, QPlainTextEdit, QPushButton, QToolBar

from licclient import (
    LicclientError,
    License,
    LicenseClient,
    LicenseStatus,
    Pages,
    Update,
    UpdateCheck,
    explain,
)
from licclient.deliver import to_qt
from licclient.dialogs.qt import ask_for_key, offer_update

VERSION = "1.0.0"


def main() -> None:
    """Read the arguments, and run the app."""
    parser = argparse.ArgumentParser(description="A notes app whose export needs a license.")
    parser.add_argument("--server", required=True, help="address of the license service")
    parser.add_argument("--product", default="Demo Notes", help="name of the product")
    parser.add_argument("--slug", default="demo-notes", help="the app's slug, for updates")
    parser.add_argument("--state-dir", help="folder for the app's state; by default the platform's")
    parser.add_argument("--folder", type=Path, default=Path(), help="folder for exports and downloads")
    args = parser.parse_args()
    client = LicenseClient(
        args.server,
        product=args.product,
        slug=args.slug,
        version=VERSION,
        storage=args.state_dir,
        pages=Pages(buy="https://example.com/buy", support="mailto:support@example.com"),
    )
    app = QApplication([args.product])
    with client:
        window = Notes(client, args.folder)
        window.show()
        app.exec()


class Notes(QMainWindow):
    """The app's window."""

    def __init__(self, client: LicenseClient, folder: Path) -> None:
        super().__init__()
        self.licenses, self.folder = client, folder
        self.setWindowTitle(client.settings.product or "Notes")
        self.resize(640, 420)
        # Without a license this asks for a key first; nothing is written before there is one.
        self.export = client.licensed(otherwise=self.ask_for_key)(self.write_file)
        self.build()
        self.deliver = to_qt()  # delivers results of other threads to this thread
        client.start(on_status=self.show_status, on_update=self.offer, deliver=self.deliver)

    def build(self) -> None:
        """Put up the buttons, the page and the status line."""
        bar = QToolBar(self)
        bar.setMovable(False)
        self.addToolBar(bar)
        for text, act in (
            ("&Export", self.export),
            ("License &key …", self.ask_for_key),
            ("Check for &updates", self.check),
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

    def write_file(self) -> None:
        """Write the page as HTML: what customers pay for."""
        file = self.folder / "notes.html"
        page = html.escape(self.page.toPlainText())
        file.write_text(f"<!doctype html><meta charset=utf-8><pre>{page}</pre>\n", encoding="utf-8")
        self.say(f"Exported to {file.name}.")

    # --- license and updates ------------------------------------------------------------------

    def ask_for_key(self, problem: LicclientError | None = None) -> License | None:
        """Show the dialog for the license key; with a license, run the requested action."""
        return ask_for_key(self.licenses, self, problem=problem)

    def show_status(self, status: LicenseStatus) -> None:
        """Show the state of the license."""
        self.say(explain(status))

    def check(self) -> None:
        """Check for an update now; on a thread, so that the window stays alive."""
        self.say("Checking for updates …")
        threading.Thread(target=self.check_on_thread, daemon=True).start()

    def check_on_thread(self) -> None:
        """Send a request, and deliver its response to the window's thread."""
        try:
            check = self.licenses.check_for_update(force=True)
        except LicclientError as problem:  # such as files of the app that a cleaner has removed
            check = UpdateCheck(None, problem.message, problem)
        self.deliver(lambda: self.show_check(check))

    def show_check(self, check: UpdateCheck) -> None:
        """Offer the update, or show why no update is offered."""
        if check.update:
            self.offer(check.update, asked=True)
        else:
            self.say(explain(check))

    def offer(self, update: Update, *, asked: bool = False) -> None:
        """Offer an update; what has been downloaded is yours to install, if it `is_verified`."""
        if file := offer_update(self.licenses, update, self.folder, self, asked=asked):
            self.say(f"Version {file.version} is here: {file.path.name}")


if __name__ == "__main__":
    main()
