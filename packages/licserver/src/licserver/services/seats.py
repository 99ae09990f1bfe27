"""Floating seats: taken, renewed and released by apps, taken back by support and customers."""

from datetime import timedelta
from typing import Final

from licserver.domain.records import IssuedLicense
from licserver.domain.seats import GrantedSeat, Seat, SeatRefusal, SeatRequest, SeatVerdict, evaluate_seat
from licserver.errors import NotFoundError
from licserver.services.context import Context
from licserver.services.licenses import audit_object, find_by_key, find_license

REFUSED_FOR: Final = timedelta(days=1)
"""How long a seat that was taken back is refused to the app that held it, which may be suspended."""


class SeatService:
    """Leases of floating seats, by the server's clock (D-241)."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def lease(self) -> timedelta:
        """How long a seat is held without being renewed."""
        return timedelta(seconds=self._context.settings.seat_lease)

    def hold(self, key: str, request: SeatRequest) -> SeatVerdict:
        """Take a seat, or renew it; a repeated request changes nothing but when it ends.

        The license stays locked meanwhile, so that as many requests as there are seats are granted.
        """
        with self._context.transaction() as tx:
            license_, now = find_by_key(tx, key, locked=True), tx.now()
            if license_ is None:
                return SeatRefusal.INVALID_LICENSE
            seats = tx.repositories.seats
            known = seats.find(license_.id, request.seat_id)
            others = seats.count_others(license_.id, request.seat_id, now)
            verdict = evaluate_seat(license_, request, known, others, now, self.lease)
            if isinstance(verdict, GrantedSeat):
                if known is None or not known.is_held(now):
                    seats.remove_over(license_.id, now)  # also lest a clock that is set back revives them
                seats.put(license_.id, verdict.seat)
        return verdict

    def release(self, key: str, seat_id: bytes) -> bool | SeatRefusal:
        """Give up a seat; return whether it was held."""
        with self._context.transaction() as tx:
            license_ = find_by_key(tx, key, locked=True)
            if license_ is None:
                return SeatRefusal.INVALID_LICENSE
            return _end(tx, license_, seat_id, self.lease)

    def list_held(self, license_: IssuedLicense) -> list[Seat]:
        """Return the seats that are held, the first taken first."""
        if license_.floating_seats is None:
            return []
        return self._context.repositories.seats.list_held(license_.id, self._context.now())

    def take_back(self, reference: str, seat: str) -> None:
        """End a seat by its id, 32 hex digits: the app that holds it learns so when it renews it.

        Raises:
            NotFoundError: Nobody holds it.
        """
        with self._context.transaction() as tx:
            license_ = find_license(tx, reference, locked=True)
            try:
                seat_id = bytes.fromhex(seat)
            except ValueError:
                seat_id = b""
            if not _end(tx, license_, seat_id, REFUSED_FOR):
                raise NotFoundError("nobody holds this seat; `licserver license seats` lists those in use")
            tx.write_audit("license.take_back", audit_object(license_), seat=seat_id.hex())


def _end(tx: Context, license_: IssuedLicense, seat_id: bytes, refused_for: timedelta) -> bool:
    now = tx.now()
    seat = tx.repositories.seats.find(license_.id, seat_id)
    if seat is None or not seat.is_held(now):
        return False
    tx.repositories.seats.put(license_.id, seat._replace(is_ended=True, expires_at=now + refused_for))
    return True
