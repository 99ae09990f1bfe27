"""What both clients do before and after an update check and a download."""

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final

from licclient._activation import Activation
from licclient._flows.context import Context
from licclient._flows.verification import NO_KEY, check_name, installation_domain, read_key, with_nonce
from licclient._model import Listing, Manifest, Reason, Update
from licclient._policy import begin_round, end_round, is_due, is_link_good, is_newer, is_offer, is_version
from licclient._protocol.requests import Call, tidy_key, update_call
from licclient._protocol.responses import Reply
from licclient._records import Document, read_round, record_name, write_round
from licclient.errors import (
    InvalidRequestError,
    LicclientError,
    LicenseRefusedError,
    NotActivatedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)

if TYPE_CHECKING:
    from licclient._signatures.releases import SignedReleases

_NEVER_ANSWERED: Final = "The last update check got no answer, and the next one is not due yet."


@dataclass(frozen=True, slots=True)
class UpdateCheck:
    """Result of an update check.

    Attributes:
        update: The newer version, or None.
        message: In English, such as `Version 2.0 is up to date.`; `explain` translates.
        error: Why it is unknown whether there is a newer version; None when it is known.
    """

    update: Update | None
    message: str
    error: LicclientError | None = None


NOT_CHECKED: Final = UpdateCheck(None, "No update check has been made yet.")


def _found(update: Update) -> UpdateCheck:
    return UpdateCheck(update, f"Version {update.version} is available.")


def _unasked(update: Update) -> UpdateCheck:
    """Return what a check that nobody asked for found: not a version that was rolled back (D-179)."""
    from licclient._rolled_back import is_rolled_back  # noqa: PLC0415 - most starts offer nothing

    if is_rolled_back(update.version):
        return _none(f"Version {update.version} was rolled back here, so it is offered only on request.")
    return _found(update)


def _none(message: str) -> UpdateCheck:
    return UpdateCheck(None, message)


def _failed(error: LicclientError) -> UpdateCheck:
    return UpdateCheck(None, error.message, error)


@dataclass(frozen=True, slots=True)
class Fresh:
    """A fresh link, its version, and what the vendor signed about the file if release keys are pinned."""

    link: str = field(repr=False)
    expected: Manifest | None
    version: str


@dataclass(frozen=True, slots=True, repr=False)
class Asking:
    """An update check that has to be made; no repr, because it holds the license key."""

    key: str
    domain: str
    slug: str
    installed: str
    is_forced: bool = True
    """Whether somebody asked for this check, or a download needs it."""


class UpdateSteps:
    """The halves of update checks and downloads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.settings = context.settings

    def now(self) -> datetime:
        """Read the client's clock."""
        return self._context.now()

    @cached_property
    def _releases(self) -> "SignedReleases":
        from licclient._signatures.releases import SignedReleases  # noqa: PLC0415 - most starts offer nothing

        return SignedReleases(self.settings, self._context.storage)

    def begin_check(self, typed: str | None, *, force: bool) -> UpdateCheck | Asking:
        """Return the remembered result, or record an attempt and return what to request (D-46).

        Raises:
            ValueError: The client was built without `slug` or `version`.
        """
        slug, version = self._installed()
        known = None if force or typed is not None else self._known_offer(version)
        if known is None:
            if force:
                self._context.activations.ask_again()
            asking = self._asking_updates(typed, force=force)
            if isinstance(asking, LicclientError):
                return _failed(asking)
            if self._claim(asking, force=force):
                return asking
            known = self._remembered(check_name(self._context, asking.key, slug), version, asking.key)
        if known.error is not None:
            _log(known.error)
        return known

    def _known_offer(self, version: str) -> UpdateCheck | None:
        """Answer for the activated key without waking its keyring; None when a check is due, or may be."""
        found = self._context.activations.find()
        name = None if found is None else self._round_of(found)
        if found is None or name is None:
            return None
        if is_due(read_round(self._context.storage.load(name)), self._context.now(), self.settings):
            return None
        return self._remembered(name, version, self._context.activations.key_of(found, 0))

    def _round_of(self, found: Activation) -> str | None:
        """Name the record of the activated key's update checks; None when there is none, or nobody knows."""
        if self.settings.slug is None or found.round is not None:
            return found.round
        key = self._context.activations.key_of(found, 0)
        return None if key is None else check_name(self._context, key, self.settings.slug)

    def _claim(self, asking: Asking, *, force: bool) -> bool:
        """Count an attempt before it is made; False when none is due (any more) (D-46)."""
        name, now = check_name(self._context, asking.key, asking.slug), self._context.now()
        if not force and not is_due(read_round(self._context.storage.load(name)), now, self.settings):
            return False
        claimed = False

        def claim(document: Document | None) -> Document | None:
            nonlocal claimed
            last = read_round(document)
            claimed = force or is_due(last, now, self.settings)
            return write_round(begin_round(last, now, _spread())) if claimed else document

        self._context.storage.change(name, claim)
        return claimed

    def _remembered(self, round_name: str, installed: str, key: str | None) -> UpdateCheck:
        last = read_round(self._context.storage.load(round_name))
        if last is not None and last.listing is not None and is_newer(last.listing.version, installed):
            listing = self._releases.check(last.listing, self._context.now())
            if isinstance(listing, LicclientError):
                return _failed(listing)
            return _unasked(_update(listing, key or "", None))
        if last is not None and not last.answered:
            return _failed(ServiceUnavailableError(_NEVER_ANSWERED))
        return _none("No newer version was offered when it was last asked for.")

    def check_call(self, asking: Asking) -> Call:
        """Write the call that `begin_check` or `begin_link` asked for."""
        return with_nonce(
            self._context,
            update_call(self.settings, asking.key, asking.slug, asking.installed, asking.domain),
        )

    def end_check(self, asking: Asking, call: Call, reply: Reply | ServiceUnavailableError) -> UpdateCheck:
        """Read the reply, remember it, and return the result (D-47)."""
        answer = self._read_check(asking, call, reply)
        if isinstance(answer, LicclientError):
            _log(answer)
            return _failed(answer)
        if answer.download_url is None:
            return _none("The support period is over, so no newer version is offered.")
        if not is_offer(answer, asking.installed):
            return _not_newer(asking.installed)
        update = _update(answer, asking.key, self._context.now())
        return _found(update) if asking.is_forced else _unasked(update)

    def _read_check(
        self, asking: Asking, call: Call, reply: Reply | ServiceUnavailableError
    ) -> Listing | LicclientError:
        now = self._context.now()
        answer: Listing | LicclientError
        if isinstance(reply, ServiceUnavailableError):
            answer = reply
        else:
            from licclient._signatures.responses import read_trusted_update  # noqa: PLC0415 - after a call

            answer = read_trusted_update(call, reply, asking.slug, asking.key, self.settings, now)
            if isinstance(answer, Listing) and answer.download_url is not None:  # else nothing is offered
                answer = self._releases.check(answer, now)

        def remember(document: Document | None) -> Document | None:
            claimed = read_round(document) or begin_round(None, now, _spread())
            return write_round(end_round(claimed, answer))

        self._context.storage.change(check_name(self._context, asking.key, asking.slug), remember)
        return answer

    def _asking_updates(self, typed: str | None, *, force: bool) -> Asking | LicclientError:
        slug, version = self._installed()
        if typed is None:
            found = self._activated_key()
            if isinstance(found, LicclientError):
                return found
            typed = found
        key = tidy_key(typed)
        if isinstance(key, InvalidRequestError):
            return key
        return Asking(key, installation_domain(self._context), slug, version, force)

    def _activated_key(self) -> str | NotActivatedError | ServiceUnavailableError:
        found = self._context.activations.find()
        return (
            NotActivatedError()
            if found is None
            else self._context.activations.key_of(found) or ServiceUnavailableError(NO_KEY)
        )

    def key_for(self, update: Update) -> str:
        """Return the key that an offer was made to; fetched now if the offer was shown without it (D-118).

        Raises:
            NotActivatedError: The offer was remembered without its key, and that was forgotten meanwhile.
            ServiceUnavailableError: The same, and its keyring does not return it.
            InvalidRequestError: The update holds no key.
        """
        key = update.license_key or self._activated_key()
        if isinstance(key, LicclientError):
            raise key
        return read_key(key)

    def _installed(self) -> tuple[str, str]:
        if self.settings.slug is None or self.settings.version is None:
            raise ValueError("updates need slug= and version= when the client is made")
        return self.settings.slug, self.settings.version

    # --- skipping -----------------------------------------------------------------------------

    def skip(self, update: Update) -> None:
        """Remember the one version that is not to be offered unasked (D-87)."""
        self._context.storage.change(self._skipped_name(update), lambda _: {"version": update.version})

    def is_skipped(self, update: Update) -> bool:
        """Tell whether that is the version that was skipped last; to the letter."""
        document = self._context.storage.load(self._skipped_name(update))
        return document is not None and document.get("version") == update.version

    def _skipped_name(self, update: Update) -> str:
        from licclient._arguments import check_update  # noqa: PLC0415 - as above

        check_update(update)
        return record_name("skipped", self.settings.server, update.slug)

    # --- download -----------------------------------------------------------------------------

    def offered_file(self, update: Update) -> tuple[str | None, Manifest | None]:
        """Return the link of an offer, None if a fresh one is needed, and what the vendor signed.

        Raises:
            ValueError: The client was built without `slug` or `version`.
        """
        from licclient._protocol.links import is_safe_link  # noqa: PLC0415 - most starts download nothing

        self._installed()
        link, now = update.download_url, self._context.now()
        if not is_link_good(update.offered_at, now) or not is_safe_link(link or "", self.settings):
            link = None  # D-48
        expected = self._releases.expected(update, now)
        if self.settings.release_keys and expected is None:
            link = None  # a fresh one comes with a fresh manifest
        return link, expected

    def begin_link(self, update: Update) -> Asking:
        """Count an attempt, which is never too early here, and say what to ask for a fresh link (D-48).

        Raises:
            InvalidRequestError: The update holds no key.
        """
        _, installed = self._installed()
        asking = Asking(self.key_for(update), installation_domain(self._context), update.slug, installed)
        self._claim(asking, force=True)
        return asking

    def end_link(self, asking: Asking, call: Call, reply: Reply | ServiceUnavailableError) -> Fresh:
        """Take a fresh link out of what came back.

        Raises:
            LicenseRefusedError: The key is refused, support is over, or the version is no longer offered.
            InvalidRequestError: The server calls the request malformed.
            ServiceUnavailableError: No answer.
            UntrustedResponseError: No pinned key signed it, or the version that it tells.
        """
        answer = self._read_check(asking, call, reply)
        if isinstance(answer, LicclientError):
            raise answer
        if answer.download_url is None:
            raise LicenseRefusedError(
                Reason.SUPPORT_ENDED, "The support period is over, so there is nothing to download."
            )
        if not is_offer(answer, asking.installed):
            raise LicenseRefusedError(Reason.OTHER, "The version is no longer offered.")
        return Fresh(answer.download_url, answer.vouched, answer.version)


def _not_newer(installed: str) -> UpdateCheck:
    if is_version(installed):
        return _none(f"Version {installed} is up to date.")
    import logging  # noqa: PLC0415 - for this alone

    told = f"Version {installed} is none that PEP 440 can read, so no update is ever offered."
    logging.getLogger("licclient").warning(told)
    return _none(told)


def _log(problem: LicclientError) -> None:
    """Log what a check that raises nothing hides: a response that may be an attack."""
    if isinstance(problem, UntrustedResponseError):
        import logging  # noqa: PLC0415 - for this alone

        logging.getLogger("licclient").warning("No update is offered: %s", problem)


def _spread() -> float:
    import random  # noqa: PLC0415 - most starts ask nobody

    return random.random()  # noqa: S311 - jitter, so that all installations do not ask in the same minute


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
    )
