"""Whether a machine may have a trial. Pure."""

import enum
from datetime import date, datetime, timedelta
from typing import Final

from licserver.domain.decisions import license_state
from licserver.domain.records import IssuedLicense, LicenseState

LIMITS_COUNT_FOR: Final = timedelta(days=1)
KEPT: Final = timedelta(days=90)
"""How long the license of a trial is kept after its last day."""


class TrialRefusal(enum.StrEnum):
    """Why a machine gets no trial, by the codes of the public API."""

    PRODUCT_NOT_FOUND = "product_not_found"
    NOT_OFFERED = "trials_not_offered"
    ENDED = "trial_ended"
    TOO_MANY = "too_many_trials"


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

    Args:
        trial_days: Of the product.
        today: In UTC.
        started: Trials of the product in the last day: all, and those from the same address.
        limits: The most that there may be of each; 0 for no limit.
    """
    if not trial_days:
        return TrialRefusal.NOT_OFFERED
    if 0 < limits[0] <= started[0] or 0 < limits[1] <= started[1]:
        return TrialRefusal.TOO_MANY
    return today + timedelta(days=trial_days)
