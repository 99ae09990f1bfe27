"""A notes app in Tk. Writing is free; exporting needs a license, and updates come with it.

Start a store to play with, and then this, with the address that it prints; enter one of its keys::

    licserver demo
    python examples/notes_tk.py --server http://127.0.0.1:8080
"""

import argparse
import html
import threading
import tkinter as tk
from collections.abc import Callable
from pathlib import Path
from tkinter import ttk

from licclient import LicclientError, LicenseClient, LicenseStatus, Update, explain
from licclient.deliver import to_tk
from licclient.dialogs.tk import ask_for_key, offer_update

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
    with LicenseClient(told.server, **settings) as client:
        Notes(client, told.product, told.folder).mainloop()


class Notes(tk.Tk):
    """The app's window."""

    def __init__(self, client: LicenseClient, product: str, folder: Path) -> None:
        super().__init__(className=product)
        self.licenses, self.folder = client, folder
        self.title(product)
        self.geometry("640x420")
        ttk.Style(self).theme_use("clam")
        self.build()
        self.back = to_tk(self)  # what runs on other threads comes back through this
        # Without a license this calls `locked` instead, and nothing is written.
        self.export = client.licensed(otherwise=self.locked)(self.write_file)
        # Behind the app: keeps the license fresh, looks for updates, tells both on this thread.
        client.start(on_status=self.show_status, on_update=self.offer, deliver=self.back)

    def build(self) -> None:
        """Put up the buttons, the page and the status line."""
        buttons = ttk.Frame(self, padding=6)
        buttons.pack(fill="x")
        self.add_button(buttons, "e", "Export", self.on_export)
        self.add_button(buttons, "k", "License key …", self.on_key)
        self.add_button(buttons, "u", "Check for updates", self.on_check)
        self.status = ttk.Label(self, padding=6)
        self.status.pack(side="bottom", fill="x")
        self.page = tk.Text(self, wrap="word", padx=12, pady=10, undo=True)
        self.page.pack(fill="both", expand=True)
        self.page.insert("1.0", "Milk, bread, and a license key.\n")
        self.page.focus_set()

    def add_button(self, row: ttk.Frame, letter: str, text: str, act: Callable[[], object]) -> None:
        """Put up a button that a letter presses, too."""
        at = text.lower().index(letter)
        ttk.Button(row, text=text, underline=at, command=act).pack(side="left", padx=3)
        self.bind(f"<Alt-{letter}>", lambda _: act())

    def say(self, text: str) -> None:
        """Show something in the status line."""
        self.status["text"] = text

    # --- the gated feature --------------------------------------------------------------------

    def on_export(self) -> None:
        """Export; on a thread, because the gate may have to ask the service when nothing remembered holds."""
        text = self.page.get("1.0", "end-1c")
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
