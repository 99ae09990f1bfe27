"""Pure: what follows from the answer to a verify: the caller's result, and what to remember."""

from dataclasses import dataclass
from datetime import datetime

from licclient._core.model import CachedLicense, License, Settings, Verified
from licclient._core.policy import apply_response, unless_unreadable
from licclient._core.status import Outcome, outcome_of
from licclient.errors import LicclientError, LicenseRefusedError, StateUnreadableError


@dataclass(frozen=True, slots=True)
class Ending:
    """The result of a call, and what to write.

    Attributes:
        result: The license, or the error to raise.
        replaces_success: Whether `success` takes the place of the record of the last success.
        success: The success to remember; None to forget the last one.
        is_check_due: Whether an update check that found no answer is to be repeated at once (D-46).
        outcome: The record of the call's end; None to leave the one before it.
    """

    result: License | LicclientError
    replaces_success: bool
    success: CachedLicense | None
    is_check_due: bool
    outcome: Outcome | None


def end_verify(
    answer: Verified | LicclientError,
    cached: CachedLicense | None,
    problem: StateUnreadableError | None,
    call: str | None,
    now: datetime,
    settings: Settings,
) -> Ending:
    """Return what follows from an answer.

    Args:
        answer: The server's answer, or the error without one.
        cached: The last success; None without one.
        problem: Why the last success cannot be read; an answer about the license replaces it all the same.
        call: The name of the call for its record; None for a call that leaves none.
        now: The present instant.
        settings: Of the client.
    """
    result, success = apply_response(answer, cached, now, settings)
    is_answer = isinstance(answer, Verified | LicenseRefusedError)
    replaces = success != cached or (problem is not None and is_answer)
    return Ending(
        unless_unreadable(result, problem),
        replaces_success=replaces,
        success=success,
        is_check_due=replaces and cached is None and problem is None,
        outcome=None if call is None else outcome_of(answer, call, now),
    )
