"""Pure: what a settings page shows about the license. It is for showing: to gate a feature, use `require`."""

from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum

from licclient._model import Held, Reason, Settings, Source, Update
from licclient._outcome import Outcome
from licclient._policy import Standing, holds_until, judge_held, next_check
from licclient.errors import LicenseRefusedError, ServiceUnavailableError


class LicenseState(StrEnum):
    """Where the license of this computer stands."""

    NOT_ACTIVATED = "not_activated"
    """No key has been entered."""

    VALID = "valid"
    """Confirmed; also while a check is due that has not been made yet."""

    GRACE = "grace"
    """It holds, but the service could not be asked when it should have been (D-42)."""

    UNCONFIRMED = "unconfirmed"
    """Nothing remembered holds any more, and the service could not be asked."""

    REFUSED = "refused"
    """The service said no, or the license is for another product."""


@dataclass(frozen=True, slots=True)
class LicenseStatus:
    """Everything that a settings page shows; see `explain` for a sentence to put above it.

    Attributes:
        state: Where the license stands.
        key_hint: The end of the key, to tell two keys apart; None without one.
        product: As on the key.
        expiry: Last valid day, UTC; None when there is no end.
        lifetime: True when the key never expires.
        days_left: Whole days that it is valid after today (UTC): 0 on the last one, less afterwards; None
            without end.
        checked_at: When the server last said yes; aware, UTC.
        source: What a `License` of now would rest on; None when there is none.
        next_check_at: When the service is to be asked again; aware, UTC; in the past when that is due.
        grace_ends_at: Until when the license holds without an answer of the service; aware, UTC.
        update: A newer version that was offered, or None.
        reason: Why it was refused.
        message: The server's words, or what went wrong with the last call.
    """

    state: LicenseState
    key_hint: str | None = None
    product: str | None = None
    expiry: date | None = None
    lifetime: bool = False
    days_left: int | None = None
    checked_at: datetime | None = None
    source: Source | None = None
    next_check_at: datetime | None = None
    grace_ends_at: datetime | None = None
    update: Update | None = field(default=None)
    reason: Reason | None = None
    message: str | None = None


def judge_status(
    held: Held | None,
    last: Outcome | None,
    now: datetime,
    settings: Settings,
    *,
    key_hint: str | None,
    update: Update | None,
) -> LicenseStatus:
    """Say what a settings page shows of an activated key.

    Args:
        held: The last success.
        last: How the last call ended.
        now: Aware, UTC.
        settings: The client's.
        key_hint: The end of the key.
        update: What is offered.
    """
    answer = (last.refusal(settings) or last.answer) if last is not None else None
    message = str(answer) if answer is not None else None
    if held is None:
        if isinstance(answer, LicenseRefusedError):
            return LicenseStatus(LicenseState.REFUSED, key_hint, reason=answer.reason, message=message)
        return LicenseStatus(LicenseState.UNCONFIRMED, key_hint, message=message)
    state, source, reason = _standing(held, last, now, settings)
    told = held.verified
    return LicenseStatus(
        state,
        key_hint,
        told.product,
        told.expiry,
        told.lifetime,
        None if told.expiry is None else (told.expiry - now.date()).days,
        held.checked_at,
        source,
        next_check(held, settings),
        holds_until(held, settings) if source is not None else None,
        update,
        reason,
        None if state is LicenseState.VALID else message,
    )


def _standing(
    held: Held, last: Outcome | None, now: datetime, settings: Settings
) -> tuple[LicenseState, Source | None, Reason | None]:
    if settings.product not in (None, held.verified.product):
        return LicenseState.REFUSED, None, Reason.OTHER_PRODUCT  # D-44
    expiry = held.verified.expiry
    if expiry is not None and max(now, held.seen_at).date() > expiry:
        return LicenseState.REFUSED, None, Reason.EXPIRED  # what the server will say (D-09)
    match judge_held(held, now, settings):
        case Standing.FRESH:
            return LicenseState.VALID, Source.CACHE, None
        case Standing.GRACE:
            # After a weekend the first look finds a check due, not a check that failed.
            failed = (
                last is not None
                and isinstance(last.answer, ServiceUnavailableError)
                and last.ended_at >= next_check(held, settings)
            )
            return (LicenseState.GRACE if failed else LicenseState.VALID), Source.GRACE, None
        case Standing.OVER | Standing.CLOCK_SET_BACK:
            return LicenseState.UNCONFIRMED, None, None
