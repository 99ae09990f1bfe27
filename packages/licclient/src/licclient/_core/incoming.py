"""A response to a download on its way from the thread that receives it to the flow that writes it.

Receiving ahead overlaps with hashing and writing. A flow makes an `Incoming` and leaves it; a transport puts
into it what arrives. So the flow owns it before there is a thread or a connection, wherever it is cancelled.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Self

from licclient._core.clock import monotonic
from licclient._core.network import start_thread
from licclient._core.responses import Head
from licclient.errors import ServiceUnavailableError

BATCH_BYTES: Final = 1024 * 1024
"""How much is handed over at once: to do so for each chunk costs as much as hashing it."""

AHEAD_BYTES: Final = 4 * BATCH_BYTES
"""How much waits in memory for the disk."""

LEAST_BYTES: Final = 1024
"""The least that a chunk counts: one of a single byte takes memory, too."""

LOOK_SECONDS: Final = 0.05
"""How long chunks wait for a batch of them: so often is progress reported, and a cancel noticed."""

Arrived = Head | bytes | ServiceUnavailableError | None
"""First the head, then the chunks, then None, or why no more came."""

Received = Head | list[bytes] | ServiceUnavailableError | None
"""The same, with all chunks that have arrived at once; `[]` if nothing came in time."""


class Incoming:
    """A response to a request for a file. Leaving it ends the request."""

    def __init__(self, link: str, headers: Mapping[str, str]) -> None:
        self.link, self.headers = link, headers
        self._arrived = deque[Arrived]()
        self._bytes = 0
        self._changed = threading.Condition()
        self._end: Callable[[], object] = lambda: None
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self.is_closed = True
            self._arrived.clear()
            self._changed.notify_all()
            end = self._end
        end()

    # --- the flow -----------------------------------------------------------------------------

    def receive(self, seconds: float, is_cancelled: Callable[[], bool] = lambda: False) -> Received:
        """Wait for what comes next, `seconds` at most; what has already come is returned in any case."""
        deadline = monotonic() + seconds
        with self._changed:
            while True:
                remaining = deadline - monotonic()
                self._changed.wait_for(self._has_batch, max(0.0, min(remaining, LOOK_SECONDS)))
                if self._arrived or self.is_closed or is_cancelled() or remaining <= 0:
                    break
            received = self._take()
            self._changed.notify_all()
            return received

    def is_ready(self) -> bool:
        """Return whether `receive` returns at once, with as much as it hands over."""
        with self._changed:
            return self._has_batch()

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

    # --- the transport ------------------------------------------------------------------------

    def start(self, receive: Callable[["Incoming"], object], end: Callable[[], object]) -> None:
        """Start a thread that receives, unless this was left; `end` is called when it is left."""
        with self._changed:
            if self.is_closed:
                return
            start_thread(lambda: receive(self))
            self._end = end

    def put(self, arrived: Arrived) -> bool:
        """Hand over what arrived, when there is room for it; return False if no reader waits for more."""
        with self._changed:
            while self._bytes >= AHEAD_BYTES and not self.is_closed:
                self._changed.wait()
            if self.is_closed:
                return False
            self._arrived.append(arrived)
            if isinstance(arrived, bytes):
                self._bytes += max(len(arrived), LEAST_BYTES)
            if self._has_batch():
                self._changed.notify_all()
            return True
