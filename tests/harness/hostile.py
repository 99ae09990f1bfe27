"""Clients of a server under attack, each a process of its own: ``python -m harness.hostile ROLE PLAN``.

PLAN is JSON: ``port``, ``seconds`` and, for the honest ones, ``keys``. Each prints what it saw, as JSON.
All is bounded in count and in time. Addresses are loopback ones, bound to on this side.
"""

import asyncio
import contextlib
import gzip
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

RATE: Final = 200
"""Verify calls of honest installations a second."""

_VERIFY: Final = "/api/v1/licenses/verify"
_PATIENCE: Final = 10.0
_PACE: Final = 0.003
"""Seconds between two connections that are to be held: all of them at once would measure this client."""
_NEWLINES: Final = gzip.compress(b"\n" * (20 << 20))
_SAME_ORIGIN: Final = ("Sec-Fetch-Site: same-origin",)
_PACKED: Final = ("Content-Encoding: gzip",)
_FORM: Final = "Content-Type: multipart/form-data; boundary=x"
_MALFORMED: Final = (
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"POST /api/v1/licenses/verify HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{",
    b"POST /api/v1/licenses/verify HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 20_000 + b"\r\n\r\n",
)

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Clients:
    """Send requests to one server for some seconds, and count the responses."""

    def __init__(self, port: int, seconds: float) -> None:
        self.ends = time.monotonic() + seconds
        self.seen: Counter[str] = Counter()
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self, source: str) -> Connection:
        """Open a connection from an address."""
        return await asyncio.open_connection("127.0.0.1", self._port, local_addr=(source, 0))

    async def send(self, source: str, data: bytes) -> str:
        """Send bytes on a fresh connection; return the status of the answer, "" when there was none."""
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await self.connect(source)
            try:
                writer.write(data)
                return (await reader.readline()).decode("latin-1")[9:12]
            finally:
                writer.close()

    async def every(self, seconds: float, kind: str, do: Callable[[], Awaitable[str]]) -> None:
        """Start something again and again, without waiting for it; at most 200 at a time."""
        due, running = time.monotonic(), set[asyncio.Task[None]]()
        while due < self.ends:
            await asyncio.sleep(due - time.monotonic())
            if len(running) < RATE:
                task = asyncio.create_task(self._count(kind, do))
                running.add(task)
                task.add_done_callback(running.discard)
            due += seconds
        await asyncio.gather(*running)

    async def _count(self, kind: str, do: Callable[[], Awaitable[str]]) -> None:
        try:
            became = await do()
        except (OSError, TimeoutError) as problem:
            became = type(problem).__name__
        self.seen[f"{kind}: {became or 'closed'}"] += 1


def post(path: str, body: bytes, *headers: str) -> bytes:
    """Write a POST whose answer is the connection's last."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}"]
    lines += headers
    return "\r\n".join([*lines, "", ""]).encode() + body


def verify(key: str, domain: str) -> bytes:
    """Write a verify call."""
    return post(_VERIFY, json.dumps({"license_key": key, "domain": domain, "ip": "192.0.2.1"}).encode())


async def honest(plan: dict[str, Any]) -> dict[str, Any]:
    """Verify sold keys, each of one installation at an address of its own; on a schedule, whatever comes."""
    clients, keys = Clients(plan["port"], plan["seconds"]), plan["keys"]
    latencies: list[float] = []
    turn = iter(range(1 << 30))

    async def ask() -> str:
        number, began = next(turn) % len(keys), time.monotonic()
        status = await clients.send(f"127.1.0.{number + 1}", verify(keys[number], f"pc{number}.example"))
        latencies.append(time.monotonic() - began)
        return status

    await clients.every(1 / RATE, "verify", ask)
    return {"seen": clients.seen, "latencies": latencies}


async def requests(plan: dict[str, Any]) -> dict[str, Any]:
    """Send packed bodies, malformed requests, guesses at keys, tokens and passwords, from many addresses."""
    clients = Clients(plan["port"], plan["seconds"])
    draw = random.Random(7)

    def somewhere() -> str:
        return f"127.2.{draw.randrange(64)}.{draw.randrange(1, 255)}"

    def guess() -> bytes:
        groups = ("".join(draw.choices("0123456789ABCDEFGHJKMNPQRSTVWXYZ", k=6)) for _ in range(5))
        return verify("CP-" + "-".join(groups), f"{draw.random()}.example")

    def token() -> bytes:
        bearer = f"Authorization: Bearer lsv_{draw.randbytes(32).hex()}"
        lines = ["GET /admin/api/v1/products HTTP/1.1", "Host: x", "Connection: close", bearer]
        return "\r\n".join([*lines, "", ""]).encode()

    def password() -> bytes:
        form = f"name=ann&password={draw.randbytes(12).hex()}&goal=%2Fconsole".encode()
        kind = "Content-Type: application/x-www-form-urlencoded"
        return post("/console/sign-in", form, kind, *_SAME_ORIGIN)

    def head() -> bytes:
        lines = [f'Accept-Signature: a{draw.random()}=("{"x" * 7900}")'] * 60
        return post(_VERIFY, b"{}", *lines)

    upload = "/console/products/app/releases"
    packed = post(_VERIFY, _NEWLINES, *_PACKED), post(upload, _NEWLINES, _FORM, *_PACKED, *_SAME_ORIGIN)
    plain = post(upload, b"\n" * (1 << 20), _FORM, *_SAME_ORIGIN)
    kinds: list[tuple[str, float, Callable[[], bytes]]] = [
        ("packed body", 0.25, lambda: draw.choice(packed)),
        ("newlines", 2.0, lambda: plain),
        ("malformed", 0.05, lambda: draw.choice(_MALFORMED)),
        ("large head", 0.5, head),
        ("wrong key", 0.02, guess),
        ("wrong token", 0.1, token),
        ("sign-in", 0.1, password),
    ]

    def sending(make: Callable[[], bytes], source: Callable[[], str]) -> Callable[[], Awaitable[str]]:
        return lambda: clients.send(source(), make())

    attacks = [clients.every(pause, kind, sending(make, somewhere)) for kind, pause, make in kinds]
    attacks.append(clients.every(0.02, "wrong key, one address", sending(guess, lambda: "127.3.0.1")))
    await asyncio.gather(*attacks)
    return {"seen": clients.seen}


async def connections(plan: dict[str, Any]) -> dict[str, Any]:
    """Hold idle connections, and heads and bodies that never end: 600, and anew what the server closes."""
    clients = Clients(plan["port"], plan["seconds"])

    async def hold(source: str, kind: str, begin: bytes, drip: bytes, number: int) -> None:
        await asyncio.sleep(number * _PACE)
        while time.monotonic() < clients.ends:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    reader, writer = await clients.connect(source)
                clients.seen[kind] += 1
                writer.write(begin)
                while not reader.at_eof() and (left := clients.ends - time.monotonic()) > 0:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(1000), min(left, 1) if drip else left)
                    writer.write(drip)
                writer.close()
            await asyncio.sleep(1)

    slow_body = post(_VERIFY, b"")[: -len("\r\n")].replace(b"Length: 0", b"Length: 500") + b"\r\n{"
    one, many = "idle, one address", "idle, many addresses"
    held = [
        *(("127.4.0.1", one, b"", b"") for _ in range(300)),
        *((f"127.4.1.{number}", many, b"", b"") for number in range(1, 101)),
        *((f"127.5.0.{n % 9 + 1}", "slow head", b"GET / HTTP/1.1\r\n", b"X: y\r\n") for n in range(100)),
        *((f"127.6.0.{n % 9 + 1}", "slow body", slow_body, b" ") for n in range(100)),
    ]
    await asyncio.gather(*(hold(*each, number) for number, each in enumerate(held)))
    return {"seen": clients.seen}


ROLES: Final[dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]]] = {
    "honest": honest,
    "requests": requests,
    "connections": connections,
}


def percentile(latencies: list[float], share: float) -> float:
    """Return the latency that a share of all stay below."""
    return sorted(latencies)[int(share * (len(latencies) - 1))]


def main() -> None:
    """Play one role."""
    if sys.argv[1] != "honest":
        # What is measured is the server, and not the hostile clients' own use of the processor.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    async def play() -> dict[str, Any]:
        return await ROLES[sys.argv[1]](json.loads(sys.argv[2]))

    json.dump(asyncio.run(play()), sys.stdout)


if __name__ == "__main__":
    main()
