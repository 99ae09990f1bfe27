"""The key of this computer: activate it, forget it, answer for it, and describe its license."""

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._activation import QUICK_SECONDS
from licclient._computer import hash_machine, read_machine_id
from licclient._flows.context import Context
from licclient._flows.runners import Flow, send_with_retries
from licclient._flows.updates import NOT_CHECKED, remembered_check
from licclient._flows.verification import (
    ask,
    call_lock,
    call_name,
    check_name,
    find_activation,
    find_key,
    find_subject,
    forget_records,
    installation_domain,
    last_outcome,
    license_or_raise,
    verify,
    wait_for,
)
from licclient._model import License, Reason
from licclient._policy import fall_back, recall
from licclient._protocol.requests import deactivate_call
from licclient.errors import LicclientError, LicenseRefusedError, MistypedKeyError, ServiceUnavailableError

if TYPE_CHECKING:
    from licclient._status import LicenseStatus

_NOT_ASKED: Final = "The license service has not been asked yet."


def activate(context: Context, typed: str) -> Flow[License]:
    """Verify a key that a person entered, and remember it when it is good (D-57)."""
    from licclient._typed_key import Mistyped, repair_key  # noqa: PLC0415 - needed for typed keys only

    key = repair_key(typed)
    if isinstance(key, Mistyped):
        raise MistypedKeyError(key.flaw, key.detail)
    found = yield from verify(context, key, force=False)
    if context.settings.public_keys:  # the person has another license now
        context.license_files.forget(unless_of=key)
    remember_key(context, key)
    return found


def start_trial(context: Context) -> Flow[License]:
    """Request the key of this computer's trial, then verify and remember it as `activate` does."""
    from licclient._protocol.extensions import read_trial, trial_call  # noqa: PLC0415 - rarely needed

    settings = context.settings
    if settings.slug is None:
        raise ValueError("a trial needs slug= when the client is made")
    # A storage for tests is a computer of its own.
    machine_id = getattr(context.storage, "machine_id", None) or read_machine_id()
    domain = installation_domain(context)
    machine = hash_machine(settings.slug, machine_id or domain)
    unknown = LicenseRefusedError(Reason.TRIAL_NOT_OFFERED, "This license service has no trials.")
    call = trial_call(settings, settings.slug, machine, domain)
    key = yield from ask(context, call, read_trial, unknown=unknown)
    if isinstance(key, LicclientError):
        raise key
    found = yield from verify(context, key, force=True)
    remember_key(context, key)
    return found


def remember_key(context: Context, key: str) -> None:
    """Remember a key that was found good."""
    domain, slug = installation_domain(context), context.settings.slug
    checks = None if slug is None else check_name(context, key, slug)
    context.activations.remember(key, domain, context.successes.subject(key, domain).name, checks)


def forget_key(context: Context) -> None:
    """Forget the key, and that it was good; not when updates were checked: that spares the server."""
    activations = context.activations
    while (found := activations.find()) is not None:
        subject = find_subject(context, None, found, installation_domain(context))
        names = {found.license, subject.name} if activations.is_ours(found) else set()
        activations.forget()
        # Last: a verify on its way looks for the activation after it has written.
        for name in names:
            forget_records(context, name)
        if activations.find() == found:  # the disk lets nothing go
            break
    if context.settings.public_keys:
        context.license_files.forget()


def deactivate(context: Context, typed: str | None) -> Flow[None]:
    """Free the slot of this computer, then forget the key; when that fails, the key stays."""
    from licclient._protocol.responses import read_deactivate  # noqa: PLC0415 - rarely needed

    settings = context.settings
    context.activations.ask_again()
    key, subject = find_key(context, typed)
    with call_lock(context, call_name(subject)) as lock:  # a verify on its way would take the slot again
        yield from wait_for(lock)
        call = deactivate_call(settings, key, subject.domain)
        attempt = yield from send_with_retries(call, lock.left(settings.timeout.total_seconds()))
        if isinstance(attempt.result, ServiceUnavailableError):
            raise attempt.result
        if (problem := read_deactivate(attempt.result, key)) is not None:
            raise problem
        forget_records(context, subject.name)
        if context.license_file(key) is not None:  # its slot is free
            context.license_files.forget()
        remembered = context.activations.find()
        if remembered is not None and context.activations.key_of(remembered) == key:
            forget_key(context)


def remembered_license(context: Context) -> tuple[License | None, bool]:
    """Return the license if it holds without a call, grace included (D-59), and whether to ask the server.

    Raises:
        NotActivatedError: No key was activated.
        LicenseRefusedError: It was refused less than a minute ago (D-119).
    """
    settings, now = context.settings, context.now()
    file, activation = context.license_file(), context.activations.find()
    if file is not None and (activation is None or isinstance(file.result, License)):
        return license_or_raise(file.result), False
    subject = find_subject(context, None, find_activation(context), installation_domain(context))
    held = context.successes.find_marked(subject, now)
    if (fresh := recall(held, now, settings)) is not None:
        return fresh, False
    found = fall_back(ServiceUnavailableError(_NOT_ASKED), held, now, settings)
    if isinstance(found, License):
        return found, True
    from licclient._status import refused_lately  # noqa: PLC0415 - not for an answer from the cache

    if (refusal := refused_lately(last_outcome(context, subject), now, settings)) is not None:
        raise refusal
    return None, True


def status(context: Context) -> "LicenseStatus":
    """Describe the license of the activated key, from what is remembered."""
    from licclient._status import LicenseState, LicenseStatus, describe_file, judge_status  # noqa: PLC0415 - to show it

    found, file = context.activations.find(), context.license_file()
    check = NOT_CHECKED if found is None else remembered_check(context, found)
    if file is not None and (found is None or isinstance(file.result, License)):
        return replace(
            describe_file(file, context.now(), check.update), is_update_required=check.is_update_required
        )
    if found is None:
        return LicenseStatus(LicenseState.NOT_ACTIVATED)
    subject = find_subject(context, None, found, installation_domain(context), QUICK_SECONDS)
    known = judge_status(
        context.successes.find(subject),
        last_outcome(context, subject),
        context.now(),
        context.settings,
        key_hint=found.hint,
        update=check.update,
    )
    return replace(known, is_update_required=check.is_update_required)


def request_file(context: Context) -> str:
    """Return the request for a license file for this installation."""
    from licclient._signatures.license_files import write_request  # noqa: PLC0415 - rarely needed

    _demand_pinned_keys(context)
    settings = context.settings
    return write_request(installation_domain(context), settings.slug or "", settings.version or "")


def install_file(context: Context, file: "bytes | str | PathLike[str]") -> License:
    """Install a license file; errors are those of `LicenseClient.install_license_file`."""
    _demand_pinned_keys(context)
    if not isinstance(file, bytes):
        from licclient._signatures.license_files import MAX_FILE  # noqa: PLC0415 - as above

        with Path(file).open("rb") as opened:
            file = opened.read(MAX_FILE + 1)
    return context.license_files.install(file, context.now())


def _demand_pinned_keys(context: Context) -> None:
    if not context.settings.public_keys:
        raise ValueError(
            "license files need public_keys: pin the keys that `licserver signing-key public` prints"
        )
