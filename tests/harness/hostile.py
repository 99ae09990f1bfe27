"""Clients of a server under attack, each a process of its own: ``python -m harness.hostile ROLE PLAN``.

PLAN is JSON: ``port``, ``seconds``, and what the role needs of ``keys``, ``own_keys``, ``unlimited_key``,
``mail_port``, ``customers`` and the ports of webhook endpoints, ``silent_ports`` and ``hook_port``.
Each prints what it saw, as JSON.
All is bounded in count and in time. Addresses are loopback ones, bound to on this side.
"""

import asyncio
import contextlib
import gzip
import json
import os
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

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
_ARABIC_DIGITS: Final = "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669"
_CJK: Final = "".join(map(chr, range(0x4E00, 0x9000, 7)))
_LONGEST_DOMAIN: Final = 253
_LONGEST_LABEL: Final = 63
_CODE_PATIENCE: Final = 30.0
"""Seconds in which the code for a customer must arrive."""
_SIGN_IN_PAUSE: Final = 2.0
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
        return (await self._exchange(source, data, whole=False)).decode("latin-1")[9:12]

    async def exchange(self, source: str, data: bytes) -> str:
        """Send bytes on a fresh connection; return the whole answer."""
        return (await self._exchange(source, data, whole=True)).decode()

    async def _exchange(self, source: str, data: bytes, *, whole: bool) -> bytes:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await self.connect(source)
            try:
                writer.write(data)
                return await (reader.read() if whole else reader.readline())
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


def get(path: str, *headers: str) -> bytes:
    """Write a GET whose answer is the connection's last."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]).encode()


def form(path: str, *headers: str, **fields: str) -> bytes:
    """Write a form as a page of this site sends it."""
    kind = "Content-Type: application/x-www-form-urlencoded"
    return post(path, urlencode(fields).encode(), kind, *_SAME_ORIGIN, *headers)


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
    single, many = "idle, one address", "idle, many addresses"
    held = [
        *(("127.4.0.1", single, b"", b"") for _ in range(300)),
        *((f"127.4.1.{number}", many, b"", b"") for number in range(1, 101)),
        *((f"127.5.0.{n % 9 + 1}", "slow head", b"GET / HTTP/1.1\r\n", b"X: y\r\n") for n in range(100)),
        *((f"127.6.0.{n % 9 + 1}", "slow body", slow_body, b" ") for n in range(100)),
    ]
    await asyncio.gather(*(hold(*each, number) for number, each in enumerate(held)))
    return {"seen": clients.seen}


async def costly(plan: dict[str, Any]) -> dict[str, Any]:
    """Send what costs more to read than other requests, without a key, from few addresses (issue C)."""
    clients, draw = Clients(plan["port"], plan["seconds"]), random.Random(7)

    def digits() -> str:
        return "".join(draw.choices(_ARABIC_DIGITS, k=_LONGEST_DOMAIN))

    def name() -> str:
        """Return a name of labels that are as long as a host's may be."""
        letters = "".join(draw.choices(_CJK, k=_LONGEST_DOMAIN))
        return ".".join(letters[at : at + _LONGEST_LABEL] for at in range(0, len(letters), 64))

    def cookies(path: str) -> bytes:
        crowd = "; ".join(f"{draw.randrange(36**3):x}=1" for _ in range(980))
        return get(path, f"Cookie: {crowd}")

    def code() -> bytes:
        email = f"a{draw.random()}://b@www" if draw.random() < 0.5 else "a://b@www"
        return form("/account/code", csrf="", email=email)

    kinds: list[tuple[str, float, Callable[[], bytes]]] = [
        ("digits", 0.02, lambda: verify("x", digits())),
        ("name", 0.02, lambda: verify("x", name())),
        ("cookies, customer", 0.05, lambda: cookies("/account")),
        ("cookies, console", 0.05, lambda: cookies("/console/sign-in")),
        ("code", 0.25, code),
    ]

    def sending(number: int, make: Callable[[], bytes]) -> Callable[[], Awaitable[str]]:
        def source() -> str:  # a code counts as a guess: it comes from many addresses
            return f"127.7.{draw.randrange(200)}.1" if make is code else f"127.7.250.{number}"

        return lambda: clients.send(source(), make())

    attacks = (clients.every(pause, kind, sending(n, make)) for n, (kind, pause, make) in enumerate(kinds, 1))
    await asyncio.gather(*attacks)
    return {"seen": clients.seen}


async def writing(plan: dict[str, Any]) -> dict[str, Any]:
    """Do and undo what writes, with sold keys: slots, seats, the page; and activate ever new computers."""
    clients, draw = Clients(plan["port"], plan["seconds"]), random.Random(7)

    def call(path: str, **fields: Any) -> bytes:
        return post(f"/api/v1/licenses/{path}", json.dumps({"ip": "192.0.2.1", **fields}).encode())

    def own() -> tuple[str, str]:
        """Return the address of one of the hostile customers, and the key."""
        number = draw.randrange(len(plan["own_keys"]))
        return f"127.9.{number}.1", plan["own_keys"][number]

    async def verify_and_deactivate() -> str:
        source, key = own()
        statuses = [
            await clients.send(source, call(path, license_key=key, domain="pc.example"))
            for path in ("verify", "deactivate")
        ]
        return " ".join(statuses)

    async def take_and_release() -> str:
        source, key = own()
        fields = {"license_key": key, "domain": "pc.example", "seat": draw.randbytes(16).hex()}
        statuses = [
            await clients.send(source, call("seat", **fields, **more)) for more in ({}, {"release": True})
        ]
        return " ".join(statuses)

    async def use_the_page() -> str:
        """Sign in by key, show the key, and take back a seat that was taken a moment before."""
        (source, key), seat = own(), draw.randbytes(16).hex()
        await clients.send(source, call("seat", license_key=key, domain="pc.example", seat=seat))
        signed_in = await clients.exchange(source, form("/account/sign-in", csrf="", key=key))
        cookie = re.search(r"^Set-Cookie: ([^;]+)", signed_in, re.MULTILINE)
        if cookie is None:
            return f"no cookie, {signed_in[9:12]}"
        session = f"Cookie: {cookie[1]}"
        page = await clients.exchange(source, get("/account", session))
        patterns = r'name="csrf" value="([^"]+)"', r'name="license" value="([0-9a-f]{32})"'
        csrf, license_id = (found[1] if (found := re.search(pattern, page)) else "" for pattern in patterns)
        sent = {"csrf": csrf, "license": license_id}
        shown = await clients.send(source, form("/account/key", session, **sent))
        taken = await clients.send(source, form("/account/take-back", session, **sent, seat=seat))
        return f"{shown} {taken}"

    async def activate() -> str:
        name = f"{draw.randbytes(12).hex()}.example"
        return await clients.send("127.9.250.1", verify(plan["unlimited_key"], name))

    await asyncio.gather(
        clients.every(0.05, "verify and deactivate", verify_and_deactivate),
        clients.every(0.05, "seats", take_and_release),
        clients.every(0.5, "page", use_the_page),
        clients.every(0.1, "new computers", activate),
    )
    return {"seen": clients.seen}


async def receivers(plan: dict[str, Any]) -> dict[str, Any]:
    """Receive webhooks: some endpoints never answer, one does and notes how late each event was."""
    seen, waits = Counter[str](), list[float]()

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen["silent"] += 1
        with contextlib.suppress(OSError, asyncio.CancelledError):  # cancelled at the end
            while await reader.read(1 << 16):
                pass
        writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = re.search(r"content-length: ([0-9]+)", head)
            event = json.loads(await reader.readexactly(int(length[1]) if length else 0))
            waits.append(time.time() - datetime.fromisoformat(event["timestamp"]).timestamp())
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    handlers = dict.fromkeys(plan["silent_ports"], keep_silent) | {plan["hook_port"]: answer}
    servers = [await asyncio.start_server(handle, "127.0.0.1", port) for port, handle in handlers.items()]
    await asyncio.sleep(plan["seconds"])
    for server in servers:
        server.close()
    return {"seen": seen, "waits": waits}


class _Mailbox:
    """Takes mail, and resolves who waits for a code that an address gets."""

    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[str]] = {}
        self._loop = asyncio.get_running_loop()

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's
        """Take a message."""
        found = re.search(r"^Subject: .*?([0-9]{6,})", envelope.content.decode("latin-1"), re.MULTILINE)
        for address in envelope.rcpt_tos:
            if found and (waiting := self.waiting.pop(address, None)):
                self._loop.call_soon_threadsafe(waiting.set_result, found[1])
        return "250 OK"


async def customer(plan: dict[str, Any]) -> dict[str, Any]:
    """Sign in by mail, as one customer after another from an address of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from aiosmtpd.controller import Controller  # noqa: PLC0415 - only here

    mailbox, clients = _Mailbox(), Clients(plan["port"], plan["seconds"])
    smtp = Controller(mailbox, "127.0.0.1", plan["mail_port"], server_hostname="mail.example")
    smtp.start()
    waits: list[float] = []
    turn = iter(range(1 << 30))

    async def sign_in() -> str:
        number = next(turn)
        email, source = plan["customers"][number % len(plan["customers"])], f"127.8.{number % 200}.1"
        mailbox.waiting[email] = arrival = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        asked = await clients.exchange(source, form("/account/code", csrf="", email=email))
        cookie = re.search(r"^Set-Cookie: ([^;]+)", asked, re.MULTILINE)
        if cookie is None:
            return f"no cookie, {asked[9:12]}"
        async with asyncio.timeout(_CODE_PATIENCE):
            code = await arrival
        waits.append(time.monotonic() - began)
        sent = form("/account/sign-in-by-code", f"Cookie: {cookie[1]}", csrf="", code=code)
        return await clients.send(source, sent)

    try:
        await clients.every(_SIGN_IN_PAUSE, "sign-in", sign_in)
    finally:
        smtp.stop()
    return {"seen": clients.seen, "waits": waits}


ROLES: Final[dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]]] = {
    "honest": honest,
    "requests": requests,
    "connections": connections,
    "costly": costly,
    "writing": writing,
    "receivers": receivers,
    "customer": customer,
}
FIRST: Final = 10
"""The real-time priority of the server and of honest clients, where others use the machine as well."""
HONEST: Final = ("honest", "customer", "receivers")


def percentile(latencies: list[float], share: float) -> float:
    """Return the latency that a share of all stay below."""
    return sorted(latencies)[int(share * (len(latencies) - 1))]


def main() -> None:
    """Play one role."""
    is_honest, is_first = sys.argv[1] in HONEST, "LICENSING_HOSTILE_FIRST" in os.environ
    if is_honest and is_first:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(FIRST))
    elif not is_honest and not is_first:
        # What is measured is the server, and not the hostile clients' own use of the processor.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    async def play() -> dict[str, Any]:
        return await ROLES[sys.argv[1]](json.loads(sys.argv[2]))

    json.dump(asyncio.run(play()), sys.stdout)


if __name__ == "__main__":
    main()
