"""Verify a license key: from the cache, by another process that just did, or by the server."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from licclient._activation import Activation
from licclient._flows.context import Context, Subject
from licclient._flows.runners import Flow, OwnAddress, Wait, send_with_retries
from licclient._model import License, Reason, Verified
from licclient._policy import fall_back, recall, settle
from licclient._protocol.requests import Call, tidy_key, verify_call
from licclient._records import Document, read_round, record_name
from licclient._storage import CallLock
from licclient.errors import (
    InvalidRequestError,
    LicclientError,
    LicenseRefusedError,
    NotActivatedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)

if TYPE_CHECKING:
    from licclient._protocol.responses import Attempt, Reply
    from licclient._signatures.license_files import Installed
    from licclient._status import Outcome

T = TypeVar("T")

PATIENCE: Final = timedelta(seconds=1)
"""What a call may take beyond its time limit: our own address. Then others go ahead (D-58)."""

NO_KEY: Final = "The system's keyring did not return the license key. Unlock it, and try again."

_NONCE_BYTES: Final = 16


def verify(context: Context, typed: str | None, *, force: bool) -> Flow[License]:
    """Return the license: from a license file, a fresh cache (D-41), or from the server.

    A license file holds when the server cannot be asked, and through every refusal but a revocation.
    Arguments and errors are those of `verify_online`.
    """
    file = _license_file(context, typed)
    if file is None:
        return (yield from verify_online(context, typed, force=force))
    if isinstance(file.result, License) and not force:
        return file.result
    try:
        return (yield from verify_online(context, typed, force=force))
    except (NotActivatedError, ServiceUnavailableError):
        return license_or_raise(file.result)
    except LicenseRefusedError as refusal:
        if refusal.reason in (Reason.REVOKED, Reason.OTHER_PRODUCT) or not isinstance(file.result, License):
            raise
        return file.result


def _license_file(context: Context, typed: str | None) -> "Installed | None":
    if typed is None or not context.settings.public_keys:
        return context.license_file()
    key = tidy_key(typed)
    return None if isinstance(key, InvalidRequestError) else context.license_file(key)


def verify_online(context: Context, typed: str | None, *, force: bool) -> Flow[License]:
    """Return the license: from a fresh cache (D-41), or from the server; errors as of `verify`."""
    settings = context.settings
    domain = installation_domain(context)
    activation = find_activation(context) if typed is None else None
    if force:
        context.activations.ask_again()
    subject = find_subject(context, typed, activation, domain)
    now = context.now()
    held = context.successes.find_marked(subject, now)
    if held is not None and not force and (known := recall(held, now, settings)) is not None:
        return known
    key = subject.key
    if key is None and activation is not None:
        key = context.activations.key_of(activation)
    if key is None:
        return license_or_raise(fall_back(ServiceUnavailableError(NO_KEY), held, now, settings))
    subject = context.successes.subject(key, domain)
    last_call = _last_call(context, subject)
    with call_lock(context, call_name(subject)) as lock:
        yield from wait_for(lock)
        if (answered := _answered_meanwhile(context, subject, last_call)) is not None:
            return answered
        address: str = yield OwnAddress()
        call = with_nonce(context, verify_call(settings, key, domain, address, settings.machine))
        attempt = yield from send_with_retries(call, lock.left(settings.timeout.total_seconds()))
        return _end(context, subject, call, attempt, activation)


def call_lock(context: Context, name: str) -> CallLock:
    """Return the lock for a call that all threads and processes of a user would make (D-58)."""
    folder = context.storage.folder()
    lock = None if folder is None else folder / f"{name}.lock"
    return CallLock(lock, (context.settings.timeout + PATIENCE).total_seconds())


def wait_for(lock: CallLock) -> Flow[None]:
    """Wait until no other thread or process makes the call."""
    while not lock.is_ours():
        yield Wait(lock.pause)


def _last_call(context: Context, subject: Subject) -> object:
    """Return the random name of the last call that anybody made."""
    return (context.storage.load(call_name(subject)) or {}).get("call")


def _answered_meanwhile(context: Context, subject: Subject, before: object) -> License | None:
    """Return or raise the answer to a call that somebody else made while we waited; None to make one."""
    if _last_call(context, subject) == before:
        return None
    last, now = last_outcome(context, subject), context.now()
    if last is None or last.is_private:
        return None
    held = context.successes.find_marked(subject, now)
    if last.answer is None:
        return recall(held, now, context.settings)
    result, _ = settle(last.answer, held, now, context.settings)
    return license_or_raise(result)


def _end(
    context: Context, subject: Subject, call: Call, attempt: "Attempt", activation: Activation | None
) -> License:
    """Remember what came of a call, and return or raise what it means."""
    from licclient._signatures.responses import read_trusted_verify  # noqa: PLC0415 - as above
    from licclient._status import outcome_of, write_outcome  # noqa: PLC0415 - after a call

    settings, key, now = context.settings, subject.key or "", context.now()
    answer: Verified | LicclientError
    if isinstance(attempt.result, ServiceUnavailableError):
        answer = attempt.result
    else:
        answer = read_trusted_verify(call, attempt.result, key, settings, now)
    if settings.public_keys:
        context.license_files.note_answer(key, answer, now)
    # Read again: another process may have been answered while we waited.
    held = context.successes.find_marked(subject, now)
    result, kept = settle(answer, held, now, settings)
    if kept != held:
        context.successes.put(subject, kept)
        if held is None:
            _let_check_again(context, key)
    if not attempt.was_closed:  # that is no outage (D-119)
        # Last: whoever finds it must find the rest.
        ended = write_outcome(outcome_of(answer, random_name(), now))
        context.storage.change(call_name(subject), lambda _: ended)
    if activation is not None:  # `forget_key` may run at the same time
        found = context.activations.find()
        if found is None or found.license != activation.license:
            forget_records(context, subject.name)
    return license_or_raise(result)


def _let_check_again(context: Context, key: str) -> None:
    """After the first success of a key a check is due at once, if the last one found no answer (D-46)."""
    if context.settings.slug is None:
        return
    name = of_channels(context, check_name(context, key, context.settings.slug))
    last = read_round(context.storage.load(name))
    if last is not None and last.listing is None:
        context.storage.change(name, lambda _: None)


# --- which license ----------------------------------------------------------------------------


def installation_domain(context: Context) -> str:
    """Return the application's domain, or a random id of this installation, one per server (D-45)."""
    if context.settings.domain is not None:
        return context.settings.domain
    name = context.installation
    known = context.storage.load(name)
    if not _read_id(known):
        made = {"id": random_name()}
        known = context.storage.change(name, lambda found: found if _read_id(found) else made)
    return _read_id(known)


def find_activation(context: Context) -> Activation:
    """Return the activation of this computer; raise `NotActivatedError` if there is none."""
    found = context.activations.find()
    if found is None:
        raise NotActivatedError
    return found


def find_subject(
    context: Context,
    typed: str | None,
    activation: Activation | None,
    domain: str,
    seconds: float | None = None,
) -> Subject:
    """Return what a license is about; without its key where that can be spared the keyring.

    It is that of the activation, unless a key was typed; `seconds` are as for `Activations.key_of`.
    """
    successes = context.successes
    if activation is not None:
        by_name = activation.domain == domain and successes.can_find(activation.license)
        typed = activation.key if by_name else context.activations.key_of(activation, seconds)
        if typed is None:
            return Subject(None, domain, activation.license)
    return successes.subject(read_key(typed), domain)  # type: ignore[arg-type] # None raises


def find_key(context: Context, typed: str | None) -> tuple[str, Subject]:
    """Return a license's key, from the keyring if it is there, and what the license is about."""
    domain = installation_domain(context)
    activation = find_activation(context) if typed is None else None
    key = find_subject(context, typed, activation, domain).key
    if key is None and activation is not None:
        key = context.activations.key_of(activation)
    if key is None:
        raise ServiceUnavailableError(NO_KEY)
    return key, context.successes.subject(key, domain)


def read_key(typed: str) -> str:
    """Return a key as `verify` takes it, or raise `InvalidRequestError`."""
    key = tidy_key(typed)
    if isinstance(key, InvalidRequestError):
        raise key
    return key


def license_or_raise(result: License | LicclientError) -> License:
    """Return a license; raise anything else."""
    if isinstance(result, LicclientError):
        raise result
    return result


# --- records ----------------------------------------------------------------------------------


def call_name(subject: Subject) -> str:
    """Return the name of the record of the last call: for each success there is one."""
    return "call-" + subject.name.partition("-")[2]


def check_name(context: Context, key: str, slug: str) -> str:
    """Return the name of the record of a key's update checks."""
    return record_name("update", context.settings.server, key, slug)


def of_channels(context: Context, name: str) -> str:
    """Name the record of checks in the client's channels: after a change of these a check is due (D-228)."""
    channels = context.settings.channels
    return record_name("update", name, *channels) if channels else name


def last_outcome(context: Context, subject: Subject) -> "Outcome | None":
    """Return how the last call for a license ended."""
    from licclient._status import read_outcome  # noqa: PLC0415 - not for an answer from the cache

    return read_outcome(context.storage.load(call_name(subject)))


def forget_records(context: Context, success_name: str) -> None:
    """Forget a success, and how the last call for it ended."""
    subject = Subject(None, "", success_name)
    for name in (success_name, call_name(subject)):
        context.storage.change(name, lambda _: None)


def ask(
    context: Context,
    call: Call,
    read: "Callable[[Reply], T | LicclientError]",
    *,
    unknown: LicclientError | None = None,
    seconds: float | None = None,
) -> Flow[T | LicclientError]:
    """Send a request; return what `read` makes of the response, signed if keys are pinned, or the problem.

    It is `unknown`, if given, when the service does not have the endpoint. `seconds` is the deadline, by
    default the client's time limit.
    """
    call, limit = with_nonce(context, call), context.settings.timeout.total_seconds()
    reply = (yield from send_with_retries(call, limit if seconds is None else seconds)).result
    if isinstance(reply, ServiceUnavailableError):
        return reply
    from licclient._protocol.responses import UNKNOWN_ENDPOINT  # noqa: PLC0415 - after a call
    from licclient._signatures.responses import require_signature  # noqa: PLC0415 - as above

    found = read(reply)
    if unknown and reply.status in UNKNOWN_ENDPOINT and isinstance(found, ServiceUnavailableError):
        return unknown
    signed = require_signature(call, reply, found, context.settings, context.now())
    return signed if isinstance(signed, UntrustedResponseError) else found


def with_nonce(context: Context, call: Call) -> Call:
    """Ask for a signed response if keys are pinned (D-62)."""
    if not context.settings.public_keys:
        return call
    from secrets import token_urlsafe  # noqa: PLC0415 - for apps with pinned keys

    from licclient._signatures.responses import request_signature  # noqa: PLC0415 - as above

    return request_signature(call, context.settings.public_keys, token_urlsafe(_NONCE_BYTES))


def random_name() -> str:
    """Return a random name."""
    from uuid import uuid4  # noqa: PLC0415 - most starts only read

    return uuid4().hex


def _read_id(document: Document | None) -> str:
    known = (document or {}).get("id")
    return known if isinstance(known, str) else ""
