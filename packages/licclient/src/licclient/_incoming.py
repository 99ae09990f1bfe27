"""The answer to a request for a file, read on a thread of its own while others hash and write.

Whatever goes wrong is `ServiceUnavailableError` in our own words, as in `_transport`.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Self

from licclient._headers import read_retry_after
from licclient._quiet import unlogged
from licclient._sockets import Line, Pipe, start_thread
from licclient._transport import Transport, demand_plain, failure, raw_chunks, read_body
from licclient._wire import Head

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
