"""Time of a schema change, and how long others wait for it: `python -m bench.upgrade [COUNT] [ENGINE]…`.

A database of the first schema is filled, and brought to each later one up to this program's.
Meanwhile one task reads a license and another writes to it, as a server beside `licserver db upgrade`
would, if it were left running: the longest wait of each is printed.
"""

import argparse
import itertools
import random
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from alembic import command
from sqlalchemy import Connection, MetaData, Table, insert, select

from bench import databases
from licserver.database import migrate
from licserver.database.engine import Database, connect
from licserver.database.schema import HEAD, REVISIONS, read_version
from licserver.errors import StoreUnavailableError

_BATCH: Final = 20_000
_NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


def fill(database: Database, count: int) -> None:
    """Fill the first schema: a license and an activation so many times, one in ten by subscription.

    The tables are read from the database, because this program knows those of its own schema only.
    """
    chance = random.Random(1)  # noqa: S311 - no cryptography in test data
    with database.writing() as connection:
        there = _tables(connection)
        product = {"slug": "p", "name": "P", "environment_policy": "domain", "has_support_policy": False}
        connection.execute(insert(there["products"]), [{"id": 1, "created_at": _NOW, **product}])
    for done in range(0, count, _BATCH):
        ids = sorted(secrets.token_bytes(16) for _ in range(min(_BATCH, count - done)))
        same = {"product_id": 1, "product_name": "P", "issued_at": _NOW, "lifetime": False, "slots": 3}
        sold = [
            {
                "id": id_,
                "sealed_key": secrets.token_bytes(67),
                "subscription_id": f"sub-{done + at}" if chance.random() < 0.1 else None,
                "allowed": "",
                **same,
            }
            for at, id_ in enumerate(ids)
        ]
        taken = [
            {"license_id": id_, "domain": f"site{done + at}.example", "ip": "192.0.2.1", "activated_at": _NOW}
            for at, id_ in enumerate(ids)
        ]
        with database.writing() as connection:
            connection.execute(insert(there["licenses"]), sold)
            connection.execute(insert(there["activations"]), taken)


def _tables(connection: Connection) -> dict[str, Table]:
    there = MetaData()
    there.reflect(connection)
    return dict(there.tables)


class Waiting:
    """A task that repeats an action, and the longest time it took.

    Args:
        act: What is done.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self.longest, self.failures = 0.0, 0

    def go_on(self, stop: threading.Event) -> None:
        """Do it until it is stopped."""
        while not stop.wait(0.02):
            began = time.perf_counter()
            try:
                self._act()
            except StoreUnavailableError:
                self.failures += 1
            self.longest = max(self.longest, time.perf_counter() - began)


@contextmanager
def beside(url: str) -> Iterator[tuple[Waiting, Waiting]]:
    """Read and write while the block lasts, on connections of their own."""
    database = connect(url)
    with database.reading() as connection:
        licenses = _tables(connection)["licenses"]
        license_id = connection.scalar(select(licenses.c.id).limit(1))

    def read() -> None:
        with database.reading() as connection:
            connection.execute(select(licenses.c.slots).where(licenses.c.id == license_id)).one()

    def write() -> None:
        with database.writing() as connection:
            connection.execute(licenses.update().where(licenses.c.id == license_id).values(slots=3))

    stop = threading.Event()
    waiting = Waiting(read), Waiting(write)
    threads = [threading.Thread(target=who.go_on, args=(stop,)) for who in waiting]
    for thread in threads:
        thread.start()
    try:
        yield waiting
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        database.close()


def measure(url: str, count: int) -> Iterator[tuple[str, float, Waiting, Waiting]]:
    """Give for each step its name, its seconds, and who waited for it."""
    database = connect(url)
    try:
        _to(database, REVISIONS[0])
        fill(database, count)
        for before, after in itertools.pairwise(REVISIONS):
            with beside(url) as (reader, writer):
                began = time.perf_counter()
                _to(database, after)
                took = time.perf_counter() - began
            yield f"{before} to {after}", took, reader, writer
        assert not migrate.differences(database), "this is not the schema of this program"
    finally:
        database.close()


def _to(database: Database, revision: str) -> None:
    run = migrate.migrate if read_version(database) is None else migrate.migrate_beside_servers
    run(database, lambda config: command.upgrade(config, revision))


def _row(engine: str, step: tuple[str, float, Waiting, Waiting]) -> str:
    name, took, *others = step
    # Who gave up, as everybody does after five to ten seconds, would have waited on.
    waits = " | ".join("to the end" if waiting.failures else f"{waiting.longest:.2f} s" for waiting in others)
    return f"| {engine} | {name} | {took:.1f} s | {waits} |"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="bench.upgrade", description=__doc__)
    parser.add_argument(
        "count", nargs="?", type=int, default=1_000_000, help="licenses, each with an activation"
    )
    parser.add_argument("engines", nargs="*", default=["sqlite", "postgresql"])
    parser.add_argument("--write", type=Path, help="folder for upgrade-table.md")
    options = parser.parse_args()
    lines = ["| | schema | takes | a reader waits | a writer waits |", "|---|---|---:|---:|---:|"]
    with tempfile.TemporaryDirectory(prefix="bench-upgrade-") as folder:
        if "sqlite" in options.engines:
            url = f"sqlite+pysqlite:///{Path(folder) / 'old.sqlite3'}"
            lines += map(partial(_row, "SQLite"), measure(url, options.count))
        if "postgresql" in options.engines:
            with databases.postgresql(None) as server:
                lines += map(partial(_row, "PostgreSQL"), measure(server.empty("old"), options.count))
    page = "\n".join(lines) + "\n"
    print(f"to {HEAD}, {options.count:,} licenses and activations\n\n{page}")
    if options.write:
        (options.write / "upgrade-table.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
