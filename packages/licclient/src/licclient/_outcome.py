"""Pure: how the last call for one key ended, kept for others who were waiting for it, and for display.

It decides next to nothing: it spares those who asked in the same moment a call of their own (D-58), and
clicks after a refusal theirs (D-119); it says when a worker asks again (D-115), whether a call was cut off by
the end of its process (D-117), and on a settings page why there is no license.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from licclient._model import Reason, Settings, Verified
from licclient._policy import wrong_product
from licclient._records import Document, read_instant
from licclient.errors import LicclientError, LicenseRefusedError, ServiceUnavailableError

REFUSED_FOR: Final = timedelta(minutes=1)
"""How long a refusal answers `require` as well: a click is no reason to ask again (D-119)."""

_MOST_CUT: Final = 1000


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


def write_outcome(outcome: Outcome, before: Document | None = None) -> Document:
    """Write the end of a call; what `note_begun` noted is thereby gone, what `write_note` noted is not."""
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
    kept = {} if before is None or "put_off" not in before else {"put_off": before["put_off"]}
    return {**kept, "call": outcome.call, "ended_at": outcome.ended_at.isoformat(), "told": told}


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


# --- calls that were begun --------------------------------------------------------------------


def note_begun(document: Document | None, now: datetime, longest: timedelta) -> tuple[Document, int]:
    """Note that a call is begun behind an answer, and say how many before it were cut off (D-117).

    Args:
        document: The record of the last call.
        now: Aware, UTC.
        longest: What a call may take: one that was begun less long ago may be on its way elsewhere.

    Returns:
        The record, the very same object when nothing is to be written; and how many calls were begun since
        one last ended, none of which is on its way any more.
    """
    document = document or {}
    match document:
        case {"begun": {"at": str(at), "cut": int(cut)}} if (began := read_instant(at)) is not None:
            if abs(now - began) < longest:
                return document, 0
            # The first one's time stays: who starts every few seconds never gets a call to its end, either.
            cut = min(max(cut, 0), _MOST_CUT) + 1
            return {**document, "begun": {"at": at, "cut": cut}}, cut
        case _:
            return {**document, "begun": {"at": now.isoformat(), "cut": 0}}, 0


def forget_begun(document: Document | None) -> Document | None:
    """Note that a call behind an answer came to an end of which there is nothing to remember."""
    if document is None or "begun" not in document:
        return document
    rest = {name: value for name, value in document.items() if name not in ("begun", "schema")}
    return rest or None


# --- calls that were put off ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Note:
    """That a worker has put off what was due when it started (D-137).

    Attributes:
        at: When that start was; aware, UTC.
        cut: How often before that the app had ended too soon.
    """

    at: datetime
    cut: int = 0


def write_note(document: Document | None, note: Note) -> Document:
    """Note that something was put off: not only a verify, so it stays when a call ends."""
    return {**(document or {}), "put_off": {"at": note.at.isoformat(), "cut": min(note.cut, _MOST_CUT)}}


def read_note(document: Document | None) -> Note | None:
    """Read what was put off; None when there is nothing that makes sense."""
    match document:
        case {"put_off": {"at": str(at), "cut": int(cut)}} if (began := read_instant(at)) is not None:
            return Note(began, min(max(cut, 0), _MOST_CUT))
        case _:
            return None
