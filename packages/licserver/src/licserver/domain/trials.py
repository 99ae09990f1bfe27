"""Trials: whether a machine gets a trial, and its last day. Pure."""

import enum
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

from licserver.domain.decisions import license_state
from licserver.domain.records import (
    IssuedLicense,
    LicenseState,
)

LIMITS_COUNT_FOR: Final = timedelta(days=1)


KEPT: Final = timedelta(days=90)
"""Retention of a trial's license after its last day."""


class TrialRefusal(enum.Enum):
    """Reasons why a machine gets no trial."""

    PRODUCT_NOT_FOUND = enum.auto()
    NOT_OFFERED = enum.auto()
    ENDED = enum.auto()
    TOO_MANY = enum.auto()


def evaluate_started(license_: IssuedLicense | None, now: datetime) -> IssuedLicense | TrialRefusal:
    """Decide for a machine that has started its trial; `license_` is None if it was deleted.

    A converted trial counts as ended: its key belongs to the buyer.
    """
    if license_ is None or not license_.trial or license_state(license_, now) is not LicenseState.ACTIVE:
        return TrialRefusal.ENDED
    return license_


class TrialCounts(NamedTuple):
    """Trials of a product in a day, or their limits: all, from an address, and from its network."""

    all: int
    address: int
    network: int


def evaluate_new(
    trial_days: int, today: date, started: TrialCounts, limits: TrialCounts
) -> date | TrialRefusal:
    """Return the last day of a new machine's trial, which begins today, or the refusal.

    A limit of 0 is no limit.
    """
    if not trial_days:
        return TrialRefusal.NOT_OFFERED
    if any(0 < limit <= count for count, limit in zip(started, limits, strict=True)):
        return TrialRefusal.TOO_MANY
    return today + timedelta(days=trial_days)
