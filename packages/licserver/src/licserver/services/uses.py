"""Uses of metered entitlements."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from licserver.database.repositories.uses import UseIdState
from licserver.domain.entitlements import PERIODS, current_period
from licserver.errors import ConflictError
from licserver.protocol.webhooks import EventType
from licserver.services.context import Service

IDS_KEPT: Final = timedelta(days=40)  # after the period: an app that was offline may repeat a use


USES_KEPT: Final = timedelta(days=400)


_NEARLY: Final = 0.8  # of the limit


class EntitlementUse(NamedTuple):
    """The use of a metered entitlement in its current period."""

    name: str
    used: int
    limit: int
    resets_at: datetime


class QuotaExceededError(ConflictError):
    """The quota of the period is exceeded; nothing was counted. `use` is the count before the request."""

    def __init__(self, use: EntitlementUse) -> None:
        super().__init__(
            f"{use.used} of {use.limit} are used; the next period begins {use.resets_at:%Y-%m-%d %H:%M} UTC"
        )
        self.use = use


class OtherUseError(ConflictError):
    """An id was used before, for another use."""


class UseService(Service):
    """Counts each use exactly once, and never above the limit (D-224).

    A `quota` is the value of a metered entitlement.
    """

    def consume(
        self, license_id: bytes, name: str, quota: Mapping[str, Any], amount: int, use_id: str
    ) -> EntitlementUse:
        """Count a use, unless a use with this id was counted.

        Raises:
            QuotaExceededError: The amount exceeds the rest of the quota.
            OtherUseError: The id was used for another name or amount; nothing was counted.
        """
        limit, now = quota["limit"], self._context.now()
        period, ends_at = current_period(quota["per"], now)
        with self._context.transaction() as tx:
            uses = tx.repositories.uses
            state = uses.add_id(license_id, use_id, name, amount, ends_at + IDS_KEPT)
            if state is UseIdState.OTHER:
                raise OtherUseError(
                    "a use with this id was counted for another name or amount; draw a new id for each use"
                )
            if state is UseIdState.COUNTED:
                return EntitlementUse(name, uses.find(license_id, name, period), limit, ends_at)
            used = uses.add(license_id, name, period, amount, limit, ends_at + USES_KEPT)
            if used is None:  # raised inside the transaction: the id is not stored either
                before = uses.find(license_id, name, period)
                raise QuotaExceededError(EntitlementUse(name, before, limit, ends_at))
            if (type_ := _warning(used - amount, used, limit)) is not None:
                data = {"name": name, "used": used, "limit": limit, "resets_at": ends_at.isoformat()}
                tx.add_events(type_, {"license_id": license_id.hex(), **data})
        return EntitlementUse(name, used, limit, ends_at)

    def list_current(self, license_id: bytes, entitlements: Mapping[str, Any]) -> list[EntitlementUse]:
        """Return the current use of each metered entitlement of a license."""
        return self.list_all_current([(license_id, entitlements)])[0]

    def list_all_current(
        self, licenses: Sequence[tuple[bytes, Mapping[str, Any]]]
    ) -> list[list[EntitlementUse]]:
        """Return the current uses of licenses with their entitlements, in order, by a single query."""
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
                EntitlementUse(name, used.get((license_id, name, period), 0), quota["limit"], ends_at)
                for name, quota in quotas.items()
                for period, ends_at in [periods[quota["per"]]]
            ]
            for license_id, quotas in metered
        ]


def _warning(before: int, used: int, limit: int) -> EventType | None:
    if before < limit <= used:
        return EventType.ENTITLEMENT_USED_UP
    return EventType.ENTITLEMENT_NEARLY_USED if before < _NEARLY * limit <= used else None
