"""What customers notice of a shop's sales and of webhooks: ``python -m bench.events [quick]``.

Five hundred verifies a second, as in ``bench.beside``: alone, then while a shop delivers 1,000 purchases a
minute. Each issues a license, whose event is sent to an endpoint: so 1,000 events a minute go out. Verify's
99th percentile is to stay within three times of that before.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from pydantic import SecretStr

from bench import databases
from bench.beside import WARM_UP, quantiles, watching
from bench.databases import Stocked
from bench.servers import product
from bench.stock import SLUG
from licserver.protocol.webhooks import EventType, format_secret, signed_headers
from licserver.services.installation import open_services
from licserver.settings import StandaloneSettings
from licserver.shops import ShopKind

SECRET: Final = bytes(range(32))
NETWORKS: Final = "127.0.0.1/32"


class Endpoint(BaseHTTPRequestHandler):
    """Counts the events that arrive."""

    count = 0

    def do_POST(self) -> None:
        """Take an event."""
        self.rfile.read(int(self.headers["Content-Length"]))
        Endpoint.count += 1
        self.send_response_only(204)  # logs nothing
        self.end_headers()


@contextmanager
def endpoint() -> Iterator[str]:
    """Receive events until the block ends; yield the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def selling(url: str, rate: float) -> Iterator[list[float]]:
    """Deliver so many purchases a minute until the block ends; yield the seconds that each took."""
    end, seconds = threading.Event(), list[float]()

    def sell() -> None:
        due = time.monotonic()
        while not end.wait(max(0.0, due - time.monotonic())):
            begin = time.perf_counter()
            deliver(url, f"order-{time.time_ns()}")
            seconds.append(time.perf_counter() - begin)
            due += 60 / rate

    thread = threading.Thread(target=sell)
    thread.start()
    try:
        yield seconds
    finally:
        end.set()
        thread.join()


def deliver(url: str, order: str) -> None:
    """Deliver a purchase on a connection of its own, as shops do."""
    now = datetime.now(UTC)
    data = {"order_id": order, "external_id": "app", "customer_email": f"{order}@example.com"}
    event = {"type": "purchase.completed", "timestamp": now.isoformat(), "data": data}
    body = json.dumps(event).encode()
    request = Request(f"{url}/events/in/shop", body, signed_headers(order, now, body, [SECRET]))  # noqa: S310 - loopback
    with urlopen(request, timeout=30) as response:  # noqa: S310 - the same
        if b"accepted" not in response.read():
            raise RuntimeError("a purchase was not accepted")


def prepare(stocked: Stocked, hook: str) -> Stocked:
    """Add the shop and the endpoint; return what the server needs besides."""
    url = stocked.environ.get("LICSERVER_DATABASE_URL")
    own: dict[str, Any] = {"webhook_networks": NETWORKS, "database_url": SecretStr(url) if url else None}
    with closing(open_services(StandaloneSettings(data_dir=stocked.data_dir, **own))) as services:
        services.sources.add("shop", ShopKind.STANDARD, "SHOP_SECRET")
        services.sources.map("shop", "app", SLUG)
        services.webhooks.add(hook, [EventType.LICENSE_ISSUED])
    more = {"SHOP_SECRET": format_secret(SECRET), "LICSERVER_WEBHOOK_NETWORKS": NETWORKS}
    return replace(stocked, environ={**stocked.environ, **more})


def measure(stocked: Stocked, options: argparse.Namespace) -> Iterator[str]:
    """Yield a row for each pair of windows."""
    with product(stocked) as server:
        for number in range(options.rounds):
            with watching(server, stocked, options.rate, 2 * number) as quiet:
                time.sleep(WARM_UP + options.seconds)
            before = Endpoint.count
            busy_verifies = watching(server, stocked, options.rate, 2 * number + 1)
            with selling(server.url, options.events) as seconds, busy_verifies as busy:
                time.sleep(WARM_UP + options.seconds)
            (p50, p99), (busy_p50, busy_p99) = quantiles(quiet), quantiles(busy)
            taken = sorted(seconds)[int(0.99 * len(seconds))] * 1000
            yield (
                f"| {stocked.name} | {number + 1} | {p50:.2f} / {p99:.2f} | {busy_p50:.2f} / {busy_p99:.2f} "
                f"| {busy_p99 / p99:.1f} | {len(seconds)}, {taken:.0f} | {Endpoint.count - before} |"
            )


def main() -> None:
    """Measure what the arguments ask for, and print a table."""
    parser = argparse.ArgumentParser(prog="bench.events", description=__doc__)
    parser.add_argument("mode", nargs="?", choices=["full", "quick"], default="full")
    parser.add_argument("--rate", type=int, default=500, help="verifies a second")
    parser.add_argument("--events", type=int, default=1_000, help="purchases a minute")
    quick = "quick" in sys.argv
    parser.add_argument("--licenses", type=int, default=2_000 if quick else 100_000)
    parser.add_argument("--rounds", type=int, default=1, help="pairs of windows")
    parser.add_argument("--seconds", type=float, default=2.0 if quick else 30.0, help="of a window")
    parser.add_argument("--databases", nargs="+", default=["sqlite"] if quick else ["sqlite", "postgresql"])
    options = parser.parse_args()
    print("| database | round | quiet: p50 / p99 ms | beside | p99 ratio | taken, p99 ms | sent out |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name in options.databases:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            if name == "sqlite":
                stocked = databases.sqlite(folder, options.licenses)
            else:
                server = stack.enter_context(databases.postgresql(None))
                stocked = server.stocked(folder, options.licenses)
            for row in measure(prepare(stocked, stack.enter_context(endpoint())), options):
                print(row, flush=True)


if __name__ == "__main__":
    main()
