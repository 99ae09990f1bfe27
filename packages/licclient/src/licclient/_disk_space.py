"""Whether a disk has room for what is about to be written."""

import errno
from pathlib import Path
from typing import Final

SPARE_BYTES: Final = 16 * 1024 * 1024
"""What is left free on the disk: filling it to the last byte would harm everything else."""


def demand_room(folder: Path, needed: int, what: str) -> None:
    """Raise `OSError` if there is no room for so many bytes of `what`, such as `the download`."""
    from shutil import disk_usage  # noqa: PLC0415 - loads every archive format there is

    disk = disk_usage(folder)
    if disk.total and disk.free < needed + SPARE_BYTES:
        raise OSError(
            errno.ENOSPC,
            f"No room for {what}: it needs {needed} bytes, and {disk.free} are free",
            str(folder),
        )
