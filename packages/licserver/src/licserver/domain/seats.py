"""Pure: who may hold a floating seat of a license (D-239)."""

import enum
from datetime import datetime, timedelta
from typing import NamedTuple

from licserver.domain.decisions import license_state
from licserver.domain.records import IssuedLicense, LicenseState


class Seat(NamedTuple):
    """A seat, which its app renews before `expires_at`.

    One that `is_ended` was released or taken back, and cannot be renewed.
    """

    id: bytes
    domain: str
    label: str | None
    taken_at: datetime
    expires_at: datetime
    is_ended: bool = False

    def is_held(self, now: datetime) -> bool:
        """Return whether somebody holds it."""
        return not self.is_ended and now < self.expires_at


class HeldSeats(NamedTuple):
    """How many seats of a license are held by others, and when the first of them ends, if any."""

    number: int
    next_end: datetime | None


class SeatRequest(NamedTuple):
    """A request to take or renew a seat; `slug` is that of the app's product, if it sends one."""

    seat_id: bytes
    domain: str
    slug: str | None = None
    label: str | None = None


class GrantedSeat(NamedTuple):
    """The seat is held; `used` of the license's `seats` are."""

    seat: Seat
    seats: int
    used: int


class NoSeat(NamedTuple):
    """All seats are held, the first until `retry_at`."""

    seats: int
    retry_at: datetime


class SeatRefusal(enum.Enum):
    """Why a seat is refused for another reason than that all are held."""

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
    known: Seat | None,
    others: HeldSeats,
    now: datetime,
    lease: timedelta,
) -> SeatVerdict:
    """Decide a request on a locked license: in the order of a verify, but without its slots (D-240).

    A seat that is held is renewed also when the vendor has lowered the number meanwhile.

    Args:
        license_: Locked, so that no other request is decided at the same time.
        request: The request.
        known: The seat with the request's id, if there is one.
        others: All held seats of the license but that one.
        now: Aware, UTC.
        lease: How long a seat is held without being renewed.
    """
    refusal = _refuse(license_, request, known, now)
    if refusal is not None:
        return refusal
    seats, since = license_.floating_seats or 0, now
    if known is not None and known.is_held(now):
        since = known.taken_at
    elif others.number >= seats:
        return NoSeat(seats, others.next_end or now)
    seat = Seat(request.seat_id, request.domain, request.label, since, now + lease)
    return GrantedSeat(seat, seats, others.number + 1)


def _refuse(
    license_: IssuedLicense, request: SeatRequest, known: Seat | None, now: datetime
) -> SeatRefusal | None:
    state = license_state(license_, now)
    refusals = {
        SeatRefusal.REVOKED: state is LicenseState.REVOKED,
        SeatRefusal.EXPIRED: state is LicenseState.EXPIRED,
        SeatRefusal.PRODUCT_MISMATCH: request.slug not in (None, license_.product_slug),
        SeatRefusal.NOT_FLOATING: license_.floating_seats is None,
        SeatRefusal.LOST: known is not None and known.is_ended and now < known.expires_at,
    }
    return next((refusal for refusal, applies in refusals.items() if applies), None)
