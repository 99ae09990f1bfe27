"""An open loop: verifies that are sent when they are due, whether or not the ones before were answered.

Run as a program it reads a plan (JSON, one line) from standard input, says that it has begun, sends until
standard input ends, and prints what it saw (JSON). A verify's time begins when it is due: who waits for one
of the connections waits on the clock, too, and a server that stands still is seen by all who came meanwhile.
"""

import json
import random
import select
import socket
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from bench.load import RECV, content_length, verify_request

MAX_SECONDS: Final = 900.0
"""No plan lasts longer, whatever becomes of who started it."""


@dataclass
class Watched:
    """What was seen in a window.

    Args:
        seconds: How long it was, without the warm-up.
        bad: Answers that were not a valid verify.
        first_bad: The first of them.
        latencies: Seconds from when a verify was due until it was answered.
    """

    seconds: float = 0.0
    bad: int = 0
    first_bad: str = ""
    latencies: list[float] = field(default_factory=list, repr=False)


class Window:
    """One window of verifies at a steady rate.

    Args:
        plan: ``url``, ``keys``, ``domain``, ``rate`` a second, ``connections``, ``warm_up`` in seconds,
        ``seed``.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        parts = urlsplit(plan["url"])
        self._host = parts.netloc
        self._gap, self._warm_up = 1 / plan["rate"], plan["warm_up"]
        self._keys, self._domain = plan["keys"], plan["domain"]
        self._draw = random.Random(plan["seed"])  # noqa: S311 - the same order in every run
        self._idle = deque[
            socket.socket
        ]()  # each in its turn: the server closes one on which nothing is asked
        self._busy: dict[socket.socket, tuple[float, bytes]] = {}
        address = (parts.hostname or "127.0.0.1", parts.port or 80)
        for _ in range(plan["connections"]):
            sock = socket.create_connection(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._idle.append(sock)

    def run(self, end: int) -> Watched:
        """Send until the file `end` can be read, let the last ones be answered, and return what was seen."""
        seen, waiting = Watched(), deque[float]()
        begin = time.perf_counter() + self._warm_up
        due = begin - self._warm_up
        last = begin + MAX_SECONDS
        while due < last or waiting or self._busy:
            now = time.perf_counter()
            while due <= now and due < last:
                waiting.append(due)
                due += self._gap
            while waiting and self._idle:
                self._send(self._idle.popleft(), waiting.popleft())
            # select and not epoll: its times are finer than a millisecond
            watched: list[socket.socket | int] = [*self._busy, *([end] if due < last else [])]
            ready, _, _ = select.select(watched, [], [], max(0.0, due - time.perf_counter()))
            for source in ready:
                if isinstance(source, int):
                    last = due
                else:
                    self._read(source, seen, begin)
        seen.seconds = due - begin
        for sock in self._idle:
            sock.close()
        return seen

    def _send(self, sock: socket.socket, due: float) -> None:
        self._busy[sock] = due, b""
        key = self._draw.choice(self._keys)
        sock.sendall(verify_request(self._host, "", key, self._domain, close=False))

    def _read(self, sock: socket.socket, seen: Watched, begin: float) -> None:
        due, held = self._busy[sock]
        piece = sock.recv(RECV)
        held += piece
        head = held.find(b"\r\n\r\n")
        if not piece:
            raise ConnectionError(f"the server closed a connection without an answer: {held[:200]!r}")
        if head < 0 or len(held) < head + 4 + content_length(held[:head]):
            self._busy[sock] = due, held
            return
        del self._busy[sock]
        self._idle.append(sock)
        if due >= begin:
            seen.latencies.append(time.perf_counter() - due)
        if not held.startswith(b"HTTP/1.1 200") or b'"valid":true' not in held[head:].replace(b" ", b""):
            seen.bad += 1
            seen.first_bad = seen.first_bad or held[:300].decode("latin-1")


if __name__ == "__main__":
    window = Window(json.loads(sys.stdin.readline()))
    print("begun", flush=True)
    json.dump(asdict(window.run(sys.stdin.fileno())), sys.stdout)
