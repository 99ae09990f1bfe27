"""Unpack a verified zip into a new folder (D-80).

`_archive` checks the directory before anything is created. Each file must then have its declared size.
Only stored and deflated entries get this far, so memory stays small.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import file_digest
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, Final
from zipfile import ZipFile

from licclient._computer import demand_room
from licclient.errors import UntrustedResponseError, UnusableArchiveError
from licclient.install._archive import Entry, Plan, check_directory, check_entries, read_plan

_BLOCK: Final = 256 * 1024
_FLAGS: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
)


class _ArchiveFile(BufferedReader):
    """A zip whose directory is checked as it is read: `zipfile` reads it at once, and keeps all of it."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as usual; only a directory is read in one large piece."""
        check_directory(size or 0)
        content = super().read(size)
        if len(content) > _BLOCK:
            check_entries(content)
        return content


def unpack(archive: Path, size: int, sha256: str, folder: Path) -> None:
    """Unpack a zip into a new folder, durably: all of it is on the disk when this returns.

    One open file is hashed, compared with size and digest, and then unpacked. The caller removes the folder
    when this fails.

    Raises:
        UntrustedResponseError: The file is not the verified one.
        UnusableArchiveError: It is not a zip, or contains what must not be unpacked.
    """
    with _ArchiveFile(FileIO(archive)) as file:
        if os.fstat(file.fileno()).st_size != size or file_digest(file, "sha256").hexdigest() != sha256:
            raise UntrustedResponseError(
                "The file is not the one that was downloaded and verified: its digest differs."
            )
        with _reading():
            zipped = ZipFile(file)
        with zipped:
            plan = read_plan(zipped.infolist())
            demand_room(folder.parent, plan.size, "the new version")
            _fill(folder, plan, zipped)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; Windows does so by itself."""
    if os.name != "nt":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _reading() -> Generator[None]:
    """Turn whatever `zipfile` raises for a damaged or hostile zip into our own error."""
    try:
        yield
    except (MemoryError, UnusableArchiveError):
        raise
    except Exception as problem:
        raise UnusableArchiveError("The file is not a zip, or it is damaged.") from problem


def _fill(folder: Path, plan: Plan, zipped: ZipFile) -> None:
    folder.mkdir()
    for path in plan.folders:
        (folder / path).mkdir(exist_ok=True)  # where case makes no difference, two may be one
    infos = zipped.infolist()
    for entry in plan.files:
        with _reading():
            source = zipped.open(infos[entry.index])
        with source:
            _write(folder / entry.path, entry, source)
    for path in reversed(plan.folders):
        sync_folder(folder / path)
    sync_folder(folder)


def _write(path: Path, entry: Entry, source: IO[bytes]) -> None:
    # The umask applies; of the permissions in the zip only "executable" is used.
    descriptor = os.open(path, _FLAGS, 0o777 if entry.executable else 0o666)
    with open(descriptor, "wb") as target:  # noqa: PTH123 - a descriptor, for its mode
        left = entry.size
        while block := _read(source):
            left -= len(block)
            if left < 0:
                break
            target.write(block)
        if left:
            raise UnusableArchiveError(
                f"An entry of the archive does not have its declared size: {entry.path!r}"
            )
        target.flush()
        os.fsync(target.fileno())


def _read(source: IO[bytes]) -> bytes:
    with _reading():
        return source.read(_BLOCK)
