"""A shop whose console is to be opened: that of `bench.lists`, with releases and a long audit log.

Filling a million takes some minutes, so a folder can be named in which the shops are kept.
"""

import io
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from packaging.version import Version
from pydantic import SecretStr
from sqlalchemy import insert, select

from bench import databases
from bench.lists import fill
from licserver.database import migrate
from licserver.database.engine import connect
from licserver.database.repositories.statistics import CountKey, add_counts
from licserver.database.tables.licenses import audit, licenses
from licserver.domain.versions import version_key
from licserver.services.installation import Services, open_services
from licserver.settings import StandaloneSettings

_BATCH: Final = 20_000

RARE: Final = "former-colleague"
"""Somebody of whom the audit log has three lines, the oldest ones."""


@contextmanager
def shops(folder: Path, count: int, engines: Sequence[str]) -> Iterator[Iterator[tuple[str, Services]]]:
    """Open a shop on each engine, one after the other, filled unless that was done before.

    Args:
        folder: Where they are kept.
        count: Licenses of each.
        engines: `sqlite` and `postgresql`.
    """
    with ExitStack() as stack:

        def open_() -> Iterator[tuple[str, Services]]:
            for engine in engines:
                where = folder / f"{engine}-{count}"
                url, server = None, None
                if engine == "postgresql":
                    server = stack.enter_context(databases.postgresql(folder / "server"))
                    url = SecretStr(server.url(f"shop_{count}"))
                    if not where.exists():
                        _set_up(server.empty(f"shop_{count}"))
                services = open_services(StandaloneSettings(data_dir=where, database_url=url))
                filled = where / "filled"
                if not filled.exists():
                    _fill(services, count)
                    filled.touch()
                if server is not None:
                    server.settle(f"shop_{count}")
                try:
                    yield engine, services
                finally:
                    services.close()

        yield open_()


def _set_up(url: str) -> None:
    database = connect(url)
    migrate.upgrade(database)
    database.close()


def _fill(services: Services, count: int) -> None:
    fill(services, count)
    for number in range(10):
        product = services.products.get(f"p{number}")
        for minor in range(10):
            version = f"1.{minor}.0"
            artifact = services.artifacts.store(io.BytesIO(b"zip"), f"p{number}-{version}.zip")
            changelog = "<ul>" + "<li>Faster, and kinder.</li>" * 20 + "</ul>"
            services.repositories.releases.add(
                product.id, version, version_key(Version(version)), changelog, artifact, services.now()
            )
    today = services.now().date()
    for back in range(30):
        counts = {CountKey("verify", "", "unknown"): 100}
        for number in range(10):
            counts[CountKey("verify", f"p{number}", "valid")] = 100
        add_counts(services.database, today - timedelta(days=back), counts)
    _write_audit(services, count)


def _write_audit(services: Services, count: int) -> None:
    """Write a line for each license, by a few of each kind of actor; most of them by the shop's back end."""
    chance, now = random.Random(2), services.now()  # noqa: S311 - no cryptography in test data
    with services.database.reading() as connection:
        ids = [row.hex() for row in connection.scalars(select(licenses.c.id).limit(100_000))]
    actors = [("token", "shop")] * 20 + [
        ("user", "ada"),
        ("user", "grace"),
        ("cli", "root"),
        ("system", "licserver"),
    ]
    for done in range(0, count, _BATCH):
        rows: list[dict[str, Any]] = []
        for number in range(done, min(done + _BATCH, count)):
            kind, name = ("user", RARE) if number < 3 else chance.choice(actors)
            rows.append(
                {
                    "at": now - timedelta(minutes=count - number),
                    "actor_kind": kind,
                    "actor_name": name,
                    "action": "license.change",
                    "object_kind": "license",
                    "object_id": ids[number % len(ids)],
                    "details": '{"slots":[1,3]}',
                }
            )
        with services.database.writing() as connection:
            connection.execute(insert(audit), rows)
