"""Decisions beside verify and update check: seats, trials, freed slots, offline license files. Pure."""

import enum
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

from licserver.domain.decisions import Dated, VerifyVerdict, evaluate_verify, license_state
from licserver.domain.records import (
    Environment,
    EnvironmentMatch,
    EnvironmentPolicy,
    IssuedLicense,
    LicenseSnapshot,
    LicenseState,
)

# --- floating seats (D-239) -------------------------------------------------------------------


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

    A seat that is held is renewed also when the vendor has lowered the number meanwhile. `known` is the seat
    with the request's id, if there is one, and `others` are all held seats of the license but that one. For
    the time of `lease` a seat is held without being renewed.
    """
    state, seats = license_state(license_, now), license_.floating_seats
    if state is not LicenseState.ACTIVE:
        return SeatRefusal.REVOKED if state is LicenseState.REVOKED else SeatRefusal.EXPIRED
    if request.slug not in (None, license_.product_slug):
        return SeatRefusal.PRODUCT_MISMATCH
    if seats is None:
        return SeatRefusal.NOT_FLOATING
    if known is not None and known.is_ended and now < known.expires_at:
        return SeatRefusal.LOST
    is_renewed = known is not None and known.is_held(now)
    if not is_renewed and others.number >= seats:
        return NoSeat(seats, others.next_end or now)
    since = known.taken_at if known is not None and is_renewed else now
    seat = Seat(request.seat_id, request.domain, request.label, since, now + lease)
    return GrantedSeat(seat, seats, others.number + 1)


# --- trials -----------------------------------------------------------------------------------

LIMITS_COUNT_FOR: Final = timedelta(days=1)
KEPT: Final = timedelta(days=90)
"""How long the license of a trial is kept after its last day."""


class TrialRefusal(enum.Enum):
    """Why a machine gets no trial."""

    PRODUCT_NOT_FOUND = enum.auto()
    NOT_OFFERED = enum.auto()
    ENDED = enum.auto()
    TOO_MANY = enum.auto()


def evaluate_started(license_: IssuedLicense | None, now: datetime) -> IssuedLicense | TrialRefusal:
    """Decide for a machine that has started its trial, whose license is None if it was deleted.

    Nor does it get the key of a trial that was converted: that is for whoever bought it.
    """
    if license_ is None or not license_.trial or license_state(license_, now) is not LicenseState.ACTIVE:
        return TrialRefusal.ENDED
    return license_


def evaluate_new(
    trial_days: int, today: date, started: tuple[int, int], limits: tuple[int, int]
) -> date | TrialRefusal:
    """Decide for a new machine; return the last day of its trial, which begins with what is left of today.

    `started` are trials of the product in the last day: all, and those from the same address. There may be at
    most `limits` of each; 0 is no limit.
    """
    if not trial_days:
        return TrialRefusal.NOT_OFFERED
    if 0 < limits[0] <= started[0] or 0 < limits[1] <= started[1]:
        return TrialRefusal.TOO_MANY
    return today + timedelta(days=trial_days)


# --- how often a customer may free a slot (D-218) ---------------------------------------------

MOVES_COUNT_FOR: Final = timedelta(days=30)


def counted_moves(
    freed: Mapping[Environment, datetime], active: Collection[Environment], now: datetime
) -> list[datetime]:
    """Return when the slots were freed that count, the earliest first.

    An environment that has a slot again does not count, so that nobody pays for going back to it.
    """
    return sorted(
        at for environment, at in freed.items() if environment not in active and now - at < MOVES_COUNT_FOR
    )


def next_move(counted: list[datetime], allowed: int, now: datetime) -> datetime | None:
    """Return when the next slot may be freed: `now`, a later instant, or None for never.

    `counted` is from `counted_moves`; so many are `allowed` in 30 days.
    """
    if allowed == 0:
        return None
    return now if len(counted) < allowed else counted[-allowed] + MOVES_COUNT_FOR


# --- offline license files --------------------------------------------------------------------

NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - nothing listens on it
"""The address of the activation of a machine without a network (D-45)."""

MAX_DAYS: Final = 3650
DEFAULT_DAYS: Final = 365


def evaluate_offline(
    key: str, license_: LicenseSnapshot | None, environment: Environment, now: datetime
) -> VerifyVerdict:
    """Decide as for a verify from this environment (D-236).

    The address, which all machines without a network share, makes none of them known.
    """
    if license_ is not None and license_.policy is EnvironmentPolicy.EITHER:
        license_ = license_._replace(activated=EnvironmentMatch(domain=license_.activated.domain))
    return evaluate_verify(key, license_, environment, now)


def file_end(license_: Dated, now: datetime, days: int) -> datetime:
    """Return when a file ends: after `days`, or with the license, whichever is first."""
    ends = [now + timedelta(days=days)]
    if not license_.lifetime:
        if license_.expires_on is not None and license_.expires_on < ends[0].date():
            ends.append(datetime.combine(license_.expires_on + timedelta(days=1), time(), UTC))
        if license_.subscription_ended_at is not None:
            ends.append(license_.subscription_ended_at)
    return min(ends)
