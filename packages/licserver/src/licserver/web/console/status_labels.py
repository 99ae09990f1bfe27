"""What a license is and may, as a support person says it. Pure: the rules decide, and here are the words."""

from datetime import date, datetime
from typing import NamedTuple

from licserver.database.repositories.licenses import IssuedLicense
from licserver.domain.decisions import is_support_over, state_of
from licserver.domain.records import LicenseState, Product
from licserver.services.phrases import plural
from licserver.web.console import messages


class StatusLabel(NamedTuple):
    """A license's state in words.

    Args:
        label: One word or two.
        style: Its class in the style sheet.
        short: What goes with the label in a list; may be empty.
        sentence: All of it.
    """

    label: str
    style: str
    short: str
    sentence: str


def describe(license_: IssuedLicense, now: datetime) -> StatusLabel:
    """Say what a license is at `now`, and what its holder gets to hear."""
    match state_of(license_, now):
        case LicenseState.REVOKED:
            since = _on(license_.revoked_at)
            reason = f" Reason: {license_.revoked_reason.rstrip(' .')}." if license_.revoked_reason else ""
            told = "Verify and update check are refused, and links to files are dead."
            return StatusLabel(
                "revoked", "bad", since, f"Revoked{' ' + since if since else ''}.{reason} {told}"
            )
        case LicenseState.EXPIRED:
            return _expired(license_, now)
        case LicenseState.ACTIVE:
            return _active(license_, now)


def _expired(license_: IssuedLicense, now: datetime) -> StatusLabel:
    ended = license_.subscription_ended_at
    if ended is not None and now >= ended:
        return StatusLabel(
            "expired", "bad", "subscription ended", f"Expired: its subscription ended {_on(ended)}."
        )
    last = license_.expires_on
    return StatusLabel("expired", "bad", _on(last), f"Expired: its last day was {_written(last)}.")


def _active(license_: IssuedLicense, now: datetime) -> StatusLabel:
    until = _until(license_, now)
    total, used = license_.slots, license_.slots_used
    if total is not None and used >= total:
        told = "“Max activations exceeded or unrecognized environment.”"
        full = f"All slots are taken: a new machine is told {told}"
        return StatusLabel("slots full", "warn", until, f"Valid {until}. {full}")
    left = "any number of further machines" if total is None else _count(total - used, "further machine")
    return StatusLabel("active", "good", until, f"Valid {until}. There is room for {left}.")


def _until(license_: IssuedLicense, now: datetime) -> str:
    if license_.lifetime:
        return "for a lifetime"
    if license_.expires_on is not None:
        left = (license_.expires_on - now.date()).days
        soon = "" if left > 60 else ", today" if left == 0 else f", {_count(left, 'day')} left"  # noqa: PLR2004 - two months
        return f"until {_written(license_.expires_on)}{soon}"
    return "without an end"


def describe_updates(license_: IssuedLicense, product: Product, now: datetime) -> str:
    """Say whether the holder gets files (spec 4.2, D-25)."""
    if state_of(license_, now) is not LicenseState.ACTIVE:
        return "no: the license is not valid"
    if is_support_over(product, license_, now):
        return f"told of, but no file: support ended {_on(license_.support_until)}"
    return "yes" if product.latest else "yes, but no version is published"


def _written(day: date | None) -> str:
    return "" if day is None else f"{day.day} {day:%B %Y}"


def _on(when: date | None) -> str:
    return "" if when is None else f"on {_written(when)}"


def _count(number: int, what: str) -> str:
    return f"{messages.number(number)} {plural(number, what)}"
