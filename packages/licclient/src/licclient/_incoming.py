"""A response to a download, received ahead: receiving overlaps with hashing and writing."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any, Final, Self

import httpx

from licclient._network import Connection, start_thread
from licclient._protocol.responses import Head, read_retry_after
from licclient._transport import Transport, body_chunks, check_encoding, failure, read_body, unlogged
from licclient.errors import ServiceUnavailableError

MAX_REFUSAL_BYTES: Final = 64 * 1024
"""Longest body of a refused download that is read."""

READ_BYTES: Final = 120 * 1024
"""How much is read at once; for more, malloc calls the kernel each time, though over TLS only 16 KiB come."""

BATCH_BYTES: Final = 1024 * 1024
"""How much is handed over at once: to do so for each chunk costs as much as hashing it."""

AHEAD_BYTES: Final = 4 * BATCH_BYTES
"""How much waits in memory for the disk."""

LEAST_BYTES: Final = 1024
"""What a chunk counts at least: one of a single byte takes memory, too."""

LOOK_SECONDS: Final = 0.05
"""How long chunks wait for a batch of them: so often is progress reported, and a cancel noticed."""

Arrived = Head | bytes | ServiceUnavailableError | None
"""First the head, then the chunks, then None, or why no more came."""

Received = Head | list[bytes] | ServiceUnavailableError | None
"""The same, with all chunks that have arrived at once; `[]` if nothing came in time."""


class Incoming:
    """A response to a download, received ahead on a thread. Leaving it closes the connection."""

    def __init__(self, transport: Transport, link: str, headers: Mapping[str, str]) -> None:
        self._connection = Connection()
        self._arrived = deque[Arrived]()
        self._bytes = 0
        self._changed = threading.Condition()
        self._is_closed = False
        start_thread(lambda: self._run(transport, link, headers))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.shut_down()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def receive(self, seconds: float, is_cancelled: Callable[[], bool] = lambda: False) -> Received:
        """Wait for what comes next, `seconds` at most; what has already come is returned in any case."""
        deadline = monotonic() + seconds
        with self._changed:
            while True:
                left = deadline - monotonic()
                self._changed.wait_for(self._has_batch, max(0.0, min(left, LOOK_SECONDS)))
                if self._arrived or self._is_closed or is_cancelled() or left <= 0:
                    break
            received = self._take()
            self._changed.notify_all()
            return received

    def _has_batch(self) -> bool:
        """Return whether to hand over what has arrived."""
        ends = bool(self._arrived) and not isinstance(self._arrived[-1], bytes)
        return ends or self._bytes >= BATCH_BYTES

    def _take(self) -> Received:
        """Remove and return what comes next: all chunks at once."""
        chunks, self._bytes = list[bytes](), 0
        while self._arrived:
            first = self._arrived[0]
            if not isinstance(first, bytes):
                if chunks:
                    break
                self._arrived.popleft()
                return first
            chunks.append(first)
            self._arrived.popleft()
        return chunks

    def _put(self, arrived: Arrived) -> None:
        with self._changed:
            while self._bytes >= AHEAD_BYTES and not self._is_closed:
                self._changed.wait()
            self._arrived.append(arrived)
            if isinstance(arrived, bytes):
                self._bytes += max(len(arrived), LEAST_BYTES)
            if self._has_batch():
                self._changed.notify_all()

    def _run(self, transport: Transport, link: str, headers: Mapping[str, str]) -> None:
        try:
            with unlogged(), transport.follow(self._connection, link, headers) as found:
                response, promised, protected = found
                status, retry_after = response.status_code, read_retry_after(response.headers)
                if status not in (200, 206):
                    refusal = read_body(response, MAX_REFUSAL_BYTES)
                    self._put(Head(status, response.headers, refusal, retry_after))
                    return
                check_encoding(response, headers.get("Accept-Encoding", ""))  # a patch, if one was requested
                declared = response.headers.copy()
                declared.update(promised)  # by the service, so it precedes what another place declares (D-34)
                head = Head(status, declared, retry_after=retry_after, is_protected=protected)
                self._put(head)
                for chunk in _file_chunks(response, transport.find_reader(response, head)):
                    self._put(chunk)
                    if self._is_closed:
                        return
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may contain the address
            self._put(failure(problem))
        else:
            self._put(None)


def _file_chunks(response: httpx.Response, read: Callable[[int], Any] | None) -> Iterator[bytes]:
    """Return the body as it comes; all but the first chunk by `read`, if that is given."""
    chunks = iter(body_chunks(response))
    if read is None:
        yield from chunks
        return
    left = int(response.headers["Content-Length"])
    chunk = next(chunks, b"")  # everything that h11 has by now
    while chunk:
        yield chunk
        left -= len(chunk)
        chunk = read(min(left, READ_BYTES)) if left else b""
