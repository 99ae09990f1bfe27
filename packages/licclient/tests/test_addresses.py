"""Hosts with several addresses: those are tried side by side, so a dead one costs a quarter of a second."""

import asyncio
import socket
import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from stage.addresses import ALIVE, DEAD, blackhole, names  # noqa: F401 - a fixture
from stage.flavours import both
from stage.store import CONTENT
from stage.tls import secured

from licclient import LicenseClient
from licclient._core.happy_eyeballs import connect, sort_addresses
from licclient._core.requests import Call
from licclient.errors import ServiceUnavailableError

HOST = "two-addresses.localhost"


@pytest.fixture
def port(service):
    """The service's port."""
    return urlsplit(service.url).port


@pytest.fixture
def half_dead(names, port):  # noqa: F811 - pytest's fixtures have the name of their argument
    """The service under a name whose first address is dead."""
    names.known[HOST] = [DEAD, ALIVE]
    with blackhole(port):
        yield f"http://{HOST}:{port}"


@both
async def test_a_call_reaches_the_address_that_is_alive(make_client, service, half_dead, key):
    """Well within the time limit, which the dead address alone would use up."""
    service.grants()
    began = time.monotonic()
    assert (await make_client(half_dead, timeout=30).verify(key)).product == "Notes"
    assert time.monotonic() - began < 15


@both
async def test_a_download_reaches_the_address_that_is_alive(make_client, store, half_dead, fetch):
    """The link's host is one like any other."""
    store.link = store.link.replace(store.service.url, half_dead)
    client = make_client(timeout=3)
    done = await fetch(client)
    assert done.path.read_bytes() == CONTENT


@both
async def test_a_redirect_reaches_the_address_that_is_alive(
    make_client, store, half_dead, fetch, http_answer
):
    """A file may lie elsewhere, behind a host with a dead address."""
    sell, target = store.service.script, f"{half_dead}/files/notes"
    store.service.script = lambda request: (
        http_answer(302, Location=target)
        if "update-download" in request.path
        else store.file(request)
        if "files" in request.path
        else sell(request)
    )
    client = make_client(timeout=3)
    done = await fetch(client)
    assert done.path.read_bytes() == CONTENT


@both
@pytest.mark.filterwarnings("ignore:base_url is http")
async def test_a_proxy_is_reached_by_the_address_that_is_alive(
    make_client, service, half_dead, key, monkeypatch
):
    """So is the proxy of a company, whose name often has two addresses."""
    service.grants()
    monkeypatch.setenv("HTTP_PROXY", half_dead)
    assert (await make_client("http://store.invalid", timeout=3).verify(key)).product == "Notes"


async def test_the_doctor_reaches_the_address_that_is_alive(
    make_client,
    tls,
    authority,
    names,  # noqa: F811 - as above
    monkeypatch,
):
    """It reports what the client meets: no dead address, but a service behind TLS."""
    tls.context = secured(authority.issue_cert(HOST))
    names.known[HOST] = [DEAD, ALIVE]
    monkeypatch.setattr("licclient._doctor.SECONDS", 3)
    with blackhole(tls.port):
        report = await make_client(f"https://{HOST}:{tls.port}", timeout=3).diagnose()
    assert "the certificate is trusted" in report


@both
async def test_dead_addresses_alone_end_in_time_and_leave_nothing(
    make_client,
    names,  # noqa: F811 - as above
    port,
    key,
    eventually,
):
    """The time limit holds for all of them together."""
    names.known[HOST] = [DEAD, "127.0.0.3"]
    with blackhole(port), blackhole(port, "127.0.0.3"):
        began = time.monotonic()
        with pytest.raises(ServiceUnavailableError, match="in time"):
            await make_client(f"http://{HOST}:{port}", timeout=0.6).verify(key)
        assert time.monotonic() - began < 15
        await eventually(lambda: not any("licclient" in thread.name for thread in threading.enumerate()))


@both
async def test_a_server_that_starts_again_is_asked_again(make_client, service, names, port, key):  # noqa: F811
    """All addresses of its name refuse the connection for a moment: what passes is retried (D-54)."""
    service.grants()
    closed, look_ups = ["127.0.0.4", "127.0.0.5"], []
    names.known[HOST] = closed
    client = make_client(f"http://{HOST}:{port}")
    real = names.known

    class Restarting(dict):
        def get(self, name, default=None):
            if name == HOST:
                look_ups.append(name)
                return [ALIVE] if len(look_ups) > 3 else closed
            return real.get(name, default)

    names.known = Restarting()
    assert (await client.verify(key)).product == "Notes"


def test_the_families_take_turns():
    """The system's choice comes first; an address that it returns twice is tried once (RFC 8305 4)."""
    six, four = socket.AF_INET6, socket.AF_INET
    found = [(six, 1, 6, "", ("::1", 80, 0, 0)), (six, 1, 6, "", ("::2", 80, 0, 0))]
    found += [(four, 1, 6, "", ("10.0.0.1", 80)), (four, 1, 6, "", ("10.0.0.1", 80))]
    assert [address[4][0] for address in sort_addresses(found)] == ["::1", "10.0.0.1", "::2"]


def test_a_refused_address_costs_no_time(names):  # noqa: F811
    """The next one begins at once; who listens is taken, and sockets of others are closed."""
    with socket.create_server((ALIVE, 0)) as server:
        port = server.getsockname()[1]
        names.known[HOST] = ["127.0.0.4"] * 3 + ["127.0.0.5", "127.0.0.6", ALIVE]
        seconds = []
        for _ in range(5):  # the shortest counts: the machine may stand still
            began = time.monotonic()
            with connect(HOST, port, 5) as line:
                assert line.getpeername() == (ALIVE, port)
            seconds.append(time.monotonic() - began)
        assert min(seconds) < 0.25
    with pytest.raises(ConnectionRefusedError):
        connect(HOST, port, 5)


# --- TLS ----------------------------------------------------------------------------------------


@both
async def test_a_call_that_is_closed_in_a_handshake_ends(flavour, make_client, tls, key, eventually):
    """A server that never shakes hands holds neither a thread nor a connection of a closed client."""
    hung_up, accepted = threading.Event(), threading.Event()

    def wait_for_the_end(connection):
        with connection:
            connection.settimeout(20)
            accepted.set()
            while connection.recv(65536):
                pass
            hung_up.set()

    tls._answer = wait_for_the_end
    client = make_client(f"https://127.0.0.1:{tls.port}", timeout=60)
    ask = (
        asyncio.to_thread(client.client.verify, key)
        if flavour is LicenseClient
        else client.client.verify(key)
    )
    call = asyncio.ensure_future(ask)
    await eventually(accepted.is_set)
    await client.close()
    with pytest.raises(ServiceUnavailableError, match="closed"):
        await asyncio.wait_for(call, 5)
    await eventually(hung_up.is_set)


@pytest.mark.usefixtures("verdicts")
async def test_a_handshake_that_hangs_holds_up_no_other(make_client, tls, authority, key):
    """Each connection has a TLS context of its own: truststore locks one during a handshake."""
    tls.context = secured(authority.issue_cert("127.0.0.1"))
    client = make_client(f"https://{ALIVE}:{tls.port}", timeout=30)
    transport = client.client._transport()
    with socket.create_server((ALIVE, 0)) as silent:
        call = Call("GET", f"https://{ALIVE}:{silent.getsockname()[1]}", {}, None, 100)
        hanging = asyncio.ensure_future(asyncio.to_thread(transport.send, call, 30, lambda: False))
        with (await asyncio.to_thread(silent.accept))[0]:
            began = time.monotonic()
            assert (await client.verify(key)).product == "Notes"
            assert time.monotonic() - began < 15
    await hanging


@pytest.mark.usefixtures("verdicts")
@both
async def test_a_proxy_may_be_reached_by_tls(make_client, tls, authority, key, monkeypatch):
    """The system's trust store decides on its certificate, too; in its TLS is that of the service."""
    tls.context = secured(authority.issue_cert("127.0.0.1", "store.localhost"))
    outer = tls.context

    def tunnel(connection):
        with outer.wrap_socket(connection, server_side=True) as secured_line:
            while b"\r\n\r\n" not in secured_line.recv(65536):
                pass
            secured_line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            with socket.create_connection((ALIVE, tls.port)) as inner:
                threading.Thread(target=_copy, args=(secured_line, inner), daemon=True).start()
                _copy(inner, secured_line)

    with socket.create_server((ALIVE, 0)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"https://{ALIVE}:{proxy.getsockname()[1]}")
        threading.Thread(target=lambda: tunnel(proxy.accept()[0]), daemon=True).start()
        client = make_client(f"https://store.localhost:{tls.port}", timeout=8)
        assert (await client.verify(key)).product == "Notes"


def _copy(source, target):
    """Pass on what comes."""
    with suppress(OSError):
        while received := source.recv(65536):
            target.sendall(received)
        target.shutdown(socket.SHUT_WR)
