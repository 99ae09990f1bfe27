"""One download from its link to its name: waits, tries, progress and cancelling around a `Job` (D-48, D-55).

It runs on one thread; what comes is read ahead on another (`Incoming`), so that receiving overlaps with
hashing and writing.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol, Self, TypeVar

from licclient._download import Downloaded, Job
from licclient._flows.runners import run, send_with_retries
from licclient._model import Update
from licclient._pace import Patience, Speed
from licclient._protocol.responses import Head, read_retry_after
from licclient._sockets import GLANCE_SECONDS, Line, Pipe, nap, start_thread
from licclient._transport import Transport, demand_plain, failure, raw_chunks, read_body, unlogged
from licclient._update_steps import UpdateSteps
from licclient.errors import DownloadCancelledError, ServiceUnavailableError

MAX_REFUSAL_BYTES: Final = 64 * 1024
"""Longest body of a refused download that is read."""

READ_AHEAD_BYTES: Final = 512 * 1024
"""How much of a download may wait in memory for the disk: more does not fit a processor's cache."""

_OK: Final = frozenset({200, 206})


class Incoming:
    """The answer to one request for a file, as far as it has come. Leave it, and the connection is cut.

    How long to wait for it is for whoever takes it to decide: every wait here is as long as it is told to be.
    """

    def __init__(self, transport: Transport, link: str, headers: Mapping[str, str]) -> None:
        self._transport = transport
        self._line = Line()
        self._pipe = Pipe(READ_AHEAD_BYTES)
        self._head: Head | None = None
        self._shown = threading.Event()
        self._thread = start_thread(lambda: self._run(link, headers))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        if self._thread.is_alive():
            self._line.cut()

    def head(self, seconds: float) -> Head | None:
        """Wait for the head; None when it did not come in time.

        Raises:
            ServiceUnavailableError: It will not come.
        """
        if self._shown.wait(seconds) and self._head is None:
            self._pipe.take(0)  # raises
        return self._head

    def take(self, seconds: float) -> bytes | None:
        """Wait for more of the file, and take all that has come.

        Returns:
            None at the end; `b""` when nothing came in time.

        Raises:
            ServiceUnavailableError: The connection broke; after everything that came before.
        """
        return self._pipe.take(seconds)

    def _run(self, link: str, headers: Mapping[str, str]) -> None:
        try:
            with unlogged():
                self._receive(link, headers)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may know the address
            self._pipe.end(failure(problem))
        else:
            self._pipe.end()
        finally:
            self._shown.set()

    def _receive(self, link: str, headers: Mapping[str, str]) -> None:
        response, promised = self._transport.follow(self._line, link, headers)
        try:
            told = response.headers.copy()
            wait = read_retry_after(told)
            if response.status_code not in _OK:
                refusal = read_body(response, MAX_REFUSAL_BYTES)
                self._show(Head(response.status_code, told, refusal, wait))
                return
            demand_plain(response)
            # What the service promised goes before what the place says to which it sent us (D-34).
            told.update(promised)
            self._show(Head(response.status_code, told))
            for chunk in raw_chunks(response):
                if not self._pipe.put(chunk):
                    return
        finally:
            with suppress(Exception):
                response.close()

    def _show(self, head: Head) -> None:
        self._head = head
        self._shown.set()


PROGRESS_SECONDS: Final = 0.05
"""How often the app is told how far a download is: more often than this nobody can see."""

Progress = Callable[[int, int, float], object]
"""Called with the bytes that are there, the bytes in all, and bytes a second."""

_T = TypeVar("_T")


class Cancel(Protocol):
    """Something that the app can set to stop a download, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Tell whether to stop."""
        ...


def fetch(
    steps: UpdateSteps,
    transport: Transport,
    update: Update,
    to: Path,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
) -> Downloaded:
    """Download an update; arguments, result and errors are those of `LicenseClient.download`."""
    with steps.open_download(update, to) as job:
        return _Fetch(steps, transport, update, job, progress, cancel).run()


class _Fetch:
    """One download: its patience, its speed, and whom to tell."""

    def __init__(
        self,
        steps: UpdateSteps,
        transport: Transport,
        update: Update,
        job: Job,
        progress: Progress | None,
        cancel: Cancel | None,
    ) -> None:
        self._steps = steps
        self._transport = transport
        self._update = update
        self._job = job
        self._progress = progress
        self._cancel = cancel
        self._seconds = steps.settings.timeout.total_seconds()
        self._patience = Patience(self._seconds, job.done)
        self._speed = Speed(monotonic(), job.done)
        self._told_at = float("-inf")

    def run(self) -> Downloaded:
        job = self._job
        while not job.complete:
            if job.link is None:
                self._renew_link()  # with release keys, what an earlier run left is taken up only now
                continue
            try:
                self._try(job.link)
            except ServiceUnavailableError as cut:
                pause = job.pause_after(cut, self._patience.left)
                self._waiting(lambda: nap(pause, self._is_off))  # noqa: B023 - called at once
        self._tell()
        return job.finish()

    def _try(self, link: str) -> None:
        job = self._job
        with Incoming(self._transport, link, job.headers()) as incoming:
            job.begin(self._await(incoming.head, None, self._seconds))
            self._patience.came(job.done)  # none, if the server sends all of it once more
            # Half of the patience, so that a new connection has a chance in the other half.
            while (piece := self._await(incoming.take, b"", self._seconds / 2)) is not None:
                job.write(piece)
                self._patience.came(job.done)
                if monotonic() - self._told_at >= PROGRESS_SECONDS:
                    self._tell()
            job.end()

    def _renew_link(self) -> None:
        asking = self._steps.begin_link(self._update)
        call = self._steps.check_call(asking)
        seconds = min(self._patience.left, self._seconds)
        flow = send_with_retries(call, seconds)
        reply = self._waiting(lambda: run(flow, lambda: self._transport, self._is_off)).result
        self._demand_on()
        fresh = self._steps.end_link(asking, call, reply)
        self._job.renew(fresh.link, fresh.expected, fresh.version)
        self._speed = Speed(monotonic(), self._job.done)

    # --- waiting ------------------------------------------------------------------------------

    def _await(self, poll: Callable[[float], _T | None], not_yet: object, seconds: float) -> Any:
        """Wait for what comes next.

        Raises:
            ServiceUnavailableError: It took longer than `seconds`, or used up what was left of the patience.
            DownloadCancelledError: The app does not want it any more.
        """
        left = min(seconds, self._patience.left)
        while True:
            self._demand_on()
            began = monotonic()
            # Looked at once in any case: what is there is taken, also when patience has just run out.
            found = self._waiting(lambda: poll(max(0.0, min(left, GLANCE_SECONDS))))  # noqa: B023 - as above
            if found != not_yet:
                return found
            left -= monotonic() - began
            if left <= 0:
                raise ServiceUnavailableError("The download came to a standstill.")

    def _waiting(self, act: Callable[[], _T]) -> _T:
        began = monotonic()
        try:
            return act()
        finally:
            self._patience.waited(monotonic() - began)

    def _is_off(self) -> bool:
        return self._cancel is not None and self._cancel.is_set()

    def _demand_on(self) -> None:
        if self._is_off():
            raise DownloadCancelledError("The download was cancelled.")

    # --- telling ------------------------------------------------------------------------------

    def _tell(self) -> None:
        now, done = monotonic(), self._job.done
        speed = self._speed.at(now, done)
        self._told_at = now
        if self._progress is not None:
            self._progress(done, self._job.size or done, speed)
