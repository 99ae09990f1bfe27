"""Takes slots: decides activation requests on locked licenses, and inserts those granted (D-08)."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import CTE, Connection, Dialect, LargeBinary, Select, column, select

from licserver.database.hot_path.driver import BatchedQuery, Row, pipeline
from licserver.database.hot_path.lookups import LOOKUPS, Lookup, lookup_parameters, read_lookups
from licserver.database.hot_path.row_writer import RowWriter
from licserver.database.repositories.webhooks import SubscribedEvents
from licserver.database.tables.licenses import activations, licenses
from licserver.domain.decisions import Valid, VerifyVerdict
from licserver.domain.records import Environment, EnvironmentMatch, LicenseSnapshot, Machine
from licserver.errors import LicenseLockedError


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


def _locks(requested: CTE) -> Select[Any]:
    """Lock the licenses that no other transaction has locked; only these are in the result."""
    return (
        select(requested.c.n, licenses.c.id)
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .with_for_update(of=licenses, skip_locked=True)
    )


LOCKS: Final = BatchedQuery([column("id", LargeBinary)], _locks)
ROWS: Final = RowWriter(activations, leaving={"offline_until"})


class ActivationTransaction:
    """A transaction that takes the slots of a batch: `begin`, `decide`, `commit`.

    SQLite locks the whole file when the transaction begins, and the connection commits it
    (`SqliteConnection`). On PostgreSQL the first round trip begins the transaction, locks the licenses and
    reads them, and the second one inserts and commits. The connection rolls back what raises an error.
    Repeated after a lost commit, a transaction finds what the first one inserted.

    Args:
        connection: One that runs a transaction (`KeptConnection.run`).
        subscribed: The events that an endpoint subscribes to; without it none is written.
    """

    @staticmethod
    def compile(dialect: Dialect) -> None:
        """Compile the statements beside that of the lookups."""
        LOCKS.compile(dialect)
        if dialect.name != "sqlite":
            ROWS.compile(dialect)

    def __init__(self, connection: Connection, subscribed: SubscribedEvents | None = None) -> None:
        self._connection = connection
        self._subscribed = subscribed
        self._locks_rows = connection.dialect.name != "sqlite"
        self._granted = _GrantedActivations()

    def run(self, requests: Sequence[ActivationRequest]) -> list[VerifyVerdict | Exception]:
        """Return the verdicts, in the order of the requests; each sees the slots that those before it took.

        An exception takes the place of a verdict where `decide` raised it, `LicenseLockedError` where another
        transaction changes the license.
        """
        snapshots = self.begin([request.lookup for request in requests])
        verdicts = [self.decide(*each) for each in zip(requests, snapshots, strict=True)]
        self.commit()
        return verdicts

    def begin(self, lookups: Sequence[Lookup]) -> list[LicenseSnapshot | LicenseLockedError | None]:
        """Lock the licenses, then load them by a statement of its own.

        In PostgreSQL, a statement that locks rows may read others as they were before it waited for the lock.
        """
        connection = self._connection
        with pipeline(connection, begins=True):
            read_locks = None
            if self._locks_rows:
                read_locks = LOCKS.send(connection, [lookup[:1] for lookup in lookups])
            read_licenses = LOOKUPS.send(connection, lookup_parameters(lookups))
        locked = None if read_locks is None else {license_id for _, license_id in read_locks()}
        return [
            license_
            if license_ is None or locked is None or license_.id in locked
            else LicenseLockedError("another operation changes this license; try again")
            for license_ in read_lookups(read_licenses(), len(lookups))
        ]

    def decide(
        self, request: ActivationRequest, snapshot: LicenseSnapshot | LicenseLockedError | None
    ) -> VerifyVerdict | Exception:
        """Decide a request on the license that `begin` returned for it; note the slot that it takes."""
        if isinstance(snapshot, LicenseLockedError):
            return snapshot
        try:
            verdict = request.decide(self._granted.apply_to(snapshot, request.lookup))
        except Exception as error:  # noqa: BLE001 - fails this request alone
            return error
        if isinstance(verdict, Valid) and verdict.takes_slot:
            self._granted.add(request)
        return verdict

    def commit(self) -> None:
        """Insert the activations of all that were granted; on PostgreSQL commit in the same round trip."""
        rows = self._granted.rows
        if not rows:
            return
        if self._subscribed is not None:
            self._subscribed.add_activations(self._connection, rows)
        with pipeline(self._connection, commits=True):
            ROWS.write(self._connection, rows)


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
        domain, ip = lookup.environment
        return license_._replace(
            slots_used=license_.slots_used + len(taken),
            activated=EnvironmentMatch(
                domain=license_.activated.domain or any(other.domain == domain for other in taken),
                ip=license_.activated.ip or any(other.ip == ip for other in taken),
            ),
        )
