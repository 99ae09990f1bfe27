"""How long a page of each list of the admin API takes, with many licenses: `python -m bench.lists [COUNT]`.

Not part of the table: there is nothing to compare it with. The figures stand in `docs/measurements.md`.
"""

import asyncio
import http.client
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from pydantic import SecretStr
from sqlalchemy import insert, update

from bench import databases
from licserver.database import migrate
from licserver.database.engine import connect
from licserver.database.tables.licenses import activations, licenses
from licserver.domain.decisions import generate_license_key
from licserver.domain.records import IssuedLicense, LicenseTerms, Scope
from licserver.services.installation import Services, open_services
from licserver.serving.connections import Runner
from licserver.settings import StandaloneSettings
from licserver.web.app import create_app
from licserver.web.middlewares import ADMIN_ROOT

BATCH: Final = 5_000
TIMES: Final = 9
PATHS: Final = (
    "/products",
    "/licenses",
    "/licenses?limit=200",
    "/licenses?product=p3",
    "/licenses?state=active",
    "/licenses?state=revoked",
    "/licenses?state=expired",
    "/licenses?state=expired&product=p3",
    "/licenses?state=revoked&product=p3",
    "/licenses?state=active&product=p9",
    "/licenses?product=few",
    "/licenses?state=expired&product=few",
    "/licenses?state=revoked&product=few",
    "/licenses?expires_from={today}&expires_until={later}&product=few",
    "/licenses?expires_from={today}&expires_until={later}",
    "/licenses?q=u",
    "/licenses?q=user77",
    "/licenses?q=invoice",
    "/licenses?q=example",
    "/licenses?q=2021-9%20invoice",
    "/licenses?q=user77%20shop",
    "/licenses?q=site123",
    "/licenses?q=si",
    "/licenses?q=nothing.such",
    "/licenses?q=user77&state=revoked",
    "/licenses?q=u&product=p3&state=expired",
    "/licenses?q=u&product=few&state=expired",
    "/licenses?q=u&product=p9&state=active",
    "/licenses?q=invoice&state=revoked&product=few",
    "/licenses?subscription=sub-2500",
    "/licenses?subscription=many",
    "/licenses?subscription=many&state=expired",
    "/subscriptions",
    "/audit",
    "/audit?actor_kind=system&actor_name=licserver",
    "/audit?object_kind=product&object_id=p0",
    "/licenses/{license}",
    "/licenses/{license}/activations",
)


def fill(services: Services, count: int) -> None:
    """Issue licenses of all kinds for eleven products, each with a customer and an activation.

    All licenses of `p9` have expired, one license in 5,000 is of the product `few`, one in fifty belongs to
    the subscription `many`, and one in ten of the other subscriptions has ended.
    """
    chance, today = random.Random(1), services.now().date()  # noqa: S311 - no cryptography in test data
    for number in range(10):
        services.products.add(f"p{number}", f"Product {number}")
    services.products.add("few", "Few")
    few = services.products.get("few")
    for batch in range(count // BATCH):
        product = services.products.get(f"p{batch % 10}")
        issued_at = services.now() - timedelta(hours=count // BATCH - batch)
        new: list[IssuedLicense] = []
        for at in range(BATCH):
            number, kind = batch * BATCH + at, chance.random()
            is_over = batch % 10 == 9
            subscription = "many" if kind < 0.72 else f"sub-{number // 3}"
            terms = LicenseTerms(
                slots=3,
                expires_on=today + timedelta(days=chance.randint(-300, -1 if is_over else 600))
                if kind < 0.7 or is_over
                else None,
                lifetime=kind > 0.95 and not is_over,
                subscription_id=subscription if 0.7 < kind < 0.9 else None,
                customer_email=f"user{number}.x@shop{number % 50_000}.example",
                note=f"invoice {2020 + number % 6}-{number}" if number % 2 else None,
            )
            of = few if at == 17 else product
            new.append(services.licenses.prepare(of, terms, generate_license_key(), issued_at))
        _write(services, new, batch)
    with services.database.writing() as connection:
        ended = licenses.c.subscription_id.like("sub-%7")
        connection.execute(update(licenses).where(ended).values(subscription_ended_at=services.now()))
    for number in range(500):
        services.products.change("p0", name=f"Renamed {number}")


def _write(services: Services, new: list[IssuedLicense], batch: int) -> None:
    services.repositories.licenses.add_all(new)
    rows = [
        {
            "license_id": license_.id,
            "domain": f"site{batch * BATCH + at}.customer.example",
            "ip": "192.0.2.1",
            "activated_at": license_.issued_at,
            "last_seen_at": license_.issued_at,
        }
        for at, license_ in enumerate(new)
    ]
    with services.database.writing() as connection:
        connection.execute(insert(activations), rows)
    for license_ in new[: BATCH // 500]:
        services.licenses.revoke(license_.id.hex(), "refund")


@contextmanager
def served(services: Services) -> Iterator[int]:
    """Serve the vendor on a free port, in a thread."""
    ready = threading.Event()
    server: dict[str, Any] = {}

    async def run() -> None:
        runner = Runner(create_app(services), services.settings, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        stop = asyncio.Event()
        server.update(port=runner.addresses[0][1], loop=asyncio.get_running_loop(), stop=stop)
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    ready.wait()
    try:
        yield server["port"]
    finally:
        server["loop"].call_soon_threadsafe(server["stop"].set)
        thread.join()


def measure(services: Services) -> dict[str, float]:
    """Ask for each page several times; milliseconds, the median."""
    _, token = services.tokens.create("bench", Scope.WRITE)
    today = services.now().date()
    names = {
        "today": today,
        "later": today + timedelta(days=30),
        "license": services.licenses.search(limit=1).items[0].id.hex(),
    }
    took = {}
    with served(services) as port:
        link = http.client.HTTPConnection("127.0.0.1", port)
        for path in PATHS:
            times = []
            for _ in range(TIMES):
                began = time.perf_counter()
                link.request(
                    "GET", ADMIN_ROOT + path.format(**names), headers={"Authorization": f"Bearer {token}"}
                )
                answer = link.getresponse()
                json.loads(answer.read())
                assert answer.status == 200, path
                times.append((time.perf_counter() - began) * 1000)
            took[path] = statistics.median(times)
        link.close()
    return took


def main(count: int) -> None:
    """Measure on both engines, and print a table."""
    columns = {}
    with (
        tempfile.TemporaryDirectory(prefix="licserver-lists-") as folder,
        databases.postgresql(None) as server,
    ):
        url = server.empty(f"lists_{count}")
        database = connect(url)
        migrate.upgrade(database)
        database.close()
        for name, database_url in (("SQLite", None), ("PostgreSQL", SecretStr(url))):
            services = open_services(
                StandaloneSettings(data_dir=Path(folder) / name, database_url=database_url)
            )
            fill(services, count)
            if services.database.is_remote:
                server.settle(f"lists_{count}")
            columns[name] = measure(services)
            services.close()
    print("| | SQLite | PostgreSQL |\n|---|---|---|")
    for path in PATHS:
        print(f"| `{path}` | {columns['SQLite'][path]:.0f} ms | {columns['PostgreSQL'][path]:.0f} ms |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
