"""The key of this computer: activate it, free its slot, forget it."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from licclient._core.lazy import lazy
from licclient._core.log import debug, describe
from licclient._core.model import License
from licclient._core.records import Put, record_name
from licclient._core.requests import deactivate_call
from licclient._core.runners import Flow, send_with_retries
from licclient._core.session import (
    LastFailure,
    Session,
    activated_subject,
    call_name,
    forget_records,
    of_channels,
    wait_for,
)
from licclient._core.successes import Subject
from licclient.errors import MistypedKeyError, ServiceUnavailableError, StateUnreadableError

if TYPE_CHECKING:
    from licclient._core import responses, typed_key
else:
    responses = lazy("licclient._core.responses")
    typed_key = lazy("licclient._core.typed_key")

Verify = Callable[[Session, str], Flow[License]]
"""Verifies a key, from the cache or by a call."""

_OF_THE_APP: Final = ("skipped", "downloaded", "reported")
"""Kinds of records that belong to the app, whatever the key."""


def activate(session: Session, typed: str, verify: Verify) -> Flow[License]:
    """Verify a key that a person entered, and remember it when it is good (D-57)."""
    key = typed_key.repair_key(typed)
    if isinstance(key, typed_key.Mistyped):
        raise MistypedKeyError(key.flaw, key.detail)
    session.activations.find()  # before a slot is taken: it must be possible to remember the key
    license_ = yield from verify(session, key)
    if session.settings.public_keys:  # the person has another license now
        with suppress(StateUnreadableError):
            session.license_files.forget(unless_of=key)
    session.remember_key(key)
    return license_


def forget_key(session: Session) -> None:
    """Forget the key, and that it was good; not when updates were checked: that spares the server."""
    activations = session.activations
    while (activation := activations.find()) is not None:
        subject = activated_subject(session, activation, session.domain())
        names = {activation.license, subject.name} if activations.is_ours(activation) else set()
        activations.forget()
        # Last: a verify on its way looks for the activation after it has written.
        for name in names:
            forget_records(session, name)
        if activations.find() == activation:  # the disk lets nothing go
            break
    if session.settings.public_keys:
        session.license_files.forget()


def reset(session: Session) -> None:
    """Forget the key and its stored state, including unreadable state.

    Not the installation id, which would take another slot, nor a guard: uses to report, the highest signed
    version, the latest time seen (D-298).
    """
    settings, names = session.settings, set[str]()
    with suppress(StateUnreadableError):
        activation = session.activations.find()
        if activation is not None and session.activations.is_ours(activation):
            names = {activation.license, call_name(Subject(None, "", activation.license))}
            names |= {activation.round, of_channels(session, activation.round)} if activation.round else set()
        forget_key(session)
    session.activations.drop_unreadable()
    if settings.slug is not None:
        names |= {record_name(kind, settings.server, settings.slug) for kind in _OF_THE_APP}
    for name in names:
        session.storage.change(name, Put(None))
    session.failure = LastFailure()
    if settings.public_keys:
        session.license_files.forget()
    session.activations.find()  # raises if it could not be removed either


def deactivate(session: Session, typed: str | None) -> Flow[None]:
    """Free the slot of this computer, then forget the key; when that fails, the key stays."""
    settings = session.settings
    session.activations.ask_again()
    key, subject = session.license(typed)
    session.license_file(key)  # before the slot is free: the key to forget must be readable
    with session.lock(call_name(subject)) as lock:  # a verify on its way would take the slot again
        yield from wait_for(lock)
        call = deactivate_call(settings, key, subject.domain)
        attempt = yield from send_with_retries(call, lock.left(settings.timeout.total_seconds()))
        if isinstance(attempt.result, ServiceUnavailableError):
            raise attempt.result
        if (problem := responses.read_deactivate(attempt.result, key)) is not None:
            problem = responses.note_origin(problem, attempt.result, key)
            debug("The slot is not free: %s", describe(problem))
            raise problem
        forget_records(session, subject.name)
        if session.license_file(key) is not None:  # its slot is free
            session.license_files.forget()
        remembered = session.activations.find()
        if remembered is not None and session.activations.key_of(remembered) == key:
            forget_key(session)
