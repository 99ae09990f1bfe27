"""Photo Lab, the app of all recipes.

Without arguments it opens a window with a button that looks for updates. `--installation` prints how it was
installed, for support and for the tests of the recipes.
"""

import argparse
import json
import os
import threading
from pathlib import Path

from licclient import LicenseClient, Update, UpdateCheck, explain
from licclient.errors import LicclientError
from licclient.install import detect

VERSION = "1.0.0"
SERVICE = os.environ.get("PHOTO_LAB_SERVICE", "https://licenses.example.com")


def describe_installation() -> str:
    """Return what is known of this installation, as JSON."""
    installation = detect()
    with LicenseClient(SERVICE, slug="photo-lab", version=VERSION) as client:
        plan = client.plan_update()
    return json.dumps(
        {
            "version": VERSION,
            "kind": installation.kind,
            "folder": str(installation.folder),
            "program": str(installation.program),
            "is_certain": installation.is_certain,
            "updater": installation.updater,
            "plan": explain(plan),
        }
    )


def find_update(client: LicenseClient) -> UpdateCheck:
    """Return the result of an update check, also of one that fails: a thread would end with it."""
    try:
        return client.check_for_update(force=True)
    except LicclientError as problem:  # such as files of the app that a cleaner has removed
        return UpdateCheck(None, problem.message, problem)


def open_window() -> None:
    """Open the main window."""
    import tkinter as tk  # noqa: PLC0415 - `--installation` needs no screen
    from tkinter import messagebox  # noqa: PLC0415

    from licclient.deliver import to_tk  # noqa: PLC0415
    from licclient.dialogs.tk import offer_update  # noqa: PLC0415

    window = tk.Tk()
    window.title("Photo Lab")
    client = LicenseClient(SERVICE, product="Photo Lab", slug="photo-lab", version=VERSION)
    deliver = to_tk(window)

    def look_for_updates() -> None:  # on a thread: the window does not wait for the network
        check = find_update(client)
        deliver(lambda: show(check))

    def show(check: UpdateCheck) -> None:
        if check.update is None:
            messagebox.showinfo("Photo Lab", explain(check), parent=window)
            return
        try:
            install(check.update)
        except (LicclientError, OSError) as problem:
            messagebox.showerror("Photo Lab", explain(problem), parent=window)

    def install(update: Update) -> None:
        plan = client.plan_update()
        if not plan.is_possible:  # who updates this installation, or why it cannot be
            messagebox.showinfo("Photo Lab", explain(plan), parent=window)
        elif file := offer_update(client, update, Path.home() / "Downloads", window, asked=True):
            installed = client.install_update(update, downloaded=file)
            if installed.is_reopened or installed.has_to_quit:
                window.destroy()  # the new version opens by itself

    def start_check() -> None:
        threading.Thread(target=look_for_updates, daemon=True).start()

    tk.Button(window, text="Check for updates", command=start_check).pack(padx=40, pady=40)
    window.after_idle(client.confirm_version)  # the window stands: the launcher need not go back
    window.mainloop()
    client.close()


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(prog="photo-lab")
    parser.add_argument("folder", nargs="?", help="the app's own folder, passed by the launcher")
    parser.add_argument("pictures", nargs="*", help="what to open, such as by a double click on a file")
    parser.add_argument("--installation", action="store_true", help="print how it was installed")
    if parser.parse_args().installation:
        print(describe_installation())  # noqa: T201 - its output
    else:
        open_window()


if __name__ == "__main__":
    main()
