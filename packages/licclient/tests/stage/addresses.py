"""Hosts with several addresses, of which one is dead: it takes no connection, and refuses none."""

import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

DEAD, ALIVE = "127.0.0.2", "127.0.0.1"

_real_lookup = socket.getaddrinfo


@contextmanager
def blackhole(port: int, address: str = DEAD) -> Iterator[None]:
    """Have a loopback address drop whatever connects to a port, as an IPv6 route that leads nowhere."""
    if sys.platform != "linux":
        pytest.skip("only Linux has a second loopback address that can drop connections")
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(0)
        while True:  # until the queue is full, and the kernel drops the next one
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0.2)
            try:
                filler.connect((address, port))
            except TimeoutError:
                break
        yield


class Names:
    """A resolver that knows a few names, and passes all others on. Names end in `.localhost`."""

    def __init__(self) -> None:
        self.known: dict[str, Sequence[str]] = {}

    def __call__(self, host: Any, port: Any, *arguments: Any, **options: Any) -> list[Any]:
        """Look a name up; as `socket.getaddrinfo`."""
        name = host.decode() if isinstance(host, bytes) else host
        return [
            found
            for address in self.known.get(name, [name])
            for found in _real_lookup(address, port, *arguments, **options)
        ]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """The system's resolver, with names of the test's own."""
    known = Names()
    monkeypatch.setattr(socket, "getaddrinfo", known)
    return known
