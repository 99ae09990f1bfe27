"""Validate the vendor's files; write our own durably, as their owner, and never through a link."""

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, Final

from licserver.domain.characters import shows_as_written
from licserver.errors import InvalidInputError

if sys.platform != "win32":
    import pwd

MAX_NAME_BYTES: Final = 200  # bytes of a file name: leaves room for what browsers append

_INVISIBLE: Final = "control characters or marks of the direction, which show it otherwise than it is"


def validate_file(file: Path) -> Path:
    """Return a path that can be published."""
    if not shows_as_written(file.name):
        raise InvalidInputError(f"the file's name has {_INVISIBLE}; rename it")
    # Not `is_file`: in newer Pythons it returns False for a file that this user may not read.
    try:
        is_file = stat.S_ISREG(file.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_file = False
    if not is_file:
        raise InvalidInputError(f"{file} is not a file")
    return file


def validate_file_name(text: str) -> str:
    """Return the last part of a file name that a browser or program has sent."""
    name = text.replace("\\", "/").rpartition("/")[2].strip()
    if not shows_as_written(name):
        raise InvalidInputError(f"the file's name has {_INVISIBLE}; rename it")
    if name.strip(".") == "" or len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidInputError(
            f"a file name must be one line of at most {MAX_NAME_BYTES} bytes, and must not consist of dots"
        )
    return name


def digest_file(file: Path) -> tuple[int, bytes]:
    """Return a file's size in bytes and its SHA-256."""
    with file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").digest()
        return source.tell(), digest


def describe_link(path: Path) -> str | None:
    """Describe a path that is no regular file with a single name; None for such a file, or a missing one."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a symbolic link, which licserver does not follow; put the file itself in its place"
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a regular file; move it away"
    if status.st_nlink > 1:
        return (
            f"{path} has another name (a hard link), under which it can be changed; remove that name, or put "
            "a copy of the file in its place"
        )
    return None


def open_unlinked(path: Path) -> BinaryIO:
    """Open a file for reading; raise `OSError` with ``ELOOP`` for a symbolic link."""
    no_follow = getattr(os, "O_NOFOLLOW", 0)  # Windows has none
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | no_follow))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    if os.name == "nt":  # Windows cannot open folders, and needs no sync
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(folder: Path, prefix: str, now: float, older_than: float) -> None:
    """Remove temporary files of killed processes; files younger than `older_than` seconds may be in use."""
    for file in folder.glob(f"{prefix}*"):
        with suppress(OSError):  # removed by another process, or owned by another user: harmless
            if now - file.stat().st_mtime > older_than:
                file.unlink()


@contextmanager
def new_file(path: Path, *, replace: bool) -> Iterator[IO[bytes]]:
    """Yield a file of mode 0600 that appears at `path`, complete and durable, unless the block raises."""
    if path.exists() and not replace:
        raise InvalidInputError(f"the file {path} exists already")
    if not path.parent.is_dir():
        raise InvalidInputError(f"there is no folder {path.parent}")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


# --- the owner of a folder --------------------------------------------------------------------


def become_owner(folder: Path) -> None:
    """As root, become the owner of a folder for the rest of the process (D-157); otherwise do nothing.

    Otherwise the owner could place a link where root is about to write. If the folder does not
    exist, its nearest existing parent counts.
    """
    if sys.platform == "win32" or os.geteuid() != 0:
        return
    while not folder.exists():
        folder = folder.parent
    status = folder.stat()
    if status.st_uid == 0:
        return
    try:
        try:
            user = pwd.getpwuid(status.st_uid)
        except KeyError:  # a container often has a user id without a name
            gid = status.st_gid
            os.setgroups([gid])
        else:
            gid = user.pw_gid
            os.setgroups(os.getgrouplist(user.pw_name, gid))
            os.environ["HOME"] = user.pw_dir  # libpq looks for certificates there, and fails if it may not
        os.setgid(gid)
        os.setuid(status.st_uid)  # last: afterwards the process may not call the others
    except OSError as error:
        name = user_name(status.st_uid)
        raise InvalidInputError(
            f"cannot act as {name}, the owner of {folder}: {error.strerror}; run this command as {name}"
        ) from None


def user_name(uid: int) -> str:
    """Return a user's name, or 'user 1000' without one."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
