"""Floating seats: taken, renewed and released by apps, and taken back by support and customers."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from licserver.domain.instants import SEAT_REFUSED
from licserver.domain.records import IssuedLicense
from licserver.domain.seats import GrantedSeat, Seat, SeatRefusal, SeatRequest, SeatVerdict, evaluate_seat
from licserver.errors import NotFoundError
from licserver.services.context import Context, Service
from licserver.services.license_lookups import audit_object, find_by_key, find_license

REFUSED_FOR: Final = SEAT_REFUSED
"""How long a seat that was taken back is refused to the app that held it."""


ENDED_KEPT: Final = 100
"""Number of ended seats kept for a license, the latest: an app may take and release seats without limit."""


class SeatService(Service):
    """Leases of floating seats, by the server's clock (D-241)."""

    @property
    def lease(self) -> timedelta:
        """The time for which a seat is held without being renewed."""
        return timedelta(seconds=self._context.settings.seat_lease)

    def hold(self, key: str, request: SeatRequest) -> SeatVerdict:
        """Take or renew a seat; a repeated request changes only its end.

        The license is locked, so that simultaneous requests are never granted more seats than it has.
        """
        with self._context.transaction() as tx:
            license_, now = find_by_key(tx, key, locked=True), tx.now()
            if license_ is None:
                return SeatRefusal.INVALID_LICENSE
            seats = tx.repositories.seats
            stored_seat = seats.find(license_.id, request.seat_id)
            other_seats = seats.count_others(license_.id, request.seat_id, now)
            verdict = evaluate_seat(license_, request, stored_seat, other_seats, now, self.lease)
            if isinstance(verdict, GrantedSeat):
                if stored_seat is None or not stored_seat.is_held(now):
                    seats.remove_over(license_.id, now)  # otherwise a clock set back would revive them
                seats.put(license_.id, verdict.seat)
        return verdict

    def release(self, key: str, seat_id: bytes) -> bool | SeatRefusal:
        """Release a seat; return whether it was held."""
        with self._context.transaction() as tx:
            license_ = find_by_key(tx, key, locked=True)
            if license_ is None:
                return SeatRefusal.INVALID_LICENSE
            return _end(tx, license_, seat_id, self.lease)

    def list_held(self, license_: IssuedLicense) -> list[Seat]:
        """Return the seats that are held, the oldest first."""
        return self.list_all_held([license_])[license_.id]

    def list_all_held(self, licenses: Sequence[IssuedLicense]) -> dict[bytes, list[Seat]]:
        """Return the held seats of each license."""
        ids = [license_.id for license_ in licenses if license_.floating_seats is not None]
        held = self._context.repositories.seats.list_held(ids, self._context.now())
        return {license_.id: held.get(license_.id, []) for license_ in licenses}

    def take_back(self, reference: str, seat: str) -> None:
        """End a seat by its id, 32 hex digits; the next renewal of the app is refused.

        Raises:
            NotFoundError: The seat is not in use.
        """
        with self._context.transaction() as tx:
            license_ = find_license(tx, reference, locked=True)
            try:
                seat_id = bytes.fromhex(seat)
            except ValueError:
                seat_id = b""
            held = tx.repositories.seats.find(license_.id, seat_id)
            if held is None or not _end(tx, license_, seat_id, REFUSED_FOR):
                raise NotFoundError("this seat is not in use; `licserver license seats` lists those in use")
            about = {"seat": seat_id.hex()}
            tx.write_repeatable_audit("license.take_back", audit_object(license_), held.domain, **about)


def _end(tx: Context, license_: IssuedLicense, seat_id: bytes, refused_for: timedelta) -> bool:
    """End a seat that is held, and refuse its app's renewals for a time; return whether it was held."""
    now = tx.now()
    seat = tx.repositories.seats.find(license_.id, seat_id)
    if seat is None or not seat.is_held(now):
        return False
    tx.repositories.seats.put(license_.id, seat._replace(is_ended=True, expires_at=now + refused_for))
    tx.repositories.seats.trim_ended(license_.id, ENDED_KEPT)
    return True
