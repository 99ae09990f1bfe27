"""Verify a license key: from the cache, by another process that just did, or by the server."""

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from licclient._core.activations import Activation
from licclient._core.arguments import check_flag
from licclient._core.lazy import lazy
from licclient._core.log import debug, describe
from licclient._core.model import License, Reason, Source, Verified
from licclient._core.policy import (
    apply_response,
    fall_back,
    from_cache,
    unless_unreadable,
    wrong_product,
)
from licclient._core.records import Put, read_update_check
from licclient._core.requests import Call, tidy_key, verify_call
from licclient._core.runners import Flow, OwnAddress, send_with_retries
from licclient._core.session import (
    InstalledFile,
    Session,
    activated_subject,
    call_name,
    check_name,
    copy_installation,
    find_activation,
    find_success,
    forget_records,
    last_outcome,
    license_or_raise,
    no_key,
    of_channels,
    random_name,
    typed_subject,
    wait_for,
    with_nonce,
)
from licclient._core.storage import CallLock
from licclient._core.successes import Subject
from licclient.errors import (
    InvalidRequestError,
    LicclientError,
    LicenseRefusedError,
    NotActivatedError,
    ServiceUnavailableError,
    StateUnreadableError,
)

if TYPE_CHECKING:
    import logging

    from licclient._core import responses, signed_responses, status
    from licclient._core.responses import Attempt
    from licclient._verification import ending as ending_module
    from licclient._verification.ending import Ending
else:
    logging = lazy("logging")
    responses = lazy("licclient._core.responses")
    signed_responses = lazy("licclient._core.signed_responses")
    status = lazy("licclient._core.status")
    ending_module = lazy("licclient._verification.ending")

T = TypeVar("T")


def verify(session: Session, typed: str | None, *, force: bool, is_background: bool = False) -> Flow[License]:
    """Return the license: from a license file, a fresh cache (D-41), or from the server.

    A license file holds when the server cannot be asked, and through every refusal but a revocation.
    Arguments and errors are those of `verify_online`.
    """
    check_flag("force", force)
    try:
        file = _license_file(session, typed)
    except StateUnreadableError as problem:
        try:
            return (yield from verify_online(session, typed, force=force, is_background=is_background))
        except (NotActivatedError, ServiceUnavailableError):
            raise problem from None  # the file might hold
    if file is None:
        return (yield from verify_online(session, typed, force=force, is_background=is_background))
    if isinstance(file.result, License) and not force:
        return file.result
    try:
        return (yield from verify_online(session, typed, force=force, is_background=is_background))
    except (NotActivatedError, ServiceUnavailableError):
        return license_or_raise(file.result)
    except LicenseRefusedError as refusal:
        if refusal.reason in (Reason.REVOKED, Reason.OTHER_PRODUCT) or not isinstance(file.result, License):
            raise
        return file.result


def _license_file(session: Session, typed: str | None) -> InstalledFile | None:
    if typed is None or not session.settings.public_keys:
        return session.license_file()
    key = tidy_key(typed)
    return None if isinstance(key, InvalidRequestError) else session.license_file(key)


def verify_online(
    session: Session, typed: str | None, *, force: bool, is_background: bool = False
) -> Flow[License]:
    """Return the license: from a fresh cache, or from the server; errors as of `verify`.

    An outage in the background is no answer for a caller that waited for the lock: the call is made again.
    """
    answer = _find_answer(session, typed, force=force)
    if isinstance(answer, License):
        return answer
    subject, activation = answer
    last_call = _find_last_call(session, subject)
    with session.lock(call_name(subject)) as lock:
        yield from wait_for(lock)
        if (answered := _find_other_answer(session, subject, last_call)) is not None:
            debug("Another thread or process asked meanwhile: its answer counts.")
            return answered
        call, attempt = yield from _send(session, subject, lock)
        return _apply_answer(session, subject, call, attempt, activation, is_background=is_background)


def _find_answer(
    session: Session, typed: str | None, *, force: bool
) -> License | tuple[Subject, Activation | None]:
    """Return the license if it holds without a call; else what the call is about, with its key.

    Raise the error of a license that can neither hold nor be asked for: without a key, or a locked keyring.
    """
    domain = session.domain()
    activation = find_activation(session) if typed is None else None
    if force:
        session.activations.ask_again()
    if activation is None:
        subject = typed_subject(session, typed or "", domain)
    else:
        subject = activated_subject(session, activation, domain)
    now, settings = session.now(), session.settings
    cached, problem = find_success(session, subject, now)
    if cached is not None and not force and (license_ := from_cache(cached, now, settings)) is not None:
        debug("The license holds by the cache: confirmed %s.", license_.checked_at)
        return license_
    key = subject.key
    if not force and (refusal := _other_product_lately(session, subject, now)) is not None:
        debug("The server was asked less than a minute ago: %s", describe(refusal))
        raise refusal
    if key is None and activation is not None:
        key = session.activations.key_of(activation)
    if key is not None:
        return session.successes.subject(key, domain), activation
    return license_or_raise(unless_unreadable(fall_back(no_key(), cached, now, settings), problem))


def _other_product_lately(session: Session, subject: Subject, now: datetime) -> LicenseRefusedError | None:
    """Return the refusal of a key that was found to be another product's less than a minute ago (D-144)."""
    failed = status.failed_lately(last_outcome(session, subject), now, session.settings)
    if isinstance(failed, LicenseRefusedError) and failed.reason is Reason.OTHER_PRODUCT:
        return failed
    return None


def _send(session: Session, subject: Subject, lock: CallLock) -> "Flow[tuple[Call, Attempt]]":
    """Ask the server; return the request and its outcome."""
    settings, key = session.settings, subject.key or ""
    address: str = yield OwnAddress()
    call = with_nonce(session, verify_call(settings, key, subject.domain, address, settings.machine))
    attempt = yield from send_with_retries(call, lock.left(settings.timeout.total_seconds()))
    return call, attempt


def _find_last_call(session: Session, subject: Subject) -> str | None:
    """Return the random name of the last call that may answer others; None for none."""
    name = (session.load_optional(call_name(subject)) or {}).get("call")
    return name if isinstance(name, str) and name else None


def _find_other_answer(session: Session, subject: Subject, before: str | None) -> License | None:
    """Return or raise the result of another caller's request during the wait; None to send one."""
    if _find_last_call(session, subject) == before:
        return None
    last, now = last_outcome(session, subject), session.now()
    if last is None or last.is_private:
        return None
    cached, problem = find_success(session, subject, now)
    if last.answer is None:
        return from_cache(cached, now, session.settings)
    result, _ = apply_response(last.answer, cached, now, session.settings)
    return license_or_raise(unless_unreadable(result, problem))


def _apply_answer(
    session: Session,
    subject: Subject,
    call: Call,
    attempt: "Attempt",
    activation: Activation | None,
    *,
    is_background: bool,
) -> License:
    """Remember what came of a call, and return or raise what it means."""
    now = session.now()
    answer = _read_answer(session, subject, call, attempt, now)
    # Read again: another process may have been answered while we waited.
    cached, problem = find_success(session, subject, now)
    if isinstance(answer, LicenseRefusedError):
        answer.is_trial = status.was_trial(cached, last_outcome(session, subject))
    name: str | None = random_name()
    if attempt.was_closed:  # that is no outage (D-119)
        name = None
    elif is_background and isinstance(answer, ServiceUnavailableError):
        name = _find_last_call(session, subject) or ""
    ending = ending_module.end_verify(answer, cached, problem, name, now, session.settings)
    if isinstance(answer, Verified) and wrong_product(answer.product, session.settings) is not None:
        # A slip of the app refuses every customer, and only its developer can mend it.
        logging.getLogger("licclient").warning(
            "A license key of the product %r was refused, because this client was created with product=%r. If"
            " these are the same product, pass the first name.",
            answer.product,
            session.settings.product,
        )
    debug("Verify: %s", describe(answer) if isinstance(answer, LicclientError) else "licensed")
    if isinstance(license_ := ending.result, License) and license_.source is not Source.SERVER:
        debug("The license holds without an answer (%s): confirmed %s.", license_.source, license_.checked_at)
    _write(session, subject, ending)
    with suppress(StateUnreadableError):
        copy_installation(session)
        if activation is not None:  # `forget_key` may run at the same time
            current = session.activations.find()
            if current is None or current.license != activation.license:
                forget_records(session, subject.name)
    return license_or_raise(ending.result)


def _read_answer(
    session: Session, subject: Subject, call: Call, attempt: "Attempt", now: datetime
) -> Verified | LicclientError:
    """Return what the server said; a license file of the key learns of it."""
    settings, key, reply = session.settings, subject.key or "", attempt.result
    answer: Verified | LicclientError
    if isinstance(reply, ServiceUnavailableError):
        answer = reply
    else:
        answer = signed_responses.read_trusted_verify(call, reply, key, settings, now)
        answer = responses.note_origin(answer, reply, key)
    if settings.public_keys:
        with suppress(StateUnreadableError):
            session.license_files.note_answer(key, answer, now)
    return answer


def _write(session: Session, subject: Subject, ending: "Ending") -> None:
    """Write what is to be remembered of a call; its end last: a reader that finds it must find the rest."""
    if ending.replaces_success:
        session.successes.put(subject, ending.success)
    if ending.is_check_due:
        _let_check_again(session, subject.key or "")
    if ending.outcome is not None:
        session.storage.change(call_name(subject), Put(status.write_outcome(ending.outcome)))


def _let_check_again(session: Session, key: str) -> None:
    """After the first success of a key a check is due at once, if the last one found no answer (D-46)."""
    if session.settings.slug is None:
        return
    name = of_channels(session, check_name(session, key, session.settings.slug))
    last = read_update_check(session.load_optional(name))
    if last is not None and last.listing is None:
        session.storage.change(name, Put(None))
