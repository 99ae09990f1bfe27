"""How long each page of the console takes, with many licenses: `python -m bench.console [COUNT] [ENGINE]…`.

Pages are found in the router, so that a new one is measured, or named below as none that can be; of a list
as a file, the time until its first byte. Nothing else should run meanwhile.
"""

import argparse
import http.client
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from bench.lists import TIMES, served
from bench.shops import RARE, shops
from licserver.services.installation import Services
from licserver.shops import ShopKind
from licserver.web.app import create_app

PASSWORD: Final = "four words of a sentence"

WANTED: Final = 150.0
"""Milliseconds, the median."""

NO_PAGES: Final = ("/console/assets/{digest}/{name}", "/console/{anything}", "/console/")
"""What a browser keeps, what there is not, and what leads to the overview."""

NEEDED: Final = {"/console/customers": "?email={email}"}
"""The query without which there is no page."""

MORE: Final = {
    "/console": (
        ("90 days", "days=90"),
        ("90 days of a product", "days=90&product=p3"),
    ),
    "/console/licenses": (
        ("a mail address", "q=user77"),
        ("a letter", "q=u"),
        ("a word of the note", "q=invoice"),
        ("two words", "q=user77%20shop"),
        ("a domain", "q=site123"),
        ("a masked key", "q=CP-AB%E2%80%A60123"),
        ("the end of a key", "q=%E2%80%A60123"),
        ("the start of a masked key", "q=CP-AB%E2%80%A6"),
        ("an IP address", "q=192.0.2.1"),
        ("a subscription", "q=sub-1"),
        ("the reason of a revocation", "q=refund"),
        ("nothing like it", "q=nothing.such"),
        ("expired, of a product", "state=expired&product=p3"),
        ("revoked, of a product", "state=revoked&product=p3"),
        ("by days of expiry", "from=2026-01-01&until=2027-12-31"),
    ),
    "/console/licenses.csv": (("a mail address", "q=user77"), ("expired", "state=expired")),
    "/console/audit": (
        ("of the busiest user", "actor=shop"),
        ("of a user with three entries", f"actor={RARE}"),
        ("by nobody", "actor=nobody"),
        ("by a kind", "kind=user"),
        ("by a kind that is most of it", "kind=token"),
        ("by a kind and a name", f"kind=user&actor={RARE}"),
        ("of a license", "license={id}"),
        ("of a license, by a kind", "license={id}&kind=cli"),
    ),
    "/console/audit.csv": (("of a user with three entries", f"actor={RARE}"),),
}
"""Pages on which something can be asked for: what, and the query."""


def addresses(services: Services) -> Iterator[tuple[str, str]]:
    """Find every page: what the table calls it, and its address.

    Raises:
        KeyError: for a page whose address has a part that is not known here.
    """
    (license_,) = services.licenses.search(limit=1).items
    if not services.sources.list_all():
        services.sources.add("shop", ShopKind.STANDARD, "SHOP_SECRET")
    parts = {
        "id": license_.id.hex(),
        "name": services.sources.list_all()[0].name,
        "slug": "p3",
        "version": "1.9.0",
        "email": license_.customer_email,
    }
    paths = {
        route.resource.canonical
        for route in create_app(services).router.routes()
        if route.method == "GET" and route.resource is not None
    }
    for path in sorted(path for path in paths if path.startswith("/console") and path not in NO_PAGES):
        yield f"`{path}`", (path + NEEDED.get(path, "")).format(**parts)
        for what, query in MORE.get(path, ()):
            yield f"`{path}`: {what}", f"{path}?{query}".format(**parts)


def measure(services: Services) -> dict[str, float]:
    """Open each page several times; milliseconds, the median."""
    user = f"bench-{time.time_ns()}"  # the shop may have been measured before
    services.users.add(user, PASSWORD)
    signed = services.logins.sign_in(user, PASSWORD)
    assert signed is not None
    with served(services) as port:
        cookie = f"licserver={signed.token}"
        return {
            name: statistics.median(_open(port, path, cookie) for _ in range(TIMES))
            for name, path in addresses(services)
        }


def _open(port: int, path: str, cookie: str) -> float:
    link = http.client.HTTPConnection("127.0.0.1", port)
    link.connect()
    began = time.perf_counter()
    link.request("GET", path, headers={"Cookie": cookie})
    answer = link.getresponse()
    is_file = path.partition("?")[0].endswith(".csv")
    answer.read(1 if is_file else None)
    took = (time.perf_counter() - began) * 1000
    # A user who is signed in already is redirected.
    assert answer.status in ({303} if path.startswith("/console/sign-in") else {200}), (path, answer.status)
    link.close()
    return took


def main() -> None:
    """Measure, print a table, and name the pages that take too long."""
    parser = argparse.ArgumentParser(prog="bench.console", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=1_000_000, help="licenses, in steps of 5,000")
    parser.add_argument("engines", nargs="*", default=["sqlite", "postgresql"])
    parser.add_argument("--folder", type=Path, help="where the shops are kept between runs")
    parser.add_argument("--write", type=Path, help="folder for console-table.md")
    options = parser.parse_args()
    # Not the warnings about files that were not read to their end.
    logging.getLogger("licserver.console").setLevel(logging.CRITICAL)
    columns: dict[str, dict[str, float]] = {}
    place = tempfile.TemporaryDirectory(prefix="bench-console-") if options.folder is None else None
    with (
        place or nullcontext(str(options.folder)) as folder,
        shops(Path(folder), options.count, options.engines) as all_,
    ):
        for engine, services in all_:
            columns[engine] = measure(services)
    page = _table(columns)
    print(page)
    if options.write:
        (options.write / "console-table.md").write_text(page, encoding="utf-8")
    late = [
        f"{name} on {engine}: {took:.0f} ms"
        for engine, column in columns.items()
        for name, took in column.items()
        if took > WANTED
    ]
    if late:
        sys.exit(f"longer than {WANTED:.0f} ms: " + "; ".join(late))


def _table(columns: dict[str, dict[str, float]]) -> str:
    titles = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
    lines = [
        "| page | " + " | ".join(titles[engine] for engine in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for name in next(iter(columns.values())):
        cells = " | ".join(f"{column[name]:.0f} ms" for column in columns.values())
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
