"""Pure: how the last call for one key ended, kept for others who were waiting for it, and for display.

It decides nothing: a refusal that is remembered here refuses nobody (D-41). It spares those who asked in the
same moment a call of their own (D-58), and lets a settings page say why there is no license.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from licclient._errors import InvalidRequest, LicclientError, LicenseRefused, ServiceUnavailable
from licclient._model import Reason, Verified
from licclient._records import Document


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one call.

    Attributes:
        call: A random name of that call: who finds another one than before knows that somebody has called.
        ended_at: Aware, UTC.
        answer: None for a success, which has a record of its own; else what went wrong.
    """

    call: str
    ended_at: datetime
    answer: LicenseRefused | ServiceUnavailable | None


def outcome_of(answer: Verified | LicclientError, call: str, now: datetime) -> Outcome | None:
    """Say what is to be remembered of an answer; None when it is nobody else's business, as with a 422."""
    match answer:
        case Verified():
            return Outcome(call, now, None)
        case LicenseRefused() | ServiceUnavailable():
            return Outcome(call, now, answer)
        case InvalidRequest() | _:
            return None


def write_outcome(outcome: Outcome) -> Document:
    """Write the end of a call."""
    answer = outcome.answer
    told: dict[str, str] = {}
    if isinstance(answer, LicenseRefused):
        told = {"reason": answer.reason.value, "message": answer.message}
    elif answer is not None:
        told = {"no_answer": str(answer)}
    return {"call": outcome.call, "ended_at": outcome.ended_at.isoformat(), "told": told}


def read_outcome(document: Document | None) -> Outcome | None:
    """Read the end of a call; None when there is none that makes sense."""
    match document:
        case {"call": str(call), "ended_at": str(ended), "told": dict(told)}:
            try:
                ended_at = datetime.fromisoformat(ended).astimezone(UTC)
                return Outcome(call, ended_at, _read_answer(told))
            except (ValueError, OverflowError):
                return None
        case _:
            return None


def _read_answer(told: Document) -> LicenseRefused | ServiceUnavailable | None:
    match told:
        case {"reason": str(reason), "message": str(message)}:
            return LicenseRefused(Reason(reason), message)
        case {"no_answer": str(message)}:
            return ServiceUnavailable(message)
        case _:
            return None
