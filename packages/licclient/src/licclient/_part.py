"""What a download has on the disk until its file gets its name: a part, a note about it, and a lock.

Beside the part lies a sealed note of what the server said about the file, so that a later run, after a crash
or a `kill`, asks only for the rest. Both are locked while in use: a second download of the same file at the
same time works on a part of its own.
"""

import os
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from licclient._protocol.downloads import file_name, read_length, read_sha256, safe_name, strong_etag
from licclient._protocol.responses import Head
from licclient._records import unseal

_PARALLEL: Final = 8
_PART_FLAGS: Final = os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True)
class Note:
    """What the server said about the file: enough to ask for the rest of it, and which version it is."""

    name: str
    version: str
    size: int | None
    sha256: str | None
    etag: str | None

    @property
    def resumable(self) -> bool:
        """A strong entity tag tells that the rest fits what is there; a size, when it is all."""
        return self.etag is not None and self.size is not None


def lock_a_slot(folder: Path, part: str, stack: ExitStack) -> str:
    """Return a part name that is ours alone until the stack ends."""
    from filelock import FileLock, Timeout  # noqa: PLC0415 - only downloads need it

    for number in range(_PARALLEL):
        slot = f".licclient-{part}-{number}"
        # Not bound to a thread: the asynchronous client hands the job from one to another.
        path = folder / f"{slot}.lock"
        lock = FileLock(path, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            continue
        except (OSError, NotImplementedError):
            break  # no locks here; if the folder cannot be written at all, opening the part will say so
        stack.callback(_unlock, lock, path)
        return slot
    return f".licclient-{part}-{os.urandom(8).hex()}"


def _unlock(lock: Any, path: Path) -> None:
    with suppress(OSError):
        # While it is held: who waits for it then finds it gone, and makes a new one.
        path.unlink()
    with suppress(OSError):
        lock.release()
    if os.name == "nt":
        with suppress(OSError):
            path.unlink()  # Windows removes no open file, and here nobody loses a lock by it


def read_note(head: Head, fallback_name: str, version: str) -> Note:
    """Read what the head of an answer says about the file; the version is what its link was offered as."""
    told = head.headers
    return Note(
        name=file_name(told.get("Content-Disposition"), fallback_name),
        version=version,
        size=read_length(told.get("Content-Length")),
        sha256=read_sha256(told.get("Repr-Digest")),
        etag=strong_etag(told.get("ETag")),
    )


def read_sealed_note(slot: str, raw: bytes | None) -> Note | None:
    """Read what an earlier run was told; None when that cannot be believed."""
    match unseal(slot, raw or b""):
        case {
            "name": str(name),
            "version": str(version),
            "size": int(size),
            "sha256": str() | None as digest,
            "etag": str(etag),
        }:
            return Note(safe_name(name), version, size, digest, etag)
        case _:
            return None


def make_part(path: Path) -> BinaryIO:
    """Make a part that is ours alone: nobody else may write into what is being verified."""
    handle = os.open(path, _PART_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    return open(handle, "r+b")  # noqa: PTH123 - a descriptor; `close` closes it


def open_part(path: Path) -> BinaryIO:
    """Open a part that an earlier run left."""
    return open(os.open(path, _PART_FLAGS), "r+b")  # noqa: PTH123 - the same


def is_our_file(path: Path) -> bool:
    """Whether it is a plain file that nobody else has under another name, or the means to change."""
    try:
        status = path.lstat()
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return False
    return os.name == "nt" or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)


def open_up(part: Path, folder: Path) -> None:
    """Let those read a verified file who may look into its folder."""
    if os.name != "nt":
        with suppress(OSError):  # a stick, or a share, that knows no modes
            part.chmod(0o600 | (folder.stat().st_mode & 0o044))
