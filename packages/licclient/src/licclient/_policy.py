"""Pure: every decision of the client. Values and `now` in, verdict out.

The life of one success, with `checked_at` as its start::

    checked_at ──── fresh: cache_for ────┬──── grace ────┬──── over
                                         └ ask the server; no answer: still a License
    whatever comes first: the end (UTC) of the key's own expiry day
"""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from licclient._model import Held, License, Listing, Reason, Round, Settings, Source, Verified
from licclient.errors import (
    InvalidRequestError,
    LicclientError,
    LicenseRefusedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)

if TYPE_CHECKING:
    from packaging.version import Version

CLOCK_TOLERANCE: Final = timedelta(minutes=5)
"""How far the clock may be behind the latest instant seen: time servers nudge clocks by less (D-43)."""

MARK_EVERY: Final = timedelta(minutes=5)
"""How far the latest instant seen must have moved before it is worth a write (D-43)."""

LINK_GOOD_FOR: Final = timedelta(minutes=55)
"""A link lives one hour (spec 8); the rest is for clocks that go apart, and for the call itself (D-48)."""

MAX_VERSION: Final = 256
"""Longest version, in characters, that is read at all: nobody means a longer one (D-47)."""

MAX_SPREAD: Final = 0.1
"""By which part of itself, at most, the wait between two update checks is lengthened (D-46)."""


class Standing(Enum):
    """How a remembered success stands at an instant."""

    FRESH = auto()
    GRACE = auto()
    OVER = auto()
    CLOCK_SET_BACK = auto()


def judge_held(held: Held, now: datetime, settings: Settings) -> Standing:
    """Return how a remembered success stands (D-41, D-42, D-43).

    The clock was set back when it is more than `CLOCK_TOLERANCE` behind the latest instant seen. Within the
    tolerance the ends are judged by that instant, so a clock set back never brings a success back.
    """
    at = later(now, held.slow_by)
    if held.seen_at - at > CLOCK_TOLERANCE:
        return Standing.CLOCK_SET_BACK
    return _judge_at(held, max(at, held.seen_at), settings)


def _judge_at(held: Held, at: datetime, settings: Settings) -> Standing:
    if held.verified.expiry is not None and at.date() > held.verified.expiry:
        return Standing.OVER
    age = at - held.checked_at
    if age < settings.cache_for:
        return Standing.FRESH
    return Standing.GRACE if age < settings.cache_for + settings.grace else Standing.OVER


def next_check(held: Held, settings: Settings) -> datetime:
    """Return when a success has been held for so long that the service is asked again (D-41)."""
    return later(held.checked_at, settings.cache_for)


def holds_until(held: Held, settings: Settings) -> datetime:
    """Return until when a success holds without an answer: cache and grace, and never past its last day."""
    end = later(held.checked_at, settings.cache_for + settings.grace)
    expiry = held.verified.expiry
    return end if expiry is None else min(end, datetime.combine(expiry, time(23, 59, 59), UTC))


def later(at: datetime, span: timedelta) -> datetime:
    """Return what the clock shows a span later, or the last instant that there is.

    A clock may stand in the first or the last year, and so may what a forged record says. So instants are
    compared by the time between them, which there always is, and put off by this.
    """
    try:
        return at + span
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def recall(held: Held | None, now: datetime, settings: Settings) -> License | None:
    """Return the license if the cache may answer without a call (D-41, D-44); None to ask the server."""
    if held is None or wrong_product(held.verified.product, settings):
        return None
    return _license(held, Source.CACHE) if judge_held(held, now, settings) is Standing.FRESH else None


def mark(held: Held, now: datetime, settings: Settings) -> Held:
    """Move the latest instant seen forward, when that is worth a write (D-43); else return the same object.

    It is when `MARK_EVERY` has passed, or when an end was crossed: then a clock set back a little must not
    step back over it.
    """
    at = later(now, held.slow_by)
    if at <= held.seen_at:
        return held
    crossed = _judge_at(held, at, settings) is not _judge_at(held, held.seen_at, settings)
    return replace(held, seen_at=at) if crossed or at - held.seen_at > MARK_EVERY else held


def settle(
    answer: Verified | LicclientError, held: Held | None, now: datetime, settings: Settings
) -> tuple[License | LicclientError, Held | None]:
    """Return what the caller of a verify gets, and what is remembered from now on.

    A success is remembered, and takes the latest instant seen back to `now`: the server's word heals a
    clock that had jumped ahead (D-43). A refusal removes what was remembered (D-41). So does another product
    (D-44), if what was remembered was for this one: else it belongs to another app. A 422 says nothing about
    the key, so it neither grants nor removes. Nor does an answer that cannot be trusted, which is no outage
    either: nothing holds through it (D-62). Without an answer the last success holds through cache and grace
    (D-42).

    A signed success is confirmed when the service's clock says so, and never takes the latest instant seen
    back to before that (D-63); by how much our clock is behind the service's is remembered (D-116).
    """
    match answer:
        case Verified() if (wrong := wrong_product(answer.product, settings)) is not None:
            was_ours = held is not None and not wrong_product(held.verified.product, settings)
            return wrong, None if was_ours else held
        case Verified():
            confirmed_at = answer.proof.signed_at if answer.proof else now
            seen_at = max(now, confirmed_at)
            fresh = Held(answer, confirmed_at, seen_at, slow_by=seen_at - now)
            return _license(fresh, Source.SERVER), fresh
        case LicenseRefusedError():
            return answer, None
        case InvalidRequestError() | UntrustedResponseError():
            return answer, held
        case _:
            return fall_back(answer, held, now, settings), held


def fall_back(
    failure: LicclientError, held: Held | None, now: datetime, settings: Settings
) -> License | LicclientError:
    """Return the license that holds without an answer (D-42), or why none does."""
    if held is None or wrong_product(held.verified.product, settings):
        return failure
    match judge_held(held, now, settings):
        case Standing.FRESH:
            return _license(held, Source.CACHE)
        case Standing.GRACE:
            return _license(held, Source.GRACE)
        case Standing.OVER:
            return ServiceUnavailableError(f"{failure} The last confirmed license has run out.")
        case Standing.CLOCK_SET_BACK:
            return ServiceUnavailableError(f"{failure} The clock of this computer has been set back.")


def _license(held: Held, source: Source) -> License:
    verified = held.verified
    about, is_signed = (verified.product, verified.expiry, verified.lifetime), verified.proof is not None
    return License(
        *about, held.checked_at, source, is_signed, verified.entitlements, is_trial=verified.is_trial
    )


def wrong_product(product: str, settings: Settings) -> LicenseRefusedError | None:
    """Return the refusal of a license that is good, but for another product than the app's (D-44)."""
    if settings.product in (None, product):
        return None
    words = f"This license is for {product}, not for {settings.product}."
    return LicenseRefusedError(Reason.OTHER_PRODUCT, words)


# --- updates ----------------------------------------------------------------------------------


def is_due(last: Round | None, now: datetime, settings: Settings) -> bool:
    """Return whether an update check may be made (D-46).

    It is due when there was none, when the wait is over, and when the last one lies in the future: a clock
    that was ahead must not silence checks until it gets there again.
    """
    if last is None or last.checked_at - now > CLOCK_TOLERANCE:
        return True
    return now - last.checked_at >= settings.check_every * (1 + last.spread)


def begin_round(last: Round | None, now: datetime, spread: float) -> Round:
    """Count an attempt before it is made, so that two processes never both make it (D-46).

    The offer of the `last` round stays until an answer replaces it; `spread` is random, from 0 to 1.
    """
    known = last or Round(now, 0.0, answered=False, listing=None)
    return replace(known, checked_at=now, spread=spread * MAX_SPREAD, answered=False)


def end_round(attempt: Round, answer: Listing | LicclientError) -> Round:
    """Return what is remembered of an update check (D-46, D-48).

    What can be had is remembered, the server's no forgets what was before, and no answer (nor a 422) leaves
    it. Whether it is newer is asked when it is read: two versions of an app may look into one folder.
    """
    match answer:
        case Listing():
            kept = None if answer.download_url is None else replace(answer, download_url=None, vouched=None)
            return replace(attempt, answered=True, listing=kept, minimum_version=answer.minimum_version)
        case LicenseRefusedError():
            return replace(attempt, answered=True, listing=None)
        case _:
            return attempt


def is_offer(listing: Listing, installed: str) -> bool:
    """Return whether an answer offers something: it has a link (D-25) and is newer (D-47)."""
    return listing.download_url is not None and is_newer(listing.version, installed, listing.channel)


def is_newer(offered: str, installed: str, channel: str | None = None) -> bool:
    """Compare two versions by PEP 440 (D-47).

    False also when either cannot be read, and for a pre-release, unless a pre-release is installed or it is
    in another channel than the stable one: somebody has asked for that (D-227).
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
    """Return whether a version can be compared at all (D-47)."""
    return _read_version(text) is not None


def _read_version(text: str) -> "Version | None":
    from packaging.version import Version  # noqa: PLC0415 - not needed by most starts

    try:
        return Version(text)
    except ValueError:  # also Python's own, for a number of thousands of digits
        return None


def is_link_good(offered_at: datetime | None, now: datetime) -> bool:
    """Return whether a link of that age can still be used (D-48); never when the clock went backwards."""
    return offered_at is not None and timedelta(0) <= now - offered_at < LINK_GOOD_FOR
