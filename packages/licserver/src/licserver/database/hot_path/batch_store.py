"""What the public endpoints ask of the database, for many requests at a time.

One statement serves everybody who waits. No rule stands here: a claim brings the judge along that
has the last word on the locked record.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from functools import partial
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import Connection, literal_column, select

from licserver.database.engine import Database
from licserver.database.hot_path import statements
from licserver.database.hot_path.connections import KeptConnection
from licserver.database.hot_path.queries import Row
from licserver.database.hot_path.sqlite_connection import SqliteConnection, move_log
from licserver.database.rows import newest_manifest, read_release, split_entries
from licserver.database.tables import manifests, releases
from licserver.domain.decisions import Valid, VerifyVerdict
from licserver.domain.records import (
    Environment,
    EnvironmentMatch,
    EnvironmentPolicy,
    License,
    Product,
    Release,
)
from licserver.errors import LicenseLocked


class Lookup(NamedTuple):
    """A license is asked for from an environment."""

    license_id: bytes
    environment: Environment


class ActivationRequest(NamedTuple):
    """A license's slot is wanted for an environment.

    Args:
        sighting: Who asks, and from where.
        judge: Called with the locked record, or None; its verdict is final.
        now: The instant to note on the activation.
    """

    sighting: Lookup
    judge: Callable[[License | None], VerifyVerdict]
    now: datetime


class UpdateQuery(NamedTuple):
    """An update of a product is asked for; None stands for a key that has not even the shape of one."""

    license_id: bytes | None
    slug: str


Result = TypeVar("Result")
_Latest = tuple[int, int | None]
"""Ids of a product's latest release, and of its manifest if it has one."""


MOVE_LOG_AFTER: Final = 500
"""New activations, each of them one or two pages in SQLite's log; its own measure is a thousand pages."""


class BatchStore:
    """Answers lookups and admits environments, a batch at a time.

    Args:
        database: Shared with the vendor's operations.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._releases: dict[_Latest, Release] = {}
        self._verify_lane, self._update_lane, self._rare_lane = (database.reader() for _ in range(3))
        self._local = None if database.is_remote else database.local_writer()
        self._claim_lane = self._local or database.writer()
        self._log_lane = database.reader()
        self._since_moved = 0
        self.is_remote = database.is_remote

    def close(self) -> None:
        """Give the connections back."""
        for lane in (
            self._verify_lane,
            self._update_lane,
            self._rare_lane,
            self._log_lane,
            self._claim_lane,
        ):
            lane.close()

    def _read(self, lane: KeptConnection, work: Callable[[Connection], Result]) -> Result:
        """Read on a lane; on a file of this machine, if it is free, on the connection that writes to it.

        A commit empties the page caches of all connections but its own.
        """
        return lane.run(work) if self._local is None else self._local.look(work, instead=lane)

    def look_up(self, sightings: Sequence[Lookup]) -> list[License | None]:
        """Load the licenses that are asked for, in the order asked.

        Raises:
            StoreUnavailable: when the database fails.
        """
        return self._read(self._verify_lane, lambda connection: _look_up(connection, sightings))

    def admit(self, claims: Sequence[ActivationRequest]) -> list[VerifyVerdict | Exception]:
        """Judge claims on locked records and note the activations of those that are granted (D-08).

        All claims share one durable transaction. Each sees what the ones before it took, so that
        the same new environment asked for many times at once takes one slot.

        Args:
            claims: In the order in which they came.

        Returns:
            The verdicts in that order; in the place of a claim whose judge failed, the exception;
            `LicenseLocked` where another transaction changes the license.

        Raises:
            StoreUnavailable: when the database fails; then nobody may be told of a grant.
        """
        return self._claim_lane.run(lambda connection: self._admit(connection, claims))

    def admission(self) -> "ActivationTransaction":
        """Do what `admit` does in steps, of which only some have to wait; on an engine of this machine."""
        if self._local is None:
            raise RuntimeError("only an admission on this machine has steps")
        return ActivationTransaction(self._local, self._admit)

    def _admit(
        self, connection: Connection, claims: Sequence[ActivationRequest]
    ) -> list[VerifyVerdict | Exception]:
        """Do as `admit` says; done twice, it finds known whom the first time let in."""
        verdicts: list[VerifyVerdict | Exception] = []
        granted = _GrantedActivations()
        sightings = [claim.sighting for claim in claims]
        locked: set[bytes] | None = None
        if self._database.locks_rows:
            # A statement of its own: what a statement reads beside the rows that it locks
            # may be older than the lock.
            rows = statements.LOCKS.rows(connection, [(sighting.license_id,) for sighting in sightings])
            locked = {license_id for _, license_id in rows}
        for claim, license_ in zip(claims, _look_up(connection, sightings), strict=True):
            if license_ is not None and locked is not None and license_.id not in locked:
                verdicts.append(LicenseLocked("another operation changes this license; try again"))
                continue
            try:
                verdict = claim.judge(granted.seen_by(claim.sighting, license_))
            except Exception as error:  # noqa: BLE001 - belongs to this claim, its neighbours go on
                verdicts.append(error)
                continue
            verdicts.append(verdict)
            if isinstance(verdict, Valid) and verdict.takes_slot:
                granted.add(claim)
        if granted.rows:
            statements.ACTIVATIONS.write(connection, granted.rows)
            self._since_moved += len(granted.rows)
        return verdicts

    @property
    def is_log_long(self) -> bool:
        """Whether it is time for `move_log`."""
        return self._local is not None and self._since_moved >= MOVE_LOG_AFTER

    def move_log(self) -> None:
        """Move what was committed from SQLite's log to its file, so that the log begins anew.

        SQLite would do it within every so many commits, and keep that one's callers waiting.

        Raises:
            StoreUnavailable: when the database fails; nothing is lost then.
        """
        self._log_lane.run(move_log)
        self._since_moved = 0

    def look_up_updates(self, asks: Sequence[UpdateQuery]) -> list[tuple[License | None, Product | None]]:
        """Load the licenses and the products that update checks name, in the order asked.

        A product is loaded only beside a license: without one there is nothing to tell (D-20).

        Raises:
            StoreUnavailable: when the database fails.
        """
        answers: list[tuple[License | None, Product | None]] = [(None, None)] * len(asks)
        keyed = [(at, ask) for at, ask in enumerate(asks) if ask.license_id is not None]
        if not keyed:
            return answers

        def load(connection: Connection) -> list[Row]:
            return statements.UPDATE_ASKS.rows(connection, [(ask.license_id, ask.slug) for _, ask in keyed])

        rows = self._read(self._update_lane, load)
        latest = self._load_releases({row[-2:] for row in rows if row[-2] is not None})
        for row in rows:
            at, ask = keyed[row[0]]
            answers[at] = (_read_license(row), _read_product(row, ask.slug, latest))
        return answers

    def look_up_download(self, license_id: bytes, release_id: int) -> tuple[License | None, Release | None]:
        """Load the license and the release that a download link names.

        Raises:
            StoreUnavailable: when the database fails.
        """

        def load(connection: Connection) -> tuple[list[Row], Release | None]:
            rows = statements.LICENSES.rows(connection, [(license_id,)])
            query = select(releases, newest_manifest().label("manifest")).where(releases.c.id == release_id)
            found = connection.execute(query).first()
            return rows, None if found is None else read_release(found)

        rows, release = self._rare_lane.run(load)
        return _read_license(rows[0]) if rows else None, release

    def ping(self) -> None:
        """Ask the database for nothing.

        Raises:
            StoreUnavailable: when it does not answer.
        """
        self._rare_lane.run(lambda connection: connection.execute(select(literal_column("1"))).close())

    def _load_releases(self, wanted: set[_Latest]) -> dict[_Latest, Release]:
        """Load the latest releases; neither a release nor a manifest ever changes, so each pair is read once.

        A withdrawal is no exception: the release is then nobody's latest any more. A manifest that is
        renewed is another one, with an id of its own.
        """
        for latest in wanted - self._releases.keys():
            self._releases[latest] = self._update_lane.run(partial(_load_release, latest))
        return self._releases


class ActivationTransaction:
    """An admission in three steps: `begin` waits for writers, `commit` for the disk, `judge` for nobody.

    One that does not get to the end of `commit` must be abandoned, except when it has not begun.

    Args:
        lane: Holds the transaction.
        judge: Judges and writes.
    """

    def __init__(
        self,
        lane: SqliteConnection,
        judge: Callable[[Connection, Sequence[ActivationRequest]], list[VerifyVerdict | Exception]],
    ) -> None:
        self._lane = lane
        self._judge = judge
        self._connection: Connection | None = None

    def begin_at_once(self) -> bool:
        """Begin unless somebody else writes, which is answered with False.

        Raises:
            StoreUnavailable: when the database fails.
        """
        self._connection = self._lane.begin_at_once()
        return self._connection is not None

    def begin(self) -> None:
        """Wait until nobody else writes.

        Raises:
            StoreUnavailable: when the database fails, or others write for too long.
        """
        self._connection = self._lane.begin()

    def judge(self, claims: Sequence[ActivationRequest]) -> list[VerifyVerdict | Exception]:
        """Do as `BatchStore.admit` does; nobody may be told before `commit`.

        Raises:
            StoreUnavailable: when the database fails.
        """
        if self._connection is None:
            raise RuntimeError("this admission was not begun")
        with self._lane.named():
            return self._judge(self._connection, claims)

    def commit(self) -> None:
        """Wait until the disk has it.

        Raises:
            StoreUnavailable: when the database fails; then nobody may be told of a grant.
        """
        self._lane.commit()
        self._connection = None

    def abandon(self) -> None:
        """Leave no trace."""
        if self._connection is not None:
            self._connection = None
            self._lane.abandon()


class _GrantedActivations:
    """What the claims of one transaction have taken so far."""

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, str, str, datetime]] = []
        self._environments: dict[bytes, list[Environment]] = {}

    def add(self, claim: ActivationRequest) -> None:
        """Note a slot that was taken."""
        license_id, environment = claim.sighting.license_id, claim.sighting.environment
        self._environments.setdefault(license_id, []).append(environment)
        self.rows.append((license_id, environment.domain, environment.ip, claim.now))

    def seen_by(self, sighting: Lookup, license_: License | None) -> License | None:
        """A license as the next claim on it must see it."""
        taken = self._environments.get(sighting.license_id)
        if license_ is None or not taken:
            return license_
        return license_._replace(
            slots_used=license_.slots_used + len(taken),
            activated=EnvironmentMatch(
                domain=license_.activated.domain
                or any(one.domain == sighting.environment.domain for one in taken),
                ip=license_.activated.ip or any(one.ip == sighting.environment.ip for one in taken),
            ),
        )


def _look_up(connection: Connection, sightings: Sequence[Lookup]) -> list[License | None]:
    found: list[License | None] = [None] * len(sightings)
    for row in statements.SIGHTINGS.rows(connection, [(license_id, *here) for license_id, here in sightings]):
        day, halves = row[-2:]
        seen_on = None if day is None else date.fromisoformat(day)
        found[row[0]] = _read_license(row, halves >> 2, _HALVES[halves & 3], seen_on)
    return found


def _load_release(latest: _Latest, connection: Connection) -> Release:
    release_id, manifest_id = latest
    query = select(releases, manifests.c.document.label("manifest")).where(releases.c.id == release_id)
    row = connection.execute(query.outerjoin(manifests, manifests.c.id == manifest_id)).one()
    return read_release(row)


_POLICIES: Final = {policy.value: policy for policy in EnvironmentPolicy}
_HALVES: Final = [EnvironmentMatch(domain, ip) for domain in (False, True) for ip in (False, True)]
_NOTHING_KNOWN: Final = EnvironmentMatch()


def _read_license(
    row: Row, slots_used: int = 0, activated: EnvironmentMatch = _NOTHING_KNOWN, seen_on: date | None = None
) -> License:
    """Read the license out of a row that begins with the ask's number and the columns of a license."""
    return License(
        row[1],
        row[2],
        row[3],
        _POLICIES[row[4]],
        row[5],
        bool(row[6]),
        row[7],
        row[8],
        slots_used,
        split_entries(row[9]),
        activated,
        row[10],
        row[11],
        seen_on,
    )


def _read_product(row: Row, slug: str, latest: dict[_Latest, Release]) -> Product | None:
    """Read the product out of the end of a row of `statements.UPDATE_ASKS`."""
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
