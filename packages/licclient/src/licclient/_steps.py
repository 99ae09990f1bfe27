"""What both clients do before and after a call: clock, disk and decisions, but no network.

Every call has two halves. The first returns the answer when none is needed from the server, else what to
send; the second is handed what came back.
"""

import random
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from licclient._cache import StateFolder
from licclient._clock import Clock, read_clock
from licclient._download import Job, open_job
from licclient._errors import InvalidRequest, LicclientError, LicenseRefused, ServiceUnavailable
from licclient._links import is_safe_link
from licclient._model import Held, License, Listing, Reason, Settings, Update
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
from licclient._records import Document, read_held, read_round, record_name, write_held, write_round
from licclient._wire import (
    Call,
    Reply,
    read_update,
    read_verify,
    tidy_key,
    update_call,
    verify_call,
)

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
        held = self._marked(self._held_name(key, domain), now)
        known = None if recheck else recall(held, now, self.settings)
        return known or Asking(key, domain)

    def verify_call(self, asking: Asking, ip: str) -> Call:
        """Write the call that `begin_verify` asked for."""
        return verify_call(self.settings, asking.key, asking.domain, ip)

    def end_verify(self, asking: Asking, reply: Reply | ServiceUnavailable) -> License:
        """Take what came back, remember it, and say what it means.

        Raises:
            LicclientError: Every kind of it, as the answer may be.
        """
        answer = reply if isinstance(reply, ServiceUnavailable) else read_verify(reply, asking.key)
        name, now = self._held_name(asking.key, asking.domain), self._now()
        # Read again: another process may have been answered while we waited.
        held = self._marked(name, now)
        settled = settle(answer, held, now, self.settings)
        if settled.held != held:
            after = write_held(settled.held) if settled.held else None
            self._state.change(name, lambda _: after)
            if held is None:
                self._let_check_again(asking.key)
        if isinstance(settled.result, LicclientError):
            raise settled.result
        return settled.result

    def _marked(self, name: str, now: datetime) -> Held | None:
        """Load a success, and note the latest instant that the clock has shown (D-43)."""
        held = read_held(self._state.load(name))
        if held is None or mark(held, now, self.settings) is held:
            return held

        def edit(document: Document | None) -> Document | None:
            newest = read_held(document)
            moved = newest and mark(newest, now, self.settings)
            return document if moved is None or moved is newest else write_held(moved)

        return read_held(self._state.change(name, edit))

    def _held_name(self, key: str, domain: str) -> str:
        return record_name("license", self.settings.server, key, domain)

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
            return _update(last.listing, asking.key, None)
        if last is not None and not last.answered:
            return ServiceUnavailable(_NEVER_ANSWERED)
        return NoUpdate("No newer version was offered when it was last asked for.")

    def check_call(self, asking: Asking) -> Call:
        """Write the call that `begin_check` or `begin_link` asked for."""
        return update_call(self.settings, asking.key, asking.slug, asking.installed, asking.domain)

    def end_check(
        self, asking: Asking, reply: Reply | ServiceUnavailable
    ) -> Update | NoUpdate | LicclientError:
        """Take what came back, remember it, and say what it offers (D-47)."""
        answer = self._read_check(asking, reply)
        if isinstance(answer, LicclientError):
            return answer
        if answer.download_url is None:
            return NoUpdate("The support period is over, so no newer version is offered.")
        if not is_offer(answer, asking.installed):
            return NoUpdate(f"Version {asking.installed} is up to date.")
        return _update(answer, asking.key, self._now())

    def _read_check(self, asking: Asking, reply: Reply | ServiceUnavailable) -> Listing | LicclientError:
        answer: Listing | LicclientError
        if isinstance(reply, ServiceUnavailable):
            answer = reply
        else:
            answer = read_update(reply, self.settings, asking.slug, asking.key)
        now = self._now()

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
        part = record_name("download", self.settings.server, update.slug, update.version)
        with open_job(to, part, link, f"{update.slug}-{update.version}", update.license_key) as job:
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

    def end_link(self, asking: Asking, reply: Reply | ServiceUnavailable) -> str:
        """Take a fresh link out of what came back.

        Raises:
            LicenseRefused: The key is refused, support is over, or the version is no longer offered.
            InvalidRequest: The server calls the request malformed.
            ServiceUnavailable: No answer.
        """
        answer = self._read_check(asking, reply)
        if isinstance(answer, LicclientError):
            raise answer
        if answer.download_url is None:
            raise LicenseRefused(
                Reason.SUPPORT_ENDED, "The support period is over, so there is nothing to download."
            )
        if not is_offer(answer, asking.installed):
            raise LicenseRefused(Reason.OTHER, "The version is no longer offered.")
        return answer.download_url


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
    )
