"""Pure: any error, reason or status of this package as a sentence for a person."""

from functools import reduce
from typing import TYPE_CHECKING, Final

from licclient._core.arguments import wrong_type
from licclient._core.lazy import PROGRAM_GONE, lazy, load_module
from licclient._core.model import Outage, Reason
from licclient.errors import (
    DeactivationError,
    DownloadCancelledError,
    InvalidRequestError,
    LicclientError,
    LicenseRefusedError,
    MistypedKeyError,
    NotActivatedError,
    NotEntitledError,
    ServiceUnavailableError,
    StateUnreadableError,
    UntrustedResponseError,
    UnusableArchiveError,
)

if TYPE_CHECKING:
    from licclient._core import status as status_module
    from licclient._core import texts, update_model
    from licclient._core.status import LicenseStatus
    from licclient._core.update_model import Update, UpdateCheck
else:
    status_module = lazy("licclient._core.status")
    texts = lazy("licclient._core.texts")
    update_model = lazy("licclient._core.update_model")


UPDATES_END_SOON: Final = 30
"""So many days before the last day of updates a status mentions it."""


def sentence_of(what: object, tag: str) -> str:
    """Return what an error, reason, status or update check means, and what to do.

    `tag` is a language as of `pick_tag`. Raise `TypeError` for anything else.
    """
    match what:
        case status_module.LicenseStatus():
            return _status(what, tag)
        case update_model.UpdateCheck():
            return _update_check(what, tag)
        case LicenseRefusedError():
            return _refusal(what.reason, what.message, tag, is_trial=what.is_trial)
        case Reason():
            return texts.text_of(f"reason.{what.value}", tag)
        case MistypedKeyError():
            return texts.text_of(f"flaw.{what.flaw.value}", tag, what.detail)
        case object(_texts=str(place)):  # of a feature
            return str(load_module(place).sentence_of(what, tag))
        case LicclientError():
            return texts.text_of(_code(what), tag, *_details(what, tag))
        case OSError():
            return _disk(what, tag)
        case _:
            kinds = "an error, reason, status, update check or list of computers of licclient"
            raise wrong_type("what", kinds, what)


def _disk(problem: OSError, tag: str) -> str:
    match problem:
        case FileNotFoundError():  # folders to save in are made
            return texts.text_of("error.unreadable_file", tag, problem.strerror or "").rstrip()
        case object(needed_bytes=int(needed), free_bytes=int(free)):  # of `require_space`
            numbers = (str(-(-needed // 10**6)), str(free // 10**6))
            return texts.text_of("error.no_room", tag, *numbers, str(problem.filename))
        case _:
            return texts.text_of("error.disk", tag, problem.strerror or "").rstrip()


def _update_check(check: "UpdateCheck", tag: str) -> str:
    match check.error:
        case None if check.update is not None:
            name = f"{check.update.name} {check.update.version}"
            return join_all(
                [texts.text_of("update.heading", tag, name) + ".", *describe_offer(check.update, tag)], tag
            )
        case None:
            required = [texts.text_of("update.required", tag)] if check.is_update_required else []
            if check.latest_version is not None:
                code = "ended" if check.is_ahead else "uncovered"
                uncovered = texts.text_of(f"update.{code}", tag, check.latest_version)
                return join_all([*required, uncovered], tag)
            code = "required" if required else "ahead" if check.is_ahead else "none"
            return texts.text_of(f"update.{code}", tag)
        case ServiceUnavailableError(outage=Outage.UNREACHABLE | Outage.NAME_NOT_FOUND):
            return texts.text_of("update.unavailable", tag)
        case error:
            return sentence_of(error, tag)


def describe_offer(update: "Update", tag: str) -> list[str]:
    """Return the sentences about what an update fixes, and what the license does not cover."""
    sentences = [texts.text_of("update.security", tag)] if update.is_security else []
    if update.latest_version is not None:
        # A security release may be newer than what the license covers.
        code = "uncovered" if update.is_security else "covered"
        sentences.append(texts.text_of(f"update.{code}", tag, update.latest_version))
    return sentences


def join_all(sentences: list[str], tag: str) -> str:
    """Put sentences one after another; return an empty text for none."""
    return (
        reduce(lambda first, second: texts.join_sentences(first, second, tag), sentences) if sentences else ""
    )


def _refusal(reason: Reason, words: str | None, tag: str, *, is_trial: bool) -> str:
    """Return a sentence for a refusal; for one that this version does not know, with the server's words."""
    if reason is Reason.OTHER and words:
        return texts.text_of("reason.other_words", tag, words)
    is_over = reason is Reason.EXPIRED and is_trial
    return texts.text_of("reason.expired_trial" if is_over else f"reason.{reason.value}", tag)


_TEXTS = {
    NotActivatedError: "error.not_activated",
    NotEntitledError: "error.not_entitled",
    InvalidRequestError: "error.invalid_request",
    StateUnreadableError: "error.state",
    UntrustedResponseError: "error.untrusted",
    UnusableArchiveError: "error.unusable_archive",
    DownloadCancelledError: "error.cancelled",
}


def _code(error: LicclientError) -> str:
    match error:
        case ServiceUnavailableError(outage=outage):
            return _outage_code(outage)
        case StateUnreadableError() if error.reason == PROGRAM_GONE:
            return "error.program_gone"
        case UntrustedResponseError(is_clock_wrong=True):
            return _outage_code(Outage.CLOCK)
        case DeactivationError():
            return "error.not_movable" if error.retry_at is None else "error.moved_often"
        case _:
            return next(
                (code for kind, code in _TEXTS.items() if isinstance(error, kind)), "error.unavailable"
            )


def _outage_code(outage: Outage) -> str:
    return "error.unavailable" if outage is Outage.UNREACHABLE else f"error.{outage.value}"


def _details(error: LicclientError, tag: str) -> list[str]:
    if isinstance(error, DeactivationError) and error.retry_at is not None:
        return [texts.format_date(texts.to_local(error.retry_at).date(), tag)]
    return []


def _status(status: "LicenseStatus", tag: str) -> str:
    # Going online is not what helps.
    is_special = status.outage not in (None, Outage.UNREACHABLE, Outage.NAME_NOT_FOUND)
    match status.state:
        case status_module.LicenseState.GRACE if status.grace_ends_at is not None:
            local = texts.to_local(status.grace_ends_at)
            until = f"{texts.format_date(local.date(), tag)} {local:%H:%M}"
            if is_special and status.outage is not None:
                sentence = (
                    _trial(status, tag) if status.is_trial else texts.text_of("state.grace_until", tag, until)
                )
                return texts.join_sentences(sentence, texts.text_of(_outage_code(status.outage), tag), tag)
            return texts.text_of("state.trial_grace" if status.is_trial else "state.grace", tag, until)
        case status_module.LicenseState.VALID | status_module.LicenseState.GRACE:
            sentence = _trial(status, tag) if status.is_trial else texts.text_of("state.valid", tag)
            return join_all([sentence, *_describe_end_of_updates(status, tag)], tag)
        case status_module.LicenseState.NOT_ACTIVATED:
            return texts.text_of("error.not_activated", tag)
        case status_module.LicenseState.UNCONFIRMED if is_special and status.outage is not None:
            return texts.text_of(_outage_code(status.outage), tag)
        case status_module.LicenseState.UNCONFIRMED:
            return texts.text_of("state.unconfirmed", tag)
        case status_module.LicenseState.REFUSED:
            reason = status.reason or Reason.OTHER
            return _refusal(reason, status.message, tag, is_trial=status.is_trial)


def _describe_end_of_updates(status: "LicenseStatus", tag: str) -> list[str]:
    days_left, until = status.updates_days_left, status.updates_until
    if days_left is None or until is None or not 0 <= days_left <= UPDATES_END_SOON:
        return []
    return [texts.text_of("state.updates_end", tag, texts.format_date(until, tag))]


def _trial(status: "LicenseStatus", tag: str) -> str:
    match status.days_left:
        case None:
            return texts.text_of("state.trial", tag)
        case 0:
            return texts.text_of("state.trial_today", tag)
        case 1:
            return texts.text_of("state.trial_day", tag)
        case days:
            return texts.text_of("state.trial_days", tag, str(days))
