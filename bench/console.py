"""How long a page of the console takes, with many licenses: `python -m bench.console [COUNT]`.

As `bench.lists`, whose shop it is. Nothing else should run meanwhile.
"""

import http.client
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from bench import databases
from bench.lists import TIMES, fill, served
from licserver.settings import StandaloneSettings
from licserver.store import migrate
from licserver.store.engine import connect
from licserver.store.totals import Counted, add_counts
from licserver.vendor import Vendor

PASSWORD: Final = "four words of a sentence"


def pages(vendor: Vendor) -> Iterator[tuple[str, str]]:
    """What is asked for, and what it is called."""
    (license_,) = vendor.find_licenses(limit=1).items
    yield "overview", "/console"
    yield "licenses", "/console/licenses"
    yield "search: a mail address", "/console/licenses?q=user77"
    yield "search: a word of the note", "/console/licenses?q=invoice"
    yield "search: a domain", "/console/licenses?q=site123"
    yield "search: nothing", "/console/licenses?q=nothing.such"
    yield "search: expired, of a product", "/console/licenses?state=expired&product=p3"
    yield "a license", f"/console/licenses/{license_.id.hex()}"
    yield "products", "/console/products"
    yield "audit log", "/console/audit"


def measure(vendor: Vendor) -> dict[str, float]:
    """Open each page several times; milliseconds, the median."""
    vendor.add_user("bench", PASSWORD)
    today = vendor.now().date()
    for back in range(30):
        for label in ("valid", "unknown", "expired"):
            add_counts(vendor.database, today - timedelta(days=back), {Counted("verify", "", label): 100})
    signed = vendor.sign_in("bench", PASSWORD)
    assert signed is not None
    took = {}
    with served(vendor) as port:
        link = http.client.HTTPConnection("127.0.0.1", port)
        for name, path in pages(vendor):
            times = []
            for _ in range(TIMES):
                began = time.perf_counter()
                link.request("GET", path, headers={"Cookie": f"licserver={signed.token}"})
                answer = link.getresponse()
                answer.read()
                assert answer.status == 200, path
                times.append((time.perf_counter() - began) * 1000)
            took[name] = statistics.median(times)
        link.close()
    return took


def main(count: int, engines: list[str]) -> None:
    """Measure, and print a table for each engine."""
    with tempfile.TemporaryDirectory(prefix="licserver-console-") as folder:
        for engine in engines:
            if engine == "sqlite":
                _print(engine, count, Path(folder) / engine, None)
                continue
            with databases.postgresql(None) as server:
                url = server.empty(f"console_{count}")
                database = connect(url)
                migrate.upgrade(database)
                database.close()
                _print(engine, count, Path(folder) / engine, SecretStr(url))


def _print(engine: str, count: int, folder: Path, url: SecretStr | None) -> None:
    vendor = Vendor(StandaloneSettings(data_dir=folder, database_url=url))
    fill(vendor, count)
    for name, took in measure(vendor).items():
        print(f"| {engine} | {name} | {took:.0f} ms |", flush=True)
    vendor.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, sys.argv[2:] or ["sqlite", "postgresql"])
