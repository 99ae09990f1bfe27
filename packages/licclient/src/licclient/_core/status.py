"""Pure: how the last call for a key ended, and what a settings page shows.

The end of a call spares concurrent callers a call of their own (D-58), and clicks after a
refusal theirs (D-119); it decides when a worker asks again (D-115), and shows why there is no license.
"""

from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from enum import StrEnum

from licclient._core.model import CachedLicense, Entitlements, Outage, Reason, Settings, Source, Verified
from licclient._core.policy import (
    FAILED_FOR,
    CacheState,
    evaluate,
    holds_until,
    next_verify_at,
    service_time,
    wrong_product,
)
from licclient._core.records import Document, reader, require_instant, require_type
from licclient._core.update_model import Update
from licclient.errors import (
    LicclientError,
    LicenseRefusedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one call.

    Attributes:
        call: A random name of that call: a new name means another call.
        ended_at: Aware, UTC.
        answer: None for a success, which has a record of its own; else what went wrong.
        product: Of a success: what it is for. Apps of one vendor share this record, and it may be the
            product of another one.
        is_private: It was no success, and does not concern other callers: a 422, or an answer that could not
            be trusted. Its time counts, and it answers no call.
        is_clock_wrong: The answer could not be trusted because the clock of this computer is wrong.
    """

    call: str
    ended_at: datetime
    answer: LicenseRefusedError | ServiceUnavailableError | None
    product: str | None = None
    is_private: bool = False
    is_clock_wrong: bool = False

    @property
    def outage(self) -> Outage | None:
        """Why there was no trustworthy answer; None if there was one."""
        if isinstance(self.answer, ServiceUnavailableError):
            return self.answer.outage
        return Outage.CLOCK if self.is_clock_wrong else None

    def refusal(self, settings: Settings) -> LicenseRefusedError | None:
        """Return the refusal that this was for an app with these settings, if it was one."""
        if isinstance(self.answer, LicenseRefusedError):
            return self.answer
        return None if self.product is None else wrong_product(self.product, settings)


def outcome_of(answer: Verified | LicclientError, call: str, now: datetime) -> Outcome:
    """Return the record of an answer."""
    match answer:
        case Verified():
            return Outcome(call, now, None, answer.product)
        case LicenseRefusedError() | ServiceUnavailableError():
            return Outcome(call, now, answer)
        case _:
            is_clock_wrong = isinstance(answer, UntrustedResponseError) and answer.is_clock_wrong
            return Outcome(call, now, None, is_private=True, is_clock_wrong=is_clock_wrong)


def was_trial(cached: CachedLicense | None, last: Outcome | None) -> bool:
    """Return whether a license that is refused now was a trial: its last success, or an earlier refusal."""
    if cached is not None:
        return cached.verified.is_trial
    return last is not None and isinstance(last.answer, LicenseRefusedError) and last.answer.is_trial


def is_expired(last: Outcome | None) -> bool:
    """Return whether the last call found the license expired; security releases are still offered (D-321)."""
    answer = None if last is None else last.answer
    return isinstance(answer, LicenseRefusedError) and answer.reason is Reason.EXPIRED


def failed_lately(
    last: Outcome | None, now: datetime, settings: Settings
) -> LicenseRefusedError | ServiceUnavailableError | None:
    """Return a refusal or an outage of less than a minute ago (D-119)."""
    if last is None or not timedelta(0) <= now - last.ended_at < FAILED_FOR:
        return None
    return last.refusal(settings) or last.answer


def write_outcome(outcome: Outcome) -> Document:
    """Write the end of a call."""
    answer = outcome.answer
    result: dict[str, object] = {}
    if isinstance(answer, LicenseRefusedError):
        result = {"reason": answer.reason.value, "message": answer.message}
        result |= {"trial": True} if answer.is_trial else {}
    elif answer is not None:
        result = {"no_answer": str(answer), "outage": answer.outage.value}
    elif outcome.is_private:
        result = {"private": True, **({"clock": True} if outcome.is_clock_wrong else {})}
    elif outcome.product is not None:
        result = {"product": outcome.product}
    if answer is not None:
        origin = {"http_status": answer.http_status, "request_id": answer.request_id}
        result |= {name: value for name, value in origin.items() if value is not None}
    return {"call": outcome.call, "ended_at": outcome.ended_at.isoformat(), "result": result}


@reader
def read_outcome(document: Document) -> Outcome:
    """Read the end of a call."""
    result = document["result"]
    answer: LicenseRefusedError | ServiceUnavailableError | None = None
    if "reason" in result:
        is_trial = result.get("trial") is True
        answer = LicenseRefusedError(
            Reason(result["reason"]), require_type(result["message"], str), is_trial=is_trial
        )
    elif "no_answer" in result:
        outage = Outage(result.get("outage", Outage.UNREACHABLE))
        answer = ServiceUnavailableError(require_type(result["no_answer"], str), outage=outage)
    if answer is not None:
        answer.http_status = require_type(result.get("http_status"), int | None)
        answer.request_id = require_type(result.get("request_id"), str | None)
    product, is_private = require_type(result.get("product"), str | None), result.get("private") is True
    call, ended_at = require_type(document["call"], str), require_instant(document["ended_at"])
    is_clock_wrong = result.get("clock") is True
    return Outcome(call, ended_at, answer, product, is_private, is_clock_wrong)


# --- a settings page --------------------------------------------------------------------------


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
        is_lifetime: True when the key never expires.
        days_left: Whole days that it is valid after today (UTC): 0 on the last one, less afterwards; None
            without end. By the service's clock, if a signature shows that this computer's is slow.
        checked_at: When the server last said yes; aware, UTC.
        source: The basis on which a `License` would be granted now; None without a license.
        next_check_at: From when on the service is asked again; aware, UTC, by this computer's clock; in the
            past when that is due.
        grace_ends_at: Until when the license holds without an answer of the service; aware, UTC, by this
            computer's clock.
        update: A newer version that was offered, or None.
        is_update_required: Whether the installed version is below the lowest supported one.
        reason: Why it was refused.
        message: The server's words, or what went wrong with the last call.
        is_trial: Whether it is a trial, or was one.
        entitlements: What the license grants, by name; empty unless it holds.
        updates_until: Last day (UTC) whose releases the license covers, as `License.updates_until`.
        updates_days_left: Whole days of updates after today (UTC), as `days_left`; None without end.
        outage: Why the service could not be asked, if the license is in grace or unconfirmed for that.
    """

    state: LicenseState
    key_hint: str | None = None
    product: str | None = None
    expiry: date | None = None
    is_lifetime: bool = False
    days_left: int | None = None
    checked_at: datetime | None = None
    source: Source | None = None
    next_check_at: datetime | None = None
    grace_ends_at: datetime | None = None
    update: Update | None = field(default=None)
    reason: Reason | None = None
    message: str | None = None
    is_update_required: bool = False
    is_trial: bool = False
    entitlements: Entitlements = field(default_factory=Entitlements, hash=False)
    outage: Outage | None = None
    updates_until: date | None = None
    updates_days_left: int | None = None


def evaluate_status(
    cached: CachedLicense | None,
    last: Outcome | None,
    now: datetime,
    settings: Settings,
    *,
    key_hint: str | None,
    update: Update | None,
) -> LicenseStatus:
    """Return what a settings page shows of an activated key, after its last success and its last call."""
    answer = (last.refusal(settings) or last.answer) if last is not None else None
    message = str(answer) if answer is not None else None
    outage = None if last is None else last.outage
    if cached is None:
        if isinstance(answer, LicenseRefusedError):
            refused = LicenseStatus(LicenseState.REFUSED, key_hint, reason=answer.reason, message=message)
            security = update if is_expired(last) and update is not None and update.is_security else None
            return replace(refused, is_trial=answer.is_trial, update=security)
        return LicenseStatus(LicenseState.UNCONFIRMED, key_hint, message=message, outage=outage)
    state, source, reason = _find_state(cached, last, now, settings)
    verified = cached.verified
    if evaluate(cached, now, settings) is CacheState.CLOCK_SET_BACK:
        outage = Outage.CLOCK
    return LicenseStatus(
        state,
        key_hint,
        verified.product,
        verified.expiry,
        verified.lifetime,
        _days_until(verified.expiry, cached, now),
        cached.checked_at,
        source,
        next_verify_at(cached, settings),
        holds_until(cached, settings) if source is not None else None,
        update,
        reason,
        None if state is LicenseState.VALID else message,
        is_trial=verified.is_trial,
        entitlements=Entitlements() if source is None else verified.entitlements,
        outage=outage if state in (LicenseState.GRACE, LicenseState.UNCONFIRMED) else None,
        updates_until=verified.updates_until,
        updates_days_left=_days_until(verified.updates_until, cached, now),
    )


def _days_until(day: date | None, cached: CachedLicense, now: datetime) -> int | None:
    return None if day is None else (day - service_time(cached, now).date()).days


def _find_state(
    cached: CachedLicense, last: Outcome | None, now: datetime, settings: Settings
) -> tuple[LicenseState, Source | None, Reason | None]:
    if settings.product not in (None, cached.verified.product):
        return LicenseState.REFUSED, None, Reason.OTHER_PRODUCT  # D-44
    expiry = cached.verified.expiry
    if expiry is not None and service_time(cached, now).date() > expiry:
        return LicenseState.REFUSED, None, Reason.EXPIRED  # what the server will say (D-09)
    match evaluate(cached, now, settings):
        case CacheState.FRESH:
            return LicenseState.VALID, Source.CACHE, None
        case CacheState.GRACE:
            # After a weekend the first look finds a check due, not a check that failed.
            failed = (
                last is not None
                and isinstance(last.answer, ServiceUnavailableError)
                and last.ended_at >= next_verify_at(cached, settings)
            )
            return (LicenseState.GRACE if failed else LicenseState.VALID), Source.GRACE, None
        case CacheState.OVER | CacheState.CLOCK_SET_BACK:
            return LicenseState.UNCONFIRMED, None, None
