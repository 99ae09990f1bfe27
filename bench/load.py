"""A closed-loop load generator on bare sockets: cheap enough that the server is what is measured.

Run as a program it reads a plan (JSON) from standard input and prints what it saw (JSON).
"""

import json
import random
import select
import socket
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, urlsplit

RECV: Final = 65536
TIMEOUT: Final = 20.0


@dataclass
class Seen:
    """What one round saw."""

    requests: int = 0
    seconds: float = 0.0
    bad: int = 0
    first_bad: str = ""
    cpu_seconds: float = 0.0
    latencies: list[float] = field(default_factory=list, repr=False)


_WISH: Final = (
    'sig0=("@status" "content-type" "content-digest" "@method";req "@target-uri";req "content-digest";req)'
    ';created;expires;nonce="MDEyMzQ1Njc4OWFiY2RlZg";alg="ed25519";tag="licensing-answer"'
)


def verify_request(
    host: str, prefix: str, key: str, domain: str, *, close: bool, signed: bool = False
) -> bytes:
    """Write a verify call as a client sends it; one with pinned keys asks for a signature (D-60)."""
    body = json.dumps({"license_key": key, "domain": domain, "ip": "192.0.2.1"}).encode()
    ending = "Connection: close\r\n" if close else ""
    head = (
        f"POST {prefix}/api/v1/licenses/verify HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{ending}"
    )
    if signed:
        digest = b64encode(sha256(body).digest()).decode()
        head += f"Content-Digest: sha-256=:{digest}:\r\nAccept-Signature: {_WISH}\r\n"
    return f"{head}\r\n".encode() + body


def update_request(host: str, prefix: str, key: str, slug: str, domain: str, *, close: bool) -> bytes:
    """Write an update check as a client sends it."""
    ending = "Connection: close\r\n" if close else ""
    query = f"license_key={key}&slug={slug}&current_version=1.0.0&domain={quote(domain, safe='')}"
    path = f"{prefix}/api/v1/update-check?{query}"
    head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\n{ending}\r\n"
    return head.encode()


def supply(plan: dict[str, Any]) -> Callable[[], bytes]:
    """Make the source of requests that a plan describes.

    Its `what` is one of ``known``, ``signed``, ``new``, ``update``, ``update-url`` (the domain is a home URL,
    percent-encoded) and ``mix`` (a verify, two update checks).
    """
    parts = urlsplit(plan["url"])
    host, prefix = parts.netloc, parts.path.rstrip("/")
    keys, slug, close, what = plan["keys"], plan["slug"], plan["close"], plan["what"]
    draw = random.Random(plan["seed"])  # noqa: S311 - the same order in every run
    if what == "new":  # a domain that nobody has seen, each time
        numbers, run = iter(range(10**12)), time.time_ns()
        return lambda: verify_request(
            host, prefix, draw.choice(keys), f"n{run}-{next(numbers)}.example", close=close
        )
    signed = what == "signed"
    verifies = [verify_request(host, prefix, key, "home.example", close=close, signed=signed) for key in keys]
    domain = "https://home.example" if what == "update-url" else "home.example"
    updates = [update_request(host, prefix, key, slug, domain, close=close) for key in keys]
    ready = {
        "known": verifies,
        "signed": verifies,
        "update": updates,
        "update-url": updates,
        "mix": [*verifies, *updates, *updates],
    }[what]
    draw.shuffle(ready)
    at = iter(range(10**12))
    return lambda: ready[next(at) % len(ready)]


class Round:
    """One round: a number of connections, each sending its next request when it has its answer.

    Args:
        plan: ``url``, ``connections``, ``seconds``, ``warm_up`` and what `supply` wants.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        parts = urlsplit(plan["url"])
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._plan = plan
        self._next = supply(plan)
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._sent: dict[int, float] = {}
        self._held: dict[int, bytes] = {}

    def run(self) -> Seen:
        """Send until the time is over, and return what was seen after the warm-up."""
        seen = Seen()
        for _ in range(self._plan["connections"]):
            self._open()
        begin = time.perf_counter() + self._plan["warm_up"]
        end = begin + self._plan["seconds"]
        cpu = None
        while (now := time.perf_counter()) < end:
            if cpu is None and now >= begin:
                cpu, begin = time.process_time(), now
            events = self._epoll.poll(TIMEOUT)
            if not events:
                raise TimeoutError(f"no answer for {TIMEOUT} s")
            for descriptor, _ in events:
                self._read(descriptor, seen, counts=cpu is not None)
        seen.seconds = time.perf_counter() - begin
        seen.cpu_seconds = time.process_time() - (cpu or 0.0)
        seen.requests = len(seen.latencies)
        for sock in self._sockets.values():
            sock.close()
        return seen

    def _open(self) -> None:
        sock = socket.create_connection(self._address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        descriptor = sock.fileno()
        self._sockets[descriptor] = sock
        self._epoll.register(descriptor, select.EPOLLIN)
        self._send(descriptor)

    def _send(self, descriptor: int) -> None:
        self._held[descriptor] = b""
        self._sent[descriptor] = time.perf_counter()
        self._sockets[descriptor].sendall(self._next())

    def _read(self, descriptor: int, seen: Seen, *, counts: bool) -> None:
        piece = self._sockets[descriptor].recv(RECV)
        held = self._held[descriptor] + piece
        head = held.find(b"\r\n\r\n")
        if head >= 0 and len(held) >= head + 4 + content_length(held[:head]):
            if counts:
                seen.latencies.append(time.perf_counter() - self._sent[descriptor])
            unsigned = self._plan["what"] == "signed" and b"\r\nSignature: " not in held
            if unsigned or not held.startswith(b"HTTP/1.1 200"):
                seen.bad += 1
                seen.first_bad = seen.first_bad or held[:300].decode("latin-1")
            if self._plan["close"] or b"onnection: close" in held[:head]:
                self._reopen(descriptor)
            else:
                self._send(descriptor)
        elif not piece:
            seen.bad += 1
            seen.first_bad = seen.first_bad or "connection closed without an answer"
            self._reopen(descriptor)
        else:
            self._held[descriptor] = held

    def _reopen(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)
        self._sockets.pop(descriptor).close()
        self._open()


def content_length(head: bytes) -> int:
    """Read how many bytes follow an answer's head."""
    at = head.lower().find(b"content-length:")
    return 0 if at < 0 else int(head[at + 15 :].split(b"\r\n", 1)[0])


if __name__ == "__main__":
    json.dump(asdict(Round(json.load(sys.stdin)).run()), sys.stdout)
