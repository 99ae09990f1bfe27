"""What apps take of a license: uses of metered entitlements, and floating seats."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from licserver.domain.entitlements import PERIODS, current_period
from licserver.domain.extensions import (
    GrantedSeat,
    Seat,
    SeatRefusal,
    SeatRequest,
    SeatVerdict,
    evaluate_seat,
)
from licserver.domain.records import IssuedLicense
from licserver.errors import ConflictError, NotFoundError
from licserver.protocol.webhooks import EventType
from licserver.services.context import Context, Service
from licserver.services.licenses import audit_object, find_by_key, find_license

IDS_KEPT: Final = timedelta(days=40)  # after the period: a use may be sent again by an app that was offline
USES_KEPT: Final = timedelta(days=400)
_NEARLY: Final = 0.8  # of the limit


class Use(NamedTuple):
    """How much of a metered entitlement is used in its current period."""

    name: str
    used: int
    limit: int
    resets_at: datetime


class QuotaExceededError(ConflictError):
    """A use does not fit into the rest of the period; nothing was counted. `use` is what was used before."""

    def __init__(self, use: Use) -> None:
        super().__init__(
            f"{use.used} of {use.limit} are used; the next period begins {use.resets_at:%Y-%m-%d %H:%M} UTC"
        )
        self.use = use


class ConsumptionService(Service):
    """Counts uses, exactly once each and never above the limit (D-224).

    A `quota` is the value of a metered entitlement.
    """

    def consume(
        self, license_id: bytes, name: str, quota: Mapping[str, Any], amount: int, use_id: str
    ) -> Use:
        """Count a use, unless one with this id was counted.

        Raises:
            QuotaExceededError: It does not fit into the rest of the period.
        """
        limit, now = quota["limit"], self._context.now()
        period, ends_at = current_period(quota["per"], now)
        with self._context.transaction() as tx:
            uses = tx.repositories.uses
            if not uses.add_id(license_id, use_id, ends_at + IDS_KEPT):
                return Use(name, uses.find(license_id, name, period), limit, ends_at)
            used = uses.add(license_id, name, period, amount, limit, ends_at + USES_KEPT)
            if used is None:  # raised inside: the id is not kept either
                before = uses.find(license_id, name, period)
                raise QuotaExceededError(Use(name, before, limit, ends_at))
            if (type_ := _warning(used - amount, used, limit)) is not None:
                data = {"name": name, "used": used, "limit": limit, "resets_at": ends_at.isoformat()}
                tx.add_events(type_, {"license_id": license_id.hex(), **data})
        return Use(name, used, limit, ends_at)

    def list_current(self, license_id: bytes, entitlements: Mapping[str, Any]) -> list[Use]:
        """Return how much is used of each metered entitlement of a license."""
        return self.list_all_current([(license_id, entitlements)])[0]

    def list_all_current(self, licenses: Sequence[tuple[bytes, Mapping[str, Any]]]) -> list[list[Use]]:
        """Return the same for licenses with their entitlements, in their order, by one query."""
        now = self._context.now()
        periods = {per: current_period(per, now) for per in PERIODS}
        metered = [
            (license_id, {name: value for name, value in granted.items() if isinstance(value, Mapping)})
            for license_id, granted in licenses
        ]
        ids = [license_id for license_id, quotas in metered if quotas]
        names = [period.name for period in periods.values()]
        used = self._context.repositories.uses.list_all(ids, names) if ids else {}
        return [
            [
                Use(name, used.get((license_id, name, period), 0), quota["limit"], ends_at)
                for name, quota in quotas.items()
                for period, ends_at in [periods[quota["per"]]]
            ]
            for license_id, quotas in metered
        ]


def _warning(before: int, used: int, limit: int) -> EventType | None:
    if before < limit <= used:
        return EventType.ENTITLEMENT_USED_UP
    return EventType.ENTITLEMENT_NEARLY_USED if before < _NEARLY * limit <= used else None


# --- floating seats: taken, renewed and released by apps, taken back by support and customers -

REFUSED_FOR: Final = timedelta(days=1)
"""How long a seat that was taken back is refused to the app that held it, which may be suspended."""


class SeatService(Service):
    """Leases of floating seats, by the server's clock (D-241)."""

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
