"""Metered entitlements: counts uses, exactly once each and never above the limit (D-224)."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from licserver.domain.entitlements import PERIODS, current_period
from licserver.errors import ConflictError
from licserver.protocol.webhooks import EventType
from licserver.services.context import Context

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


class ConsumptionService:
    """Counts and shows uses; a `quota` is the value of a metered entitlement."""

    def __init__(self, context: Context) -> None:
        self._context = context

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
        quotas = [
            {name: value for name, value in granted.items() if isinstance(value, Mapping)}
            for _, granted in licenses
        ]
        ids = [license_id for (license_id, _), metered in zip(licenses, quotas, strict=True) if metered]
        names = [period.name for period in periods.values()]
        used = self._context.repositories.uses.list_all(ids, names) if ids else {}

        def describe(license_id: bytes, name: str, quota: Mapping[str, Any]) -> Use:
            period, ends_at = periods[quota["per"]]
            return Use(name, used.get((license_id, name, period), 0), quota["limit"], ends_at)

        return [
            [describe(license_id, name, quota) for name, quota in metered.items()]
            for (license_id, _), metered in zip(licenses, quotas, strict=True)
        ]


def _warning(before: int, used: int, limit: int) -> EventType | None:
    if before < limit <= used:
        return EventType.ENTITLEMENT_USED_UP
    return EventType.ENTITLEMENT_NEARLY_USED if before < _NEARLY * limit <= used else None
