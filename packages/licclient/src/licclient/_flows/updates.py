"""Check for updates, renew the link of a download, and remember what a person skipped."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from licclient._activation import Activation
from licclient._computer import is_rolled_back, list_rolled_back, own_platform
from licclient._flows.context import Context
from licclient._flows.runners import Flow, Send
from licclient._flows.verification import NO_KEY, ask, check_name, installation_domain, of_channels, read_key
from licclient._model import Listing, Manifest, Reason, Round, Update
from licclient._policy import (
    begin_round,
    end_round,
    is_below,
    is_due,
    is_link_good,
    is_newer,
    is_offer,
    is_version,
)
from licclient._protocol.requests import is_safe_link, tidy_key, update_call
from licclient._records import Document, read_round, record_name, write_round
from licclient.errors import (
    LicclientError,
    LicenseRefusedError,
    NotActivatedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)

if TYPE_CHECKING:
    from licclient._model import Settings
    from licclient._settings import ClientSettings

_NEVER_ANSWERED: Final = (
    "The last update check got no answer, and the next one is not due yet; force it to check now."
)


_KEPT_REPORTS: Final = 50
"""Rolled-back versions that are remembered as reported."""


@dataclass(frozen=True, slots=True)
class UpdateCheck:
    """Result of an update check.

    Attributes:
        update: The newer version, or None.
        message: In English, such as `Version 2.0 is up to date.`; `explain` translates.
        error: Why it is unknown whether there is a newer version; None when it is known.
        is_update_required: Whether the installed version is below the lowest that the vendor supports, as far
            as is known; also when there is nothing to download (D-229).
        is_ahead: Whether the installed version is above what is offered, as after leaving a channel. A higher
            one is waited for (D-228).
    """

    update: Update | None
    message: str
    error: LicclientError | None = None
    is_update_required: bool = False
    is_ahead: bool = False


NOT_CHECKED: Final = UpdateCheck(None, "No update check has been made yet.")


def check_for_update(context: Context, typed: str | None, *, force: bool) -> Flow[Update | None]:
    """Return what the server offers, or what it offered when it was last asked (D-46).

    `context.last_update_check` then has the reason for None.
    """
    found = yield from _check(context, typed, force=force)
    context.last_update_check = found
    return found.update


def _check(context: Context, typed: str | None, *, force: bool) -> Flow[UpdateCheck]:
    slug, version = installed_version(context.settings)
    if not force and typed is None and (known := _known_result(context, version)) is not None:
        return _logged(known)
    if force:
        context.activations.ask_again()
    key = _activated_key(context) if typed is None else tidy_key(typed)
    if isinstance(key, LicclientError):
        return _failed(key)
    name = of_channels(context, check_name(context, key, slug))
    if not _claim(context, name, force=force):
        return _logged(_remembered_result(context, name, version, key))
    answer = yield from _ask(context, key, slug, context.settings.timeout.total_seconds(), force=force)
    if context.settings.report_rollbacks and not isinstance(answer, ServiceUnavailableError):
        yield from _report_rollbacks(context, key, slug)
    result = _judge(answer, version, key, context.now(), force=force)
    return _logged(_require_minimum(result, read_round(context.storage.load(name)), version))


def _judge(
    answer: Listing | LicclientError, installed: str, key: str, now: datetime, *, force: bool
) -> UpdateCheck:
    if isinstance(answer, LicclientError):
        return _failed(answer)
    if answer.download_url is None:
        return UpdateCheck(None, "The support period is over, so no newer version is offered.")
    if not is_offer(answer, installed):
        return _not_newer(installed, answer.version)
    update = _update(answer, key, now)
    return _found(update, force=force)


def installed_version(settings: "Settings | ClientSettings") -> tuple[str, str]:
    """Return slug and version of the application; raise `ValueError` if the client was made without one."""
    slug, version = settings.slug, settings.version
    if slug is None or version is None:
        missing = " and ".join(name for name in ("slug", "version") if getattr(settings, name) is None)
        example = f"LicenseClient(…, slug={slug or 'notes-pro'!r}, version={version or '1.4.0'!r})"
        raise ValueError(f"updates need a client that is created with {missing}: {example}")
    return slug, version


def _known_result(context: Context, installed: str) -> UpdateCheck | None:
    """Answer for the activated key without waking its keyring; None when a check is due, or may be."""
    found = context.activations.find()
    name = None if found is None else checks_of(context, found)
    if found is None or name is None:
        return None
    if is_due(read_round(context.storage.load(name)), context.now(), context.settings):
        return None
    return _remembered_result(context, name, installed, context.activations.key_of(found, 0))


def checks_of(context: Context, found: Activation) -> str | None:
    """Name the record of the activated key's update checks; None when there is none, or nobody knows."""
    name, slug = found.round, context.settings.slug
    if slug is not None and name is None and (key := context.activations.key_of(found, 0)) is not None:
        name = check_name(context, key, slug)
    return None if name is None else of_channels(context, name)


def remembered_check(context: Context, found: Activation) -> UpdateCheck:
    """Return what the last update check of the activated key came to."""
    name, version = checks_of(context, found), context.settings.version
    if name is None or version is None:
        return NOT_CHECKED
    return _remembered_result(context, name, version, context.activations.key_of(found, 0))


def _remembered_result(context: Context, name: str, installed: str, key: str | None) -> UpdateCheck:
    last = read_round(context.storage.load(name))
    return _require_minimum(_judge_round(context, last, installed, key), last, installed)


def _judge_round(context: Context, last: Round | None, installed: str, key: str | None) -> UpdateCheck:
    offered = None if last is None else last.listing
    if offered is not None and is_newer(offered.version, installed, offered.channel):
        listing = context.releases.check(offered, context.now())
        if isinstance(listing, LicclientError):
            return _failed(listing)
        return _found(_update(listing, key or "", None))
    if last is not None and not last.answered:
        return _failed(ServiceUnavailableError(_NEVER_ANSWERED))
    if offered is not None and is_below(offered.version, installed):
        return _not_newer(installed, offered.version)
    return UpdateCheck(None, "The last update check found no newer version.")


def _claim(context: Context, name: str, *, force: bool) -> bool:
    """Count an attempt before it is made; False when none is due, or not any more (D-46)."""
    now = context.now()
    if not force and not is_due(read_round(context.storage.load(name)), now, context.settings):
        return False
    is_claimed = False

    def claim(document: Document | None) -> Document | None:
        nonlocal is_claimed
        last = read_round(document)
        is_claimed = force or is_due(last, now, context.settings)
        return write_round(begin_round(last, now, _jitter())) if is_claimed else document

    context.storage.change(name, claim)
    return is_claimed


def _ask(
    context: Context, key: str, slug: str, seconds: float, *, force: bool
) -> Flow[Listing | LicclientError]:
    """Ask the server what it offers, and remember it (D-47, D-48).

    What a person was offered on request is requested until it is installed: to be offered less again would
    look as if the server went back (D-68).
    """
    settings = context.settings
    _, installed = installed_version(context.settings)
    domain, platform = installation_domain(context), own_platform(settings.platform)
    name = of_channels(context, check_name(context, key, slug))
    last = read_round(context.storage.load(name))
    known = None if last is None else last.listing
    is_manual = force or (
        known is not None and known.is_manual and is_newer(known.version, installed, known.channel)
    )
    call = update_call(settings, key, slug, installed, domain, platform, is_manual=is_manual)
    from licclient._protocol.responses import read_update  # noqa: PLC0415 - after a call

    answer = yield from ask(
        context, call, lambda reply: read_update(reply, settings, slug, key), seconds=seconds
    )
    now = context.now()
    if isinstance(answer, Listing) and answer.download_url is not None:  # else nothing is offered
        answer = context.releases.check(replace(answer, is_manual=is_manual), now)

    def remember(document: Document | None) -> Document | None:
        attempt = read_round(document) or begin_round(None, now, _jitter())
        return write_round(end_round(attempt, answer))

    context.storage.change(name, remember)
    return answer


def _activated_key(context: Context) -> str | NotActivatedError | ServiceUnavailableError:
    found = context.activations.find()
    if found is None:
        return NotActivatedError()
    return context.activations.key_of(found) or ServiceUnavailableError(NO_KEY)


def _report_rollbacks(context: Context, key: str, slug: str) -> Flow[None]:
    """Report each version that was rolled back here once, now or after a later check (D-232)."""
    from licclient._protocol.extensions import is_settled, report_call  # noqa: PLC0415 - for apps that report them
    from licclient._protocol.responses import Reply  # noqa: PLC0415 - as above

    settings = context.settings
    name = record_name("reported", settings.server, slug)
    for version in list_rolled_back():
        if version in _reported(context.storage.load(name)):
            continue
        domain, platform = installation_domain(context), own_platform(settings.platform)
        call = report_call(settings, key, slug, version, domain, platform)
        attempt = yield Send(call, settings.timeout.total_seconds())
        if not isinstance(attempt.result, Reply) or not is_settled(attempt.result):
            return

        def remember(document: Document | None, reported: str = version) -> Document:
            return {"versions": [*_reported(document), reported][-_KEPT_REPORTS:]}

        context.storage.change(name, remember)


def _reported(document: Document | None) -> list[str]:
    found = (document or {}).get("versions")
    return found if isinstance(found, list) else []


# --- results ----------------------------------------------------------------------------------


def _found(update: Update, *, force: bool = False) -> UpdateCheck:
    """Return what a check found; only one that a person asked for, a version that was rolled back (D-179)."""
    if not force and is_rolled_back(update.version):
        message = f"Version {update.version} was rolled back here, so it is offered only on request."
        return UpdateCheck(None, message)
    return UpdateCheck(update, f"Version {update.version} is available.")


def _failed(error: LicclientError) -> UpdateCheck:
    return UpdateCheck(None, error.message, error)


def _require_minimum(check: UpdateCheck, last: Round | None, installed: str) -> UpdateCheck:
    """Add to a result that the installed version is below the lowest supported one, if it is (D-229)."""
    minimum = None if last is None else last.minimum_version
    if not is_below(installed, minimum):
        return check
    update = None if check.update is None else replace(check.update, is_required=True)
    message = f"{check.message} Versions below {minimum} are no longer supported: an update is required."
    return replace(check, update=update, message=message, is_update_required=True)


def _not_newer(installed: str, offered: str) -> UpdateCheck:
    if is_below(offered, installed):
        message = (
            f"Version {installed} is newer than {offered}, the highest that is offered here. "
            "A higher one will be offered when it is published."
        )
        return UpdateCheck(None, message, is_ahead=True)
    if is_version(installed):
        return UpdateCheck(None, f"Version {installed} is up to date.")
    import logging  # noqa: PLC0415 - for this alone

    message = f"Version {installed} is not a version of PEP 440, so no update is ever offered."
    logging.getLogger("licclient").warning(message)
    return UpdateCheck(None, message)


def _logged(check: UpdateCheck) -> UpdateCheck:
    """Log what a check that raises nothing hides: a response that may be an attack."""
    if isinstance(check.error, UntrustedResponseError):
        import logging  # noqa: PLC0415 - for this alone

        logging.getLogger("licclient").warning("No update is offered: %s", check.error)
    return check


def _jitter() -> float:
    import random  # noqa: PLC0415 - most starts ask nobody

    return random.random()  # noqa: S311 - so that not all installations ask in the same minute


def _update(listing: Listing, key: str, offered_at: datetime | None) -> Update:
    return Update(
        name=listing.name,
        slug=listing.slug,
        version=listing.version,
        changelog=listing.changelog,
        last_updated=listing.last_updated,
        license_key=key,
        download_url=listing.download_url,
        offered_at=offered_at,
        size=listing.vouched.size if listing.vouched else None,
        authenticated=listing.vouched is not None,
        manifest=listing.manifest,
        is_critical=listing.is_critical,
    )


# --- what a person skipped -----------------------------------------------------------------------


def skip_update(context: Context, update: Update) -> None:
    """Remember the one version that is not to be offered unasked (D-87)."""
    context.storage.change(_skipped_name(context, update), lambda _: {"version": update.version})


def is_skipped(context: Context, update: Update) -> bool:
    """Return whether this is the version that was skipped last; to the letter, and never an important one."""
    document = context.storage.load(_skipped_name(context, update))
    return document is not None and document.get("version") == update.version and not update.is_critical


def check_update(update: object) -> None:
    """Raise `TypeError` unless it is an `Update`."""
    if not isinstance(update, Update):
        raise TypeError(f"update must be what check_for_update returned, not {type(update).__name__}")


def _skipped_name(context: Context, update: Update) -> str:
    check_update(update)
    return record_name("skipped", context.settings.server, update.slug)


# --- for a download ---------------------------------------------------------------------------


def renew_link(context: Context, update: Update, seconds: float) -> Flow[Listing]:
    """Ask for a fresh link to a file; counts as an update check, which is never too early here (D-48).

    Raise `LicenseRefusedError` also if support is over, or the version is no longer offered.
    """
    _, installed = installed_version(context.settings)
    key = key_of_offer(context, update)
    _claim(context, of_channels(context, check_name(context, key, update.slug)), force=True)
    answer = yield from _ask(context, key, update.slug, seconds, force=False)
    if isinstance(answer, LicclientError):
        _logged(_failed(answer))
        raise answer
    if answer.download_url is None:
        raise LicenseRefusedError(
            Reason.SUPPORT_ENDED, "The support period is over, so there is nothing to download."
        )
    if not is_offer(answer, installed):
        raise LicenseRefusedError(Reason.OTHER, "The version is no longer offered.")
    return answer


def key_of_offer(context: Context, update: Update) -> str:
    """Return the key that an offer was made to; fetched now if the offer was shown without it (D-118)."""
    key = update.license_key or _activated_key(context)
    if isinstance(key, LicclientError):
        raise key
    return read_key(key)


def offered_file(context: Context, update: Update) -> tuple[str | None, Manifest | None]:
    """Return the link of an offer, None if a fresh one is needed, and what the vendor signed."""
    installed_version(context.settings)
    link, now = update.download_url, context.now()
    if not is_link_good(update.offered_at, now) or not is_safe_link(link or "", context.settings):
        link = None  # D-48
    expected = context.releases.expected(update, now)
    if context.settings.release_keys and expected is None:
        link = None  # a fresh one comes with a fresh manifest
    return link, expected
