"""A response to a download, received ahead on a thread: receiving overlaps with hashing and writing."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, Queue
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

from licclient._protocol.responses import Head, read_retry_after
from licclient._sockets import GLANCE_SECONDS, Line, start_thread
from licclient._transport import demand_plain, failure, raw_chunks, read_body, unlogged
from licclient.errors import ServiceUnavailableError

if TYPE_CHECKING:
    from licclient._transport import Transport

MAX_REFUSAL_BYTES: Final = 64 * 1024
"""Longest body of a refused download that is read."""

READ_AHEAD: Final = 8
"""Chunks, of at most 64 KiB each, that wait in memory for the disk: more does not fit a processor's cache."""

Received = Head | bytes | ServiceUnavailableError | None
"""First the head, then the body in chunks, then None, or why no more came; `b""` if nothing came in time."""


class Incoming:
    """One response to a download. Leave it as a context manager: that cuts the connection."""

    def __init__(self, transport: "Transport", link: str, headers: Mapping[str, str]) -> None:
        self._transport = transport
        self._line = Line()
        self._queue: Queue[Received] = Queue(READ_AHEAD)
        self._is_closed = threading.Event()
        start_thread(lambda: self._run(link, headers))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._line.cut()
        with suppress(Empty):  # the thread may be waiting to put something
            while True:
                self._queue.get_nowait()

    def receive(self, seconds: float, is_cancelled: Callable[[], bool] | None = None) -> Received:
        """Wait for what comes next.

        Args:
            seconds: For how long; what has already come is returned in any case.
            is_cancelled: Checked ten times a second; ends the wait.
        """
        deadline = monotonic() + seconds
        while True:
            left = deadline - monotonic()
            try:
                return self._queue.get(timeout=max(0.0, min(left, GLANCE_SECONDS)))
            except Empty:
                if left <= 0 or (is_cancelled is not None and is_cancelled()):
                    return b""

    def _run(self, link: str, headers: Mapping[str, str]) -> None:
        try:
            with unlogged():
                self._receive(link, headers)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may contain the address
            self._queue.put(failure(problem))
        else:
            self._queue.put(None)

    def _receive(self, link: str, headers: Mapping[str, str]) -> None:
        response, promised = self._transport.follow(self._line, link, headers)
        try:
            declared = response.headers.copy()
            if response.status_code not in (200, 206):
                refusal = read_body(response, MAX_REFUSAL_BYTES)
                wait = read_retry_after(declared)
                self._queue.put(Head(response.status_code, declared, refusal, wait))
                return
            demand_plain(response)
            # What the service declared precedes what the place does to which it redirects (D-34).
            declared.update(promised)
            self._queue.put(Head(response.status_code, declared))
            for chunk in filter(None, raw_chunks(response)):
                self._queue.put(chunk)
                if self._is_closed.is_set():
                    return
        finally:
            with suppress(Exception):
                response.close()
