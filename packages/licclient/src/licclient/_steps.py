"""What both clients do before and after a call: clock, disk and decisions, but no network.

Every call has two halves. The first returns the answer when none is needed from the server, else what to
send; the second is handed what came back.
"""

import random
import secrets
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from licclient._cache import StateFolder
from licclient._clock import Clock, read_clock
from licclient._download import Job, open_job
from licclient._errors import InvalidRequest, LicclientError, LicenseRefused, ServiceUnavailable
from licclient._links import is_safe_link
from licclient._model import Held, License, Listing, Manifest, Reason, Settings, Update, Verified
from licclient._policy import (
    begin_round,
    end_round,
    is_due,
    is_link_good,
    is_newer,
    is_offer,
    mark,
    recall,
    settle,
)
from licclient._proofs import believe_update, believe_verify, read_proved, write_proved
from licclient._records import (
    Document,
    read_held,
    read_round,
    record_name,
    write_held,
    write_round,
)
from licclient._releases import SignedReleases, logged
from licclient._signature import asking_for_signature
from licclient._wire import (
    Call,
    Reply,
    tidy_key,
    update_call,
    verify_call,
)

_NONCE_BYTES: Final = 16

_NEVER_ANSWERED: Final = "The last update check got no answer, and the next one is not due yet."


@dataclass(frozen=True, slots=True)
class NoUpdate:
    """There is nothing to offer, and that is certain: `message` says why."""

    message: str


@dataclass(frozen=True, slots=True, repr=False)
class Asking:
    """A call that has to be made; no repr, because it holds the license key."""

    key: str
    domain: str
    slug: str = ""
    installed: str = ""


@dataclass(frozen=True, slots=True)
class Fresh:
    """A fresh link, and what the vendor signed about the file behind it if release keys are pinned."""

    link: str = field(repr=False)
    expected: Manifest | None


class Steps:
    """The halves of every call of one client. Safe to share among threads.

    Args:
        settings: The client's.
        clock: Returns the present instant; aware.
        state_dir: Where to remember things; None for the platform's folder.
    """

    def __init__(self, settings: Settings, clock: Clock, state_dir: Path | None) -> None:
        self.settings = settings
        self._clock = clock
        self._state = StateFolder(state_dir)
        self._signed = SignedReleases(settings, self._state)
        # name → a record as it was read, and what came of checking it: the same one is not checked twice.
        self._checked: dict[str, tuple[Document | None, Held | None]] = {}

    def _now(self) -> datetime:
        return read_clock(self._clock)

    # --- verify -------------------------------------------------------------------------------

    def begin_verify(self, typed: str, *, recheck: bool) -> License | Asking:
        """Answer from the cache, or say what to ask (D-41).

        Raises:
            InvalidRequest: There is no key in what was typed.
        """
        key = _key(typed)
        domain = self._domain()
        now = self._now()
        asking = Asking(key, domain)
        held = self._marked(asking, now)
        known = None if recheck else recall(held, now, self.settings)
        return known or asking

    def verify_call(self, asking: Asking, ip: str) -> Call:
        """Write the call that `begin_verify` asked for."""
        return self._asking_for_proof(verify_call(self.settings, asking.key, asking.domain, ip))

    def _asking_for_proof(self, call: Call) -> Call:
        """Ask for a signature if keys are pinned (D-62)."""
        if not self.settings.public_keys:
            return call
        return asking_for_signature(call, self.settings.public_keys, secrets.token_urlsafe(_NONCE_BYTES))

    def end_verify(self, asking: Asking, call: Call, reply: Reply | ServiceUnavailable) -> License:
        """Take what came back, remember it, and say what it means.

        Raises:
            LicclientError: Every kind of it, as the answer may be.
        """
        now = self._now()
        answer: Verified | LicclientError
        if isinstance(reply, ServiceUnavailable):
            answer = reply
        else:
            answer = believe_verify(call, reply, asking.key, self.settings, now)
        # Read again: another process may have been answered while we waited.
        held = self._marked(asking, now)
        settled = settle(answer, held, now, self.settings)
        if settled.held != held:
            after = self._write_held(settled.held) if settled.held else None
            self._state.change(self._held_name(asking), lambda _: after)
            if held is None:
                self._let_check_again(asking.key)
        if isinstance(settled.result, LicclientError):
            raise settled.result
        return settled.result

    def _marked(self, asking: Asking, now: datetime) -> Held | None:
        """Load a success, and note the latest instant that the clock has shown (D-43)."""
        name = self._held_name(asking)
        held = self._read_held(asking, self._state.load(name))
        if held is None or mark(held, now, self.settings) is held:
            return held

        def edit(document: Document | None) -> Document | None:
            newest = self._read_held(asking, document)
            moved = newest and mark(newest, now, self.settings)
            return document if moved is None or moved is newest else self._write_held(moved)

        return self._read_held(asking, self._state.change(name, edit))

    def _held_name(self, asking: Asking) -> str:
        # Apart, so that a client without pins, such as the command line, never takes a signed record's place.
        kind = "signed" if self.settings.public_keys else "license"
        return record_name(kind, self.settings.server, asking.key, asking.domain)

    def _read_held(self, asking: Asking, document: Document | None) -> Held | None:
        """Read a success; with pinned keys, check its signature whenever it was read from the disk (D-62)."""
        if not self.settings.public_keys:
            return read_held(document)
        name = self._held_name(asking)
        checked = self._checked.get(name)
        # The very same object: the file has not changed since, or another document would have come of it.
        if checked is not None and checked[0] is document:
            return checked[1]
        held = read_proved(document, asking.key, asking.domain, self.settings)
        self._checked[name] = document, held
        return held

    def _write_held(self, held: Held) -> Document:
        return write_proved(held) if self.settings.public_keys else write_held(held)

    def _domain(self) -> str:
        """Return the app's domain, or a random id of this installation, one per server (D-45)."""
        if self.settings.domain is not None:
            return self.settings.domain
        name = record_name("installation", self.settings.server)
        known = self._state.load(name)
        if not _is_id(known):
            made = {"id": uuid.uuid4().hex}
            known = self._state.change(name, lambda found: found if _is_id(found) else made)
        return str((known or {})["id"])

    # --- updates ------------------------------------------------------------------------------

    def begin_check(self, typed: str, *, force: bool) -> Update | NoUpdate | LicclientError | Asking:
        """Answer from what is remembered, or count an attempt and say what to ask (D-46).

        Raises:
            ValueError: The client was built without `slug` or `version`.
        """
        asking = self._asking_updates(typed)
        if isinstance(asking, LicclientError):
            return asking
        return asking if self._claim(asking, force=force) else self._remembered(asking)

    def _claim(self, asking: Asking, *, force: bool) -> bool:
        """Count an attempt before it is made; False when none is due (any more) (D-46)."""
        name, now = self._round_name(asking), self._now()
        if not force and not is_due(read_round(self._state.load(name)), now, self.settings):
            return False
        claimed = False

        def claim(document: Document | None) -> Document | None:
            nonlocal claimed
            last = read_round(document)
            claimed = force or is_due(last, now, self.settings)
            return write_round(begin_round(last, now, _spread())) if claimed else document

        self._state.change(name, claim)
        return claimed

    def _remembered(self, asking: Asking) -> Update | NoUpdate | LicclientError:
        last = read_round(self._state.load(self._round_name(asking)))
        if last is not None and last.listing is not None and is_newer(last.listing.version, asking.installed):
            listing = self._signed.vouch(last.listing, self._now())
            return (
                logged(listing) if isinstance(listing, LicclientError) else _update(listing, asking.key, None)
            )
        if last is not None and not last.answered:
            return ServiceUnavailable(_NEVER_ANSWERED)
        return NoUpdate("No newer version was offered when it was last asked for.")

    def check_call(self, asking: Asking) -> Call:
        """Write the call that `begin_check` or `begin_link` asked for."""
        return self._asking_for_proof(
            update_call(self.settings, asking.key, asking.slug, asking.installed, asking.domain)
        )

    def end_check(
        self, asking: Asking, call: Call, reply: Reply | ServiceUnavailable
    ) -> Update | NoUpdate | LicclientError:
        """Take what came back, remember it, and say what it offers (D-47)."""
        answer = self._read_check(asking, call, reply)
        if isinstance(answer, LicclientError):
            return logged(answer)
        if answer.download_url is None:
            return NoUpdate("The support period is over, so no newer version is offered.")
        if not is_offer(answer, asking.installed):
            return NoUpdate(f"Version {asking.installed} is up to date.")
        return _update(answer, asking.key, self._now())

    def _read_check(
        self, asking: Asking, call: Call, reply: Reply | ServiceUnavailable
    ) -> Listing | LicclientError:
        now = self._now()
        answer: Listing | LicclientError
        if isinstance(reply, ServiceUnavailable):
            answer = reply
        else:
            answer = believe_update(call, reply, asking.slug, asking.key, self.settings, now)
            if isinstance(answer, Listing) and answer.download_url is not None:  # else nothing is offered
                answer = self._signed.vouch(answer, now)

        def remember(document: Document | None) -> Document | None:
            claimed = read_round(document) or begin_round(None, now, _spread())
            return write_round(end_round(claimed, answer, asking.installed))

        self._state.change(self._round_name(asking), remember)
        return answer

    def _let_check_again(self, key: str) -> None:
        """After the first success of a key a check is due at once, if the last one found no answer (D-46)."""
        if self.settings.slug is None:
            return
        name = record_name("update", self.settings.server, key, self.settings.slug)
        last = read_round(self._state.load(name))
        if last is not None and last.listing is None:
            self._state.change(name, lambda _: None)

    def _asking_updates(self, typed: str) -> Asking | InvalidRequest:
        slug, version = self._installed()
        key = tidy_key(typed)
        return key if isinstance(key, InvalidRequest) else Asking(key, self._domain(), slug, version)

    def _installed(self) -> tuple[str, str]:
        if self.settings.slug is None or self.settings.version is None:
            raise ValueError("updates need slug= and version= when the client is made")
        return self.settings.slug, self.settings.version

    def _round_name(self, asking: Asking) -> str:
        return record_name("update", self.settings.server, asking.key, asking.slug)

    # --- download -----------------------------------------------------------------------------

    @contextmanager
    def open_download(self, update: Update, to: Path) -> Generator[Job]:
        """Take up a download; its link is None when the offered one may have run out (D-48).

        Raises:
            ValueError: The client was built without `slug` or `version`.
            OSError: The folder cannot be used.
        """
        self._installed()
        link = update.download_url
        if link is None or not (
            is_link_good(update.offered_at, self._now()) and is_safe_link(link, self.settings)
        ):
            link = None
        expected = self._signed.expected(update, self._now())
        if self.settings.release_keys and expected is None:
            link = None  # a fresh one comes with a fresh manifest
        part = record_name("download", self.settings.server, update.slug, update.version)
        fallback_name = f"{update.slug}-{update.version}"
        with open_job(to, part, link, fallback_name, update.license_key) as job:
            job.take_up(expected, pinned=bool(self.settings.release_keys))
            yield job

    def begin_link(self, update: Update) -> Asking:
        """Count an attempt, which is never too early here, and say what to ask for a fresh link (D-48).

        Raises:
            InvalidRequest: The update holds no key.
        """
        _, installed = self._installed()
        asking = Asking(_key(update.license_key), self._domain(), update.slug, installed)
        self._claim(asking, force=True)
        return asking

    def end_link(self, asking: Asking, call: Call, reply: Reply | ServiceUnavailable) -> Fresh:
        """Take a fresh link out of what came back.

        Raises:
            LicenseRefused: The key is refused, support is over, or the version is no longer offered.
            InvalidRequest: The server calls the request malformed.
            ServiceUnavailable: No answer.
            UntrustedAnswer: No pinned key signed it, or the version that it tells.
        """
        answer = self._read_check(asking, call, reply)
        if isinstance(answer, LicclientError):
            raise answer
        if answer.download_url is None:
            raise LicenseRefused(
                Reason.SUPPORT_ENDED, "The support period is over, so there is nothing to download."
            )
        if not is_offer(answer, asking.installed):
            raise LicenseRefused(Reason.OTHER, "The version is no longer offered.")
        return Fresh(answer.download_url, answer.vouched)


def _key(typed: str) -> str:
    key = tidy_key(typed)
    if isinstance(key, InvalidRequest):
        raise key
    return key


def _spread() -> float:
    return random.random()  # noqa: S311 - jitter, so that all installations do not ask in the same minute


def _is_id(document: Document | None) -> bool:
    return document is not None and isinstance(document.get("id"), str) and bool(document["id"])


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
