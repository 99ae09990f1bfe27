"""Replace a bundle of macOS by a newer one, whole or not at all (D-357). Not tried on macOS.

Nothing is written into a bundle: one file more or less breaks its seal. `ditto` unpacks it, since Python's
`zipfile` restores neither links nor permissions; `codesign` verifies the seal, and who signed it.
"""

import ctypes
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from licclient._core.computer import require_space
from licclient._core.environment import clean_environment
from licclient._core.model import InstallObstacle
from licclient._core.storage import open_plain
from licclient.errors import InstallationError, UntrustedResponseError

if TYPE_CHECKING:
    from licclient._core.update_model import Downloaded

DITTO: Final = "/usr/bin/ditto"
CODESIGN: Final = "/usr/bin/codesign"

_SECONDS: Final = 300.0
_SWAP: Final = 2  # RENAME_SWAP
_TEAM: Final = re.compile(rb"^TeamIdentifier=(\S+)$", re.MULTILINE)


def replace_bundle(downloaded: "Downloaded", bundle: Path) -> None:
    """Put the bundle of a verified zip in the place of another one.

    Raises:
        InstallationError: The zip has no bundle, or one of another publisher.
        UntrustedResponseError: The file is not the verified one, or the seal of the bundle is broken.
        OSError: The disk has no room, or fails.
    """
    require_space(bundle.parent, 2 * downloaded.size, "the new version")
    draft = Path(tempfile.mkdtemp(prefix=".licclient-", dir=bundle.parent))
    try:
        replacement = _unpack(downloaded, draft)
        if _read_team(replacement) != _read_team(bundle):
            raise InstallationError(InstallObstacle.WRONG_PUBLISHER)
        _swap(replacement, bundle, draft)
    finally:
        if bundle.exists():  # otherwise the old one is in the draft, and all that there is
            shutil.rmtree(draft, ignore_errors=True)


def _unpack(downloaded: "Downloaded", draft: Path) -> Path:
    with open_plain(downloaded.path) as file:
        if file_digest(file, "sha256").hexdigest() != downloaded.sha256:
            raise UntrustedResponseError(
                "The file is not the one that was downloaded and verified: its digest differs."
            )
    folder = draft / "new"
    is_unpacked = _run(DITTO, "-x", "-k", str(downloaded.path), str(folder)).returncode == 0
    bundles = list(folder.glob("*.app")) if is_unpacked else []
    if len(bundles) != 1:
        raise InstallationError(InstallObstacle.WRONG_FILE)
    if _run(CODESIGN, "--verify", "--deep", "--strict", str(bundles[0])).returncode != 0:
        raise UntrustedResponseError("The seal of the new version is broken, or it is not signed.")
    return bundles[0]


def _read_team(bundle: Path) -> bytes | None:
    """Return the team that signed a bundle; None without one."""
    found = _TEAM.search(_run(CODESIGN, "-d", "--verbose=2", str(bundle)).stderr)
    return None if found is None else found[1]


def _swap(replacement: Path, bundle: Path, draft: Path) -> None:
    """Exchange two bundles in one step; where the system cannot, move the old one aside first."""
    with suppress(OSError, AttributeError):
        exchange: Any = ctypes.CDLL(None, use_errno=True).renamex_np
        if exchange(bytes(replacement), bytes(bundle), _SWAP) == 0:
            return
    aside = draft / "old.app"
    bundle.rename(aside)
    try:
        replacement.rename(bundle)
    except OSError:
        aside.rename(bundle)
        raise


def _run(*command: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(  # noqa: S603 - of the system, by their whole paths
        command, capture_output=True, timeout=_SECONDS, check=False, env=clean_environment()
    )
