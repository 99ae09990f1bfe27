"""Run by the Python of a Windows: the part of an app that installs its update, or reads what came of it.

Arguments: kind, folder of the app, state folder, running version, promised version; then the path of a
set-up or zip, and the seconds for the app's end and for the set-up, or `receipt`.
"""

import sys
import time
from pathlib import Path

from licclient import LicclientError
from licclient.install import DetectedInstallation, Installation, InstallationKind, _windows_setups
from licclient.testing import LicenseService


def say(text: object) -> None:
    """Print a line for the test."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


kind, folder, state, running, promised, setup, *rest = sys.argv[1:]
with LicenseService() as service:
    key = service.issue("Photo Lab", slug="photo-lab")
    client = service.client(slug="photo-lab", version=running, storage=state)
    if setup == "receipt":
        receipt = client.installation_receipt()
        say("none" if receipt is None else f"{receipt.obstacle or 'installed'} {receipt.code}")
        sys.exit()
    vars(_windows_setups).update(QUIT_SECONDS=int(rest[0]), SETUP_SECONDS=int(rest[1]))
    service.publish(promised, slug="photo-lab", content=Path(setup).read_bytes(), filename=Path(setup).name)
    current = Installation(folder).current if kind == "folder" else None  # it runs from its version's folder
    installation = DetectedInstallation(
        InstallationKind(kind),
        Path(folder),
        Path(folder if current is None else current.folder, "photo-lab.exe"),
        is_writable=True,
        updater=None,
        command=None,
        is_certain=True,
    )
    update = client.check_for_update(key, force=True).update
    assert update is not None
    try:
        done = client.install_update(update, key=key, installation=installation)
    except (LicclientError, OSError) as problem:
        say(f"{type(problem).__name__} {getattr(problem, 'obstacle', None) or problem}")
    else:
        say("quits" if done.has_to_quit else f"stays, reopened: {done.is_reopened}")
        time.sleep(float(rest[2]) if len(rest) > 2 else 1)  # the app is saving its work
