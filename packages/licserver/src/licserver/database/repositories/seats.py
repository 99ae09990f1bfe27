"""Floating seats, each change within the transaction that has locked its license."""

from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, func, select

from licserver.database.repositories.base import Repository, put_into
from licserver.database.tables.licenses import seats
from licserver.domain.extensions import HeldSeats, Seat


class SeatRepository(Repository):
    """Who holds the seats of a license."""

    def list_held(self, license_id: bytes, now: datetime) -> list[Seat]:
        """Load the seats that are held, the first taken first."""
        held = select(seats).where(*_held(license_id, now))
        return list(map(_read, self._all(held.order_by(seats.c.taken_at, seats.c.seat_id))))

    def find(self, license_id: bytes, seat_id: bytes) -> Seat | None:
        """Load a seat, which may have ended."""
        is_it = (seats.c.license_id == license_id) & (seats.c.seat_id == seat_id)
        found = self._first(select(seats).where(is_it))
        return None if found is None else _read(found)

    def count_others(self, license_id: bytes, seat_id: bytes, now: datetime) -> HeldSeats:
        """Count the held seats but one."""
        is_other = seats.c.seat_id != seat_id
        counted = select(func.count(), func.min(seats.c.expires_at))
        return HeldSeats(*self._first(counted.where(*_held(license_id, now), is_other)))

    def put(self, license_id: bytes, seat: Seat) -> None:
        """Store a seat in place of the one with its id."""
        row = {"license_id": license_id, "seat_id": seat.id, **dict(zip(_COLUMNS, seat[1:], strict=True))}
        with self._writing() as connection:
            put_into(connection, seats, row)

    def remove_over(self, license_id: bytes, now: datetime) -> None:
        """Remove the seats of a license whose time is over."""
        is_over = (seats.c.license_id == license_id) & (seats.c.expires_at <= now)
        self._execute(delete(seats).where(is_over))


_COLUMNS = ("domain", "label", "taken_at", "expires_at", "is_ended")


def _held(license_id: bytes, now: datetime) -> tuple[Any, ...]:
    return seats.c.license_id == license_id, ~seats.c.is_ended, seats.c.expires_at > now


def _read(row: Row[Any]) -> Seat:
    return Seat(row.seat_id, *(getattr(row, name) for name in _COLUMNS))
