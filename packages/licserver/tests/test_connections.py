"""Connections that nobody uses, or that somebody uses too slowly, come to an end (D-72)."""

import asyncio
import time
from contextlib import suppress

import pytest
from aiohttp import web

from harness.engines import sqlite_only
from licserver.database.hot_path.batcher import PublicQueries
from licserver.serving import connections
from licserver.settings import StandaloneSettings

pytestmark = sqlite_only
HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


async def sent_until_closed(site, *parts: bytes, between=0.02):
    """Send bytes, part by part, and keep the connection open; what has come when the server closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    with suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(between)
    try:
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "parts",
    [[], [b"GET"], [HEAD], [bytes([byte]) for byte in HEAD], [HEAD, *[b"X: y\r\n"] * 100]],
    ids=["silent", "a word", "no end", "byte by byte", "ever more"],
)
async def test_who_never_ends_a_head_is_cut_off(make_world, open_site, parts):
    """The first request's head must be there in time, however busily it comes."""
    site = await open_site(make_world(header_timeout=0.3))
    assert await sent_until_closed(site, *parts) == b""


CHUNKED = b"POST /api/v1/licenses/verify HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n"


@pytest.mark.parametrize("between", [0, 0.02], ids=["at once", "in parts"])
@pytest.mark.parametrize("chunk", [b"1\r\nx\r\n", b"0001;a=b\r\nx\r\n", b"0F\r\n" + b"x" * 15 + b"\r\n"])
async def test_a_body_in_very_many_chunks_loses_its_connection(make_world, open_site, chunk, between):
    """16,000 chunks of a byte took 13 ms of the parser, before any limit."""
    site = await open_site(make_world())
    parts = [CHUNKED + b"\r\n" + chunk * 100, *[chunk * 100] * 10, b"0\r\n\r\n"]
    parts = parts if between else [b"".join(parts)]
    assert await sent_until_closed(site, *parts, between=between) == b""


async def test_a_body_in_some_chunks_is_read(make_world, open_site):
    """Clients and proxies that do not know a length send it so; lines of a body are no chunks."""
    site = await open_site(make_world())
    body = b'{"license_key": "x", \r\n"domain": "a.example", "ip": "192.0.2.1"' + b"\r\na" * 400
    for text in (body, b"[" + b"1,\r\n" * 3000):
        large = b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)
        small = b"".join(b"1\r\n%c\r\n" % byte for byte in text[:400]) + b"0\r\n\r\n"
        for written in (large, small):
            answer = await sent_until_closed(site, CHUNKED + b"Connection: close\r\n\r\n" + written)
            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 422")), answer


QUERY = b"license_key=CP-AAAAAA-AAAAAA-AAAAAA-AAAAAA-AAAAAA&slug=app&current_version=1&domain=a.example"
CHECK = b"GET /api/v1/update-check?" + QUERY + b" HTTP/1.1\r\nHost: x\r\n\r\n"
"""A request of a hot route: aiohttp does not handle those with which a connection begins."""

BEFORE = pytest.mark.parametrize(
    "before", [b"", HEAD + b"\r\n", CHECK], ids=["first", "after a request", "after a hot request"]
)


@BEFORE
async def test_a_head_has_32_kib_in_all(make_world, open_site, before):
    """64 fields of 8 KiB are half a MiB: a head that does not end sooner loses its connection."""
    site = await open_site(make_world(header_timeout=60.0))
    began = time.monotonic()
    answer = await sent_until_closed(site, before, HEAD, *[b"X: " + b"y" * 4000 + b"\r\n"] * 10)
    assert answer.count(b"HTTP/1.1 ") == bool(before)
    assert time.monotonic() - began < 20
    answer = await sent_until_closed(
        site, HEAD + b"Connection: close\r\n", *[b"X: " + b"y" * 4000 + b"\r\n"] * 6, b"\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.slow
@pytest.mark.parametrize("asked", [HEAD + b"\r\n", CHECK], ids=["by aiohttp", "hot"])
async def test_who_has_asked_once_may_be_idle_and_then_not_for_ever(
    make_world, open_site, monkeypatch, asked
):
    """The limit for the first head ends no connection that is kept; the idle time does."""
    monkeypatch.setattr(connections, "MAX_IDLE_SECONDS", 1.5)
    site = await open_site(make_world(header_timeout=0.4))
    began = time.monotonic()
    for last in (HEAD, asked[:-2], b""):
        answer = await sent_until_closed(site, asked, b"", asked, last, between=0.25)
        assert answer.count(b"HTTP/1.1 ") == 2
    assert time.monotonic() - began > 3 * (0.75 + 1.0)


@pytest.mark.slow
async def test_a_body_that_does_not_come_is_a_408(make_world, open_site):
    """Byte by byte or not at all: its time is one for the whole body, and the answer is JSON."""
    site = await open_site(make_world(body_timeout=0.3))
    head = b"POST /api/v1/licenses/verify HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n"
    for parts in ([head], [head, *[b"{"] * 30]):
        answer = await sent_until_closed(site, *parts)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'{"error":"timeout"' in answer


@BEFORE
async def test_requests_of_one_connection_are_answered_in_their_order(make_world, open_site, before):
    """Those of the hot routes, which wait for the database, and others that need not."""
    site = await open_site(make_world())
    other, last = HEAD + b"\r\n", HEAD + b"Connection: close\r\n\r\n"
    invalid = CHECK.replace(b"slug", b"s")
    parts = [CHECK + CHECK[:40], CHECK[40:] + other, invalid, CHECK, other, CHECK + CHECK, invalid, last]
    answer = await sent_until_closed(site, before, invalid, *parts)
    statuses = [int(response[:3]) for response in answer.split(b"HTTP/1.1 ")[1:]]
    if before:
        assert statuses.pop(0) == (401 if before == CHECK else 200)
    assert statuses == [422, 401, 401, 200, 422, 401, 200, 401, 401, 422, 200]


@pytest.fixture
def held_back(monkeypatch):
    """Two events: an update check has reached the database, and may go on."""
    find, begun, end = PublicQueries.find_update, asyncio.Event(), asyncio.Event()

    async def find_late(queries, query):
        begun.set()
        await end.wait()
        return await find(queries, query)

    monkeypatch.setattr(PublicQueries, "find_update", find_late)
    return begun, end


async def begin_check(held_back, reader, writer, before):
    """Send a request that is answered at once, and an update check; return when that has begun."""
    begun, end = held_back
    end.set()
    writer.write(before)
    if before:
        await reader.readuntil(b"}")
    begun.clear(), end.clear()
    writer.write(CHECK)
    await begun.wait()


@BEFORE
async def test_a_hot_request_that_waits_is_answered_before_the_next(make_world, open_site, held_back, before):
    """What arrives meanwhile on its connection is answered after it, in parts or not."""
    _, end = held_back
    site = await open_site(make_world())
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    for later in (CHECK, HEAD + b"\r\n"):
        await begin_check(held_back, reader, writer, before)
        for part in (later[:30], later[30:]):
            writer.write(part)
            await asyncio.sleep(0.05)  # it has arrived
        end.set()
        assert b"HTTP/1.1 401 " in await reader.readuntil(b"}")
        assert await reader.readuntil(b"}")
    writer.close()


@BEFORE
async def test_a_server_that_ends_waits_for_a_hot_request(make_world, open_site, held_back, before):
    """Its response is the last one of the connection."""
    _, end = held_back
    site = await open_site(make_world())
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    await begin_check(held_back, reader, writer, before)
    closing = asyncio.create_task(site.stop())
    await asyncio.sleep(0.05)
    end.set()
    assert b"HTTP/1.1 401 " in await reader.readuntil(b"}")
    assert await reader.read() == b""
    await closing
    writer.close()


@pytest.mark.slow
@BEFORE
async def test_a_server_that_ends_breaks_a_hot_request_off_in_time(make_world, open_site, held_back, before):
    """A database that never answers holds up the end for the time-out, and no longer."""
    site = await open_site(make_world())
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    await begin_check(held_back, reader, writer, before)
    began = time.monotonic()
    await site.stop()
    assert time.monotonic() - began < 4
    assert await reader.read() == b""
    writer.close()


LARGE = b"0123456789abcdef" * (1 << 19)
"""Eight MiB: more than the sockets between two ends hold."""


@pytest.fixture
def cut_off(monkeypatch):
    """An event: the server has lost a connection."""
    lost, end = asyncio.Event(), connections.Connection.connection_lost
    monkeypatch.setattr(
        connections.Connection,
        "connection_lost",
        lambda protocol, problem: (end(protocol, problem), lost.set()),
    )
    return lost


async def read_after(site, request, event, seconds):
    """Send a request, read nothing until an event, which must come in time, and then all that has come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1024)
    writer.write(request)
    await asyncio.wait_for(event.wait(), seconds)
    received = bytearray()
    with suppress(ConnectionError):
        while piece := await asyncio.wait_for(reader.read(1 << 16), 20):
            received += piece
    writer.close()
    return bytes(received)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["folder", pytest.param("bucket", marks=pytest.mark.slow)])
async def test_who_takes_nothing_of_a_file_is_cut_off(make_world, open_site, request, place, cut_off):
    """A reader who stands still loses the connection; who comes back gets all of it."""
    more = {"artifacts_url": request.getfixturevalue("bucket")} if place == "bucket" else {}
    world = make_world(send_timeout=1.0, artifacts_redirect=False, **more)
    world.publish("1.0", LARGE)
    site = await open_site(world)
    link = await site.link(world.key())
    cut_off.clear()
    received = await read_after(site, f"GET {link} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), cut_off, 10)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert len(received) < len(LARGE)
    assert (await site.call("GET", link))[2] == LARGE


async def test_who_asks_and_never_reads_is_cut_off(make_world, open_site, cut_off):
    """Answers that nobody takes are not held for ever."""
    world = make_world(send_timeout=1.0)
    world.publish("1.0", changelog="x" * 200_000)
    key, site = world.key(), await open_site(world)
    query = f"license_key={key}&slug=app&current_version=1&domain=a.example"
    requests = f"GET /api/v1/update-check?{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 60
    received = await read_after(site, requests, cut_off, 5)
    assert 0 < received.count(b"HTTP/1.1 200 OK") < 60


@pytest.mark.slow
async def test_who_reads_slowly_gets_all(make_world, open_site):
    """The time is for each part, not for the whole."""
    world = make_world(send_timeout=3.0)
    world.publish("1.0", LARGE)
    site = await open_site(world)
    link = await site.link(world.key())
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1 << 16)
    writer.write(f"GET {link} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    received, began = 0, time.monotonic()
    while piece := await reader.read(1 << 16):
        received += len(piece)
        await asyncio.sleep(0.03)
    assert received > len(LARGE)
    assert time.monotonic() - began > 3.0
    writer.close()


@pytest.mark.usefixtures("engine_name")
async def test_who_was_not_paused_may_be_resumed():
    """Over TLS asyncio copies a file part by part, and resumes us after a pause that it took upon itself."""
    loop = asyncio.get_running_loop()
    settings = StandaloneSettings()
    held = connections.OpenConnections(settings)
    connection = connections.Connection(web.Server(None, loop=loop), settings, held, loop=loop)
    connection.resume_writing()
    connection.pause_writing()
    connection.resume_writing()
    assert not connection._stalled
