"""Unpack a verified zip into a new folder (D-80).

`_archive` checks the directory before anything is created. Each file must then have its declared size.
Only stored and deflated entries get this far, so memory stays small.
"""

import os
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import file_digest
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, Final
from zipfile import ZipFile

from licclient._core.computer import require_space
from licclient._core.storage import (
    NEW_FILE,
    disk_name,
    look_at,
    open_plain,
    open_temporary,
    sync_file,
    sync_folder,
    with_flags,
)
from licclient.errors import UntrustedResponseError, UnusableArchiveError
from licclient.install._archive import Entry, Plan, check_directory, check_entries, read_plan
from licclient.install._versions import DRAFT

_BLOCK: Final = 256 * 1024
_READ: Final = 0o044
_FOR_OTHERS: Final = 0o055
"""Permissions of the group and of all users: to read, and to enter or run as well."""

_PROGRAMS: Final = (
    b"#!",
    b"\x7fELF",
    *map(bytes.fromhex, ("feedface", "feedfacf", "cefaedfe", "cffaedfe", "cafebabe")),  # of macOS
)
"""How a program of Unix begins: executable in an archive that was made without permissions, as on Windows."""


class ArchiveFile(BufferedReader):
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

    One open file is hashed, compared with size and digest, and then unpacked; of one that other users may
    write to, a private copy. The caller removes the folder when this fails.

    Raises:
        UntrustedResponseError: The file is not the verified one.
        UnusableArchiveError: It is not a zip, or contains what must not be unpacked.
    """
    with _opened(archive, size, sha256, copies=folder.parent) as zipped:
        plan = read_plan(zipped.infolist())
        require_space(folder.parent, plan.size, "the new version")
        _fill(folder, plan, zipped)


def read_shared(folder: Path) -> int:
    """Return what others than the owner may do with a folder: read it and enter it; nothing on Windows."""
    return 0 if os.name == "nt" else folder.stat().st_mode & _FOR_OTHERS


def share(folder: Path, shared: int) -> None:
    """Let others read a folder and all in it, and run its programs, whatever the umask of this user is.

    A file system without modes of its own, such as FAT, stays as it is.
    """
    with suppress(OSError):
        for path in (folder, *folder.rglob("*")) if shared else ():
            mode = path.stat().st_mode
            is_entered = stat.S_ISDIR(mode) or mode & stat.S_IXUSR
            path.chmod(stat.S_IMODE(mode) | (shared if is_entered else shared & _READ))


def is_unpacked(archive: Path, size: int, sha256: str, folder: Path) -> bool:
    """Return whether a folder has all files of a zip, with their sizes; True if the zip is gone meanwhile.

    Raises as `unpack` does.
    """
    try:
        with _opened(archive, size, sha256) as zipped:
            plan = read_plan(zipped.infolist())
    except FileNotFoundError:
        return True

    def is_there(entry: Entry) -> bool:
        status = look_at(folder / disk_name(entry.path))
        return status is not None and stat.S_ISREG(status.st_mode) and status.st_size == entry.size

    return all(map(is_there, plan.files))


@contextmanager
def _opened(archive: Path, size: int, sha256: str, *, copies: Path | None = None) -> Generator[ZipFile]:
    """Open a zip that is the verified one, and that nobody can change while it is read if `copies` is given.

    A private copy is made in that folder if it is needed; it ends with this process.
    """
    with ExitStack() as stack:
        plain: IO[bytes] = stack.enter_context(open_plain(archive))
        if copies is not None and _is_shared(plain):
            plain = stack.enter_context(_copy(plain, size, copies))
        file = stack.enter_context(ArchiveFile(FileIO(plain.fileno(), closefd=False)))
        if os.fstat(file.fileno()).st_size != size or file_digest(file, "sha256").hexdigest() != sha256:
            raise UntrustedResponseError(
                "The file is not the one that was downloaded and verified: its digest differs."
            )
        with _reading():
            zipped = ZipFile(file)
        with zipped:
            yield zipped


def _is_shared(file: IO[bytes]) -> bool:
    """Return whether another user may write to an open file; True where that is not known.

    Its digest would not help: the checksum of an entry, which `zipfile` compares, can be had on purpose.
    """
    if os.name == "nt":  # has lists of rights, which Python cannot read
        return True
    status = os.fstat(file.fileno())
    return status.st_uid != os.geteuid() or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _copy(file: IO[bytes], size: int, folder: Path) -> IO[bytes]:
    """Copy a file of so many bytes; one that is larger differs from it afterwards as well."""
    require_space(folder, size, "a copy of the download")
    copy = open_temporary(folder, DRAFT)
    try:
        left = size + 1
        while block := file.read(min(left, _BLOCK)):
            copy.write(block)
            left -= len(block)
        copy.flush()
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return copy


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
        (folder / disk_name(path)).mkdir(exist_ok=True)  # where case makes no difference, two may be one
    infos = zipped.infolist()
    for entry in plan.files:
        with _reading():
            source = zipped.open(infos[entry.index])
        with source:
            start = _read(source)
            is_program = entry.executable or (not plan.has_program and start.startswith(_PROGRAMS))
            _write(folder / disk_name(entry.path), entry, 0o777 if is_program else 0o666, start, source)
    for path in reversed(plan.folders):
        sync_folder(folder / disk_name(path))
    sync_folder(folder)


def _write(path: Path, entry: Entry, mode: int, block: bytes, source: IO[bytes]) -> None:
    """Write a file of which the first block was read; the umask applies to its mode."""
    with open(path, "wb", opener=with_flags(os.O_WRONLY | NEW_FILE, mode)) as target:
        remaining = entry.size
        while block:
            remaining -= len(block)
            if remaining < 0:
                break
            target.write(block)
            block = _read(source)
        if remaining:
            raise UnusableArchiveError(
                f"An entry of the archive does not have its declared size: {entry.path!r}"
            )
        target.flush()
        sync_file(target)


def _read(source: IO[bytes]) -> bytes:
    with _reading():
        return source.read(_BLOCK)
