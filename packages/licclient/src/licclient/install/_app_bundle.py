"""Replace a bundle of macOS by a newer one, whole or not at all (D-357). Not tried on macOS.

Nothing is written into a bundle: one file more or less breaks its seal. `ditto` unpacks it, since Python's
`zipfile` restores neither links nor permissions; `codesign` verifies the seal, and who signed it.
"""

import ctypes
import errno
import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from licclient._core.computer import require_space
from licclient._core.environment import clean_environment
from licclient._core.model import InstallObstacle
from licclient._core.storage import open_plain, sync_file, sync_folder
from licclient.errors import InstallationError, UntrustedResponseError
from licclient.install._beside import ASIDE, private_folder
from licclient.install._verified import copy_verified

if TYPE_CHECKING:
    from licclient._core.update_model import Downloaded

DITTO: Final = "/usr/bin/ditto"
CODESIGN: Final = "/usr/bin/codesign"

_SECONDS: Final = 300.0
_SWAP: Final = 2  # RENAME_SWAP
_CANNOT_SWAP: Final = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
"""Of a system or file system without exchanges, as HFS+. Any other error is a failure."""

_TEAM: Final = re.compile(rb"^TeamIdentifier=(.*)$", re.MULTILINE)
_TEAM_ID: Final = re.compile(r"[0-9A-Za-z]{1,32}")
_NO_TEAM: Final = b"not set"
_UNSIGNED: Final = b"code object is not signed at all"
_OTHER_SIGNER: Final = 3  # of codesign: the seal is whole, and the requirement is not met


def replace_bundle(downloaded: "Downloaded", bundle: Path) -> None:
    """Put the bundle of a verified zip in the place of another one.

    Raises:
        InstallationError: The zip has no bundle, or one of another publisher; it cannot be unpacked, or takes
            too long; this user may not write beside the old one, or another installer is at work there.
        UntrustedResponseError: The file is not the verified one, or the seal of the bundle is broken.
        OSError: The disk has no room, or fails.
    """
    with private_folder(bundle.parent) as draft:
        team = _read_team(bundle)
        require_space(draft, 3 * downloaded.size, "the new version")
        replacement = _unpack(downloaded, draft)
        _verify(replacement, team)
        _sync(replacement)  # before the old one is removed
        _swap(replacement, bundle, draft / ASIDE)
        sync_folder(bundle.parent)


def _unpack(downloaded: "Downloaded", draft: Path) -> Path:
    archive, folder = draft / "new.zip", draft / "new"  # a copy: `ditto` opens the file by its name once more
    copy_verified(downloaded, archive, 0o600, lambda head: head.startswith(b"PK"))
    done = _run(DITTO, "-x", "-k", str(archive), str(folder))
    if done.returncode != 0:
        require_space(draft, 0, "the new version")
        if os.strerror(errno.ENOSPC).encode() in done.stderr:  # or its quota is used up
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(draft))
        is_ours = zipfile.is_zipfile(archive)
        raise InstallationError(InstallObstacle.FAILED if is_ours else InstallObstacle.WRONG_FILE)
    archive.unlink()
    bundles = list(folder.glob("*.app"))
    if len(bundles) != 1 or not _is_plain(bundles[0]):
        raise InstallationError(InstallObstacle.WRONG_FILE)
    return bundles[0]


def _is_plain(bundle: Path) -> bool:
    """Return whether it is a folder whose name fits into a line; a link would lead to another bundle."""
    has_line = all(" " <= letter != "\x7f" for letter in bundle.name)
    return has_line and bundle.is_dir() and not bundle.is_symlink()


def _read_team(bundle: Path) -> str | None:
    """Return the team that signed the installed bundle; None without one.

    Never asked of a new one: what `codesign` prints of it has the names that its packer gave it.
    """
    shown = _run(CODESIGN, "-d", "--verbose=2", str(bundle))
    if shown.returncode != 0 and _UNSIGNED in shown.stderr:
        return None
    teams = _TEAM.findall(shown.stderr)
    if shown.returncode != 0 or len(teams) != 1:
        raise InstallationError(InstallObstacle.FAILED)
    if teams[0] == _NO_TEAM:
        return None
    team: str = teams[0].decode("ascii", "replace")
    if not _TEAM_ID.fullmatch(team):
        raise InstallationError(InstallObstacle.FAILED)
    return team


def _verify(replacement: Path, team: str | None) -> None:
    """Have `codesign` verify the seal, and that the certificate is Apple's for this team."""
    signer = () if team is None else (f'-R=anchor apple generic and certificate leaf[subject.OU] = "{team}"',)
    status = _run(CODESIGN, "--verify", "--deep", "--strict", *signer, str(replacement)).returncode
    if status == _OTHER_SIGNER:
        raise InstallationError(InstallObstacle.WRONG_PUBLISHER)
    if status != 0:
        raise UntrustedResponseError("The seal of the new version is broken, or it is not signed.")


def _sync(bundle: Path) -> None:
    for folder, _, names in os.walk(bundle):
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink():
                with open_plain(path) as file:
                    sync_file(file)
        sync_folder(Path(folder))


def _swap(replacement: Path, bundle: Path, aside: Path) -> None:
    """Exchange two bundles in one step; where the system cannot, move the old one aside first.

    Between these two steps there is no app: `private_folder` puts the old one back.
    """
    problem = _exchange(replacement, bundle)
    if problem in _CANNOT_SWAP:
        aside.mkdir()
        bundle.rename(aside / bundle.name)
        replacement.rename(bundle)
    elif problem != 0:
        raise OSError(problem, os.strerror(problem), str(bundle))


def _exchange(first: Path, second: Path) -> int:
    """Exchange two folders; return the system's error, 0 for none."""
    try:
        exchange: Any = ctypes.CDLL(None, use_errno=True).renamex_np
    except AttributeError:
        return errno.ENOSYS
    return 0 if exchange(os.fsencode(first), os.fsencode(second), _SWAP) == 0 else ctypes.get_errno()


def _run(*command: str) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(  # noqa: S603 - of the system, by their whole paths
            command, capture_output=True, timeout=_SECONDS, check=False, env=clean_environment()
        )
    except subprocess.TimeoutExpired:
        raise InstallationError(InstallObstacle.TIMED_OUT) from None
