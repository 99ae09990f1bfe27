"""What both clients do before and after a call: clock, disk and decisions, but no network.

Every call has two halves. The first returns the answer when none is needed from the server, else what to
send; the second is handed what came back.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._activation import Activation, Activations
from licclient._cache import StateFolder
from licclient._clock import Clock, read_clock
from licclient._errors import (
    InvalidRequest,
    LicclientError,
    LicenseRefused,
    NotActivated,
    ServiceUnavailable,
)
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
    is_safe_link,
    read_update,
    read_verify,
    tidy_key,
    update_call,
    verify_call,
)

PATIENCE: Final = timedelta(seconds=5)
"""What a call may take beyond its time limit: our own address, slow disks. Then others go ahead (D-58)."""

_MOST_NAMES: Final = 64
"""How many typed keys are kept in memory with the names of their records."""

if TYPE_CHECKING:
    from licclient._download import Job
    from licclient._outcome import Outcome
    from licclient._turns import Turn

_NO_KEY: Final = "The system's keyring did not hand out the license key."
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
    before: str | None = None
    """For a verify: the last call that anybody had made when we began (D-58)."""


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
        self._activations = Activations(settings, self._state)
        # Worked out before: (typed key, domain) → (key, record's name); record's name → what it says.
        self._names: dict[tuple[str, str], tuple[str, str]] = {}
        self._read: dict[str, tuple[Document, Held | None]] = {}

    def _now(self) -> datetime:
        return read_clock(self._clock)

    # --- verify -------------------------------------------------------------------------------

    def begin_verify(self, typed: str | None, *, recheck: bool) -> License | Asking:
        """Answer from the cache, or say what to ask (D-41).

        Args:
            typed: The key; None for the one that was activated.
            recheck: Ask also when the cache is fresh.

        Raises:
            NotActivated: No key was given, and none was activated.
            InvalidRequest: There is no key in what was typed.
            ServiceUnavailable: The key lies in a keyring that does not give it, and nothing remembered holds.
        """
        domain = self._domain()
        activation = self._activation() if typed is None else None
        key, name = self._subject(typed, activation, domain)
        now = self._now()
        held = self._marked(name, now)
        known = None if recheck else recall(held, now, self.settings)
        if known is not None:
            return known
        if activation is not None:
            key = self._activations.key_of(activation)
        if key is None:
            return _raised(settle(ServiceUnavailable(_NO_KEY), held, now, self.settings).result)
        last = self._outcome(name)
        return Asking(key, domain, before=last.call if last else None)

    def _activation(self) -> Activation:
        found = self._activations.find()
        if found is None:
            raise NotActivated
        return found

    def _subject(
        self, typed: str | None, activation: Activation | None, domain: str
    ) -> tuple[str | None, str]:
        """Return the key, if it is at hand, and the name of its record."""
        if activation is not None:
            if activation.domain == domain:
                return activation.key, activation.license
            typed = self._activations.key_of(activation)
            if typed is None:
                return None, activation.license
        known = self._names.get((typed, domain)) if isinstance(typed, str) else None
        if known is None:
            key = _key(typed)  # type: ignore[arg-type] # of another type it raises
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            known = self._names[key, domain] = key, self._held_name(key, domain)
        return known

    def turn(self, asking: Asking) -> "Turn":
        """Queue up for the call, with everybody else who wants to make the same one (D-58)."""
        from licclient._turns import Turn  # noqa: PLC0415 - as above

        name = call_name(self._held_name(asking.key, asking.domain))
        patience = self.settings.timeout + PATIENCE
        return Turn(self._state.lock_file(name), patience.total_seconds())

    def told_meanwhile(self, asking: Asking) -> License | None:
        """When it is our turn: what somebody else was told since we began to wait; None to make the call.

        Raises:
            LicclientError: They were refused, or got no answer.
        """
        name, now = self._held_name(asking.key, asking.domain), self._now()
        last = self._outcome(name)
        if last is None or last.call == asking.before:
            return None
        held = self._marked(name, now)
        if last.answer is None:
            return recall(held, now, self.settings)
        return _raised(settle(last.answer, held, now, self.settings).result)

    def _outcome(self, held_name: str) -> "Outcome | None":
        from licclient._outcome import read_outcome  # noqa: PLC0415 - not for an answer from the cache

        return read_outcome(self._state.load(call_name(held_name)))

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
        from licclient._outcome import outcome_of, write_outcome  # noqa: PLC0415 - as above

        # Last: who finds it must find the rest.
        if (ended := outcome_of(answer, _random_name(), now)) is not None:
            self._state.change(call_name(name), lambda _: write_outcome(ended))
        return _raised(settled.result)

    def _held(self, name: str) -> Held | None:
        document = self._state.load(name)
        if document is None:
            return None
        known = self._read.get(name)
        if known is None or known[0] is not document:
            known = self._read[name] = document, read_held(document)
        return known[1]

    def _marked(self, name: str, now: datetime) -> Held | None:
        """Load a success, and note the latest instant that the clock has shown (D-43)."""
        held = self._held(name)
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
            made = {"id": _random_name()}
            known = self._state.change(name, lambda found: found if _is_id(found) else made)
        return str((known or {})["id"])

    # --- updates ------------------------------------------------------------------------------

    def begin_check(self, typed: str | None, *, force: bool) -> Update | NoUpdate | LicclientError | Asking:
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

    def _asking_updates(self, typed: str | None) -> Asking | LicclientError:
        slug, version = self._installed()
        if typed is None:
            found = self._activations.find()
            if found is None:
                return NotActivated()
            typed = self._activations.key_of(found)
            if typed is None:
                return ServiceUnavailable(_NO_KEY)
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
    def open_download(self, update: Update, to: Path) -> Generator["Job"]:
        """Take up a download; its link is None when the offered one may have run out (D-48).

        Raises:
            ValueError: The client was built without `slug` or `version`.
            OSError: The folder cannot be used.
        """
        from licclient._download import open_job  # noqa: PLC0415 - most starts download nothing

        self._installed()
        link = update.download_url
        if link is None or not (
            is_link_good(update.offered_at, self._now()) and is_safe_link(link, self.settings.server)
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


def _raised(result: License | LicclientError) -> License:
    if isinstance(result, LicclientError):
        raise result
    return result


def call_name(held_name: str) -> str:
    """Name the record of the last call after that of the success: for one there is always the other."""
    return "call-" + held_name.partition("-")[2]


def _random_name() -> str:
    from uuid import uuid4  # noqa: PLC0415 - most starts only read

    return uuid4().hex


def _spread() -> float:
    import random  # noqa: PLC0415 - as above

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
