"""Pure: how the last call for one key ended, kept for others who were waiting for it, and for display.

It decides next to nothing: it spares those who asked in the same moment a call of their own (D-58), and
clicks after a refusal theirs (D-119); it says when a worker asks again (D-115), and on a settings page why
there is no license.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from licclient._model import Reason, Settings, Verified
from licclient._policy import wrong_product
from licclient._records import Document
from licclient.errors import LicclientError, LicenseRefusedError, ServiceUnavailableError

REFUSED_FOR: Final = timedelta(minutes=1)
"""How long a refusal answers `require` as well: a click is no reason to ask again (D-119)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one call.

    Attributes:
        call: A random name of that call: who finds another one than before knows that somebody has called.
        ended_at: Aware, UTC.
        answer: None for a success, which has a record of its own; else what went wrong.
        product: Of a success: what it is for. Apps of one vendor share this record, and it may be the
            product of another one (D-44).
        is_private: It was no success either, but nobody else's business: a 422, or an answer that could not
            be trusted. It says when, and answers nobody.
    """

    call: str
    ended_at: datetime
    answer: LicenseRefusedError | ServiceUnavailableError | None
    product: str | None = None
    is_private: bool = False

    def refusal(self, settings: Settings) -> LicenseRefusedError | None:
        """Return the refusal that this was for an app with these settings, if it was one."""
        if isinstance(self.answer, LicenseRefusedError):
            return self.answer
        return None if self.product is None else wrong_product(self.product, settings)


def outcome_of(answer: Verified | LicclientError, call: str, now: datetime) -> Outcome:
    """Say what is to be remembered of an answer."""
    match answer:
        case Verified():
            return Outcome(call, now, None, answer.product)
        case LicenseRefusedError() | ServiceUnavailableError():
            return Outcome(call, now, answer)
        case _:
            return Outcome(call, now, None, is_private=True)


def refused_lately(last: Outcome | None, now: datetime, settings: Settings) -> LicenseRefusedError | None:
    """Return a refusal of less than a minute ago (D-119)."""
    if last is None or not timedelta(0) <= now - last.ended_at < REFUSED_FOR:
        return None
    return last.refusal(settings)


def write_outcome(outcome: Outcome) -> Document:
    """Write the end of a call."""
    answer = outcome.answer
    told: dict[str, object] = {}
    if isinstance(answer, LicenseRefusedError):
        told = {"reason": answer.reason.value, "message": answer.message}
    elif answer is not None:
        told = {"no_answer": str(answer)}
    elif outcome.is_private:
        told = {"private": True}
    elif outcome.product is not None:
        told = {"product": outcome.product}
    return {"call": outcome.call, "ended_at": outcome.ended_at.isoformat(), "told": told}


def read_outcome(document: Document | None) -> Outcome | None:
    """Read the end of a call; None when there is none that makes sense."""
    match document:
        case {"call": str(call), "ended_at": str(ended), "told": dict(told)}:
            try:
                ended_at = datetime.fromisoformat(ended).astimezone(UTC)
                product = told.get("product")
                return Outcome(
                    call,
                    ended_at,
                    _read_answer(told),
                    product if isinstance(product, str) else None,
                    is_private=told.get("private") is True,
                )
            except (ValueError, OverflowError):
                return None
        case _:
            return None


def _read_answer(told: Document) -> LicenseRefusedError | ServiceUnavailableError | None:
    match told:
        case {"reason": str(reason), "message": str(message)}:
            return LicenseRefusedError(Reason(reason), message)
        case {"no_answer": str(message)}:
            return ServiceUnavailableError(message)
        case _:
            return None
