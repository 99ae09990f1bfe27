"""What customers do with their licenses: their page, seats, metered uses, freed slots, and trials."""

from collections.abc import Collection, Sequence
from datetime import date, datetime
from typing import Any, Final

from sqlalchemy import Row, case, delete, exists, func, insert, literal, select, update

from licserver.database.repositories.base import Repository, insert_into, matching
from licserver.database.repositories.licenses import lock_licenses
from licserver.database.repositories.products import lock_product
from licserver.database.tables import metadata
from licserver.database.tables.access import account_codes, account_sessions
from licserver.database.tables.licenses import licenses, moves, refusals, seats, trials, use_ids, uses
from licserver.domain.extensions import HeldSeats, Seat
from licserver.domain.records import Environment
from licserver.security.key_vault import ID_BYTES

_PER_LICENSE: Final = 20
"""Sessions of a license at a time: who has a key must not fill the table."""


class AccountSessionRepository(Repository):
    """Sessions of the customer's page, with a row for each license that they may see."""

    def add(
        self, token_hash: bytes, license_ids: Sequence[bytes], expires_at: datetime, now: datetime
    ) -> None:
        """Begin a session; delete all that have ended, and the oldest ones beyond a license's number."""
        columns = account_sessions.c
        row = {"token_hash": token_hash, "expires_at": expires_at}
        with self._writing() as connection:
            connection.execute(delete(account_sessions).where(columns.expires_at <= now))
            connection.execute(insert(account_sessions), [{**row, "license_id": one} for one in license_ids])
            for license_id in license_ids:
                of_it = columns.license_id == license_id
                by_end = select(columns.token_hash).where(of_it).order_by(columns.expires_at.desc())
                if surplus := connection.scalars(by_end.offset(_PER_LICENSE)).all():
                    is_surplus = columns.token_hash.in_(surplus)
                    connection.execute(delete(account_sessions).where(of_it, is_surplus))

    def find(self, token_hash: bytes, now: datetime) -> list[bytes]:
        """Load the ids of the licenses that a session may see; none if it has ended."""
        rows = account_sessions.c
        statement = select(rows.license_id).where(rows.token_hash == token_hash, rows.expires_at > now)
        return [row.license_id for row in self._all(statement)]

    def remove(self, token_hash: bytes) -> None:
        """End a session."""
        self._execute(delete(account_sessions).where(account_sessions.c.token_hash == token_hash))


class AccountCodeRepository(Repository):
    """Codes that were sent by mail, for sessions of the customer's page."""

    def add(
        self,
        token_hash: bytes,
        code_hash: bytes,
        address: bytes,
        license_ids: Sequence[bytes],
        now: datetime,
        expires_at: datetime,
    ) -> None:
        """Store a code; delete those that have expired."""
        row = {"token_hash": token_hash, "code_hash": code_hash, "address": address, "attempts": 0}
        row |= {"license_ids": b"".join(license_ids), "expires_at": expires_at}
        with self._writing() as connection:
            connection.execute(delete(account_codes).where(account_codes.c.expires_at <= now))
            connection.execute(insert(account_codes).values(row))

    def count(self, address: bytes, now: datetime) -> int:
        """Return how many valid codes an address has; nobody else adds one until the transaction ends."""
        codes = account_codes.c
        if self._database.is_remote:  # else the whole file is locked
            key = func.hashtextextended(address.hex(), 0)
            self._scalar(select(func.pg_advisory_xact_lock(key)))
        valid = select(func.count()).where(codes.address == address, codes.expires_at > now)
        return self._scalar(valid) or 0

    def exists(self, token_hash: bytes, now: datetime) -> bool:
        """Return whether a browser was sent a code that is valid."""
        codes = account_codes.c
        valid = select(codes.token_hash).where(codes.token_hash == token_hash, codes.expires_at > now)
        return self._first(valid) is not None

    def count_attempt(self, token_hash: bytes, most: int, now: datetime) -> tuple[bytes, list[bytes]] | None:
        """Count an attempt; return the code's hash and its licenses, or None after too many attempts."""
        codes = account_codes.c
        is_valid = (codes.token_hash == token_hash) & (codes.attempts < most) & (codes.expires_at > now)
        counted = update(account_codes).where(is_valid).values(attempts=codes.attempts + 1)
        with self._writing() as connection:
            row = connection.execute(counted.returning(codes.code_hash, codes.license_ids)).first()
        if row is None:
            return None
        ids = row.license_ids
        return row.code_hash, [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]

    def remove(self, token_hash: bytes) -> None:
        """Delete a code."""
        self._execute(delete(account_codes).where(account_codes.c.token_hash == token_hash))


class MoveRepository(Repository):
    """When a slot of an environment was last freed by the customer; swept after 30 days."""

    def list_all(self, license_id: bytes) -> dict[Environment, datetime]:
        """Load the freed slots of a license."""
        rows = self._all(select(moves).where(moves.c.license_id == license_id))
        return {Environment(row.domain, row.ip): row.freed_at for row in rows}

    def add(self, license_id: bytes, environments: Sequence[Environment], now: datetime) -> None:
        """Store that slots were freed, at least one; again if that had been before."""
        rows = [{"license_id": license_id, **one._asdict(), "freed_at": now} for one in environments]
        self._put(moves, *rows)


_SEAT: Final = ("domain", "label", "taken_at", "expires_at", "is_ended")


class SeatRepository(Repository):
    """Who holds the floating seats of a license; each change is in the transaction that has locked it."""

    def list_held(self, license_id: bytes, now: datetime) -> list[Seat]:
        """Load the seats that are held, the first taken first."""
        held = select(seats).where(*_held(license_id, now))
        return list(map(_read_seat, self._all(held.order_by(seats.c.taken_at, seats.c.seat_id))))

    def find(self, license_id: bytes, seat_id: bytes) -> Seat | None:
        """Load a seat, which may have ended."""
        return self._find(
            select(seats).where(matching(seats, license_id=license_id, seat_id=seat_id)), _read_seat
        )

    def count_others(self, license_id: bytes, seat_id: bytes, now: datetime) -> HeldSeats:
        """Count the held seats but one."""
        counted = select(func.count(), func.min(seats.c.expires_at))
        return HeldSeats(*self._first(counted.where(*_held(license_id, now), seats.c.seat_id != seat_id)))

    def put(self, license_id: bytes, seat: Seat) -> None:
        """Store a seat in place of the one with its id."""
        row = {"license_id": license_id, "seat_id": seat.id, **dict(zip(_SEAT, seat[1:], strict=True))}
        self._put(seats, row)

    def remove_over(self, license_id: bytes, now: datetime) -> None:
        """Remove the seats of a license whose time is over."""
        is_over = (seats.c.license_id == license_id) & (seats.c.expires_at <= now)
        self._execute(delete(seats).where(is_over))


def _held(license_id: bytes, now: datetime) -> tuple[Any, ...]:
    return seats.c.license_id == license_id, ~seats.c.is_ended, seats.c.expires_at > now


def _read_seat(row: Row[Any]) -> Seat:
    return Seat(row.seat_id, *(getattr(row, name) for name in _SEAT))


class UseRepository(Repository):
    """How much of metered entitlements was used in each period, and the ids of what was counted."""

    def add_id(self, license_id: bytes, use_id: str, kept_until: datetime) -> bool:
        """Store the id of a use; return False if it is there, after waiting for one that is being counted."""
        with self._writing() as connection:
            row = {"license_id": license_id, "use_id": use_id, "kept_until": kept_until}
            add = insert_into(connection, use_ids).values(row).on_conflict_do_nothing()
            return connection.scalar(add.returning(use_ids.c.use_id)) is not None

    def add(
        self, license_id: bytes, name: str, period: str, amount: int, limit: int, kept_until: datetime
    ) -> int | None:
        """Add to what was used, in one statement, and return the sum; None if it would be above the limit."""
        if amount > limit:
            return None
        with self._writing() as connection:
            row = {"license_id": license_id, "name": name, "period": period, "used": amount}
            add = insert_into(connection, uses).values({**row, "kept_until": kept_until})
            total = uses.c.used + add.excluded.used
            counted = add.on_conflict_do_update(
                index_elements=list(uses.primary_key.columns), set_={"used": total}, where=total <= limit
            )
            used: int | None = connection.scalar(counted.returning(uses.c.used))
            return used

    def find(self, license_id: bytes, name: str, period: str) -> int:
        """Load how much was used."""
        of_it = matching(uses, license_id=license_id, name=name, period=period)
        return self._scalar(select(uses.c.used).where(of_it)) or 0

    def list_all(
        self, license_ids: Collection[bytes], periods: Collection[str]
    ) -> dict[tuple[bytes, str, str], int]:
        """Load how much was used, by license, name and period."""
        of_them = uses.c.license_id.in_(license_ids), uses.c.period.in_(periods)
        columns = uses.c.license_id, uses.c.name, uses.c.period, uses.c.used
        return {(bytes(one), *key): used for one, *key, used in self._all(select(*columns).where(*of_them))}

    def sweep(self, now: datetime) -> None:
        """Delete what is kept no longer."""
        for table in (uses, use_ids):
            self._delete(table, table.c.kept_until < now)


_OF_LICENSE: Final = [
    key.parent
    for table in reversed(metadata.sorted_tables)
    for key in table.foreign_keys
    if key.column is licenses.c.id and table is not trials
]
"""What refers to a license, in every table."""


class TrialRepository(Repository):
    """Trials by product and machine, which is a keyed hash (D-233)."""

    def find(self, product_id: int, machine: bytes) -> Row[Any] | None:
        """Load the trial of a machine: its `license_id`, which is None once that was deleted."""
        its = matching(trials, product_id=product_id, machine=machine)
        found: Row[Any] | None = self._first(select(trials.c.license_id).where(its))
        return found

    def lock(self, product_id: int) -> None:
        """Let other new trials of a product wait until commit."""
        with self._writing() as connection:
            lock_product(connection, product_id)

    def count(self, product_id: int, address: bytes, since: datetime) -> tuple[int, int]:
        """Count the trials of a product that were started after an instant: all, and those of an address."""
        of_address = func.count(case((trials.c.address == address, literal(1))))
        is_counted = (trials.c.product_id == product_id) & (trials.c.started_at > since)
        count, of_it = self._first(select(func.count(), of_address).where(is_counted))
        return count, of_it

    def add(self, product_id: int, machine: bytes, license_id: bytes, address: bytes, now: datetime) -> None:
        """Store that a machine has started its trial."""
        row = {"product_id": product_id, "machine": machine, "license_id": license_id}
        self._execute(trials.insert().values(**row, address=address, started_at=now))

    def forget_addresses(self, before: datetime) -> None:
        """Forget where trials came from that were started before an instant."""
        is_old = (trials.c.started_at < before) & (trials.c.address != b"")
        self._execute(update(trials).where(is_old).values(address=b""))

    def delete_ended(self, before: date, limit: int) -> int:
        """Delete licenses of trials that ended before a day and were not asked for lately; return how many.

        Their machines stay.
        """
        is_over = (
            licenses.c.trial & ~licenses.c.lifetime & (licenses.c.expires_on < before),
            exists().where(trials.c.license_id == licenses.c.id),
            ~exists().where(refusals.c.license_id == licenses.c.id),
        )
        with self._writing() as connection:
            ids = list(connection.scalars(select(licenses.c.id).where(*is_over).limit(limit)))
            lock_licenses(connection, licenses.c.id.in_(ids))  # one may have been converted meanwhile
            ids = list(connection.scalars(select(licenses.c.id).where(licenses.c.id.in_(ids), *is_over)))
            connection.execute(update(trials).where(trials.c.license_id.in_(ids)).values(license_id=None))
            for column in _OF_LICENSE:
                connection.execute(delete(column.table).where(column.in_(ids)))
            connection.execute(delete(licenses).where(licenses.c.id.in_(ids)))
        return len(ids)
