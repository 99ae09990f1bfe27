"""One download on the disk: a part that grows, is cut off, goes on, is verified, and then gets its name.

A `Job` never talks to the network; a client drives it (D-48)::

    with open_job(…) as job:
        job.take_up(…)
        while not job.complete:
            if job.link is None: job.renew(a fresh one)
            begin(head) → write(chunk)… → end()      or, when the connection breaks: pause_after(cut)
        job.finish()

What lies on the disk meanwhile is told in `_part`. `OSError` from the target folder is the app's matter and
escapes.
"""

import os
import random
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

from licclient._model import Manifest, Reason
from licclient._pace import MAX_RETRIES, retry_pause
from licclient._part import (
    Note,
    is_our_file,
    lock_a_slot,
    make_part,
    open_part,
    open_up,
    read_note,
    read_sealed_note,
)
from licclient._protocol.downloads import read_content_range
from licclient._protocol.responses import Head, Reply, read_refusal, unusable_response
from licclient._records import seal
from licclient._storage import demand_room, read_private, replace_file
from licclient.errors import LicenseRefusedError, ServiceUnavailableError, UntrustedResponseError

MAX_TRIES: Final = 20
"""How many tries there are at all: a server that cuts after every byte must not keep us forever."""

_HASH_BLOCK: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A file that arrived whole and was verified, under its final name. `open` takes it like a path.

    Attributes:
        path: Where it is.
        size: In bytes.
        sha256: Its digest, as lower-case hex: of the bytes as they were written.
        version: The version that it is; higher than the one offered if that was replaced meanwhile (D-33).
    """

    path: Path
    size: int
    sha256: str
    version: str

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


@contextmanager
def open_job(
    folder: Path, part: str, link: str | None, fallback_name: str, license_key: str, version: str
) -> Generator["Job"]:
    """Take up the download of one file into one folder, where an earlier run left it.

    Args:
        folder: Where the file shall be; made if it is missing.
        part: Name for the part file, as from `record_name`: the same for the same file.
        link: Address to fetch from, or None: a fresh one is needed.
        fallback_name: The file's name should the server tell none.
        license_key: Masked in what the server says.
        version: What the link was offered as.

    Raises:
        OSError: The folder cannot be used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        slot = lock_a_slot(folder, part, stack)
        job = Job(folder, slot, link, fallback_name, license_key, version)
        stack.callback(job.close)
        yield job


class Job:
    """The state of one download.

    Attributes:
        link: Address to fetch from; None when a fresh one is needed.
        complete: The whole file is there and verified.
        done: Bytes that are on the disk.
    """

    def __init__(
        self, folder: Path, slot: str, link: str | None, fallback_name: str, license_key: str, version: str
    ) -> None:
        self._folder = folder
        self._slot = slot
        self._part = folder / f"{slot}.part"
        self._note_path = folder / f"{slot}.note"
        self._fallback_name = fallback_name
        self._license_key = license_key
        self._version = version
        self._expected: Manifest | None = None
        self._note: Note | None = None
        self._file: BinaryIO | None = None
        self._hash = sha256()
        self._resumed = False
        self._receiving = False
        self._renewed_at: int | None = None
        self._tries = self._idle = self._best = 0
        self.link = link
        self.complete = False
        self.done = 0

    @property
    def size(self) -> int | None:
        """Bytes that the whole file has; None while nobody knows."""
        return self._note.size if self._note else None

    # --- what an earlier run left -------------------------------------------------------------

    def take_up(self, expected: Manifest | None, *, pinned: bool) -> None:
        """Go on where an earlier run was interrupted, if it left a part and a note that belong together.

        Args:
            expected: What the vendor signed about the file; the note is believed only as far as it agrees.
            pinned: Whether nothing may be taken that the vendor did not sign: then nothing is taken up until
                it is known what that is.
        """
        self._expected = expected
        if pinned and expected is None:
            return
        self.close()
        self._hash, self.done = sha256(), 0
        self._note = read_sealed_note(self._slot, read_private(self._note_path))
        if (
            self._note is None
            or not self._note.resumable
            or not self._is_expected(self._note)
            or not is_our_file(self._part)
        ):
            self._start_over()
            return
        self._file = open_part(self._part)
        while block := self._file.read(_HASH_BLOCK):
            self._hash.update(block)
            self.done += len(block)
        self._best = self.done
        self._resumed = self.done > 0
        if self.done > (self._note.size or 0):
            self._start_over()
        elif self.done == self._note.size:
            self._judge_whole()

    def renew(self, link: str, expected: Manifest | None, version: str) -> None:
        """Take a fresh link, and what the vendor signed about the file behind it (D-48, D-67)."""
        self.link = link
        self._version = version
        if expected is not None:
            known, self._expected = self._expected, expected
            if known is None or (known.size, known.sha256) != (expected.size, expected.sha256):
                self.take_up(expected, pinned=True)

    def _is_expected(self, told: Note) -> bool:
        """Whether what is told of the file agrees with what the vendor signed; what is not told does."""
        if self._expected is None:
            return True
        return told.size in (None, self._expected.size) and told.sha256 in (None, self._expected.sha256)

    def _start_over(self) -> None:
        self.close()
        for path in (self._note_path, self._part):
            path.unlink(missing_ok=True)
        self._note = None
        self._hash = sha256()
        self._resumed = self.complete = False
        self.done = 0

    # --- one try ------------------------------------------------------------------------------

    def headers(self) -> dict[str, str]:
        """Return what to ask with: for the rest, if the file is still the same (RFC 9110 13.1.5)."""
        self._receiving = False
        if self.done and self._note is not None and self._note.etag is not None:
            return {"Range": f"bytes={self.done}-", "If-Range": self._note.etag}
        return {}

    def begin(self, head: Head) -> None:
        """Take the head of an answer.

        Raises:
            LicenseRefusedError: The key was revoked within the hour (D-31).
            ServiceUnavailableError: No file, or not the part that was asked for.
        """
        match head.status:
            case 200:
                self._begin_whole(head)
            case 206:
                self._begin_rest(head)
            case 403 | 404:  # 404: the version was withdrawn (D-33), a fresh link leads to another
                self._judge_refusal(head)
            case 416:
                self._start_over()
                raise unusable_response(head.status)
            case _:
                raise unusable_response(head.status, head.retry_after)

    def _begin_whole(self, head: Head) -> None:
        told = read_note(head, self._fallback_name, self._version)
        if not self._is_expected(told):
            self._start_over()
            raise UntrustedResponseError("The service has another file than the one that the vendor signed.")
        if self._expected is not None:  # from here on it alone says how long the file is, and which
            told = replace(told, size=self._expected.size, sha256=self._expected.sha256)
        if told.size is None or told.sha256 is None:
            # Without the one nothing shows where it ends, without the other not that it is the file (D-55).
            raise ServiceUnavailableError("The file came without its length or its digest.")
        self._start_over()
        demand_room(self._folder, told.size, "the download")
        self._note = told
        self._file = make_part(self._part)
        if told.resumable:
            self._note_path.write_bytes(seal(self._slot, asdict(told)))
        self._receiving = True

    def _begin_rest(self, head: Head) -> None:
        told, span = (
            read_note(head, self._fallback_name, self._version),
            read_content_range(head.headers.get("Content-Range")),
        )
        note = self._note
        same = note is not None and told.etag in (None, note.etag) and told.sha256 in (None, note.sha256)
        if not same or note is None or span != (self.done, (note.size or 0) - 1, note.size):
            self._start_over()
            raise ServiceUnavailableError("The service sent another part of the file than was asked for.")
        demand_room(self._folder, (note.size or 0) - self.done, "the rest of the download")
        self._receiving = True

    def _judge_refusal(self, head: Head) -> None:
        """Ask for a fresh link, once; again only when the last one brought the file further."""
        refusal = read_refusal(Reply(head.status, head.refusal), self._license_key)
        if refusal is not None and refusal.reason is Reason.REVOKED:
            raise LicenseRefusedError(refusal.reason, refusal.message)
        if self._renewed_at is not None and self.done <= self._renewed_at:
            raise ServiceUnavailableError("The service does not accept its own download link.")
        self._renewed_at = self.done
        self.link = None

    def write(self, chunk: bytes) -> None:
        """Put the next bytes at the end of the part.

        Raises:
            UntrustedResponseError: More came than the server said; the part is gone.
            OSError: The disk is full, for one; the part stays.
        """
        if self._file is None or (self.size is not None and self.done + len(chunk) > self.size):
            self._start_over()
            raise UntrustedResponseError("The file is longer than the service said.")
        self._file.write(chunk)
        self._file.flush()  # so that what came is there, also after a kill
        self._hash.update(chunk)
        self.done += len(chunk)

    def end(self) -> None:
        """Take the end of an answer.

        Raises:
            ServiceUnavailableError: Too early; the part stays.
            UntrustedResponseError: The digest is wrong; the part is gone.
        """
        if not self._receiving:
            return
        if self.size is not None and self.done < self.size:
            raise ServiceUnavailableError("The download was cut off.")
        self._judge_whole()

    def _judge_whole(self) -> None:
        wanted = self._note.sha256 if self._note else None
        if wanted is None or wanted == self._hash.hexdigest():
            self.complete = True
            return
        resumed = self._resumed
        self._start_over()
        # What an earlier run left may have been damaged on this disk: fetch it all once before crying wolf.
        if not resumed:
            raise UntrustedResponseError(
                "The file is not the one that the service promised: its digest differs."
            )

    def pause_after(self, cut: ServiceUnavailableError, left: float) -> float:
        """Decide whether to try again after a failure.

        Args:
            cut: What went wrong.
            left: Seconds until patience is at its end.

        Returns:
            How long to wait before; in seconds.

        Raises:
            ServiceUnavailableError: The failure itself; what has come so far stays for another day.
        """
        self._tries += 1
        self._idle = 0 if self.done > self._best else self._idle + 1
        self._best = max(self._best, self.done)
        if self._idle > MAX_RETRIES or self._tries >= MAX_TRIES:
            raise cut from None
        if not self._idle and cut.retry_after is None:
            return 0.0
        # The first failure in a row is no retry yet.
        pause = retry_pause(max(self._idle - 1, 0), cut.retry_after, random.random(), left)  # noqa: S311
        if pause is None:
            raise cut from None
        return pause

    # --- the end ------------------------------------------------------------------------------

    def finish(self) -> Downloaded:
        """Give the verified file its name, over an older one of that name.

        Raises:
            OSError: It cannot have it, such as when a folder has that name.
        """
        if self._file is not None:
            os.fsync(self._file.fileno())
            open_up(self._part, self._folder)
        self.close()
        name, version = self._fallback_name, self._version
        if self._note is not None:
            name, version = self._note.name, self._note.version
        target = self._folder / name
        replace_file(self._part, target)
        self._note_path.unlink(missing_ok=True)
        return Downloaded(target, self.done, self._hash.hexdigest(), version)

    def close(self) -> None:
        """Close the part; it stays where it is."""
        if self._file is not None:
            self._file.close()
            self._file = None
