"""What the public endpoints need of the database, in batches: lookups, activations, update checks.

No license rule is here: SQL selects the rows worth loading, and an activation request brings its decision.
"""

from collections.abc import Callable, Sequence
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
from licserver.database.hot_path.driver import BatchedQuery, KeptConnection, Row, RowWriter
from licserver.database.repositories.products import newest_manifest, read_release
from licserver.database.tables import activations, licenses, manifests, products, releases
from licserver.domain.decisions import Valid, VerifyVerdict
from licserver.domain.records import (
    Environment,
    EnvironmentMatch,
    EnvironmentPolicy,
    LicenseSnapshot,
    Product,
    Release,
)
from licserver.errors import LicenseLockedError

_LICENSE_COLUMNS: Final[list[ColumnElement[Any]]] = [
    licenses.c.id,
    licenses.c.product_id,
    licenses.c.product_name,
    products.c.environment_policy,
    licenses.c.expires_on,
    licenses.c.lifetime,
    licenses.c.revoked_at,
    licenses.c.slots,
    licenses.c.allowed,
    licenses.c.subscription_ended_at,
    licenses.c.support_until,
    products.c.accepts_imported_keys,
]


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
        products.c.environment_policy == literal_column(f"'{policy.value}'", Text)
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
            *_LICENSE_COLUMNS,
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
    )


def _locks(requested: CTE) -> Select[Any]:
    """Lock the licenses that no other transaction has locked; only these are in the result."""
    return (
        select(requested.c.n, licenses.c.id)
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .with_for_update(of=licenses, skip_locked=True)
    )


def _updates(requested: CTE) -> Select[Any]:
    """Each license, and the product of the slug beside it."""
    named = products.alias("named")
    return (
        select(
            requested.c.n,
            *_LICENSE_COLUMNS,
            named.c.id,
            named.c.name,
            named.c.environment_policy,
            named.c.has_support_policy,
            named.c.latest_release_id,
            named.c.latest_manifest_id,
        )
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .join(products, products.c.id == licenses.c.product_id)
        .outerjoin(named, named.c.slug == requested.c.slug)
    )


def _licenses(requested: CTE) -> Select[Any]:
    """Each license alone."""
    return (
        select(requested.c.n, *_LICENSE_COLUMNS)
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .join(products, products.c.id == licenses.c.product_id)
    )


_ID: Final = column("id", LargeBinary)
LOOKUPS: Final = BatchedQuery([_ID, column("domain", Text), column("ip", Text)], _lookups)
LOCKS: Final = BatchedQuery([_ID], _locks)
UPDATES: Final = BatchedQuery([_ID, column("slug", Text)], _updates)
LICENSES: Final = BatchedQuery([_ID], _licenses)
ACTIVATIONS: Final = RowWriter(activations, leaving={"last_seen_at"})


class Lookup(NamedTuple):
    """A license, and the environment that asks for it."""

    license_id: bytes
    environment: Environment


class ActivationRequest(NamedTuple):
    """A request for a slot.

    Args:
        lookup: The license and the environment.
        decide: Called with the locked license, or None; its verdict is final.
        now: The instant of the activation.
    """

    lookup: Lookup
    decide: Callable[[LicenseSnapshot | None], VerifyVerdict]
    now: datetime


class UpdateQuery(NamedTuple):
    """An update check; None stands for a text that is not a license key."""

    license_id: bytes | None
    slug: str


Result = TypeVar("Result")
_LatestIds = tuple[int, int | None]  # ids of a product's latest release, and of its manifest if it has one


class BatchStore:
    """Reads and activates licenses, a batch at a time; its methods raise `StoreUnavailableError`."""

    def __init__(self, database: Database) -> None:
        for query in (LOOKUPS, UPDATES, LOCKS):
            query.compile(database.engine.dialect)
        self.is_remote: Final = database.is_remote
        self._releases: dict[_LatestIds, Release] = {}
        self._lookup_reader, self._update_reader, self._other_reader = (database.reader() for _ in range(3))
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

    def find_licenses(self, lookups: Sequence[Lookup]) -> list[LicenseSnapshot | None]:
        """Load licenses as their environments see them, in the order of the lookups."""
        return self._read(self._lookup_reader, lambda connection: find_licenses(connection, lookups))

    def activate(self, requests: Sequence[ActivationRequest]) -> list[VerifyVerdict | Exception]:
        """Decide requests on locked licenses, and insert the activations of those granted (D-08).

        They share one durable transaction, and each sees the slots that those before it took.

        Returns:
            Verdicts in the order of the requests. An exception takes the place of a verdict where `decide`
            raised it, `LicenseLockedError` where another transaction changes the license.
        """
        return self._writer.run(lambda connection: self._activate(connection, requests))

    def _activate(
        self, connection: Connection, requests: Sequence[ActivationRequest]
    ) -> list[VerifyVerdict | Exception]:
        """Do as `activate`; repeated, it finds what the first call inserted."""
        verdicts: list[VerifyVerdict | Exception] = []
        granted = _GrantedActivations()
        lookups = [request.lookup for request in requests]
        locked: set[bytes] | None = None
        if self.is_remote:
            # A statement of its own: what a statement reads beside the rows that it locks may be older
            # than the lock.
            rows = LOCKS.rows(connection, [(lookup.license_id,) for lookup in lookups])
            locked = {license_id for _, license_id in rows}
        for request, license_ in zip(requests, find_licenses(connection, lookups), strict=True):
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
            ACTIVATIONS.write(connection, granted.rows)
        return verdicts

    def find_updates(
        self, queries: Sequence[UpdateQuery]
    ) -> list[tuple[LicenseSnapshot | None, Product | None]]:
        """Load licenses and products, in the order of the queries; a product only with a license."""
        found: list[tuple[LicenseSnapshot | None, Product | None]] = [(None, None)] * len(queries)
        numbered = [(at, query) for at, query in enumerate(queries) if query.license_id is not None]
        if not numbered:
            return found

        def load(connection: Connection) -> list[Row]:
            return UPDATES.rows(connection, [(one.license_id, one.slug) for _, one in numbered])

        rows = self._read(self._update_reader, load)
        latest = self._load_releases({row[-2:] for row in rows if row[-2] is not None})
        for row in rows:
            at, query = numbered[row[0]]
            found[at] = (_read_license(row), _read_product(row, query.slug, latest))
        return found

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
        return _read_license(rows[0]) if rows else None, release

    def ping(self) -> None:
        """Run an empty statement."""
        self._other_reader.run(lambda connection: connection.execute(select(literal_column("1"))).close())

    def _load_releases(self, wanted: set[_LatestIds]) -> dict[_LatestIds, Release]:
        """Load the latest releases, each once: neither a release nor a manifest ever changes.

        A withdrawn release is no product's latest any more, and a renewed manifest has another id.
        """
        for ids in wanted - self._releases.keys():
            self._releases[ids] = self._update_reader.run(partial(_load_release, ids))
        return self._releases


class _GrantedActivations:
    """The activations of one transaction so far."""

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, str, str, datetime]] = []
        self._environments: dict[bytes, list[Environment]] = {}

    def add(self, request: ActivationRequest) -> None:
        """Add the activation of a granted request."""
        license_id, environment = request.lookup
        self._environments.setdefault(license_id, []).append(environment)
        self.rows.append((license_id, environment.domain, environment.ip, request.now))

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
    found: list[LicenseSnapshot | None] = [None] * len(lookups)
    requests = [(license_id, *environment) for license_id, environment in lookups]
    for row in LOOKUPS.rows(connection, requests):
        day, count_and_match = row[-2:]
        seen_on = None if day is None else date.fromisoformat(day)
        found[row[0]] = _read_license(row, count_and_match >> 2, _MATCHES[count_and_match & 3], seen_on)
    return found


def _load_release(ids: _LatestIds, connection: Connection) -> Release:
    release_id, manifest_id = ids
    query = select(releases, manifests.c.document.label("manifest")).where(releases.c.id == release_id)
    row = connection.execute(query.outerjoin(manifests, manifests.c.id == manifest_id)).one()
    return read_release(row)


_POLICIES: Final = {policy.value: policy for policy in EnvironmentPolicy}
_MATCHES: Final = [EnvironmentMatch(domain, ip) for domain in (False, True) for ip in (False, True)]
_NO_MATCH: Final = EnvironmentMatch()


def _read_license(
    row: Row, slots_used: int = 0, activated: EnvironmentMatch = _NO_MATCH, seen_on: date | None = None
) -> LicenseSnapshot:
    """Read the license from a row that begins with a number and `_LICENSE_COLUMNS`."""
    license_id, product_id, product_name, policy, expires_on, lifetime = row[1:7]
    revoked_at, slots, allowed, subscription_ended_at, support_until, accepts_imported_keys = row[7:13]
    return LicenseSnapshot(
        license_id,
        product_id,
        product_name,
        _POLICIES[policy],
        expires_on,
        bool(lifetime),
        revoked_at,
        slots,
        slots_used,
        tuple(allowed.split("\n")) if allowed else (),
        activated,
        subscription_ended_at,
        support_until,
        seen_on,
        bool(accepts_imported_keys),
    )


def _read_product(row: Row, slug: str, latest: dict[_LatestIds, Release]) -> Product | None:
    """Read the product from the end of a row of `UPDATES`."""
    product_id, name, policy, has_support_policy, release_id, _ = row[-6:]
    if product_id is None:
        return None
    return Product(
        id=product_id,
        slug=slug,
        name=name,
        policy=_POLICIES[policy],
        has_support_policy=bool(has_support_policy),
        latest=None if release_id is None else latest[row[-2:]],
    )
