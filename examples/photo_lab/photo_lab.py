"""Photo Lab, the app of all recipes.

Without arguments it opens a window with a button that looks for updates. `--installation` prints how it was
installed, for support and for the tests of the recipes.
"""

import argparse
import json
import os
from pathlib import Path

from licclient.install import detect

VERSION = "1.0.0"
SERVICE = os.environ.get("PHOTO_LAB_SERVICE", "https://licenses.example.com")


def describe_installation() -> str:
    """Return what is known of this installation, as JSON."""
    installation = detect()
    return json.dumps(
        {
            "version": VERSION,
            "kind": installation.kind,
            "folder": str(installation.folder),
            "program": str(installation.program),
            "is_certain": installation.is_certain,
            "updater": installation.updater,
        }
    )


def open_window() -> None:
    """Open the main window."""
    import tkinter as tk  # noqa: PLC0415 - `--installation` needs no screen

    from licclient import LicenseClient  # noqa: PLC0415
    from licclient.dialogs.tk import offer_update  # noqa: PLC0415

    window = tk.Tk()
    window.title("Photo Lab")
    client = LicenseClient(SERVICE, product="Photo Lab", slug="photo-lab", version=VERSION)

    def look_for_updates() -> None:
        check = client.check_for_update(force=True)
        if check.update is not None:
            offer_update(client, check.update, Path.home() / "Downloads", window, asked=True)

    tk.Button(window, text="Check for updates", command=look_for_updates).pack(padx=40, pady=40)
    window.after_idle(client.confirm_version)  # the window stands: the launcher need not go back
    window.mainloop()
    client.close()


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(prog="photo-lab")
    parser.add_argument("--installation", action="store_true", help="print how it was installed")
    if parser.parse_args().installation:
        print(describe_installation())  # noqa: T201 - its output
    else:
        open_window()


if __name__ == "__main__":
    main()
