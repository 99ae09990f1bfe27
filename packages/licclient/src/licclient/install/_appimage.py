"""Replace an AppImage by a newer one, in one step (D-351).

The running one goes on from the old file. The new one is written beside it, since a rename works within a
file system only, and takes over its mode and owner: a download has no permission to run.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from licclient._core.computer import require_space
from licclient._core.storage import open_plain, replace_file, sync_folder
from licclient.install._beside import private_folder
from licclient.install._verified import copy_verified

if TYPE_CHECKING:
    from licclient._core.update_model import Downloaded

_HEAD: Final = 20
"""Bytes of an ELF file up to its machine."""


def is_appimage(head: bytes) -> bool:
    """Return whether a file begins as an AppImage: an ELF file with `AI` and a type at offset 8."""
    return head[:4] == b"\x7fELF" and head[8:10] == b"AI" and head[10:11] in (b"\x01", b"\x02")


def runs_where(head: bytes, other_head: bytes) -> bool:
    """Return whether two ELF files are for the same machine: class, byte order and architecture."""
    return head[4:6] == other_head[4:6] and head[18:20] == other_head[18:20]


def replace_appimage(downloaded: "Downloaded", target: Path) -> None:
    """Give a verified file the name, mode and owner of an AppImage, whose path may be a link to it.

    Raises:
        InstallationError: It is no AppImage for this computer, this user may not write beside the old one, or
            another installer is at work there.
        UntrustedResponseError: The file is not the verified one.
        OSError: The disk has no room, or fails.
    """
    target = target.resolve(strict=True)
    with private_folder(target.parent) as folder:
        require_space(folder, downloaded.size, "the new version")
        draft = folder / "new"
        _copy(downloaded, target, draft)
        replace_file(draft, target)
    sync_folder(target.parent)


def _copy(downloaded: "Downloaded", target: Path, draft: Path) -> None:
    """Copy a file that has the verified digest; it can be started once it is whole."""
    with open_plain(target) as before:
        status, old_head = os.fstat(before.fileno()), before.read(_HEAD)

    def take_over(copy: BinaryIO) -> None:
        with suppress(PermissionError):  # only root gives files away
            os.fchown(copy.fileno(), status.st_uid, status.st_gid)
        os.fchmod(copy.fileno(), status.st_mode & 0o7777)  # last: a change of the owner clears bits

    copy_verified(
        downloaded, draft, 0o600, lambda head: is_appimage(head) and runs_where(head, old_head), take_over
    )
