"""Offline license files: whether a machine gets a file, and its end. Pure."""

from datetime import UTC, datetime, time, timedelta
from typing import Final

from licserver.domain.decisions import VerifyVerdict, evaluate_verify
from licserver.domain.records import (
    Environment,
    EnvironmentMatch,
    EnvironmentPolicy,
    IssuedLicense,
    LicenseSnapshot,
)

NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - nothing listens on it
"""The address of the activation of a machine without a network (D-45)."""


MAX_DAYS: Final = 3650


DEFAULT_DAYS: Final = 365


UNKNOWN_PERIOD: Final = timedelta(days=38)
"""For a subscription without a known end: a month, and a week of grace."""


def evaluate_offline(
    key: str, license_: LicenseSnapshot | None, environment: Environment, now: datetime
) -> VerifyVerdict:
    """Decide as for a verify from this environment (D-236).

    Offline machines share the address, so it does not make a machine known.
    """
    if license_ is not None and license_.policy is EnvironmentPolicy.EITHER:
        license_ = license_._replace(activated=EnvironmentMatch(domain=license_.activated.domain))
    return evaluate_verify(key, license_, environment, now)


def file_end(license_: IssuedLicense, now: datetime, days: int) -> datetime:
    """Return the end of a file: after `days`, with the license, or with the paid period (D-238)."""
    ends = [now + timedelta(days=days)]
    if not license_.lifetime:
        if license_.expires_on is not None and license_.expires_on < ends[0].date():
            ends.append(datetime.combine(license_.expires_on + timedelta(days=1), time(), UTC))
        if license_.subscription_ended_at is not None:
            ends.append(license_.subscription_ended_at)  # includes the shop's days of grace
        elif license_.subscription_id is not None:
            ends.append(now + UNKNOWN_PERIOD)
    return min(ends)
