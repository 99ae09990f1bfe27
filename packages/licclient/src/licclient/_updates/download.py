"""Download an update: resume it, retry it, with fresh links, within a time limit (D-48, D-55).

The response is received ahead (`_incoming`) while the flow hashes and writes.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from licclient._core.clock import monotonic
from licclient._core.download_headers import body_length
from licclient._core.incoming import Incoming
from licclient._core.log import debug, describe
from licclient._core.model import Outage
from licclient._core.pace import Speed, StallBudget, Tries, next_try
from licclient._core.records import Document, Put, record_name
from licclient._core.responses import DOWNLOAD_REFUSALS, Head, Reply, note_origin, read_refusal
from licclient._core.runners import Flow, Notify, OpenDownload, Operation, Receive, Wait
from licclient._core.session import Session
from licclient._core.update_model import Downloaded, Update
from licclient._updates.check import find_offer_key, offered_file, renew_link
from licclient._updates.part_file import PartFile, open_part
from licclient._updates.patches import MAX_PATCH_BYTES, Base, PatchError, find_base, is_patch, note_download
from licclient.errors import LicclientError, LicenseRefusedError, ServiceUnavailableError

PROGRESS_SECONDS: Final = 0.05
"""How often progress is reported: faster updates are invisible."""

Progress = Callable[[int, int, float], object]
"""Called with the bytes that are there, the bytes in all, and bytes a second."""

_T = TypeVar("_T")


class Cancel(Protocol):
    """Something that the app can set to stop a download, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Return whether to stop."""
        ...


def download(
    session: Session, update: Update, folder: Path, progress: Progress | None, typed: str | None = None
) -> Flow[Downloaded]:
    """Download an update; arguments, result and errors are those of `LicenseClient.download`."""
    key = find_offer_key(session, typed)
    link, expected = offered_file(session, update, key)
    if link is None and isinstance(key, LicclientError):
        raise key
    settings = session.settings
    name = record_name("download", settings.server, update.slug, update.version)
    fallback = f"{update.slug}-{update.version}"
    with open_part(folder, name, fallback, require_digest=settings.require_digest) as part:
        if expected is not None:
            part.expect(expected)
        elif not settings.release_keys:  # else nothing is resumed until it is known what was signed
            part.resume()
        last = record_name("downloaded", settings.server, update.slug)
        download = _Download(session, update, key, part, link, progress, session.load_optional(last))
        downloaded = yield from download.run()
    session.storage.change(last, Put(note_download(downloaded)))
    return downloaded


class _Download:
    """One download: its link and tries, its time limit, and its progress."""

    def __init__(
        self,
        session: Session,
        update: Update,
        key: str | LicclientError,
        part: PartFile,
        link: str | None,
        progress: Progress | None,
        last: Document | None,
    ) -> None:
        self._before = self._last = last
        self._session = session
        self._update = update
        self._key = key
        self._part = part
        self._link = link
        self._version = update.version
        self._progress = progress
        self._seconds = session.settings.timeout.total_seconds()
        self._stall_budget = StallBudget(self._seconds, part.done, part.done)
        self._speed = Speed(monotonic(), part.done)
        self._reported_at = float("-inf")
        self._tries = Tries(part.done)
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
                debug("Download: broke off: %s", describe(error))
                pause = self._pause_after(error)
                yield from self._timed(_perform(Wait(pause)))
        yield from self._report_progress(self._part.done, self._part.size)
        return self._part.finish(self._before)

    def _try(self, link: str) -> Flow[None]:
        part = self._part
        headers, last = part.request_headers(), self._last
        base = None if headers else find_base(last)
        self._last = None  # a patch is tried once: whatever is wrong with it, the whole file follows
        with Incoming(link, base.request_headers() if base else headers) as incoming:
            yield OpenDownload(incoming)
            head = yield from self._receive(incoming, self._seconds)
            debug("Download: %s, with %d bytes here already", head.status, part.done)
            if head.status in (403, 404):  # 404: withdrawn, a fresh link leads to another version (D-33)
                self._drop_link(head)
                self._last = last
                return
            if base is not None and is_patch(head):
                yield from self._receive_patch(incoming, head, base)
                return
            try:
                part.begin(head, self._version)
            except LicclientError as problem:
                raise note_origin(problem, head, "") from None
            # `done` is 0 if the server sends the whole file again.
            self._stall_budget = self._stall_budget.at(part.done)
            # Half of the time limit, so that a new connection has a chance in the other half.
            while (chunks := (yield from self._receive(incoming, self._seconds / 2))) is not None:
                part.write(chunks)
                self._stall_budget = self._stall_budget.at(part.done)
                if monotonic() - self._reported_at >= PROGRESS_SECONDS:
                    yield from self._report_progress(part.done, part.size)
            part.end()

    def _receive_patch(self, incoming: Incoming, head: Head, base: Base) -> Flow[None]:
        """Make the file of a patch; without success the part is not complete.

        It is in memory, so its size is not the sender's to say: no patch is longer than the file it makes.
        """
        patch, size = bytearray(), body_length(head.headers)
        limit = min(MAX_PATCH_BYTES, self._part.expected_size or MAX_PATCH_BYTES)
        if size is not None and size > limit:
            return
        while (chunks := (yield from self._receive(incoming, self._seconds / 2))) is not None:
            patch += b"".join(chunks)
            if len(patch) > limit:
                return
            self._stall_budget = self._stall_budget.at(len(patch))
            yield from self._report_progress(len(patch), size)
        with suppress(PatchError, LicclientError):
            base.apply(bytes(patch), head, self._part, self._version)

    def _receive(self, incoming: Incoming, seconds: float) -> Flow[Any]:
        """Return the head or the next chunks; None at the end.

        Raise `ServiceUnavailableError` if it broke off, took too long, or used up the time limit.
        """
        received = yield from self._timed(
            _perform(Receive(incoming, min(seconds, self._stall_budget.remaining)))
        )
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
            self._stall_budget = self._stall_budget.after_wait(monotonic() - began)

    # --- links and tries ----------------------------------------------------------------------

    def _renew_link(self) -> Flow[None]:
        seconds = min(self._seconds, self._stall_budget.remaining)
        if isinstance(self._key, LicclientError):
            raise self._key
        fresh = yield from self._timed(renew_link(self._session, self._update, self._key, seconds))
        self._link, self._version = fresh.download_url, fresh.version
        if fresh.signed is not None:
            self._part.expect(fresh.signed)
        self._speed = Speed(monotonic(), self._part.done)
        self._tries = replace(self._tries, best=max(self._tries.best, self._part.done))

    def _drop_link(self, head: Head) -> None:
        """Request a fresh link after a refusal, once; again only if the last one brought more of the file."""
        key = self._key if isinstance(self._key, str) else ""
        refusal = read_refusal(Reply(head.status, head.refusal), key, DOWNLOAD_REFUSALS)
        if refusal is not None:  # within the hour (D-31)
            raise note_origin(LicenseRefusedError(refusal.reason, refusal.message), head, key)
        if self._renewed_at is not None and self._part.done <= self._renewed_at:
            words = "The service does not accept its own download link."
            raise note_origin(ServiceUnavailableError(words, outage=Outage.UNUSABLE), head, key)
        self._renewed_at, self._link = self._part.done, None

    def _pause_after(self, error: ServiceUnavailableError) -> float:
        """Return the seconds until the next try, or raise the error: the part stays for another day."""
        spread, remaining = random.random(), self._stall_budget.remaining  # noqa: S311 - jitter
        self._tries, pause = next_try(self._tries, self._part.done, error.retry_after, spread, remaining)
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
