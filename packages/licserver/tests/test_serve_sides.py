"""The end of `licserver serve`: both sides end together, and who was just accepted is answered."""

import asyncio
import json
import os
import re
import select
import socket

import pytest
from aiohttp import web

from harness.engines import sqlite_only
from licserver.serving.server import DrainingRunner, bind
from licserver.web.app import create_app

forking = pytest.mark.skipif(os.name == "nt", reason="workers need fork, which Windows does not have")


class Caller:
    """A connection that is kept, and on which a request can be sent in two parts."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, address: str) -> "Caller":
        """Connect."""
        host, port = address.removeprefix("http://").rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port)))

    async def begin(self, path, token, body):
        """Send all but the last byte of a request; gives what sends the rest and returns the status."""
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body[:-1])
        await self._writer.drain()

        async def end():
            self._writer.write(body[-1:])
            return int((await self._reader.readuntil(b"\r\n\r\n")).split()[1])

        return end

    async def is_kept(self):
        """Ask something; whether more may be asked on this connection."""
        try:
            self._writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
            await self._reader.readexactly(int(re.findall(r"content-length: (\d+)", head)[0]))
        except (ConnectionError, asyncio.IncompleteReadError):
            return False
        assert head.startswith("http/1.1 200")
        return "connection: close" not in head

    def close(self):
        """Hang up."""
        self._writer.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "busy", "count"),
    [("1", "admin", 1), pytest.param("2", "public", 8, marks=[forking, pytest.mark.slow])],
)
async def test_neither_side_goes_on_while_the_other_one_ends(program, workers, busy, count):
    """When stopped, both sides ask their callers to go at once; what one of them has begun is answered."""
    (key,) = program.stock()
    token = program.run("token", "create", "shop", "--scope", "write").stdout.strip()
    verify = json.dumps({"license_key": key, "domain": "a.example", "ip": "::1"}).encode()
    add = [json.dumps({"slug": f"app-{number}", "name": f"App {number}"}).encode() for number in range(count)]
    program.environ["LICSERVER_ADMIN_LISTEN"] = "127.0.0.1:0"
    with program.serve("--workers", workers) as (process, public):
        admin = process.stdout.readline().removeprefix("admin API on ").strip()
        if busy == "public":
            calls = [("/api/v1/licenses/verify", token, verify)] * count
        else:
            calls = [("/admin/api/v1/products", token, body) for body in add]
        mine, other = (public, admin) if busy == "public" else (admin, public)
        holders = [await Caller.to(mine) for _ in calls]
        held = [await caller.begin(*call) for caller, call in zip(holders, calls, strict=True)]
        idle = [await Caller.to(other) for _ in range(2 * count)]
        assert all([await caller.is_kept() for caller in idle])
        process.terminate()
        async with asyncio.timeout(8):  # less than the held requests may last
            for caller in idle:
                while await caller.is_kept():
                    pass
        assert [await end() for end in held] == [200 if busy == "public" else 201] * count
        for caller in (*holders, *idle):
            caller.close()
        assert await asyncio.to_thread(process.wait, 30) == 0
        assert "Traceback" not in process.stderr.read()


@sqlite_only
@pytest.mark.parametrize("turns", range(5))
async def test_who_is_accepted_in_the_moment_of_the_end_is_answered(world, turns):
    """However many turns of the loop before the end: accepted is answered, not reset."""
    app = create_app(world.services, world.clock)
    runner = DrainingRunner(app, world.settings, shutdown_timeout=2)
    await runner.setup()
    (listening,) = bind("127.0.0.1", 0)
    address, kept = listening.getsockname(), listening.dup()  # as another worker would keep it
    await web.SockSite(runner, listening).start()
    with kept, socket.create_connection(address, timeout=5) as caller:
        caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert select.select([kept], [], [], 10)[0]  # the system has the connection ready
        for _ in range(turns):
            await asyncio.sleep(0)
        await runner.cleanup()
        kept.settimeout(0)
        try:
            kept.accept()[0].close()
        except BlockingIOError:  # it was ours
            assert caller.recv(1000).startswith(b"HTTP/1.1 ")
        else:
            assert turns < 2  # it is the next one's


@sqlite_only
@forking
def test_a_copy_of_the_admin_socket_has_nobody_wait_in_accept(world, monkeypatch):
    """Each worker makes a copy as it begins, and what that is set to holds for all who share the socket."""
    workers = pytest.importorskip("licserver.serving.workers")  # needs fork
    monkeypatch.setattr(workers, "run", lambda *_: None)
    (public,), (admin,) = bind("127.0.0.1", 0), bind("127.0.0.1", 0)
    listener = public.fileno()
    with admin:
        workers.serve_with_workers(world.settings, [public], 2, lambda: None, [admin])
        with admin.dup() as copy:
            assert not copy.getblocking()
            assert not os.get_blocking(admin.fileno())
    os.close(listener)
