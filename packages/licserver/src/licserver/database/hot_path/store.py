"""What the public endpoints need of the database, in batches: lookups, activations, update checks.

No license rule is here: SQL selects the rows worth loading, and an activation request brings its decision.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    Integer,
    LargeBinary,
    Select,
    Text,
    and_,
    case,
    cast,
    column,
    func,
    literal_column,
    null,
    or_,
    select,
)

from licserver.database.engine import Database
from licserver.database.hot_path.driver import BatchedQuery, KeptConnection, Row, pipeline, run_apart
from licserver.database.hot_path.license_rows import LICENSE_COLUMNS, read_license
from licserver.database.hot_path.row_writer import RowWriter
from licserver.database.hot_path.updates import UPDATES, OfferedProducts, UpdateQuery, UpdateReader
from licserver.database.repositories.products import newest_manifest, read_release
from licserver.database.repositories.webhooks import WantedEvents
from licserver.database.tables.licenses import activations, licenses, plans, products, releases
from licserver.domain.decisions import Valid, VerifyVerdict
from licserver.domain.records import (
    Environment,
    EnvironmentMatch,
    EnvironmentPolicy,
    LicenseSnapshot,
    Machine,
    Product,
    Release,
)
from licserver.errors import LicenseLockedError, StoreUnavailableError


def _number(value: int) -> ColumnElement[int]:
    """Write a number into the statement itself: a batched statement takes no other parameters."""
    return literal_column(str(value), Integer)


def _lookups(requested: CTE) -> Select[Any]:
    """Each license with its number of activations, and what of the environment they match.

    Most environments are known as a pair, and then only that and its day are looked up. Otherwise the last
    column is four times the number of activations, plus two if the domain matches, plus one if the address
    does; what the product's policy ignores (`environments.is_known`), or no limit is compared with, is not
    looked up. Domains are found by the table's key; for addresses a license's activations are read.
    """
    pair, other = activations.alias("pair"), activations.alias("other")
    of_license = select(literal_column("1", Integer)).where(other.c.license_id == licenses.c.id)
    # Not EXISTS: for a batch PostgreSQL may answer that by reading all activations into a hash.
    one = of_license.limit(_number(1)).offset(_number(0))
    domain = one.where(other.c.domain == requested.c.domain).scalar_subquery()
    ip = func.coalesce(one.where(other.c.ip == requested.c.ip).scalar_subquery(), _number(0))
    taken = of_license.with_only_columns(func.count()).scalar_subquery()
    is_strict, is_either = (
        products.c.policy == literal_column(f"'{policy.value}'", Text)
        for policy in (EnvironmentPolicy.STRICT, EnvironmentPolicy.EITHER)
    )
    is_allowed = licenses.c.allowed != literal_column("''", Text)  # the owner may have allowed the domain
    match = case(
        (domain.is_not(None), _number(2) + case((is_strict, ip), else_=_number(0))),
        (or_(is_either, and_(is_strict, is_allowed)), ip),
        else_=_number(0),
    )
    day = func.substr(cast(pair.c.last_seen_at, Text), _number(1), _number(10))
    # With EITHER, another environment may have updated this pair, but not all activations that this one
    # matches.
    seen_on = case((is_either, null()), else_=day)
    count = case((licenses.c.slots.is_not(None), taken * _number(4)), else_=_number(0))
    return (
        select(
            requested.c.n,
            *LICENSE_COLUMNS,
            plans.c.entitlements,
            licenses.c.overrides,
            seen_on,
            case((pair.c.license_id.is_not(None), _number(3)), else_=count + match),
        )
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .join(products, products.c.id == licenses.c.product_id)
        .outerjoin(
            pair,
            and_(
                pair.c.license_id == licenses.c.id,
                pair.c.domain == requested.c.domain,
                pair.c.ip == requested.c.ip,
            ),
        )
        .outerjoin(plans, and_(plans.c.product_id == licenses.c.product_id, plans.c.name == licenses.c.plan))
    )


def _locks(requested: CTE) -> Select[Any]:
    """Lock the licenses that no other transaction has locked; only these are in the result."""
    return (
        select(requested.c.n, licenses.c.id)
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .with_for_update(of=licenses, skip_locked=True)
    )


def _licenses(requested: CTE) -> Select[Any]:
    """Each license alone."""
    return (
        select(requested.c.n, *LICENSE_COLUMNS)
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .join(products, products.c.id == licenses.c.product_id)
    )


_ID: Final = column("id", LargeBinary)
LOOKUPS: Final = BatchedQuery([_ID, column("domain", Text), column("ip", Text)], _lookups)
LOCKS: Final = BatchedQuery([_ID], _locks)
LICENSES: Final = BatchedQuery([_ID], _licenses)
ACTIVATIONS: Final = RowWriter(activations, leaving={"offline_until"})


class Lookup(NamedTuple):
    """A license, and the environment that asks for it."""

    license_id: bytes
    environment: Environment


class ActivationRequest(NamedTuple):
    """A request for a slot.

    Args:
        lookup: The license and the environment.
        decide: Called with the locked license, or None; its verdict is final.
    """

    lookup: Lookup
    decide: Callable[[LicenseSnapshot | None], VerifyVerdict]
    now: datetime
    machine: Machine | None = None


Result = TypeVar("Result")


class BatchStore:
    """Reads and activates licenses, a batch at a time; its methods raise `StoreUnavailableError`.

    `wanted` are the events that somebody wants; without it none is written.
    """

    def __init__(self, database: Database, wanted: WantedEvents | None = None) -> None:
        self._wanted = wanted
        self._database = database
        for query in (LOOKUPS, UPDATES, LOCKS):
            query.compile(database.engine.dialect)
        self.is_remote: Final = database.is_remote
        if self.is_remote:
            ACTIVATIONS.compile(database.engine.dialect)
        self._lookup_reader, self._update_reader, self._other_reader = (database.reader() for _ in range(3))
        self._updates = UpdateReader(partial(self._read, self._update_reader), self._update_reader)
        self._listed = OfferedProducts(self._other_reader)
        self._sqlite_writer = None if database.is_remote else database.sqlite_writer()
        self._writer = self._sqlite_writer or database.writer()

    def close(self) -> None:
        """Close the connections."""
        for one in (self._lookup_reader, self._update_reader, self._other_reader, self._writer):
            one.close()

    def _read(self, reader: KeptConnection, work: Callable[[Connection], Result]) -> Result:
        if self._sqlite_writer is None:
            return reader.run(work)
        return self._sqlite_writer.read(work, otherwise=reader)

    def find_licenses(self, lookups: Sequence[Lookup]) -> Sequence[LicenseSnapshot | Exception | None]:
        """Load licenses as their environments see them, in the order of the lookups."""
        return run_apart(
            lambda some: self._read(self._lookup_reader, lambda connection: find_licenses(connection, some)),
            lookups,
        )

    def activate(self, requests: Sequence[ActivationRequest]) -> Sequence[VerifyVerdict | Exception]:
        """Decide requests on locked licenses, and insert the activations of those granted (D-08).

        They share one durable transaction, and each sees the slots that those before it took.

        Returns:
            Verdicts in the order of the requests. An exception takes the place of a verdict where `decide`
            raised it, `LicenseLockedError` where another transaction changes the license.
        """
        return run_apart(
            lambda some: self._writer.run(lambda connection: self._activate(connection, some)), requests
        )

    def _activate(
        self, connection: Connection, requests: Sequence[ActivationRequest]
    ) -> list[VerifyVerdict | Exception]:
        """Do as `activate`; repeated, it finds what the first call inserted."""
        verdicts: list[VerifyVerdict | Exception] = []
        granted = _GrantedActivations()
        lookups = [request.lookup for request in requests]
        with pipeline(connection, begins=True):
            # A statement of its own: what a statement reads beside the rows that it locks may be older
            # than the lock.
            read_locks = LOCKS.send(connection, [one[:1] for one in lookups]) if self.is_remote else None
            read_licenses = LOOKUPS.send(connection, _parameters(lookups))
        locked = None if read_locks is None else {license_id for _, license_id in read_locks()}
        for request, license_ in zip(requests, _in_order(lookups, read_licenses()), strict=True):
            if license_ is not None and locked is not None and license_.id not in locked:
                verdicts.append(LicenseLockedError("another operation changes this license; try again"))
                continue
            try:
                verdict = request.decide(granted.apply_to(license_, request.lookup))
            except Exception as error:  # noqa: BLE001 - fails this request alone
                verdicts.append(error)
                continue
            verdicts.append(verdict)
            if isinstance(verdict, Valid) and verdict.takes_slot:
                granted.add(request)
        if granted.rows:
            if self._wanted is not None:
                self._wanted.add_activations(connection, granted.rows)
            with pipeline(connection, commits=True):
                ACTIVATIONS.write(connection, granted.rows)
        return verdicts

    def find_updates(
        self, queries: Sequence[UpdateQuery]
    ) -> Sequence[tuple[LicenseSnapshot | None, Product | None] | Exception]:
        """Load licenses and products, in the order of the queries; a product only with a license."""
        return run_apart(self._updates.find, queries)

    def find_download(
        self, license_id: bytes, release_id: int
    ) -> tuple[LicenseSnapshot | None, Release | None]:
        """Load the license and the release of a download link."""

        def load(connection: Connection) -> tuple[list[Row], Release | None]:
            rows = LICENSES.rows(connection, [(license_id,)])
            query = select(releases, newest_manifest().label("manifest")).where(releases.c.id == release_id)
            found = connection.execute(query).first()
            return rows, None if found is None else read_release(found)

        rows, release = self._other_reader.run(load)
        return read_license(rows[0]) if rows else None, release

    def find_releases(self, slug: str) -> tuple[Product, list[Release]] | None:
        """Load a product with all its releases; what has not changed is not read again."""
        return self._listed.find_all(slug)

    def look(self) -> float | None:
        """Do as `Database.look`."""
        return self._database.look()

    def ping(self) -> None:
        """Ask whether the database can be written to."""
        self._other_reader.run(self._check_writable)

    def _check_writable(self, connection: Connection) -> None:
        if not self.is_remote:
            connection.execute(select(literal_column("1"))).close()
        elif connection.exec_driver_sql("SHOW transaction_read_only").scalar() == "on":
            raise StoreUnavailableError("the database is read-only: activations fail")


class _GrantedActivations:
    """The activations of one transaction so far."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._environments: dict[bytes, list[Environment]] = {}

    def add(self, request: ActivationRequest) -> None:
        """Add the activation of a granted request."""
        license_id, environment = request.lookup
        self._environments.setdefault(license_id, []).append(environment)
        # As seen now: to store that afterwards would write the same pages again.
        times = request.now, request.now
        self.rows.append((license_id, *environment, *times, *(request.machine or Machine())))

    def apply_to(self, license_: LicenseSnapshot | None, lookup: Lookup) -> LicenseSnapshot | None:
        """Return a license as the next request must see it."""
        taken = self._environments.get(lookup.license_id)
        if license_ is None or not taken:
            return license_
        return license_._replace(
            slots_used=license_.slots_used + len(taken),
            activated=EnvironmentMatch(
                domain=license_.activated.domain
                or any(one.domain == lookup.environment.domain for one in taken),
                ip=license_.activated.ip or any(one.ip == lookup.environment.ip for one in taken),
            ),
        )


def find_licenses(connection: Connection, lookups: Sequence[Lookup]) -> list[LicenseSnapshot | None]:
    """Load licenses as their environments see them, in the order of the lookups."""
    return _in_order(lookups, LOOKUPS.rows(connection, _parameters(lookups)))


def _parameters(lookups: Sequence[Lookup]) -> list[Row]:
    return [(license_id, *environment) for license_id, environment in lookups]


def _in_order(lookups: Sequence[Lookup], rows: Iterable[Row]) -> list[LicenseSnapshot | None]:
    found: list[LicenseSnapshot | None] = [None] * len(lookups)
    for row in rows:
        plan, overrides, day, count_and_match = row[-4:]
        seen_on = None if day is None else date.fromisoformat(day)
        license_ = read_license(row, count_and_match >> 2, _MATCHES[count_and_match & 3], seen_on)
        if plan is not None or overrides is not None:
            license_ = license_._replace(plan=plan, overrides=overrides)
        found[row[0]] = license_
    return found


_MATCHES: Final = [EnvironmentMatch(domain, ip) for domain in (False, True) for ip in (False, True)]
