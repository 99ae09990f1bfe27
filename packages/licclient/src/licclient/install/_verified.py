"""Copy a downloaded file, and verify the bytes of the copy: nothing can be exchanged after that."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from licclient._core.model import InstallObstacle
from licclient._core.storage import NEW_FILE, open_plain, sync_file, with_flags
from licclient.errors import InstallationError, UntrustedResponseError

if TYPE_CHECKING:
    from licclient._core.update_model import Downloaded

_BLOCK: Final = 1024 * 1024


def copy_verified(
    downloaded: "Downloaded",
    path: Path,
    mode: int,
    is_right: Callable[[bytes], bool],
    finish: Callable[[BinaryIO], object] | None = None,
) -> None:
    """Copy a verified file durably to a new one.

    Args:
        mode: The permissions of the new file while it is written.
        is_right: Judges its first bytes.
        finish: Called with the open copy once that is whole and verified.

    Raises:
        InstallationError: It begins as another kind of file.
        UntrustedResponseError: The file is not the verified one.
        OSError: The disk has no room, or fails.
    """
    digest, size = sha256(), 0
    with (
        open_plain(downloaded.path) as source,
        open(path, "wb", opener=with_flags(os.O_WRONLY | NEW_FILE, mode)) as copy,
    ):
        block = source.read(_BLOCK)
        if not is_right(block):
            raise InstallationError(InstallObstacle.WRONG_FILE)
        while block:
            digest.update(block)
            size += len(block)
            copy.write(block)
            block = source.read(_BLOCK)
        if size != downloaded.size or digest.hexdigest() != downloaded.sha256:
            raise UntrustedResponseError(
                "The file is not the one that was downloaded and verified: its digest differs."
            )
        copy.flush()
        if finish is not None:
            finish(copy)
        sync_file(copy)
