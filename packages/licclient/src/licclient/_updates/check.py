"""Check for updates, renew the link of a download, and remember what a person skipped."""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._core.activations import Activation
from licclient._core.arguments import check_flag
from licclient._core.computer import is_rolled_back, is_running, list_rolled_back, own_platform
from licclient._core.lazy import lazy
from licclient._core.log import debug, describe
from licclient._core.model import Reason
from licclient._core.policy import (
    begin_update_check,
    end_update_check,
    is_below,
    is_check_due,
    is_link_good,
    is_newer,
    is_offer,
    is_version,
    latest_uncovered,
)
from licclient._core.records import Document, Put, read_update_check, record_name, write_update_check
from licclient._core.requests import is_safe_link, tidy_key, update_call
from licclient._core.runners import Flow, Send
from licclient._core.session import Session, check_name, no_key, of_channels, read_key
from licclient._core.storage import read_with_retries
from licclient._core.update_model import Listing, Manifest, Update, UpdateCheck, UpdateCheckRecord
from licclient._updates.attempts import (
    CODE,
    attempt_name,
    is_held_back,
    is_same_version,
    read_attempt,
    read_exit_code,
)
from licclient._updates.rollbacks import is_settled, note_report, read_reports, report_call
from licclient._updates.signed_releases import RequestedFile, SignedReleases
from licclient.errors import (
    LicclientError,
    LicenseRefusedError,
    NotActivatedError,
    ServiceUnavailableError,
    StateUnreadableError,
    UntrustedResponseError,
)

if TYPE_CHECKING:
    import logging
    import random

    from licclient._core import responses
    from licclient._core.model import Settings
    from licclient._core.settings import ClientSettings
else:
    responses = lazy("licclient._core.responses")
    logging = lazy("logging")
    random = lazy("random")

_NEVER_ANSWERED: Final = (
    "The last update check got no answer, and the next one is not due yet; force it to check now."
)


_SUPPORT_OVER: Final = UpdateCheck(None, "The support period is over, so no newer version is offered.")

NOT_CHECKED: Final = UpdateCheck(None, "No update check has been made yet.")


def check_for_update(session: Session, typed: str | None, *, force: bool) -> Flow[UpdateCheck]:
    """Return what the server offers, or what it offered when it was last asked."""
    check_flag("force", force)
    try:
        return (yield from _check(session, typed, force=force))
    except StateUnreadableError as problem:
        return _error_result(problem)


def _check(session: Session, typed: str | None, *, force: bool) -> Flow[UpdateCheck]:
    slug, version = installed_version(session.settings)
    if not force and typed is None and (earlier_result := _known_result(session, version)) is not None:
        return _log_result(earlier_result)
    if force:
        session.activations.ask_again()
    key = _activated_key(session) if typed is None else tidy_key(typed)
    if isinstance(key, LicclientError):
        return _error_result(key)
    name = of_channels(session, check_name(session, key, slug))
    if not _begin_check(session, name, force=force):
        return _log_result(_remembered_result(session, name, version))
    answer = yield from _request_offer(
        session, key, slug, session.settings.timeout.total_seconds(), force=force
    )
    if session.settings.report_rollbacks and not isinstance(answer, ServiceUnavailableError):
        with suppress(StateUnreadableError):
            yield from _report_rollbacks(session, key, slug)
    result = _evaluate_answer(session, answer, version, force=force)
    return _log_result(_require_minimum(result, read_update_check(session.storage.load(name)), version))


def _evaluate_answer(
    session: Session, answer: Listing | LicclientError, installed: str, *, force: bool
) -> UpdateCheck:
    if isinstance(answer, LicenseRefusedError):
        return _refusal_result(answer, session)
    if isinstance(answer, LicclientError):
        return _error_result(answer)
    if answer.download_url is None:
        return _uncovered_result(_SUPPORT_OVER, answer.version, installed)
    if not is_offer(answer, installed):
        if not is_version(installed):
            logging.getLogger("licclient").warning(_version_notice(installed))
        return _no_update_result(installed, answer)
    return _offer_result(session, _create_update(answer, session.now()), installed, force=force)


def installed_version(settings: "Settings | ClientSettings") -> tuple[str, str]:
    """Return slug and version of the application; raise `ValueError` if the client was made without one."""
    slug, version = settings.slug, settings.version
    if slug is None or version is None:
        missing = " and ".join(name for name in ("slug", "version") if getattr(settings, name) is None)
        example = f"LicenseClient(…, slug={slug or 'notes-pro'!r}, version={version or '1.4.0'!r})"
        raise ValueError(f"updates need a client that is created with {missing}: {example}")
    return slug, version


def _known_result(session: Session, installed: str) -> UpdateCheck | None:
    """Answer for the activated key without waking its keyring; None when a check is due, or may be."""
    activation = session.activations.find()
    name = None if activation is None else checks_of(session, activation)
    if activation is None or name is None:
        return None
    if is_check_due(read_update_check(session.storage.load(name)), session.now(), session.settings):
        return None
    return _remembered_result(session, name, installed)


def checks_of(session: Session, activation: Activation) -> str | None:
    """Name the record of the activated key's update checks; None without one, or where it is unknown."""
    name, slug = activation.round, session.settings.slug
    if slug is not None and name is None and (key := session.activations.key_of(activation, 0)) is not None:
        name = check_name(session, key, slug)
    return None if name is None else of_channels(session, name)


def remembered_check(session: Session, activation: Activation) -> UpdateCheck:
    """Return what the last update check of the activated key came to."""
    name, version = checks_of(session, activation), session.settings.version
    if name is None or version is None:
        return NOT_CHECKED
    return _remembered_result(session, name, version)


def _remembered_result(session: Session, name: str, installed: str) -> UpdateCheck:
    last = read_update_check(session.storage.load(name))
    return _require_minimum(_evaluate_record(session, name, last, installed), last, installed)


def _evaluate_record(
    session: Session, name: str, last: UpdateCheckRecord | None, installed: str
) -> UpdateCheck:
    if last is None:
        return NOT_CHECKED
    offered = last.listing
    if offered is not None and is_newer(offered.version, installed, offered.channel):
        listing = session.part(SignedReleases).check(offered, session.now(), name)
        if isinstance(listing, LicclientError):
            return _error_result(listing)
        return _offer_result(session, _create_update(listing, None), installed)
    if not last.answered:
        return _error_result(ServiceUnavailableError(_NEVER_ANSWERED))
    if last.refusal is not None:
        refused = _refusal_result(LicenseRefusedError(*last.refusal), session)
        return replace(refused, message=f"The last update check was refused: {refused.message}")
    if last.is_support_over:
        return _uncovered_result(_SUPPORT_OVER, last.latest_version, installed)
    if offered is not None:
        return _no_update_result(installed, offered)
    return UpdateCheck(None, "The last update check found no newer version.")


def _begin_check(session: Session, name: str, *, force: bool) -> bool:
    """Note an attempt before it is made; False when none is due, or not any more."""
    now = session.now()
    if not force and not is_check_due(read_update_check(session.storage.load(name)), now, session.settings):
        return False
    is_claimed = False

    def claim(document: Document | None) -> Document | None:
        nonlocal is_claimed
        last = read_update_check(document)
        is_claimed = force or is_check_due(last, now, session.settings)
        return write_update_check(begin_update_check(last, now, _random_spread())) if is_claimed else document

    session.storage.change(name, claim)
    return is_claimed


def _request_offer(
    session: Session, key: str, slug: str, seconds: float, *, force: bool
) -> Flow[Listing | LicclientError]:
    """Ask the server what it offers, and remember it (D-47, D-48).

    What a person was offered on request is requested until it is installed: to be offered less again would
    look as if the server had withdrawn it (D-68).
    """
    settings = session.settings
    _, installed = installed_version(session.settings)
    domain, requested = session.domain(), _requested_file(session)
    name = of_channels(session, check_name(session, key, slug))
    last = read_update_check(session.storage.load(name))
    listing = None if last is None else last.listing
    is_manual = force or (
        listing is not None and listing.is_manual and is_newer(listing.version, installed, listing.channel)
    )
    call = update_call(
        settings,
        key,
        slug,
        installed,
        domain,
        requested.platform,
        kind=requested.kind,
        is_manual=is_manual,
    )
    answer = yield from session.call(
        call, lambda reply: responses.read_update(reply, settings, slug, key), key, seconds=seconds
    )
    now = session.now()
    if isinstance(answer, Listing):
        answer = replace(answer, latest_version=latest_uncovered(answer))
    if isinstance(answer, Listing) and answer.download_url is not None:  # else nothing is offered
        answer = session.part(SignedReleases).check(
            replace(answer, is_manual=is_manual), now, name, requested
        )

    def remember(document: Document | None) -> Document | None:
        attempt = read_update_check(document) or begin_update_check(None, now, _random_spread())
        return write_update_check(end_update_check(attempt, answer))

    session.storage.change(name, remember)
    return answer


def _requested_file(session: Session) -> RequestedFile:
    return RequestedFile(own_platform(session.settings.platform), session.kind)


def _activated_key(session: Session) -> str | NotActivatedError | ServiceUnavailableError:
    activation = session.activations.find()
    if activation is None:
        return NotActivatedError()
    return session.activations.key_of(activation) or no_key()


def _report_rollbacks(session: Session, key: str, slug: str) -> Flow[None]:
    """Report each version that was rolled back or not installed here once, now or later (D-232)."""
    settings = session.settings
    name = record_name("reported", settings.server, slug)
    rolled_back = [(version, None) for version in list_rolled_back()]
    listed = dict([*rolled_back, *_list_failed(session, slug)])
    for version, code in listed.items():
        if version in read_reports(session.storage.load(name)).versions:
            continue
        domain, platform = session.domain(), own_platform(settings.platform)
        call = report_call(settings, key, slug, version, domain, platform, code)
        attempt = yield Send(call, settings.timeout.total_seconds())
        is_done = isinstance(attempt.result, responses.Reply) and is_settled(attempt.result)
        note = partial(note_report, version=version, listed=listed.keys(), is_settled=is_done)
        session.storage.change(name, note)
        if not is_done:
            return


def _list_failed(session: Session, slug: str) -> list[tuple[str, int | None]]:
    """Return the version whose set-up has ended here in vain, with its exit code; mostly none.

    A code that cannot be read now, such as while its script writes it, is reported by a later check.
    """
    attempt = read_attempt(session.load_optional(attempt_name(session.settings, slug)))
    if attempt is None or attempt.folder is None or session.settings.version is None:
        return []
    if is_same_version(attempt.version, session.settings.version):
        return []
    try:
        raw = read_with_retries(Path(attempt.folder, CODE))
    except OSError:
        return []
    return [] if raw is None else [(attempt.version, read_exit_code(raw.decode("ascii", "replace")))]


# --- results ----------------------------------------------------------------------------------


def _offer_result(session: Session, update: Update, installed: str, *, force: bool = False) -> UpdateCheck:
    """Return what a check found.

    Only a forced check offers a version that was rolled back (D-179), one whose installation was tried today
    (D-353), and a version that runs already but calls itself another: its file is a wrong one, and it would
    be installed again and again. The most certain of these reasons is given (D-408).
    """
    if not force and is_running(update.version):
        message = (
            f"Version {update.version} runs here, and calls itself {installed}, so it is offered only on"
            " request. The vendor has published the wrong file, or the wrong version number is in it."
        )
        return UpdateCheck(None, message)
    if not force and is_rolled_back(update.version):
        message = f"Version {update.version} was rolled back here, so it is offered only on request."
        return UpdateCheck(None, message)
    if not force and _is_held_back(session, update):
        message = (
            f"Version {update.version} was to be installed here today, so it is offered only on request."
        )
        return UpdateCheck(None, message)
    message = f"Version {update.version} is available."
    if update.latest_version is not None:
        message += f" The newest is {update.latest_version}, which the license does not cover."
    return UpdateCheck(update, message, latest_version=update.latest_version)


def _is_held_back(session: Session, update: Update) -> bool:
    document = session.load_optional(attempt_name(session.settings, update.slug))
    return document is not None and is_held_back(read_attempt(document), update.version, session.now())


def _error_result(error: LicclientError) -> UpdateCheck:
    return UpdateCheck(None, error.message, error)


def _refusal_result(error: LicenseRefusedError, session: Session) -> UpdateCheck:
    """Return a refusal; with the slug or the kind of file, if the reason may be a mistake in these."""
    hint = ""
    if error.reason in (Reason.UNKNOWN_PRODUCT, Reason.OTHER_PRODUCT):
        hint = f" The slug of this app is {session.settings.slug!r}."
    elif error.reason is Reason.NO_VERSION and session.kind is not None:
        hint = f" This app needs a file of the kind {session.kind.value!r}."
    return UpdateCheck(None, f"{error.message}{hint}", error)


def _require_minimum(check: UpdateCheck, last: UpdateCheckRecord | None, installed: str) -> UpdateCheck:
    """Add to a result that the installed version is below the lowest supported one, if it is (D-229)."""
    minimum = None if last is None else last.minimum_version
    if not is_below(installed, minimum):
        return check
    update = None if check.update is None else replace(check.update, is_required=True)
    message = f"{check.message} Versions below {minimum} are no longer supported: an update is required."
    return replace(check, update=update, message=message, is_update_required=True)


def _no_update_result(installed: str, offered: Listing) -> UpdateCheck:
    if is_below(installed, offered.latest_version):
        message = (
            f"The license covers version {offered.version}. The newest is {offered.latest_version}:"
            " renew the license to get it."
        )
        return _uncovered_result(UpdateCheck(None, message), offered.latest_version, installed)
    if is_below(offered.version, installed):
        newer = f"Version {installed} is newer than {offered.version}"
        if offered.latest_version is not None:
            message = f"{newer}, which the license covers. Renew the license to get later versions."
        else:
            message = f"{newer}, the highest that is offered here."
            message += " A higher one will be offered when it is published."
        return UpdateCheck(None, message, is_ahead=True, latest_version=offered.latest_version)
    if is_version(installed):
        return UpdateCheck(None, f"Version {installed} is up to date.")
    return UpdateCheck(None, _version_notice(installed))


def _uncovered_result(check: UpdateCheck, latest: str | None, installed: str) -> UpdateCheck:
    """Add to a result the newest version, if it is above the installed one."""
    return replace(check, latest_version=latest) if is_below(installed, latest) else check


def _version_notice(installed: str) -> str:
    return f"Version {installed} is not a version of PEP 440, so no update is ever offered."


def _log_result(check: UpdateCheck) -> UpdateCheck:
    """Log what a check that raises nothing hides: a response that may be an attack."""
    if isinstance(check.error, UntrustedResponseError):
        logging.getLogger("licclient").warning("No update is offered: %s", check.error)
    debug("Update check: %s", describe(check.error) if check.error else check.message)
    return check


def _random_spread() -> float:
    return random.random()


def _create_update(listing: Listing, offered_at: datetime | None) -> Update:
    signed = listing.signed
    return Update(
        name=listing.name,
        slug=listing.slug,
        version=listing.version,
        changelog=listing.changelog,
        last_updated=listing.last_updated,
        download_url=listing.download_url,
        offered_at=offered_at,
        size=signed.size if signed else None,
        is_authenticated=signed is not None,
        manifest=listing.manifest,
        is_critical=listing.is_critical,
        latest_version=listing.latest_version,
        updates_until=listing.updates_until,
        is_security=listing.is_security,
        advisory=listing.advisory,
        cves=listing.cves,
        kind=listing.kind,
    )


# --- what a person skipped -----------------------------------------------------------------------


def skip_update(session: Session, update: Update) -> None:
    """Remember the one version that is not to be offered unasked (D-87)."""
    session.storage.change(_skipped_name(session, update), Put({"version": update.version}))


def is_skipped(session: Session, update: Update) -> bool:
    """Return whether this is the version that was skipped last; to the letter.

    Never an important one, or a fix of a vulnerability.

    True also when that cannot be read: a window that was not asked for must not open by mistake.
    """
    name, is_pressing = _skipped_name(session, update), update.is_critical or update.is_security
    try:
        document = session.storage.load(name)
    except StateUnreadableError:
        return not is_pressing
    return document is not None and document.get("version") == update.version and not is_pressing


def check_update(update: object) -> None:
    """Raise `TypeError` unless it is an `Update`."""
    if not isinstance(update, Update):
        hint = ": pass check.update" if isinstance(update, UpdateCheck) else ""
        raise TypeError(
            f"update must be an Update, of check_for_update or on_update, not {type(update).__name__}{hint}"
        )


def _skipped_name(session: Session, update: Update) -> str:
    check_update(update)
    return record_name("skipped", session.settings.server, update.slug)


# --- for a download ---------------------------------------------------------------------------


def renew_link(session: Session, update: Update, key: str, seconds: float) -> Flow[Listing]:
    """Ask for a fresh link to a file; counts as an update check, which is never too early here.

    Raise `LicenseRefusedError` also if support is over, or the version is no longer offered.
    """
    _, installed = installed_version(session.settings)
    _begin_check(session, of_channels(session, check_name(session, key, update.slug)), force=True)
    answer = yield from _request_offer(session, key, update.slug, seconds, force=False)
    if isinstance(answer, LicclientError):
        _log_result(_error_result(answer))
        raise answer
    if answer.download_url is None:
        raise LicenseRefusedError(
            Reason.SUPPORT_ENDED, "The support period is over, so there is nothing to download."
        )
    if not is_offer(answer, installed):
        raise LicenseRefusedError(Reason.NO_VERSION, "The version is no longer offered.")
    return answer


def find_offer_key(session: Session, typed: str | None) -> str | LicclientError:
    """Return the key that an offer was made to: the one that was typed, or the activated one (D-118)."""
    return _activated_key(session) if typed is None else read_key(typed)


def offered_file(
    session: Session, update: Update, key: str | LicclientError
) -> tuple[str | None, Manifest | None]:
    """Return the link of an offer, None if a fresh one is needed, and what the vendor signed."""
    installed_version(session.settings)
    link, now = update.download_url, session.now()
    if not is_link_good(update.offered_at, now) or not is_safe_link(link or "", session.settings):
        link = None  # D-48
    # Without the key, as behind a locked keyring, nothing is known of what it was offered before.
    checks = of_channels(session, check_name(session, key if isinstance(key, str) else "", update.slug))
    # Without a pinned key nothing asks how this app was installed.
    requested = _requested_file(session) if session.settings.release_keys else None
    expected = session.part(SignedReleases).expected(update, now, checks, requested)
    if session.settings.release_keys and expected is None:
        link = None  # a fresh one comes with a fresh manifest
    return link, expected
