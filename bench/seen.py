"""What "last seen" costs PostgreSQL: `python -m bench.seen URL [COUNT]`, of an empty database.

Bytes of a row by `pg_relation_size`, and of a noted activation the share of HOT updates and the bytes of
the write-ahead log: right after a checkpoint, when each first touch of a page logs all of it, and later.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr
from sqlalchemy import Connection, text

from bench import many
from licserver.database import migrate
from licserver.database.engine import Database, connect
from licserver.database.hot_path.store import BatchStore
from licserver.database.repositories.statistics import Seen, note_seen
from licserver.domain.records import Environment, EnvironmentPolicy, LicenseTerms
from licserver.services.installation import open_services
from licserver.settings import StandaloneSettings

_ROUNDS: Final = ((10_000, True), (200_000, True), (200_000, False), (200_000, False), (10_000, True))
"""How many activations are noted on a day, and whether right after a checkpoint."""

_FLUSH: Final = 10_000  # activations noted together
_SEARCHED: Final = 10_000  # licenses with an e-mail address and a note
_SIZES: Final = text(
    "SELECT c.relname, pg_relation_size(c.oid) FROM pg_class c WHERE c.relkind IN ('r', 'i') AND "
    "(c.oid = CAST(:name AS regclass) OR c.oid IN (SELECT indexrelid FROM pg_index "
    "WHERE indrelid = CAST(:name AS regclass))) ORDER BY c.relkind DESC, c.relname"
)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="bench.seen", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("count", nargs="?", type=int, default=1_000_000)
    options = parser.parse_args()
    database = connect(options.url)
    migrate.upgrade(database)
    database.close()
    with tempfile.TemporaryDirectory(prefix="bench-seen-") as folder:
        settings = StandaloneSettings(data_dir=Path(folder), database_url=SecretStr(options.url))
        services = open_services(settings)
        services.products.add("p", "Photo Lab", EnvironmentPolicy.DOMAIN)
        many.fill(services.database, options.count, services.products.get("p").id)
        for line in measure(services.database, options.count):
            print(line, flush=True)
        before = _size(services.database, "license_words")
        terms = LicenseTerms(
            customer_email="ann.example@customers.example.com", note="sold at the spring fair"
        )
        list(services.licenses.issue_batches("p", terms, _SEARCHED))
        print(
            f"words: {(_size(services.database, 'license_words') - before) / _SEARCHED:.0f} bytes a license"
        )
        services.close()


def measure(database: Database, count: int) -> Iterator[str]:
    """Yield what is found, a line each."""
    _settle(database)
    for table in ("licenses", "activations"):
        with database.reading() as connection:
            sizes = connection.execute(_SIZES, {"name": table}).all()
        yield f"{table}: " + ", ".join(f"{name} {size / count:.0f}" for name, size in sizes)
    chosen = random.Random(1).sample(range(count), min(200_000, count))  # noqa: S311 - no cryptography
    for day, (number, is_settled) in enumerate(_ROUNDS, 1):
        if is_settled:
            _settle(database)
        before, began = _counters(database), time.perf_counter()
        for start in range(0, min(number, count), _FLUSH):
            at = many.LONG_AGO + timedelta(days=10 * day, seconds=start)
            note_seen(database, [_seen(n, at) for n in chosen[start : start + _FLUSH]])
        took, after = time.perf_counter() - began, _counters(database)
        updates, hot, log = (new - old for new, old in zip(after, before, strict=True))
        yield (
            f"{'after a checkpoint' if is_settled else 'later'}: {hot:,} HOT of {updates:,} updates, "
            f"{log / updates:,.0f} bytes of log each, {updates / took:,.0f} a second"
        )
    yield f"activations grown to {_size(database, 'activations') / count:.0f} bytes"
    yield f"new activations: {_activate(database, count):,.0f} a second"


def _activate(database: Database, count: int) -> float:
    store, total = BatchStore(database), 0.0
    number, size = 200, 32
    for batch in range(number):
        rows = [
            (many.license_id(n), many.domain(n + count), "10.9.9.9", many.LONG_AGO, many.LONG_AGO, None, None)
            for n in range(batch * size, (batch + 1) * size)
        ]
        began = time.perf_counter()
        _write(store, rows)
        total += time.perf_counter() - began
    store.close()
    return number * size / total


def _write(store: BatchStore, rows: list[Any]) -> None:
    from licserver.database.hot_path.activations import ROWS  # noqa: PLC0415 - only here

    def write(connection: Connection) -> None:
        ROWS.write(connection, rows)

    store._writer.run(write)  # noqa: SLF001 - what a batch of new activations writes, without its decisions


def _seen(number: int, at: Any) -> Seen:
    here = Environment(many.domain(number), "10.0.0.1")
    return Seen(many.license_id(number), here, at, EnvironmentPolicy.DOMAIN)


def _settle(database: Database) -> None:
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("SET statement_timeout = 0")
        connection.exec_driver_sql("VACUUM ANALYZE")
        connection.exec_driver_sql("CHECKPOINT")
        connection.invalidate()


def _counters(database: Database) -> tuple[int, int, int]:
    """Return updates and HOT updates of activations, and the position in the log."""
    time.sleep(1.5)  # statistics arrive late
    with database.reading() as connection:
        counted = connection.exec_driver_sql(
            "SELECT n_tup_upd, n_tup_hot_upd, pg_current_wal_lsn() - '0/0' FROM pg_stat_user_tables "
            "WHERE relname = 'activations'"
        ).one()
    updates, hot, log = map(int, counted)
    return updates, hot, log


def _size(database: Database, table: str) -> int:
    with database.reading() as connection:
        return int(connection.exec_driver_sql(f"SELECT pg_total_relation_size('{table}')").scalar_one())


if __name__ == "__main__":
    main()
