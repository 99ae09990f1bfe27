"""The database of the public endpoints, in batches: lookups, activations, update checks.

No license rule is here: SQL selects the rows worth loading, and an activation request brings its decision.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import CTE, Connection, LargeBinary, Select, column, literal_column, select

from licserver.database.engine import Database
from licserver.database.hot_path.activations import ActivationRequest, ActivationTransaction
from licserver.database.hot_path.driver import BatchedQuery, KeptConnection, Row, run_one_by_one_on_refusal
from licserver.database.hot_path.license_rows import LICENSE_COLUMNS, read_license
from licserver.database.hot_path.lookups import LOOKUPS, Lookup, find_licenses
from licserver.database.hot_path.updates import UPDATES, OfferedProducts, UpdateQuery, UpdateReader
from licserver.database.repositories.products import newest_manifest, read_release
from licserver.database.repositories.webhooks import SubscribedEvents
from licserver.database.tables.licenses import licenses, products, releases
from licserver.domain.decisions import VerifyVerdict
from licserver.domain.offers import OfferedProduct
from licserver.domain.records import LicenseSnapshot, Product, Release
from licserver.errors import StoreUnavailableError


def _licenses(requested: CTE) -> Select[Any]:
    """Each license alone."""
    return (
        select(requested.c.n, *LICENSE_COLUMNS)
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .join(products, products.c.id == licenses.c.product_id)
    )


LICENSES: Final = BatchedQuery([column("id", LargeBinary)], _licenses)

Result = TypeVar("Result")


class BatchStore:
    """Reads and activates licenses, a batch at a time; its methods raise `StoreUnavailableError`.

    `subscribed` are the events that an endpoint subscribes to; without it none is written.
    """

    def __init__(self, database: Database, subscribed: SubscribedEvents | None = None) -> None:
        self._subscribed = subscribed
        self._database = database
        for query in (LOOKUPS, UPDATES, ActivationTransaction):
            query.compile(database.engine.dialect)
        self.is_remote: Final = database.is_remote
        self._lookup_reader, self._update_reader, self._other_reader = (database.reader() for _ in range(3))
        self._updates = UpdateReader(partial(self._read, self._update_reader), self._update_reader)
        # Of a file they are read in the event loop, on the connection of update checks, and kept once.
        self._listed = OfferedProducts(self._other_reader) if database.is_remote else self._updates.products
        self._sqlite_writer = None if database.is_remote else database.sqlite_writer()
        self._writer = self._sqlite_writer or database.writer()

    def close(self) -> None:
        """Close the connections."""
        for connection in (self._lookup_reader, self._update_reader, self._other_reader, self._writer):
            connection.close()

    def _read(self, reader: KeptConnection, work: Callable[[Connection], Result]) -> Result:
        if self._sqlite_writer is None:
            return reader.run(work)
        return self._sqlite_writer.read(work, otherwise=reader)

    def find_licenses(self, lookups: Sequence[Lookup]) -> Sequence[LicenseSnapshot | Exception | None]:
        """Load licenses as their environments see them, in the order of the lookups."""
        return run_one_by_one_on_refusal(
            lambda batch: self._read(
                self._lookup_reader, lambda connection: find_licenses(connection, batch)
            ),
            lookups,
        )

    def activate(self, requests: Sequence[ActivationRequest]) -> Sequence[VerifyVerdict | Exception]:
        """Decide requests on locked licenses, and insert the activations of those granted.

        They share one durable transaction, and each sees the slots that those before it took.

        Returns:
            Verdicts in the order of the requests. An exception takes the place of a verdict where `decide`
            raised it, `LicenseLockedError` where another transaction changes the license.
        """

        def run(batch: Sequence[ActivationRequest]) -> list[VerifyVerdict | Exception]:
            with self._database.watching_writes():
                return self._writer.run(
                    lambda connection: ActivationTransaction(connection, self._subscribed).run(batch)
                )

        return run_one_by_one_on_refusal(run, requests)

    def find_updates(
        self, queries: Sequence[UpdateQuery]
    ) -> Sequence[tuple[LicenseSnapshot | None, Product | None] | Exception]:
        """Load licenses and products, in the order of the queries; a product only with a license."""
        return run_one_by_one_on_refusal(self._updates.find, queries)

    def find_download(
        self, license_id: bytes, release_id: int
    ) -> tuple[LicenseSnapshot | None, Release | None]:
        """Load the license and the release of a download link."""

        def load(connection: Connection) -> tuple[list[Row], Release | None]:
            rows = LICENSES.rows(connection, [(license_id,)])
            query = select(releases, newest_manifest().label("manifest")).where(releases.c.id == release_id)
            row = connection.execute(query).first()
            return rows, None if row is None else read_release(row)

        rows, release = self._other_reader.run(load)
        return read_license(rows[0]) if rows else None, release

    def find_releases(self, slug: str) -> OfferedProduct | None:
        """Load a product with all its releases; what has not changed is not read again."""
        return self._listed.find_all(slug)

    def look(self) -> float | None:
        """Do as `Database.look`."""
        return self._database.look()

    def ping(self) -> None:
        """Query whether the database can be written to."""
        self._other_reader.run(self._check_writable)

    def _check_writable(self, connection: Connection) -> None:
        self._database.check_latest_write()
        if not self.is_remote:
            connection.execute(select(literal_column("1"))).close()
            self._database.check_disk()
        elif connection.exec_driver_sql("SHOW transaction_read_only").scalar() == "on":
            raise StoreUnavailableError("the database is read-only: activations fail")
