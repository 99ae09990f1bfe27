"""Pure: how long a license holds, for which product, by which clock, and when a check is due.

Values and `now` in, verdict out.

The life of one success, with `checked_at` as its start::

    checked_at ──── fresh: cache_for ────┬──── grace ────┬──── over
                                         └ ask the server; no answer: still a License
    whatever comes first: the end (UTC) of the key's own expiry day

These instants are by the service's clock (`_ends_of`). What is shown, and when a worker calls, is by this
computer's, which may be slow (D-116): `next_verify_at`, `holds_until`.
"""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from licclient._core.lazy import lazy
from licclient._core.model import CachedLicense, License, Outage, Reason, Settings, Source, Verified
from licclient.errors import (
    InvalidRequestError,
    LicclientError,
    LicenseRefusedError,
    ServiceUnavailableError,
    StateUnreadableError,
    UntrustedResponseError,
)

if TYPE_CHECKING:
    import difflib

    from packaging import version as packaging_version
    from packaging.version import Version

    from licclient._core import update_model
    from licclient._core.update_model import Listing, UpdateCheckRecord
else:
    difflib = lazy("difflib")
    packaging_version = lazy("packaging.version")
    update_model = lazy("licclient._core.update_model")

CLOCK_TOLERANCE: Final = timedelta(minutes=5)
"""How far the clock may be behind the latest instant seen: time servers nudge clocks by less."""

MARK_EVERY: Final = timedelta(minutes=5)
"""How far the latest instant seen must have moved before it is worth a write."""

FAILED_FOR: Final = timedelta(minutes=1)
"""How long a refusal or an outage answers `require` as well: a click is no reason to ask again (D-119)."""

LINK_GOOD_FOR: Final = timedelta(minutes=55)
"""A link lives one hour (spec 8); the rest is for clocks that go apart, and for the call itself."""

MAX_VERSION: Final = 256
"""Longest version, in characters, that is read at all: longer ones are mistakes."""

MAX_SPREAD: Final = 0.1
"""By which part of itself, at most, the wait between two update checks is lengthened."""

CHECK_AGAIN: Final = timedelta(minutes=30)
"""Least wait after an update check that got no answer; at most twice as long."""


MAX_NAME: Final = 200
"""Longer names are not compared: that takes time, and a longer name is no slip."""

ALIKE: Final = 0.8
"""Least similarity, from 0 to 1, at which two names count as alike: two swapped letters in ten have 0.9."""


_LAST: Final = datetime.max.replace(tzinfo=UTC)


class CacheState(Enum):
    """How a remembered success stands at an instant."""

    FRESH = auto()
    GRACE = auto()
    OVER = auto()
    CLOCK_SET_BACK = auto()


def evaluate(cached: CachedLicense, now: datetime, settings: Settings) -> CacheState:
    """Return how a remembered success stands (D-41, D-42, D-43).

    The clock was set back when it is more than `CLOCK_TOLERANCE` behind the latest instant seen. Within the
    tolerance the ends are judged by that instant, so a clock set back never brings a success back.
    """
    if cached.seen_at - later(now, cached.slow_by) > CLOCK_TOLERANCE:
        return CacheState.CLOCK_SET_BACK
    return _state_at(cached, service_time(cached, now), settings)


def service_time(cached: CachedLicense, now: datetime) -> datetime:
    """Return the time by the service's clock, as far as it is known; never before the latest instant seen."""
    return max(later(now, cached.slow_by), cached.seen_at)


def _state_at(cached: CachedLicense, at: datetime, settings: Settings) -> CacheState:
    return _state_by(_ends_of(cached, settings), at)


def _state_by(schedule: tuple[datetime, datetime], at: datetime) -> CacheState:
    fresh_until, ends_at = schedule
    if _is_past(at, ends_at):
        return CacheState.OVER
    return CacheState.GRACE if _is_past(at, fresh_until) else CacheState.FRESH


def _is_past(at: datetime, end: datetime) -> bool:
    """Return whether an end was reached; never that which no clock can show."""
    return end <= at and end < _LAST


def _ends_of(cached: CachedLicense, settings: Settings) -> tuple[datetime, datetime]:
    """Return when a success ceases to be fresh, and when it is over, by the service's clock."""
    fresh_until = later(cached.checked_at, settings.cache_for)
    ends_at = later(cached.checked_at, settings.cache_for + settings.grace)
    if cached.verified.expiry is not None:
        ends_at = min(
            ends_at, later(datetime.combine(cached.verified.expiry, time(), UTC), timedelta(days=1))
        )
    return min(fresh_until, ends_at), ends_at


def next_verify_at(cached: CachedLicense, settings: Settings) -> datetime:
    """Return from when on the service is asked again, by this computer's clock."""
    return later(_ends_of(cached, settings)[0], -cached.slow_by)


def holds_until(cached: CachedLicense, settings: Settings) -> datetime:
    """Return until when a success holds without an answer, by this computer's clock.

    At the end of the key's last day it is the last second of that day, and not the first one of the next.
    """
    ends_at = _ends_of(cached, settings)[1]
    expiry = cached.verified.expiry
    if expiry is not None and ends_at.date() > expiry:
        ends_at -= timedelta(seconds=1)
    return later(ends_at, -cached.slow_by)


def later(at: datetime, span: timedelta) -> datetime:
    """Return what the clock shows a span later (or earlier), or the last (or first) instant that there is.

    A clock may stand in the first or the last year, and so may a forged record.
    """
    try:
        return at + span
    except OverflowError:
        return _LAST if span > timedelta(0) else datetime.min.replace(tzinfo=UTC)


def from_cache(cached: CachedLicense | None, now: datetime, settings: Settings) -> License | None:
    """Return the license if the cache may answer without a call (D-41, D-44); None to ask the server."""
    if cached is None or wrong_product(cached.verified.product, settings):
        return None
    return _license(cached, Source.CACHE) if evaluate(cached, now, settings) is CacheState.FRESH else None


def mark(cached: CachedLicense, now: datetime, settings: Settings) -> CachedLicense:
    """Move the latest instant seen forward, when that is worth a write; else return the same object.

    It is when `MARK_EVERY` has passed, or when an end was crossed: then a clock set back a little must not
    step back over it.
    """
    at = later(now, cached.slow_by)
    if at <= cached.seen_at:
        return cached
    schedule = _ends_of(cached, settings)
    crossed = _state_by(schedule, at) is not _state_by(schedule, cached.seen_at)
    return cached._replace(seen_at=at) if crossed or at - cached.seen_at > MARK_EVERY else cached


def apply_response(
    answer: Verified | LicclientError, cached: CachedLicense | None, now: datetime, settings: Settings
) -> tuple[License | LicclientError, CachedLicense | None]:
    """Return the result for the caller of a verify, and the new stored state.

    A success is remembered, and takes the latest instant seen back to `now`: the server's word heals a
    clock that had jumped ahead. A refusal removes what was remembered. So does another product
    (D-44), if the cache was for this one: else it belongs to another app. A 422 has no information about
    the key, so it neither grants nor removes. Nor does an answer that cannot be trusted, which is no outage
    either: nothing holds through it (D-62). Without an answer the last success holds through cache and grace
    (D-42).

    A signed success is confirmed at the time of the service's clock, and never takes the latest instant seen
    back to before that (D-63); by how much our clock is behind the service's is remembered.
    """
    match answer:
        case Verified() if (wrong := wrong_product(answer.product, settings)) is not None:
            was_ours = cached is not None and not wrong_product(cached.verified.product, settings)
            return wrong, None if was_ours else cached
        case Verified():
            confirmed_at = answer.proof.signed_at if answer.proof else now
            seen_at = max(now, confirmed_at)
            fresh = CachedLicense(answer, confirmed_at, seen_at, slow_by=seen_at - now)
            return _license(fresh, Source.SERVER), fresh
        case LicenseRefusedError():
            return answer, None
        case InvalidRequestError() | UntrustedResponseError():
            return answer, cached
        case _:
            return fall_back(answer, cached, now, settings), cached


def fall_back(
    failure: LicclientError, cached: CachedLicense | None, now: datetime, settings: Settings
) -> License | LicclientError:
    """Return the license that holds without an answer, or why none does."""
    if cached is None or wrong_product(cached.verified.product, settings):
        return failure
    match evaluate(cached, now, settings):
        case CacheState.FRESH:
            return _license(cached, Source.CACHE)
        case CacheState.GRACE:
            return _license(cached, Source.GRACE)
        case CacheState.OVER:
            return _add(failure, "The last confirmed license has run out.")
        case CacheState.CLOCK_SET_BACK:
            return _add(failure, "The clock of this computer has been set back.", Outage.CLOCK)


def unless_unreadable(
    result: License | LicclientError, problem: StateUnreadableError | None
) -> License | LicclientError:
    """Return a result; in place of an outage, why the success that might hold cannot be read."""
    return problem if problem is not None and isinstance(result, ServiceUnavailableError) else result


def _add(failure: LicclientError, words: str, outage: Outage | None = None) -> ServiceUnavailableError:
    """Return an outage with a further sentence, and for another reason if one is given."""
    own_outage, retry_after = Outage.UNREACHABLE, None
    if isinstance(failure, ServiceUnavailableError):
        own_outage, retry_after = failure.outage, failure.retry_after
    error = ServiceUnavailableError(f"{failure} {words}", retry_after, outage or own_outage)
    error.http_status, error.request_id = failure.http_status, failure.request_id
    return error


def _license(cached: CachedLicense, source: Source) -> License:
    verified = cached.verified
    about, is_signed = (verified.product, verified.expiry, verified.lifetime), verified.proof is not None
    return License(
        *about,
        cached.checked_at,
        source,
        is_signed,
        verified.entitlements,
        is_trial=verified.is_trial,
        updates_until=verified.updates_until,
    )


def wrong_product(product: str, settings: Settings) -> LicenseRefusedError | None:
    """Return the refusal of a license that is good, but for another product than the app's (D-44)."""
    if settings.product in (None, product):
        return None
    words = f"This license is for {product}, not for {settings.product}."
    if is_alike(product, settings.product):
        words += " If these are the same product, the app passes its name wrongly."
    return LicenseRefusedError(Reason.OTHER_PRODUCT, words)


def is_alike(product: str, other: str) -> bool:
    """Return whether one of two names may be meant for the other, such as `Notes` for `Notes Pro`."""
    if max(len(product), len(other)) > MAX_NAME:
        return False
    name, other_name = ("".join(filter(str.isalnum, text.casefold())) for text in (product, other))
    is_part = name in other_name or other_name in name
    return is_part or difflib.SequenceMatcher(None, name, other_name).ratio() > ALIKE


# --- updates ----------------------------------------------------------------------------------


def is_check_due(last: "UpdateCheckRecord | None", now: datetime, settings: Settings) -> bool:
    """Return whether an update check may be made (D-46)."""
    due_at = check_due_at(last, now, settings)
    return due_at is None or now >= due_at


def check_due_at(last: "UpdateCheckRecord | None", now: datetime, settings: Settings) -> datetime | None:
    """Return when the next update check is due: an answer counts for `check_every`, no answer for much less.

    None if it is due in any case: there was none, or the last one lies in the future. A clock that was ahead
    must not silence checks until it gets there again.
    """
    if last is None or last.checked_at - now > CLOCK_TOLERANCE:
        return None
    again_at = later(last.checked_at, CHECK_AGAIN * (1 + min(last.spread / MAX_SPREAD, 1)))
    if last.answered_at is None or last.answered_at - now > CLOCK_TOLERANCE:
        return again_at
    due_at = later(last.answered_at, settings.check_every * (1 + last.spread))
    return due_at if last.answered else max(due_at, again_at)


def begin_update_check(last: "UpdateCheckRecord | None", now: datetime, spread: float) -> "UpdateCheckRecord":
    """Note an attempt before it is made, so that two processes never both make it.

    The offer of the `last` check stays until an answer replaces it; `spread` is random, from 0 to 1.
    """
    record = last or update_model.UpdateCheckRecord(now, 0.0, answered=False, listing=None)
    before = record.answered_at
    return replace(record, checked_at=now, spread=spread * MAX_SPREAD, answered=False, answered_before=before)


def end_update_check(attempt: "UpdateCheckRecord", answer: "Listing | LicclientError") -> "UpdateCheckRecord":
    """Return the record of an update check (D-46, D-48).

    What can be had is remembered, the server's no forgets what was before, and a 422 or no answer leaves it.
    Only an answer counts for `check_every` (D-50). Whether it is newer is asked when it is read: two versions
    of an app may look into one folder.
    """
    answered = replace(attempt, answered=True, answered_before=None)
    match answer:
        case update_model.Listing():
            is_over, minimum_version = answer.download_url is None, answer.minimum_version
            listing = None if is_over else replace(answer, download_url=None, signed=None)
            record = replace(answered, listing=listing, minimum_version=minimum_version, refusal=None)
            latest_version = answer.version if is_over else None
            return replace(record, is_support_over=is_over, latest_version=latest_version)
        case LicenseRefusedError():
            record = replace(answered, listing=None, is_support_over=False, latest_version=None)
            return replace(record, refusal=(answer.reason, answer.message))
        case InvalidRequestError():
            return answered
        case _:
            return attempt


def is_offer(listing: "Listing", installed: str) -> bool:
    """Return whether an answer offers something: it has a link (D-25) and is newer."""
    return listing.download_url is not None and is_newer(listing.version, installed, listing.channel)


def latest_uncovered(listing: "Listing") -> str | None:
    """Return the newest version if it is above the offered one, and so not covered."""
    return listing.latest_version if is_below(listing.version, listing.latest_version) else None


def is_newer(offered: str, installed: str, channel: str | None = None) -> bool:
    """Compare two versions by PEP 440 (D-47).

    False also when either cannot be read, and for a pre-release, unless a pre-release is installed or it is
    in another channel than the stable one: the app asked for it (D-227).
    """
    new, old = _read_version(offered), _read_version(installed)
    if new is None or old is None or len(offered) > MAX_VERSION:
        return False
    return new > old and (channel is not None or old.is_prerelease or not new.is_prerelease)


def is_below(version: str, other: str | None) -> bool:
    """Compare two versions by PEP 440, pre-releases like others; False when one cannot be read."""
    if other is None or len(other) > MAX_VERSION or len(version) > MAX_VERSION:
        return False
    new, old = _read_version(version), _read_version(other)
    return new is not None and old is not None and new < old


def is_at_least(version: str, other: str) -> bool:
    """Compare two versions by PEP 440, of any length; False when either cannot be read."""
    new, old = _read_version(version), _read_version(other)
    return new is not None and old is not None and new >= old


def is_version(text: str) -> bool:
    """Return whether a version can be compared at all."""
    return _read_version(text) is not None


def _read_version(text: str) -> "Version | None":
    try:
        return packaging_version.Version(text)
    except ValueError:  # also Python's own, for a number of thousands of digits
        return None


def is_link_good(offered_at: datetime | None, now: datetime) -> bool:
    """Return whether a link of that age can still be used; never when the clock went backwards."""
    return offered_at is not None and timedelta(0) <= now - offered_at < LINK_GOOD_FOR
