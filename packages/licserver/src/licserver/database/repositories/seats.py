"""Floating seats."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, bindparam, delete, func, select

from licserver.database.repositories.base import Repository
from licserver.database.tables.licenses import seats
from licserver.domain.seats import HeldSeats, Seat

_SEAT: Final = ("domain", "label", "taken_at", "expires_at", "is_ended")

_OF_LICENSE: Final = seats.c.license_id == bindparam("license")
_IS_HELD: Final = (~seats.c.is_ended, seats.c.expires_at > bindparam("now"))
_FIND: Final = select(seats).where(_OF_LICENSE, seats.c.seat_id == bindparam("seat"))
_COUNT_OTHERS: Final = select(func.count(), func.min(seats.c.expires_at)).where(
    _OF_LICENSE, *_IS_HELD, seats.c.seat_id != bindparam("seat")
)
_SURPLUS: Final = (
    select(seats.c.seat_id)
    .where(_OF_LICENSE, seats.c.is_ended)
    .order_by(seats.c.expires_at.desc())
    .offset(bindparam("kept"))
)
_TRIM: Final = delete(seats).where(_OF_LICENSE, seats.c.seat_id.in_(_SURPLUS))
_REMOVE_OVER: Final = delete(seats).where(_OF_LICENSE, seats.c.expires_at <= bindparam("now"))


class SeatRepository(Repository):
    """Floating seats and their holders; each change is in the transaction that has locked the license."""

    def list_held(self, license_ids: Collection[bytes], now: datetime) -> dict[bytes, list[Seat]]:
        """Load the seats that are held of some licenses, the first taken first."""
        held = select(seats).where(seats.c.license_id.in_(license_ids), *_IS_HELD)
        by_license: dict[bytes, list[Seat]] = {license_id: [] for license_id in license_ids}
        in_order = held.order_by(seats.c.taken_at, seats.c.seat_id)
        for row in self._all(in_order, now=now) if license_ids else ():
            by_license[row.license_id].append(_read_seat(row))
        return by_license

    def find(self, license_id: bytes, seat_id: bytes) -> Seat | None:
        """Load a seat, which may have ended."""
        return self._find(_FIND, _read_seat, license=license_id, seat=seat_id)

    def count_others(self, license_id: bytes, seat_id: bytes, now: datetime) -> HeldSeats:
        """Count the held seats but one."""
        return HeldSeats(*self._first(_COUNT_OTHERS, license=license_id, seat=seat_id, now=now))

    def put(self, license_id: bytes, seat: Seat) -> None:
        """Store a seat in place of the one with its id."""
        row = {"license_id": license_id, "seat_id": seat.id, **dict(zip(_SEAT, seat[1:], strict=True))}
        self._put(seats, row)

    def trim_ended(self, license_id: bytes, count: int) -> None:
        """Remove the ended seats of a license but the latest ones."""
        self._execute(_TRIM, license=license_id, kept=count)

    def remove_over(self, license_id: bytes, now: datetime) -> None:
        """Remove the seats of a license whose time is over."""
        self._execute(_REMOVE_OVER, license=license_id, now=now)


def _read_seat(row: Row[Any]) -> Seat:
    return Seat(row.seat_id, *(getattr(row, name) for name in _SEAT))
