"""Run by the Python of a Windows: an app that hands its update over to a framework within it.

Arguments: `winsparkle`, the library, and the key for signatures; or `velopack`. Then the service's address,
the license key, and the state folder.
"""

import ctypes
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from licclient import LicclientError, LicenseClient, Updates
from licclient.install import InstallationKind, WinSparkle, detect

events: list[str] = []
kept: list[object] = []
CALLBACK, QUESTION = ctypes.CFUNCTYPE(None), ctypes.CFUNCTYPE(ctypes.c_int)


def say(*texts: object) -> None:
    """Print a line for the test."""
    sys.stdout.write(" ".join(map(str, texts)) + "\n")
    sys.stdout.flush()


def load(path: str, public_key: str) -> Any:
    """Load WinSparkle, and set it up as an app does at its start."""
    library: Any = ctypes.CDLL(path)
    if not library.win_sparkle_set_eddsa_public_key(public_key.encode()):
        raise SystemExit("WinSparkle does not take the key")
    library.win_sparkle_set_app_details("Example", "Photo Lab", "1.0.0")
    for name in ("error", "did_find_update", "did_not_find_update", "shutdown_request"):
        kept.append(callback := CALLBACK(lambda name=name: events.append(name)))
        getattr(library, f"win_sparkle_set_{name}_callback")(callback)
    kept.append(answer := QUESTION(lambda: 1))
    library.win_sparkle_set_can_shutdown_callback(answer)
    library.win_sparkle_set_automatic_check_for_updates(0)
    library.win_sparkle_init()
    return library


def wait_for(*names: str) -> None:
    """Wait for one of these events, or for an error."""
    deadline = time.monotonic() + 60
    while not {*names, "error"} & {*events} and time.monotonic() < deadline:
        time.sleep(0.1)


kind, *mine, url, key, state = sys.argv[1:]
library = load(*mine) if mine else None
hand_over = None if library is None else WinSparkle(library)
updates = Updates(platform="windows-x86_64", hand_over=hand_over)
client = LicenseClient(url, slug="photo-lab", version="1.0.0", storage=state, updates=updates)
sys.frozen = True  # type: ignore[attr-defined] # so that the program is this one, and not the script
installation = detect()
if mine:  # its library is in no app's folder here
    program = Path(sys.executable)
    installation = replace(installation, kind=InstallationKind(kind), folder=program.parent, is_certain=True)
update = client.check_for_update(key, force=True).update
try:
    if update is None:
        raise SystemExit("no update is offered")
    done = client.install_update(update, key=key, installation=installation)
except LicclientError as problem:
    say(type(problem).__name__, getattr(problem, "obstacle", problem), repr(problem.__cause__)[:400])
else:
    say(installation.kind, done.version, "quits" if done.has_to_quit else "stays")
if library is not None:
    wait_for("did_find_update", "did_not_find_update")
    if "did_find_update" in events:  # what its button does
        events.clear()
        library.win_sparkle_check_update_with_ui_and_install()
        wait_for("shutdown_request")
    say(*events)
os._exit(0)  # a window of WinSparkle may be open
