"""The app that is frozen: a desktop app with licclient, which prints results on standard output as JSON.

`photo_lab FOLDER COMMAND …`: FOLDER is the app's own, passed by the launcher. The address of the service, the
pinned keys and the downloads folder come from the environment; a real app has them in its code.
"""

import json
import os
import ssl
import sys
from pathlib import Path

from licclient import LicclientError, LicenseClient, Trust, __version__
from licclient.install import Installation, detect

BUNDLE = Path(__file__).parent


def describe_program() -> dict[str, object]:
    """Return which program runs, and from where."""
    return {
        "app": (BUNDLE / "version.txt").read_text(encoding="utf-8").strip(),
        "licclient": __version__,
        "frozen": getattr(sys, "frozen", False),
        "program": sys.executable,
    }


def main(folder: str, command: str, *arguments: str) -> dict[str, object]:
    """Run one command, and return its result."""
    app = Installation(folder)
    client = LicenseClient(
        os.environ["PHOTO_LAB_SERVICE"],
        product="Photo Lab",
        slug="photo-lab",
        version=str(describe_program()["app"]),
        trust=Trust(public_keys=[os.environ["PHOTO_LAB_KEY"]]),
    )
    with client:
        match command:
            case "activate":
                return describe_program() | {"product": client.activate(*arguments).product}
            case "verify":
                found = client.verify()
                return describe_program() | {"source": found.source, "authenticated": found.is_authenticated}
            case "update":
                if (update := client.check_for_update(force=True).update) is None:
                    return describe_program() | {"update": None}
                made = app.apply(client.download(update, os.environ["PHOTO_LAB_DOWNLOADS"]))
                return describe_program() | {"update": made.version}
            case "roll-back":
                before = app.roll_back()
                return describe_program() | {"before": before and before.version}
            case "authorities":
                return describe_program() | {"authorities": ssl.create_default_context().cert_store_stats()}
            case "detect":
                installation = detect()
                return describe_program() | {
                    "kind": installation.kind,
                    "folder": str(installation.folder),
                    "is_certain": installation.is_certain,
                }
            case "doctor":
                return describe_program() | {"report": client.diagnose()}
            case _:
                raise SystemExit(f"no such command: {command}")


if __name__ == "__main__":
    try:
        result = main(*sys.argv[1:])
    except LicclientError as problem:
        result = describe_program() | {"error": type(problem).__name__, "words": str(problem)}
    print(json.dumps(result))  # noqa: T201 - its output
