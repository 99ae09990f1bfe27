"""Pure: metered entitlements of `licclient.testing.LicenseService`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from licclient._core.model import Quota


def use(
    uses: dict[str, tuple[str, datetime, int]], quota: object, fields: Mapping[str, Any], now: datetime
) -> tuple[int, dict[str, Any]]:
    """Count a use, and return status and body of the response: each id counts once, nothing above the limit.

    `uses` has name, period and amount of each use by its id, `quota` what the license grants by that name.
    """
    name, amount, use_id = str(fields["name"]), int(fields["amount"]), str(fields["use_id"])
    if not isinstance(quota, Quota):
        return 403, {"error": "not_entitled", "message": "The license has no quota of this name."}
    resets_at = _end_of_period(quota.per, now)
    used = sum(counted for other, period, counted in uses.values() if (other, period) == (name, resets_at))
    is_new = use_id not in uses
    fits = not is_new or used + amount <= quota.limit
    if is_new and fits:
        uses[use_id] = name, resets_at, amount
        used += amount
    counts = {"used": used, "limit": quota.limit, "remaining": max(0, quota.limit - used)}
    usage = {**counts, "resets_at": f"{resets_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    if fits:
        return 200, {"name": name, **usage}
    return 403, {"error": "quota_exceeded", "message": f"{used} of {quota.limit} are used", **usage}


def _end_of_period(per: str, now: datetime) -> datetime:
    """Return the end of the day, month or year, in UTC."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if per == "day":
        return day + timedelta(days=1)
    day = day.replace(day=1)
    return (day + timedelta(days=31)).replace(day=1) if per == "month" else day.replace(day.year + 1, 1)
