"""The part file of a download: it grows, is resumed by a later run, is verified, and gets the file's name.

Beside the part lies a sealed note of what the service declared about the file, so that a later run, after a
crash or a `kill`, requests only the rest; of a file without a digest there is no note. Both are locked while
in use: a second download of the same file at the same time has a part of its own. `OSError` of the folder is
for the app, and escapes.
"""

import itertools
import os
import stat
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import BinaryIO, Final

from licclient._core.computer import require_space
from licclient._core.download_headers import (
    body_length,
    file_digest_of,
    file_name,
    is_encoded,
    is_page,
    numbered_name,
    read_content_range,
    safe_name,
    strong_etag,
)
from licclient._core.model import Outage
from licclient._core.records import Document, reader, require_type, seal, unseal
from licclient._core.responses import Head, unusable_response
from licclient._core.storage import (
    NEW_FILE,
    disk_name,
    look_at,
    make_folder,
    move_file,
    open_plain,
    read_with_retries,
    release_lock,
    repeat,
    replace_file,
    sync_file,
    take_lock,
    with_flags,
)
from licclient._core.update_model import Downloaded, Manifest
from licclient.errors import ServiceUnavailableError, UntrustedResponseError

_PARALLEL: Final = 8
_HASH_BLOCK: Final = 1024 * 1024
_WRITE_OUT: Final = 8 * 1024 * 1024
_ROOM_STEP: Final = 64 * 1024 * 1024

MAX_FILE_BYTES: Final = 8 * 1024**3
"""Longest file that is received without a length."""

_PART_FLAGS: Final = os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True)
class _PartMetadata:
    """Metadata of the file as declared; only with size, digest and entity tag can the rest be requested."""

    name: str
    version: str
    size: int | None
    sha256: str | None
    etag: str | None


@contextmanager
def open_part(
    folder: Path, name: str, fallback_name: str, *, require_digest: bool = True
) -> Generator["PartFile"]:
    """Lock a part file in a folder, which is made if it is missing; a part that is not complete stays.

    `name` is as from `record_name`, the same for the same file; `fallback_name` is for a file without one.
    """
    make_folder(folder)
    with ExitStack() as stack:
        part = PartFile(folder, _lock(folder, name, stack), fallback_name, require_digest=require_digest)
        stack.callback(part.close)
        yield part


class PartFile:
    """One file on its way to the disk: `done` bytes of it are there; if `is_complete`, whole and checked."""

    def __init__(self, folder: Path, slot: str, fallback_name: str, *, require_digest: bool) -> None:
        self._folder = folder
        self._slot = slot
        self._path = folder / f"{slot}.part"
        self._note_path = folder / f"{slot}.note"
        self._fallback_name = fallback_name
        self._require_digest = require_digest
        self._expected: Manifest | None = None
        self._note: _PartMetadata | None = None
        self._file: BinaryIO | None = None
        self._hash = sha256()
        self._is_resumed = self._is_encoded = False
        self.is_complete = False
        self.done = 0

    @property
    def size(self) -> int | None:
        """Bytes of the whole file; None while unknown."""
        return self._note.size if self._note else None

    @property
    def expected_size(self) -> int | None:
        """Bytes of the file that the vendor signed; None if nothing is signed."""
        return self._expected.size if self._expected else None

    # --- what an earlier run left -------------------------------------------------------------

    def expect(self, manifest: Manifest) -> None:
        """Accept only the file that the vendor signed, and resume what an earlier run left of it."""
        previous, self._expected = self._expected, manifest
        if previous is None or (previous.size, previous.sha256) != (manifest.size, manifest.sha256):
            self.resume()

    def resume(self) -> None:
        """Continue the part that an earlier run left, if it and its note belong together."""
        self.close()
        note = _read_note(unseal(self._slot, read_with_retries(self._note_path) or b""))
        if note is None or not self._is_expected(note.size, note.sha256) or not _is_our_file(self._path):
            self._start_over()
            return
        self._note, self._hash, self.done = note, sha256(), 0
        self._file = repeat(lambda: _open(self._path))
        while block := self._file.read(_HASH_BLOCK):
            self._hash.update(block)
            self.done += len(block)
        self._is_resumed = self.done > 0
        if note.size is None or self.done > note.size:
            self._start_over()
        elif self.done == note.size:
            self._verify()

    def _is_expected(self, size: int | None, digest: str | None) -> bool:
        """Return whether the declared values, if any, agree with the signed ones."""
        signed = self._expected
        return signed is None or (size in (None, signed.size) and digest in (None, signed.sha256))

    def _start_over(self) -> None:
        self.close()
        for path in (self._note_path, self._path):
            path.unlink(missing_ok=True)
        self._note, self._hash, self.done = None, sha256(), 0
        self._is_resumed = self.is_complete = False

    # --- one response -------------------------------------------------------------------------

    def request_headers(self) -> dict[str, str]:
        """Return headers that request the rest, if the file is still the same (RFC 9110 13.1.5)."""
        if self.done and self._note is not None and None not in (self._note.etag, self._note.size):
            return {"Range": f"bytes={self.done}-", "If-Range": self._note.etag or ""}
        return {}

    def begin(self, head: Head, version: str) -> None:
        """Prepare for the body of a response of any status, to a link that was offered as `version`.

        Raises:
            ServiceUnavailableError: It is no file, or not the part that was requested.
            UntrustedResponseError: It is another file than the one that the vendor signed.
            OSError: The disk has no room for it.
        """
        if head.status == 200:  # noqa: PLR2004 - HTTP's own numbers
            self._begin_whole(head, version)
        elif head.status == 206:  # noqa: PLR2004 - as above
            self._begin_rest(head)
        else:
            if head.status == 416:  # noqa: PLR2004 - as above
                self._start_over()
            raise unusable_response(head.status, head.retry_after)

    def _begin_whole(self, head: Head, version: str) -> None:
        headers = head.headers
        size, digest = body_length(headers), file_digest_of(headers)
        if not self._is_expected(size, digest):
            self._start_over()
            raise UntrustedResponseError("The service has another file than the one that the vendor signed.")
        if self._expected is not None:
            size, digest = self._expected.size, self._expected.sha256
        if digest is None:
            self._demand_acceptable(head, size)
        self._start_over()
        self._is_encoded = is_encoded(headers)
        require_space(self._folder, size or 0, "the download")
        name = file_name(headers.get("Content-Disposition"), self._fallback_name)
        self._note = _PartMetadata(name, version, size, digest, strong_etag(headers.get("ETag")))
        self._file = _open(self._path, NEW_FILE)
        if None not in (self._note.etag, digest, size):  # else nothing would show damage on this disk
            with _open(self._note_path, NEW_FILE) as note:
                note.write(seal(self._slot, asdict(self._note)))

    def _demand_acceptable(self, head: Head, size: int | None) -> None:
        """Raise `ServiceUnavailableError` for a file without a digest that must have one (D-55)."""
        if is_encoded(head.headers):
            raise unusable_response(head.status)
        if size is None:  # nothing shows where it ends
            raise ServiceUnavailableError("The file came with neither its length nor its digest.")
        if size == 0:  # no update is empty, and nothing shows that this one is
            raise ServiceUnavailableError("An empty file came, without its digest.", outage=Outage.UNUSABLE)
        if self._require_digest:
            raise ServiceUnavailableError("The file came without its digest, which require_digest demands.")
        if not head.is_protected:
            raise ServiceUnavailableError(
                "The file came without its digest, and neither by https nor from the service itself."
            )
        if is_page(head.headers.get("Content-Type")):  # such as a proxy's
            raise ServiceUnavailableError("A web page came in place of the file.", outage=Outage.LOGIN_PAGE)

    def _begin_rest(self, head: Head) -> None:
        headers, note = head.headers, self._note
        if (
            note is None
            or note.size is None
            or (note.sha256 is None and not head.is_protected)
            or strong_etag(headers.get("ETag")) not in (None, note.etag)
            or file_digest_of(headers) not in (None, note.sha256)
            or read_content_range(headers.get("Content-Range")) != (self.done, note.size - 1, note.size)
        ):
            self._start_over()
            raise ServiceUnavailableError("The service sent a part of the file that was not requested.")
        require_space(self._folder, note.size - self.done, "the rest of the download")

    def write(self, chunks: list[bytes]) -> None:
        """Append the next bytes; with more than were declared (`UntrustedResponseError`) the part is gone."""
        length, limit = sum(map(len, chunks)), MAX_FILE_BYTES if self.size is None else self.size
        if self._file is None or self.done + length > limit:
            self._start_over()
            raise UntrustedResponseError("The file is longer than the service declared.")
        if self.size is None and (self.done + length) // _ROOM_STEP > self.done // _ROOM_STEP:
            require_space(self._folder, _ROOM_STEP, "the rest of the download")
        for chunk in chunks:
            self._file.write(chunk)
            self._hash.update(chunk)
        self._file.flush()  # what came survives a kill
        _start_writing(self._file, self.done, self.done + length)
        self.done += length

    def end(self) -> None:
        """Verify the file at the end of a response.

        Raise `ServiceUnavailableError` if that came too early, and the part stays; `UntrustedResponseError`
        if the digest is wrong, and the part is gone.
        """
        if self.done < (self.size or 0):
            raise ServiceUnavailableError("The download was cut off.")
        self._verify()

    def _verify(self) -> None:
        if self._note is not None and self._note.sha256 in (None, self._hash.hexdigest()):
            self.is_complete = True
            return
        was_resumed, is_unframed = self._is_resumed, self._is_encoded or self.size is None
        self._start_over()
        if is_unframed:  # it may end too early, or be packed
            raise ServiceUnavailableError("The file came in a form in which its digest differs.")
        # What an earlier run left may have been damaged on this disk: fetch all of it once more.
        if not was_resumed:
            raise UntrustedResponseError(
                "The file is not the one that the service announced: its digest differs."
            )

    def finish(self, last: Document | None = None) -> Downloaded:
        """Give the complete file its name, or with a number another one that is free.

        Only the same file and the one that was downloaded last, as `last` has it, are replaced.
        """
        if self._file is None or self._note is None:
            raise ValueError("only a complete file gets its name")
        sync_file(self._file)
        _make_readable(self._file, self._folder)
        self.close()
        digest, version = self._hash.hexdigest(), self._note.version
        name = self._note.name
        targets = (self._folder / disk_name(numbered_name(name, number)) for number in itertools.count())
        target = next(targets)
        while not _place(self._path, target):
            if _is_ours(target, digest, last):
                replace_file(self._path, target)
                break
            target = next(targets)
        self._note_path.unlink(missing_ok=True)
        return Downloaded(target, self.done, digest, version, is_verified=self._note.sha256 is not None)

    def close(self) -> None:
        """Close the part; it stays where it is."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _lock(folder: Path, name: str, stack: ExitStack) -> str:
    """Return a name of a part that no other call uses until the stack ends."""
    for number in range(_PARALLEL):
        slot = f".licclient-{name}-{number}"
        path = folder / f"{slot}.lock"
        try:
            lock = take_lock(path, 0)
        except TimeoutError:
            continue
        if lock is None:
            break  # if the folder cannot be written at all, opening the part raises
        with ExitStack() as unless_kept:
            unless_kept.callback(release_lock, lock, path)
            if not any(_is_foreign(folder / f"{slot}{ending}") for ending in (".part", ".note")):
                stack.push(unless_kept.pop_all())
                return slot
    return f".licclient-{name}-{os.urandom(8).hex()}"


def _is_foreign(path: Path) -> bool:
    """Return whether something has this name that we may not be able to remove, as in a shared folder."""
    status = look_at(path)
    return status is not None and (
        stat.S_ISDIR(status.st_mode) or (os.name != "nt" and status.st_uid != os.geteuid())
    )


@reader
def _read_note(document: Document) -> _PartMetadata:
    name, version, digest, etag = (
        require_type(document[field], str) for field in ("name", "version", "sha256", "etag")
    )
    return _PartMetadata(safe_name(name), version, require_type(document["size"], int), digest, etag)


def _open(path: Path, flags: int = 0) -> BinaryIO:
    """Open a part; a new one is private, so that no other user can write into it during the verification."""
    return open(path, "r+b", opener=with_flags(_PART_FLAGS | flags))


def _start_writing(file: BinaryIO, before: int, done: int) -> None:
    """Have Linux write to the disk by now, so that `fsync` waits 0.01 s for 200 MB and not 0.12."""
    if sys.platform == "linux":
        first, last = before - before % _WRITE_OUT, done - done % _WRITE_OUT
        if first < last:
            os.posix_fadvise(file.fileno(), first, last - first, os.POSIX_FADV_DONTNEED)


def _is_our_file(path: Path) -> bool:
    """Return whether this is a plain file with one name, that no other user can change.

    Raise `OSError` when that cannot be found out: a part that cannot be looked at is not removed.
    """
    status = look_at(path)
    if status is None or not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return False
    return os.name == "nt" or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)


def _make_readable(part: BinaryIO, folder: Path) -> None:
    """Make a verified file as readable as its folder."""
    if os.name != "nt":
        with suppress(OSError):  # a stick, or a share, without modes
            os.fchmod(part.fileno(), 0o600 | (folder.stat().st_mode & 0o044))


def _place(part: Path, target: Path) -> bool:
    """Give a file a name that nothing else has; return False if something has it."""
    try:
        if os.name == "nt":
            move_file(part, target)
            return True
        try:
            os.link(part, target)
        except FileExistsError:
            raise
        except OSError:  # no file system of Unix
            os.close(os.open(target, os.O_WRONLY | NEW_FILE, 0o600))
            replace_file(part, target)
        else:
            part.unlink()
    except FileExistsError:
        return False
    return True


def _is_ours(path: Path, digest: str, last: Document | None) -> bool:
    """Return whether a file has this digest, or is the one that was downloaded last, and not a link."""
    digests = {digest}
    match last:
        case {"path": str(noted), "sha256": str(before)} if noted == str(path):
            digests.add(before)

    def digest_of() -> str:
        with open_plain(path) as file:
            return file_digest(file, "sha256").hexdigest()

    try:
        status = look_at(path)
        return status is not None and stat.S_ISREG(status.st_mode) and repeat(digest_of) in digests
    except OSError:
        return False
