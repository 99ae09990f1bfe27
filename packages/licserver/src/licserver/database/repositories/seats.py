"""Floating seats."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, delete, func, select

from licserver.database.repositories.base import Repository, matching
from licserver.database.tables.licenses import seats
from licserver.domain.seats import HeldSeats, Seat

_SEAT: Final = ("domain", "label", "taken_at", "expires_at", "is_ended")


class SeatRepository(Repository):
    """Floating seats and their holders; each change is in the transaction that has locked the license."""

    def list_held(self, license_ids: Collection[bytes], now: datetime) -> dict[bytes, list[Seat]]:
        """Load the seats that are held of some licenses, the first taken first."""
        held = select(seats).where(seats.c.license_id.in_(license_ids), *_held_at(now))
        found: dict[bytes, list[Seat]] = {one: [] for one in license_ids}
        for row in self._all(held.order_by(seats.c.taken_at, seats.c.seat_id)) if license_ids else ():
            found[row.license_id].append(_read_seat(row))
        return found

    def find(self, license_id: bytes, seat_id: bytes) -> Seat | None:
        """Load a seat, which may have ended."""
        return self._find(
            select(seats).where(matching(seats, license_id=license_id, seat_id=seat_id)), _read_seat
        )

    def count_others(self, license_id: bytes, seat_id: bytes, now: datetime) -> HeldSeats:
        """Count the held seats but one."""
        counted = select(func.count(), func.min(seats.c.expires_at))
        return HeldSeats(
            *self._first(
                counted.where(seats.c.license_id == license_id, *_held_at(now), seats.c.seat_id != seat_id)
            )
        )

    def put(self, license_id: bytes, seat: Seat) -> None:
        """Store a seat in place of the one with its id."""
        row = {"license_id": license_id, "seat_id": seat.id, **dict(zip(_SEAT, seat[1:], strict=True))}
        self._put(seats, row)

    def trim_ended(self, license_id: bytes, kept: int) -> None:
        """Remove the ended seats of a license but the latest ones."""
        columns = seats.c
        ended = select(columns.seat_id).where(columns.license_id == license_id, columns.is_ended)
        surplus = [row.seat_id for row in self._all(ended.order_by(columns.expires_at.desc()).offset(kept))]
        if surplus:
            self._execute(delete(seats).where(columns.license_id == license_id, columns.seat_id.in_(surplus)))

    def remove_over(self, license_id: bytes, now: datetime) -> None:
        """Remove the seats of a license whose time is over."""
        is_over = (seats.c.license_id == license_id) & (seats.c.expires_at <= now)
        self._execute(delete(seats).where(is_over))


def _held_at(now: datetime) -> tuple[Any, ...]:
    return ~seats.c.is_ended, seats.c.expires_at > now


def _read_seat(row: Row[Any]) -> Seat:
    return Seat(row.seat_id, *(getattr(row, name) for name in _SEAT))
