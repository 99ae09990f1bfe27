"""`source sync` reads what a shop's API answers: within bounds, and its key goes to no one on the way."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from licserver.errors import InvalidInputError
from licserver.jobs import shop_apis
from licserver.shops import ShopKind

SINCE = datetime(2026, 6, 1, tzinfo=UTC)
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Serve a shop's API for a block; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer, to a client that may have gone."""
            try:
                answer(self)
            except ConnectionError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def send(handler: BaseHTTPRequestHandler, body: bytes, **headers: str) -> None:
    """Send a body without its length."""
    handler.send_response(200)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


async def fetch(address: str) -> int:
    """Read all that Stripe's API lists; return how many."""
    found = shop_apis.fetch_deliveries(ShopKind.STRIPE, "sk_1", SINCE, address)
    return len([problem async for problem in found])


def _send_endlessly(handler: BaseHTTPRequestHandler) -> None:
    send(handler, b'{"data": [')
    while True:
        handler.wfile.write(b"0," * 4096)


def _send_packed(handler: BaseHTTPRequestHandler) -> None:
    send(handler, gzip.compress(bytes(1 << 20)), Content_Encoding="gzip")


def _send_nested(handler: BaseHTTPRequestHandler) -> None:
    send(handler, b"[" * 200_000)


def _send_same_page(handler: BaseHTTPRequestHandler) -> None:
    send(handler, json.dumps({"data": [{"id": f"evt_{number}"} for number in range(100)]}).encode())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (_send_endlessly, "is larger than"),
        (_send_packed, "compressed response"),
        (_send_nested, r"nested too deeply|not JSON"),
        (_send_same_page, "the same page"),
    ],
)
async def test_an_answer_of_any_size_is_read_within_bounds(
    answer: Answer, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5 GB of a page took 4.7 GB of memory."""
    monkeypatch.setattr(shop_apis, "MAX_PAGE_BYTES", 1 << 20)
    with answering(answer) as address, pytest.raises(InvalidInputError, match=message):
        await fetch(address)


async def test_pages_without_an_end_take_an_hour_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page differs from the one before."""
    pages = iter(range(10_000_000))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        send(handler, json.dumps({"data": [{"id": f"evt_{next(pages)}"} for _ in range(100)]}).encode())

    monkeypatch.setattr(shop_apis, "MAX_SECONDS", 0.2)
    with answering(answer) as address, pytest.raises(InvalidInputError, match="longer than an hour"):
        await fetch(address)


@pytest.mark.parametrize(
    "address",
    [
        "http://shop.example.com",
        "http://10.0.0.7",
        "http://localhost.example.com",
        "ftp://localhost",
        "HTTP://x",
    ],
)
async def test_the_key_is_sent_in_no_clear_text(address: str) -> None:
    """But to this machine, where a tunnel may begin."""
    with pytest.raises(InvalidInputError, match="must begin with https://"):
        await fetch(address)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_a_tunnel_on_this_machine_is_no_clear_text(host: str) -> None:
    """Its other end encrypts."""
    assert shop_apis._read_address(f"http://{host}:8443").port == 8443
