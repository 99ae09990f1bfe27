"""Floating seats: whether a request gets a seat (D-239). Pure."""

import enum
from datetime import datetime, timedelta
from typing import NamedTuple

from licserver.domain.decisions import license_state
from licserver.domain.records import (
    IssuedLicense,
    LicenseState,
)


class Seat(NamedTuple):
    """A floating seat, which its app renews before `expires_at`.

    A seat that `is_ended` was released or taken back: its id is refused until `expires_at`.
    """

    id: bytes
    domain: str
    label: str | None
    taken_at: datetime
    expires_at: datetime
    is_ended: bool = False

    def is_held(self, now: datetime) -> bool:
        """Return whether the seat is in use."""
        return not self.is_ended and now < self.expires_at


class HeldSeats(NamedTuple):
    """The seats of a license that other clients hold: their number, and the first end."""

    number: int
    next_end: datetime | None


class SeatRequest(NamedTuple):
    """A request to take or renew a seat; `slug` is that of the app's product, if it sends one."""

    seat_id: bytes
    domain: str
    slug: str | None = None
    label: str | None = None


class GrantedSeat(NamedTuple):
    """Verdict that the client holds a seat; `used` of the license's `seats` are held."""

    seat: Seat
    seats: int
    used: int


class NoSeat(NamedTuple):
    """Verdict that all seats are held; the first ends at `retry_at`."""

    seats: int
    retry_at: datetime


class SeatRefusal(enum.Enum):
    """Reasons why a seat is refused, besides `NoSeat`."""

    INVALID_LICENSE = enum.auto()
    REVOKED = enum.auto()
    EXPIRED = enum.auto()
    PRODUCT_MISMATCH = enum.auto()
    NOT_FLOATING = enum.auto()
    LOST = enum.auto()


SeatVerdict = GrantedSeat | NoSeat | SeatRefusal


def evaluate_seat(
    license_: IssuedLicense,
    request: SeatRequest,
    stored_seat: Seat | None,
    others: HeldSeats,
    now: datetime,
    lease: timedelta,
) -> SeatVerdict:
    """Decide a request on a locked license: in the order of a verify, but without its slots (D-240).

    A held seat is renewed even if the vendor has lowered the number meanwhile. A seat that is not renewed is
    held for the time of `lease`.

    Args:
        stored_seat: The seat with the id of the request, if any.
        others: All other held seats of the license.
    """
    state, seats = license_state(license_, now), license_.floating_seats
    if state is not LicenseState.ACTIVE:
        return SeatRefusal.REVOKED if state is LicenseState.REVOKED else SeatRefusal.EXPIRED
    if request.slug not in (None, license_.product_slug):
        return SeatRefusal.PRODUCT_MISMATCH
    if seats is None:
        return SeatRefusal.NOT_FLOATING
    if stored_seat is not None and stored_seat.is_ended and now < stored_seat.expires_at:
        return SeatRefusal.LOST
    is_renewed = stored_seat is not None and stored_seat.is_held(now)
    if not is_renewed and others.number >= seats:
        return NoSeat(seats, others.next_end or now)
    since = stored_seat.taken_at if stored_seat is not None and is_renewed else now
    seat = Seat(request.seat_id, request.domain, request.label, since, now + lease)
    return GrantedSeat(seat, seats, others.number + 1)
