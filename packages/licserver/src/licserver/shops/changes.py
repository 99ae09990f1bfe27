"""The difference between licenses that should exist and those that do; what a person has changed stays.

Three values are compared: what should be, what is, and what the source has set last. Where the last two
differ, a person (or an import) has changed it since.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from typing import Any, Final, NamedTuple

from licserver.shops.contract import Terms

TERMS: Final = tuple(term.name for term in fields(Terms) if term.name != "product")
"""The terms of a license that a mapping decides."""

REFUNDED: Final = "the order was refunded"
DISPUTED: Final = "the payment was disputed"
REVOKED: Final = "revoked"
ENDS_AT: Final = "ends_at"


class DesiredState(NamedTuple):
    """The desired state of a license.

    Args:
        item: What it is issued for.
        terms: By name, those of `TERMS`; None to leave them as they are.
        ends_with_subscription: Whether it ends with its subscription, and on no day of its own.
        revoked_reason: Why it should be revoked; None if it should not.
    """

    item: str | None
    terms: Mapping[str, Any] | None
    ends_with_subscription: bool = False
    revoked_reason: str | None = None


class ActualState(NamedTuple):
    """The actual state of a license."""

    terms: Mapping[str, Any]
    is_revoked: bool = False
    revoked_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The values that a source has set last.

    Args:
        item: The external id whose mapping was applied.
        terms: By name.
        desired_reason: Why the license should have been revoked then.
        revoked_reason: Why the source has revoked it, if it did.
        kept: What a person has changed and the source would have set to another value.
    """

    item: str | None = None
    terms: Mapping[str, Any] = field(default_factory=dict)
    desired_reason: str | None = None
    revoked_reason: str | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)


class Change(NamedTuple):
    """The change of a license.

    Args:
        terms: To set, by name.
        revoked_reason: Why to revoke it; None to leave it.
        reinstate: Whether to undo the revocation.
        applied: To store.
    """

    terms: Mapping[str, Any]
    revoked_reason: str | None
    reinstate: bool
    applied: Applied


def assume_applied(actual: ActualState, desired_reason: str | None, *, is_end_chosen: bool) -> Applied:
    """Return what a source must have set of a license that was issued before this was stored.

    Args:
        actual: What the license is.
        desired_reason: Why it should have been revoked, by what was known of its order then.
        is_end_chosen: Whether a person has changed the day on which it ends.
    """
    terms = {name: value for name, value in actual.terms.items() if name != "expires_on" or not is_end_chosen}
    is_ours = actual.is_revoked and actual.revoked_reason in {REFUNDED, DISPUTED}
    revoked_reason = actual.revoked_reason if is_ours else None
    return Applied(terms=terms, desired_reason=desired_reason, revoked_reason=revoked_reason)


def find_change(desired: DesiredState, actual: ActualState, applied: Applied) -> Change:
    """Return what has to be done so that a license is what it should be."""
    kept, terms = dict[str, Any](), dict[str, Any]()
    base = dict(applied.terms)
    for name, value in _find_followed(desired, applied).items():
        is_ = actual.terms[name]
        if value != is_ and (name not in base or base[name] != is_):
            kept[name] = value
        elif value != is_:
            terms[name] = value
        base[name] = value
    kept = _find_still_kept(applied, actual, base) | kept
    result = replace(applied, item=desired.item or applied.item, terms=base, kept=kept)
    return _find_revocation(
        desired.revoked_reason, actual, Change(terms, None, reinstate=False, applied=result)
    )


def _find_followed(desired: DesiredState, applied: Applied) -> Mapping[str, Any]:
    """Return the terms that are to be set; the day of a mapping goes once there is a subscription."""
    terms = desired.terms or {}
    if desired.ends_with_subscription and applied.terms.get("expires_on", date.max) is not None:
        return {**terms, "expires_on": None}
    return terms


def _find_still_kept(applied: Applied, actual: ActualState, base: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is still another value than the source would set."""
    return {
        name: value
        for name, value in applied.kept.items()
        if name in TERMS and actual.terms[name] != base.get(name)
    }


def _find_revocation(desired_reason: str | None, actual: ActualState, change: Change) -> Change:
    applied = change.applied
    has_revoked = applied.revoked_reason is not None and actual.revoked_reason == applied.revoked_reason
    is_ours = actual.is_revoked and has_revoked
    if desired_reason is None:
        applied = replace(applied, desired_reason=None, revoked_reason=None)
        return change._replace(reinstate=is_ours, applied=applied)
    if actual.is_revoked:
        return change._replace(applied=replace(applied, desired_reason=desired_reason))
    if applied.desired_reason == desired_reason:  # a person has reinstated it since
        kept = {**applied.kept, REVOKED: desired_reason}
        return change._replace(applied=replace(applied, kept=kept, revoked_reason=None))
    return change._replace(
        revoked_reason=desired_reason,
        applied=replace(applied, desired_reason=desired_reason, revoked_reason=desired_reason),
    )


class EndChange(NamedTuple):
    """The change of the end of a subscription.

    Args:
        sets: The instant to set; None to leave it.
        kept: Whether another end was left because a person has set it.
    """

    sets: datetime | None
    kept: bool


def find_end(
    desired: datetime | None, actual: datetime | None, applied: datetime | None, *, is_applied: bool
) -> EndChange:
    """Return the end that a subscription has to be given.

    An end that a person has put off is moved only to a later end, so that a payment always extends. An end
    that a person has brought forward, or taken away, stays.
    """
    if desired is None or desired == actual:
        return EndChange(None, kept=False)
    if not is_applied or actual == applied:
        return EndChange(desired, kept=False)
    is_put_off = actual is not None and applied is not None and actual > applied
    if is_put_off and actual is not None and desired > actual:
        return EndChange(desired, kept=False)
    return EndChange(None, kept=True)
