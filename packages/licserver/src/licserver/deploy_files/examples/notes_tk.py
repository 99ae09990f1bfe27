"""A notes app in Tk. Writing is free; exporting needs a license, and updates come with it.

Start a demo store, then this app with the address that the store prints; enter a key of the store::

    licserver demo
    python notes_tk.py --server http://127.0.0.1:8080
"""

import argparse
import html
import threading
import tkinter as tk
from collections.abc import Callable
from pathlib import Path
from tkinter import ttk

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
from licclient.deliver import to_tk
from licclient.dialogs.tk import ask_for_key, offer_update

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
    with client:
        Notes(client, args.folder).mainloop()


class Notes(tk.Tk):
    """The app's window."""

    def __init__(self, client: LicenseClient, folder: Path) -> None:
        product = client.settings.product or "Notes"
        super().__init__(className=product)
        self.licenses, self.folder = client, folder
        self.title(product)
        self.geometry("640x420")
        ttk.Style(self).theme_use("clam")
        # Without a license this asks for a key first; nothing is written before there is one.
        self.export = client.licensed(otherwise=self.ask_for_key)(self.write_file)
        self.build()
        self.deliver = to_tk(self)  # delivers results of other threads to this thread
        client.start(on_status=self.show_status, on_update=self.offer, deliver=self.deliver)

    def build(self) -> None:
        """Put up the buttons, the page and the status line."""
        buttons = ttk.Frame(self, padding=6)
        buttons.pack(fill="x")
        self.add_button(buttons, "e", "Export", self.export)
        self.add_button(buttons, "k", "License key …", self.ask_for_key)
        self.add_button(buttons, "u", "Check for updates", self.check)
        self.status = ttk.Label(self, padding=6)
        self.status.pack(side="bottom", fill="x")
        self.page = tk.Text(self, wrap="word", padx=12, pady=10, undo=True)
        self.page.pack(fill="both", expand=True)
        self.page.insert("1.0", "Milk, bread, and a license key.\n")
        self.page.focus_set()

    def add_button(self, row: ttk.Frame, letter: str, text: str, act: Callable[[], object]) -> None:
        """Put up a button that a letter presses, too."""
        index = text.lower().index(letter)
        ttk.Button(row, text=text, underline=index, command=act).pack(side="left", padx=3)
        self.bind(f"<Alt-{letter}>", lambda _: act())

    def say(self, text: str) -> None:
        """Show something in the status line."""
        self.status["text"] = text

    def write_file(self) -> None:
        """Write the page as HTML: what customers pay for."""
        file = self.folder / "notes.html"
        page = html.escape(self.page.get("1.0", "end-1c"))
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
