"""The app that is frozen: a desktop app's life with licclient, told on the standard output as JSON.

`photo_lab FOLDER COMMAND …`: FOLDER is the app's own, told by the launcher. The address of the service, the
pinned keys and the downloads folder come from the environment; a real app has them in its code.
"""

import json
import os
import ssl
import sys
from pathlib import Path

from licclient import LicclientError, LicenseClient, __version__
from licclient.install import Installation

BUNDLE = Path(__file__).parent


def told() -> dict[str, object]:
    """Say who runs, and from where."""
    return {
        "app": (BUNDLE / "version.txt").read_text(encoding="utf-8").strip(),
        "licclient": __version__,
        "frozen": getattr(sys, "frozen", False),
        "program": sys.executable,
    }


def main(folder: str, command: str, *arguments: str) -> dict[str, object]:
    """Do one thing, and say how it went."""
    app = Installation(folder)
    client = LicenseClient(
        os.environ["PHOTO_LAB_SERVICE"],
        product="Photo Lab",
        slug="photo-lab",
        version=str(told()["app"]),
        public_keys=[os.environ["PHOTO_LAB_KEY"]],
    )
    with client:
        match command:
            case "activate":
                return told() | {"product": client.activate(*arguments).product}
            case "verify":
                found = client.verify()
                return told() | {"source": found.source, "authenticated": found.authenticated}
            case "update":
                if (update := client.check_for_update(force=True)) is None:
                    return told() | {"update": None}
                made = app.apply(client.download(update, os.environ["PHOTO_LAB_DOWNLOADS"]))
                return told() | {"update": made.version}
            case "roll-back":
                before = app.roll_back()
                return told() | {"before": before and before.version}
            case "authorities":
                return told() | {"authorities": ssl.create_default_context().cert_store_stats()}
            case "doctor":
                return told() | {"report": client.diagnose()}
            case _:
                raise SystemExit(f"no such command: {command}")


if __name__ == "__main__":
    try:
        said = main(*sys.argv[1:])
    except LicclientError as problem:
        said = told() | {"error": type(problem).__name__, "words": str(problem)}
    print(json.dumps(said))  # noqa: T201 - how it speaks
