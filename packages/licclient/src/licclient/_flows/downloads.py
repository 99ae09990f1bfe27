"""Download an update: resume it, retry it, with fresh links, within a time limit (D-48, D-55).

The response is received ahead (`_incoming`, `_async_transport`) while the flow hashes and writes.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol, TypeVar

from licclient._flows.context import Context
from licclient._flows.runners import Flow, Notify, OpenDownload, Operation, Receive, Wait
from licclient._flows.updates import key_of_offer, offered_file, renew_link
from licclient._model import Reason, Update
from licclient._pace import MAX_RETRIES, Patience, Speed, retry_pause
from licclient._part_file import Downloaded, PartFile, open_part
from licclient._patches import Base, PatchError, find_base, has_library, is_patch, note_download
from licclient._protocol.downloads import read_length
from licclient._protocol.responses import Head, Reply, read_refusal
from licclient._records import Document, record_name
from licclient.errors import LicclientError, LicenseRefusedError, ServiceUnavailableError

MAX_TRIES: Final = 20
"""How many requests there are at all: a server that cuts after every byte must not keep us forever."""

PROGRESS_SECONDS: Final = 0.05
"""How often progress is reported: more often than this nobody can see."""

Progress = Callable[[int, int, float], object]
"""Called with the bytes that are there, the bytes in all, and bytes a second."""

_T = TypeVar("_T")


class Cancel(Protocol):
    """Something that the app can set to stop a download, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Return whether to stop."""
        ...


def download(context: Context, update: Update, folder: Path, progress: Progress | None) -> Flow[Downloaded]:
    """Download an update; arguments, result and errors are those of `LicenseClient.download`."""
    link, expected = offered_file(context, update)
    key = key_of_offer(context, update)
    settings = context.settings
    name = record_name("download", settings.server, update.slug, update.version)
    fallback = f"{update.slug}-{update.version}"
    with open_part(folder, name, fallback, require_digest=settings.require_digest) as part:
        if expected is not None:
            part.expect(expected)
        elif not settings.release_keys:  # else nothing is resumed until it is known what was signed
            part.resume()
        last = record_name("downloaded", settings.server, update.slug)
        download = _Download(context, update, key, part, link, progress, context.storage.load(last))
        found = yield from download.run()
    if has_library():
        context.storage.change(last, lambda _: note_download(found))
    return found


class _Download:
    """One download: its link and tries, its time limit, and its progress."""

    def __init__(
        self,
        context: Context,
        update: Update,
        key: str,
        part: PartFile,
        link: str | None,
        progress: Progress | None,
        last: Document | None,
    ) -> None:
        self._last = last
        self._context = context
        self._update = update
        self._key = key
        self._part = part
        self._link = link
        self._version = update.version
        self._progress = progress
        self._seconds = context.settings.timeout.total_seconds()
        self._patience = Patience(self._seconds, part.done)
        self._speed = Speed(monotonic(), part.done)
        self._reported_at = float("-inf")
        self._tries = self._failures = 0
        self._best = part.done
        self._renewed_at: int | None = None

    def run(self) -> Flow[Downloaded]:
        """Try until the file is complete."""
        while not self._part.is_complete:
            if self._link is None:
                yield from self._renew_link()
                continue
            try:
                yield from self._try(self._link)
            except ServiceUnavailableError as error:
                pause = self._pause_after(error)
                yield from self._timed(_perform(Wait(pause)))
        yield from self._report_progress(self._part.done, self._part.size)
        return self._part.finish()

    def _try(self, link: str) -> Flow[None]:
        part = self._part
        headers, last = part.request_headers(), self._last
        base = None if headers else find_base(last)
        self._last = None  # a patch is tried once: whatever is wrong with it, the whole file follows
        with (yield OpenDownload(link, base.request_headers() if base else headers)) as incoming:
            head = yield from self._receive(incoming, self._seconds)
            if head.status in (403, 404):  # 404: withdrawn, a fresh link leads to another version (D-33)
                self._drop_link(head)
                self._last = last
                return
            if base is not None and is_patch(head):
                yield from self._receive_patch(incoming, head, base)
                return
            part.begin(head, self._version)
            self._patience.came(part.done)  # 0, if the server sends all of it once more
            # Half of the time limit, so that a new connection has a chance in the other half.
            while (chunks := (yield from self._receive(incoming, self._seconds / 2))) is not None:
                part.write(chunks)
                self._patience.came(part.done)
                if monotonic() - self._reported_at >= PROGRESS_SECONDS:
                    yield from self._report_progress(part.done, part.size)
            part.end()

    def _receive_patch(self, incoming: Any, head: Head, base: Base) -> Flow[None]:
        """Make the file of a patch; without success the part is not complete."""
        patch, size = bytearray(), read_length(head.headers.get("Content-Length")) or 0
        while (chunks := (yield from self._receive(incoming, self._seconds / 2))) is not None:
            patch += b"".join(chunks)
            if len(patch) > size:
                return
            self._patience.came(len(patch))
            yield from self._report_progress(len(patch), size)
        with suppress(PatchError, LicclientError):
            base.apply(bytes(patch), head, self._part, self._version)

    def _receive(self, incoming: Any, seconds: float) -> Flow[Any]:
        """Return the head or the next chunks; None at the end.

        Raise `ServiceUnavailableError` if it broke off, took too long, or used up the time limit.
        """
        received = yield from self._timed(_perform(Receive(incoming, min(seconds, self._patience.left))))
        if isinstance(received, ServiceUnavailableError):
            raise received
        if received == []:
            raise ServiceUnavailableError("The download came to a standstill.")
        return received

    def _timed(self, flow: Flow[_T]) -> Flow[_T]:
        """Count an operation's time as waiting for the service."""
        began = monotonic()
        try:
            return (yield from flow)
        finally:
            self._patience.waited(monotonic() - began)

    # --- links and tries ----------------------------------------------------------------------

    def _renew_link(self) -> Flow[None]:
        seconds = min(self._seconds, self._patience.left)
        fresh = yield from self._timed(renew_link(self._context, self._update, seconds))
        self._link, self._version = fresh.download_url, fresh.version
        if fresh.vouched is not None:
            self._part.expect(fresh.vouched)
        self._speed = Speed(monotonic(), self._part.done)
        self._best = max(self._best, self._part.done)

    def _drop_link(self, head: Head) -> None:
        """Request a fresh link after a refusal, once; again only if the last one brought more of the file."""
        refusal = read_refusal(Reply(head.status, head.refusal), self._key)
        if refusal is not None and refusal.reason is Reason.REVOKED:  # within the hour (D-31)
            raise LicenseRefusedError(refusal.reason, refusal.message)
        if self._renewed_at is not None and self._part.done <= self._renewed_at:
            raise ServiceUnavailableError("The service does not accept its own download link.")
        self._renewed_at, self._link = self._part.done, None

    def _pause_after(self, error: ServiceUnavailableError) -> float:
        """Return the seconds until the next try, or raise the error: the part stays for another day."""
        done = self._part.done
        self._tries += 1
        self._failures = 0 if done > self._best else self._failures + 1
        self._best = max(self._best, done)
        if self._failures > MAX_RETRIES or self._tries >= MAX_TRIES:
            raise error from None
        if not self._failures and error.retry_after is None:
            return 0.0
        # The first failure in a row is no retry yet.
        retry = max(self._failures - 1, 0)
        pause = retry_pause(retry, error.retry_after, random.random(), self._patience.left)  # noqa: S311 - jitter
        if pause is None:
            raise error from None
        return pause

    def _report_progress(self, done: int, size: int | None) -> Flow[None]:
        now = monotonic()
        speed = self._speed.at(now, done)
        self._reported_at = now
        if self._progress is not None:
            yield Notify(partial(self._progress, done, size or done, speed))


def _perform(operation: Operation) -> Flow[Any]:
    return (yield operation)
