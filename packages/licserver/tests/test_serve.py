"""`licserver serve` as a process: slots under load, memory under large files, an orderly end."""

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from harness.memory import needs_proc, peak_of, run_and_peak
from licserver.services.installation import open_services
from licserver.serving.server import bind
from licserver.settings import Settings

ROUNDS = int(os.environ.get("LICENSING_RACES", "3"))  # `nox -s crash` asks for 200
CALLERS, SLOTS = 64, 5
forking = pytest.mark.skipif(os.name == "nt", reason="workers need fork, which Windows does not have")
WORKERS = [pytest.param("1", marks=pytest.mark.slow), pytest.param("2", marks=forking)]


@pytest.fixture
def keys(program, make_database_url):
    """A key for each round and each of the two races, of five slots, on either engine."""
    if url := make_database_url():
        program.environ["LICSERVER_DATABASE_URL"] = url
    return program.stock(slots=SLOTS, count=2 * ROUNDS)


async def call_at_once(address, key, domains):
    """Verify a key for all domains in the same moment, each over its own connection; gives the statuses."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(address, connector=connector) as session:

        async def call(domain):
            body = {"license_key": key, "domain": domain, "ip": "::1"}
            async with session.post("/api/v1/licenses/verify", json=body) as answer:
                return answer.status

        return sorted(await asyncio.gather(*map(call, domains)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "workers", [pytest.param("1", marks=pytest.mark.slow), pytest.param("4", marks=forking)]
)
async def test_callers_who_race_share_the_slots_exactly(program, keys, workers):
    """64 new environments on 5 slots: 5 × 200, 59 × 403; one of them 64 times: 64 × 200, one slot (D-08)."""
    with program.serve("--workers", workers) as (_, address):
        for many, same in zip(keys[:ROUNDS], keys[ROUNDS:], strict=True):
            domains = [f"{number}.example" for number in range(CALLERS)]
            assert await call_at_once(address, many, domains) == [200] * SLOTS + [403] * (CALLERS - SLOTS)
            assert await call_at_once(address, same, ["a.example"] * CALLERS) == [200] * CALLERS
    url = program.environ.get("LICSERVER_DATABASE_URL")
    services = open_services(Settings(data_dir=program.folder, database_url=url))
    used = [services.licenses.get(key).slots_used for key in keys]
    services.close()
    assert used == [SLOTS] * ROUNDS + [1] * ROUNDS


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS)
async def test_sigterm_lets_a_running_download_finish(program, tmp_path, workers):
    """When it is stopped, the server takes no new callers, sends what it has begun, and exits with 0."""
    content = os.urandom(1 << 20) * 32
    key = sell(program, tmp_path, content)
    with program.serve("--workers", workers) as (process, address):
        async with aiohttp.ClientSession() as session:
            link = await link_of(session, address, key)
            async with session.get(link) as answer:
                assert answer.status == 200
                received = await answer.content.readexactly(1000)
                process.send_signal(signal.SIGTERM)
                await refused(address)
                received += await answer.content.read()
        assert received == content
        assert await asyncio.to_thread(process.wait, 30) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS)
async def test_load_balancers_have_time_to_notice_that_a_server_stops(program, workers):
    """For the delay it is not ready and serves as before; then it closes, with an exit code of 0 (D-255)."""
    program.environ["LICSERVER_DRAIN_DELAY"] = "4"
    (key,) = program.stock(policy="domain")
    body = {"license_key": key, "domain": "a.example", "ip": "::1"}
    with program.serve("--workers", workers) as (process, address):
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(address, connector=connector) as session:

            async def is_ready():
                async with session.get("/readyz") as answer:
                    return answer.status == 200

            assert await is_ready()
            process.send_signal(signal.SIGTERM)
            stopped_at = time.monotonic()
            while await is_ready():
                assert time.monotonic() < stopped_at + 3
            while time.monotonic() < stopped_at + 1:
                assert not await is_ready()
                async with session.post("/api/v1/licenses/verify", json=body) as answer:
                    assert answer.status == 200
                await asyncio.sleep(0.05)  # else both processes do nothing but this for the whole second
        await refused(address)
        assert await asyncio.to_thread(process.wait, 30) == 0


@pytest.mark.slow
@forking
def test_ctrl_c_waits_for_no_load_balancer_when_the_workers_have_ended(program):
    """It ends them at once; the first process once rested for the delay after it."""
    program.environ["LICSERVER_DRAIN_DELAY"] = "60"
    with program.serve("--workers", "2") as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0


async def refused(address):
    """Wait until nobody listens at an address any more; with workers it ends with the last of them."""
    host, port = address.removeprefix("http://").rsplit(":", 1)
    with contextlib.suppress(OSError):
        async with asyncio.timeout(1):
            while True:
                _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                await asyncio.sleep(0.02)


def sell(program, tmp_path, content):
    """Publish a file of this content and issue a key."""
    file = tmp_path / "large.bin"
    file.write_bytes(content)
    (key,) = program.stock(file=file)
    file.unlink()
    return key


async def link_of(session, address, key):
    """A fresh download link."""
    query = {"license_key": key, "slug": "app", "current_version": "0", "domain": "a.example"}
    async with session.get(f"{address}/api/v1/update-check", params=query) as answer:
        return (await answer.json())["download_url"]


ROOM = 30 << 20


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("large", [40 << 20, pytest.param(2 << 30, marks=pytest.mark.slow)])
async def test_a_large_file_costs_no_memory(program, tmp_path, large):
    """Publishing and downloading it take less than 30 MiB more than without it."""
    file = tmp_path / "large.bin"
    (key,) = program.stock()
    peaks = []
    for version, size in ("0.1", 1 << 20), ("1.0", large):
        with file.open("wb") as target:
            target.truncate(size)
        peaks.append(run_and_peak(program, "release", "publish", "app", version, str(file))[1])
    file.unlink()
    assert peaks[1] - peaks[0] < ROOM
    with program.serve() as (process, address):
        async with aiohttp.ClientSession() as session:
            link = await link_of(session, address, key)
            async with session.get(link, headers={"Range": "bytes=0-9"}) as answer:
                assert len(await answer.read()) == 10
            before, received = peak_of(process), 0
            async with session.get(link) as answer:
                async for piece in answer.content.iter_any():
                    received += len(piece)
            assert received == large
            assert peak_of(process) - before < ROOM
    shutil.rmtree(program.folder)  # pytest would keep it


@pytest.mark.slow
def test_the_address_is_printed_once_the_server_answers(program):
    """Whoever reads the JSON line can connect at once; Ctrl-C does not wait for idle connections."""
    with program.start("serve", "--port", "0", "--json") as process:
        address = urlsplit(json.loads(process.stdout.readline())["listening"])
        with socket.create_connection((address.hostname, address.port), timeout=5):
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            assert time.monotonic() - began < 15  # running requests would get 30 s


def has_ipv6():
    """Whether this machine has ::1."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
async def test_it_listens_on_ipv6(program):
    """An IPv6 host stands in brackets, and its callers are known by their IPv6 address."""
    (key,) = program.stock()
    with program.serve("--host", "::1") as (_, address):
        assert address.startswith("http://[::1]:")
        assert await call_at_once(address, key, ["a.example"]) == [200]
    record = json.loads(program.run("license", "show", key, "--json").stdout)
    assert [activation["ip"] for activation in record["activations"]] == ["::1"]


TWO_ADDRESSES = """
import runpy, socket
find = socket.getaddrinfo
def both(host, *more, **named):
    hosts = ["::1", "127.0.0.1"] if host == "localhost" else [host]
    return [found for one in hosts for found in find(one, *more, **named)]
socket.getaddrinfo = both
runpy.run_module("licserver", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
@pytest.mark.parametrize("workers", WORKERS)
async def test_a_name_is_listened_on_at_all_of_its_addresses(program, workers):
    """`localhost` answers on ::1 and on 127.0.0.1 at one port, and the address of the admin API does, too."""
    program.command = [sys.executable, "-c", TWO_ADDRESSES]
    program.environ["LICSERVER_ADMIN_LISTEN"] = "localhost:0"
    arguments = ["--host", "localhost", "--port", "0", "--workers", workers, "--json"]
    with program.start("serve", *arguments) as process:
        document = json.loads(process.stdout.readline())
        ports = {urlsplit(document[name]).port for name in ("listening", "admin")}
        assert len(ports) == 2
        async with aiohttp.ClientSession() as session:
            for url in (f"http://{host}:{port}/healthz" for host in ("[::1]", "127.0.0.1") for port in ports):
                async with session.get(url) as answer:
                    assert answer.status == 200


def test_an_address_that_this_machine_lacks_is_left_out(monkeypatch):
    """A name with an address of another machine is listened on at the others, and nowhere is an error."""
    theirs, ours = ((socket.AF_INET, 1, 6, "", (ip, 0)) for ip in ("192.0.2.1", "127.0.0.1"))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [theirs, ours, theirs])
    (sock,) = bind("name.example", 0)
    with sock:
        assert sock.getsockname()[0] == "127.0.0.1"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [theirs])
    with pytest.raises(OSError, match=r"192\.0\.2\.1"):
        bind("name.example", 0)


def test_the_host_for_each_address_has_those_of_ipv4(monkeypatch):
    """`::` alone would leave out most customers; without IPv6 it is IPv4 alone."""
    both = bind("::", 0)
    with contextlib.ExitStack() as stack:
        for sock in both:
            stack.enter_context(sock)
        socket.create_connection(("127.0.0.1", both[0].getsockname()[1]), timeout=5).close()

    def create_server(address, *, family, backlog):
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return create(address, family=family, backlog=backlog)

    create = socket.create_server
    monkeypatch.setattr(socket, "create_server", create_server)
    (sock,) = bind("::", 0)
    with sock:
        assert sock.family == socket.AF_INET


@pytest.mark.slow
def test_who_only_answers_customers_carries_no_console(program):
    """A process that was asked for nothing but verdicts has not loaded what only the vendor's side needs."""
    (key,) = program.stock()
    with program.serve() as (process, address):
        assert asyncio.run(call_at_once(address, key, ["a.example"])) == [200]
        mapped = Path(f"/proc/{process.pid}/maps")
        if not mapped.exists():
            pytest.skip("reads from /proc what a process has loaded")
        loaded = mapped.read_text(encoding="utf-8")
        assert "nacl" in loaded
        assert [name for name in ("/cryptography/", "/nh3/", "argon2") if name in loaded] == []


@pytest.mark.parametrize("host", ["[::]", "::0", "0:0:0:0:0:0:0:0"])
def test_the_host_for_each_address_has_several_forms(host):
    """The server prints `http://[::]:8080`, and `LICSERVER_ADMIN_LISTEN` wants the brackets."""
    with contextlib.ExitStack() as stack:
        addresses = {stack.enter_context(sock).getsockname()[0] for sock in bind(host, 0)}
    assert "0.0.0.0" in addresses  # noqa: S104 - nobody connects


def test_hosts_that_cannot_be_listened_on(bare_cli, monkeypatch):
    """Each is refused in a sentence that says what to write."""
    refused = bare_cli("serve", "--host", "http://127.0.0.1", expect=1)
    assert "write a name or an address of this machine, without scheme and port" in refused
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("LICSERVER_ADMIN_LISTEN", f"127.0.0.1:{taken.getsockname()[1]}")
        assert "choose another LICSERVER_ADMIN_LISTEN" in bare_cli("serve", "--port", "0", expect=1)
