"""Offline license files: whether one is issued, and until when it is valid. Pure."""

from datetime import UTC, datetime, time, timedelta
from typing import Final

from licserver.domain.decisions import Dated, VerifyVerdict, evaluate_verify
from licserver.domain.records import Environment, EnvironmentMatch, EnvironmentPolicy, LicenseSnapshot

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
