"""Requests to addresses that somebody else has chosen: what a hostile endpoint gains is nothing."""

import ipaddress
import socket
import threading
from typing import Any

import pytest
from aiohttp import web

from harness.receiver import receiver
from licserver.jobs.outbound import MAX_ANSWER, post

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:1/",
        "https://[::1]:1/",
        "https://[::ffff:127.0.0.1]:1/",
        "https://0x7f.1:1/",
        "https://localhost:1/",
        "https://169.254.169.254/latest/meta-data",
    ],
)
async def test_an_address_inside_is_not_connected_to(url):
    """However it is written; the reason is shown to the vendor."""
    answer = await post(url, b"{}", {})
    assert answer.status is None
    assert "is not a public address" in answer.text


async def test_an_address_that_cannot_be_read_is_a_failure_as_any_other():
    """It counts against its endpoint, and the vendor sees why nothing arrives."""
    assert await post("https://[::1]x/", b"{}", {}) == (None, "the connection failed (ValueError)")


async def test_http_is_for_ones_own_networks_only(monkeypatch):
    """Even if a public name is reached."""
    monkeypatch.setattr("licserver.jobs.outbound.is_permitted", lambda *_: True)
    answer = await post("http://127.0.0.1:1/", b"{}", {})
    assert answer == (None, "http is for networks of LICSERVER_WEBHOOK_NETWORKS only; use https")


async def test_a_name_that_answers_differently_the_second_time_gains_nothing(monkeypatch):
    """It is looked up once: the connection goes to the address that was checked, with its name as host."""
    answers, hosts = [["127.0.0.1"], ["127.0.0.2"]], []

    def resolve(host, port, *_: Any):
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers.pop(0)]
        return found if host == "rebinding.example" else []

    async def accept(request):
        hosts.append(request.host)
        return web.Response()

    async with receiver(accept) as url:
        monkeypatch.setattr("socket.getaddrinfo", resolve)
        own = (ipaddress.ip_network("127.0.0.1/32"),)
        answer = await post(url.replace("127.0.0.1", "rebinding.example"), b"{}", {}, own)
    assert (answer.status, [host.partition(":")[0] for host in hosts]) == (200, ["rebinding.example"])
    assert answers == [["127.0.0.2"]]


async def test_one_bad_address_among_good_ones_refuses_a_name(monkeypatch):
    """None of them is tried."""
    both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 1)) for address in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: both)
    answer = await post("https://mixed.example:1/", b"{}", {}, timeout=2)
    assert answer == (None, "10.0.0.1 is not a public address")


async def test_a_redirect_is_not_followed():
    """Not to the metadata service, nor anywhere."""
    paths = []

    async def redirect(request):
        paths.append(request.path)
        raise web.HTTPFound("http://169.254.169.254/latest/meta-data")

    async with receiver(redirect) as url:
        answer = await post(url, b"{}", {}, LOOPBACK)
    assert (answer.status, paths) == (302, ["/in"])


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    """They would be asked to connect where we must not."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    async def accept(_):
        return web.Response(text="direct")

    async with receiver(accept) as url:
        assert (await post(url, b"{}", {}, LOOPBACK)).text == "direct"


def hostile(script):
    """Run a receiver of a few bytes on a thread; returns its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run():
        peer, _ = listener.accept()
        with peer, listener:
            peer.recv(65536)
            try:
                script(peer)
            except OSError:
                return

    threading.Thread(target=run, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/"


async def test_an_endless_body_is_cut_off():
    """After two KiB of it; what cannot be printed is replaced."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"

    def flood(peer):
        peer.sendall(head)
        while True:
            peer.sendall(b"a\0b\xff" * 4096)

    answer = await post(hostile(flood), b"{}", {}, LOOPBACK, timeout=5)
    assert (answer.status, len(answer.text)) == (200, MAX_ANSWER)
    assert answer.text.startswith("a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}a")


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"])
async def test_a_slow_answer_ends_in_time(head):
    """Before its head or within its body."""

    def drip(peer):
        peer.sendall(head)
        stop.wait(5)

    stop = threading.Event()
    answer = await post(hostile(drip), b"{}", {}, LOOPBACK, timeout=0.2)
    stop.set()
    assert answer == (None, "no complete response within 0 seconds")


async def test_what_is_no_http_is_a_failed_connection():
    """As is one that is closed at once, or refused."""
    for script in (lambda peer: peer.sendall(b"220 smtp ready\r\n"), lambda _: None):
        assert (await post(hostile(script), b"{}", {}, LOOPBACK)).text.startswith("the connection failed")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert (await post(f"http://127.0.0.1:{port}/", b"{}", {}, LOOPBACK)).text.startswith("cannot connect")
