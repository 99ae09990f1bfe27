"""The key of this computer: activate it, forget it, answer for it, and describe its license."""

from typing import TYPE_CHECKING, Final

from licclient._flows.context import Context
from licclient._flows.runners import Flow
from licclient._flows.updates import remembered_offer
from licclient._flows.verification import (
    check_name,
    find_activation,
    find_subject,
    forget_records,
    installation_domain,
    last_outcome,
    verify,
)
from licclient._keyring import QUICK_SECONDS
from licclient._model import License
from licclient._policy import recall, settle
from licclient.errors import MistypedKeyError, ServiceUnavailableError

if TYPE_CHECKING:
    from licclient._status import LicenseStatus

_NOT_ASKED: Final = "The license service has not been asked yet."


def activate(context: Context, typed: str) -> Flow[License]:
    """Verify a key that a person entered, and remember it when it is good (D-57).

    Raises:
        MistypedKeyError: It cannot be a key.
        LicclientError: As `verify`.
    """
    from licclient._typed_key import Mistyped, repair_key  # noqa: PLC0415 - needed for typed keys only

    key = repair_key(typed)
    if isinstance(key, Mistyped):
        raise MistypedKeyError(key.flaw, key.detail)
    found = yield from verify(context, key, force=False)
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


def remembered_license(context: Context) -> tuple[License | None, bool]:
    """Answer for the activated key without a call, grace included (D-59).

    Returns:
        The license, if what is remembered holds, and whether the server is to be asked.

    Raises:
        NotActivatedError: No key was activated.
        LicenseRefusedError: It was refused less than a minute ago (D-119).
    """
    settings, now = context.settings, context.now()
    subject = find_subject(context, None, find_activation(context), installation_domain(context))
    held = context.successes.find_marked(subject, now)
    if (fresh := recall(held, now, settings)) is not None:
        return fresh, False
    found = settle(ServiceUnavailableError(_NOT_ASKED), held, now, settings).result
    if isinstance(found, License):
        return found, True
    from licclient._status import refused_lately  # noqa: PLC0415 - not for an answer from the cache

    if (refusal := refused_lately(last_outcome(context, subject), now, settings)) is not None:
        raise refusal
    return None, True


def status(context: Context) -> "LicenseStatus":
    """Describe the license of the activated key, from what is remembered."""
    from licclient._status import LicenseState, LicenseStatus, judge_status  # noqa: PLC0415 - to show it

    found = context.activations.find()
    if found is None:
        return LicenseStatus(LicenseState.NOT_ACTIVATED)
    subject = find_subject(context, None, found, installation_domain(context), QUICK_SECONDS)
    return judge_status(
        context.successes.find(subject),
        last_outcome(context, subject),
        context.now(),
        context.settings,
        key_hint=found.hint,
        update=remembered_offer(context, found),
    )


def pinned_keys(context: Context) -> tuple[str, ...]:
    """Name the keys of which one must sign responses, and those of which one must sign releases."""
    settings = context.settings
    responses = [f"answers {key.id}" for key in settings.public_keys]
    return (*responses, *(f"updates {key.id}" for key in settings.release_keys))
