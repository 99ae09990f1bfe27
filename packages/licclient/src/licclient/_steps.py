"""What both clients do before and after a verify: clock, disk and decisions, but no network.

Every call has two halves. The first returns the answer when none is needed from the server, else what to
send; the second is handed what came back.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from licclient._activation import Activation, Activations
from licclient._clock import Clock, read_clock
from licclient._model import License, Settings, Verified
from licclient._policy import recall, settle
from licclient._records import Document, read_round, record_name
from licclient._storage import Storage, Turn
from licclient._successes import Subject, Successes
from licclient._wire import Call, Reply, tidy_key, verify_call
from licclient.errors import InvalidRequestError, LicclientError, NotActivatedError, ServiceUnavailableError

if TYPE_CHECKING:
    from licclient._outcome import Outcome

PATIENCE: Final = timedelta(seconds=5)
"""What a call may take beyond its time limit: our own address, slow disks. Then others go ahead (D-58)."""

NO_KEY: Final = "The system's keyring did not hand out the license key."

CLOSED: Final = "The client was closed before the license service had answered."

_NONCE_BYTES: Final = 16


@dataclass(frozen=True, slots=True, repr=False)
class Asking:
    """A call that has to be made; no repr, because it holds the license key."""

    key: str
    domain: str
    slug: str = ""
    installed: str = ""
    before: str | None = None
    """For a verify: the last call that anybody had made when we began (D-58)."""
    activation: Activation | None = None
    """For a verify: whose key it is, if it is the activated one."""


class Steps:
    """The halves of every call of one client. Safe to share among threads.

    Args:
        settings: The client's.
        clock: Returns the present instant; aware.
        storage: Where to remember things.
    """

    def __init__(self, settings: Settings, clock: Clock, storage: Storage) -> None:
        self.settings = settings
        self._clock = clock
        self._state = storage
        self._activations = Activations(settings, self._state)
        self._successes = Successes(settings, self._state)

    def now(self) -> datetime:
        """Read the client's clock."""
        return read_clock(self._clock)

    def begin_verify(self, typed: str | None, *, force: bool) -> License | Asking:
        """Answer from the cache, or say what to ask (D-41).

        Args:
            typed: The key; None for the one that was activated.
            force: Request also when the cache is fresh.

        Raises:
            NotActivatedError: No key was given, and none was activated.
            InvalidRequestError: There is no key in what was typed.
            ServiceUnavailableError: The keyring does not return the key, and nothing remembered holds.
        """
        domain = self._domain()
        activation = self._activation() if typed is None else None
        if force:
            self._activations.ask_again()
        subject = self._subject(typed, activation, domain)
        now = self.now()
        held = self._successes.find_marked(subject, now)
        known = None if force else recall(held, now, self.settings)
        if known is not None:
            return known
        key = subject.key
        if key is None and activation is not None:
            key = self._activations.key_of(activation)
        if key is None:
            return raised(settle(ServiceUnavailableError(NO_KEY), held, now, self.settings).result)
        last = self._outcome(subject)
        return Asking(key, domain, before=last.call if last else None, activation=activation)

    def _activation(self) -> Activation:
        found = self._activations.find()
        if found is None:
            raise NotActivatedError
        return found

    def _subject(
        self, typed: str | None, activation: Activation | None, domain: str, seconds: float | None = None
    ) -> Subject:
        """Return what an answer would be about; without its key where that can be spared the keyring.

        Args:
            typed: The key; None for that of the activation.
            activation: As from `_activation`.
            domain: Of the installation.
            seconds: How long to wait for the keyring; as in `Activations.key_of`.
        """
        if activation is not None:
            by_name = activation.domain == domain and self._successes.can_find(activation.license)
            typed = activation.key if by_name else self._activations.key_of(activation, seconds)
            if typed is None:
                return Subject(None, domain, activation.license)
        known = self._successes.known(typed, domain) if isinstance(typed, str) else None
        if known is None:
            known = self._successes.subject(read_key(typed), domain)  # type: ignore[arg-type] # else it raises
        return known

    # --- one call for all who ask at once -----------------------------------------------------

    def turn(self, asking: Asking) -> Turn:
        """Queue up for the call, with everybody else who wants to make the same one (D-58)."""
        name = call_name(self._successes.subject(asking.key, asking.domain).name)
        patience = self.settings.timeout + PATIENCE
        folder = self._state.folder()
        return Turn(None if folder is None else folder / f"{name}.lock", patience.total_seconds())

    def told_meanwhile(self, asking: Asking) -> License | None:
        """When it is our turn: what somebody else was told since we began to wait; None to make the call.

        Raises:
            LicclientError: They were refused, or got no answer.
        """
        subject, now = self._successes.subject(asking.key, asking.domain), self.now()
        last = self._outcome(subject)
        if last is None or last.call == asking.before or last.is_private:
            return None
        held = self._successes.find_marked(subject, now)
        if last.answer is None:
            return recall(held, now, self.settings)
        return raised(settle(last.answer, held, now, self.settings).result)

    def _outcome(self, subject: Subject) -> "Outcome | None":
        from licclient._outcome import read_outcome  # noqa: PLC0415 - as above

        return read_outcome(self._state.load(call_name(subject.name)))

    # --- the call -----------------------------------------------------------------------------

    def verify_call(self, asking: Asking, ip: str) -> Call:
        """Write the call that `begin_verify` asked for."""
        return self._asking_for_proof(verify_call(self.settings, asking.key, asking.domain, ip))

    def _asking_for_proof(self, call: Call) -> Call:
        """Ask for a signature if keys are pinned (D-62)."""
        if not self.settings.public_keys:
            return call
        from secrets import token_urlsafe  # noqa: PLC0415 - as above

        from licclient._signature import asking_for_signature  # noqa: PLC0415 - as above

        return asking_for_signature(call, self.settings.public_keys, token_urlsafe(_NONCE_BYTES))

    def end_verify(
        self, asking: Asking, call: Call, reply: Reply | ServiceUnavailableError, *, closed: bool = False
    ) -> License:
        """Take what came back, remember it, and say what it means.

        Args:
            asking: As from `begin_verify`.
            call: As it was sent.
            reply: What came of it.
            closed: Whether the client was closed meanwhile: then no answer is no outage (D-119).

        Raises:
            LicclientError: Every kind of it, as the answer may be.
        """
        from licclient._outcome import outcome_of, write_outcome  # noqa: PLC0415 - as above
        from licclient._proofs import believe_verify  # noqa: PLC0415 - as above

        subject, now = self._successes.subject(asking.key, asking.domain), self.now()
        answer: Verified | LicclientError
        if isinstance(reply, ServiceUnavailableError):
            answer = ServiceUnavailableError(CLOSED) if closed else reply
        else:
            answer = believe_verify(call, reply, asking.key, self.settings, now)
        # Read again: another process may have been answered while we waited.
        held = self._successes.find_marked(subject, now)
        settled = settle(answer, held, now, self.settings)
        if settled.held != held:
            self._successes.put(subject, settled.held)
            if held is None:
                self._let_check_again(asking.key)
        if not (closed and isinstance(reply, ServiceUnavailableError)):
            # Last: who finds it must find the rest.
            ended = outcome_of(answer, _random_name(), now)
            self._state.change(call_name(subject.name), lambda before: write_outcome(ended, before))
        if asking.activation is not None and not self._is_activated(asking.activation):
            self._forget_records(subject.name)
        return raised(settled.result)

    def _is_activated(self, activation: Activation) -> bool:
        """Tell whether a key is still the activated one; `forget_key` may run at the same time."""
        found = self._activations.find()
        return found is not None and found.license == activation.license

    def _forget_records(self, success_name: str) -> None:
        """Forget a success, and how the last call for it ended."""
        for name in (success_name, call_name(success_name)):
            self._state.change(name, lambda _: None)

    def _let_check_again(self, key: str) -> None:
        """After the first success of a key a check is due at once, if the last one found no answer (D-46)."""
        if self.settings.slug is None:
            return
        name = self._round_name(key, self.settings.slug)
        last = read_round(self._state.load(name))
        if last is not None and last.listing is None:
            self._state.change(name, lambda _: None)

    def _round_name(self, key: str, slug: str) -> str:
        return record_name("update", self.settings.server, key, slug)

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


def read_key(typed: str) -> str:
    """Read a key as `verify` takes it.

    Raises:
        InvalidRequestError: There is none.
    """
    key = tidy_key(typed)
    if isinstance(key, InvalidRequestError):
        raise key
    return key


def raised(result: License | LicclientError) -> License:
    """Return a license; raise anything else."""
    if isinstance(result, LicclientError):
        raise result
    return result


def call_name(success_name: str) -> str:
    """Name the record of the last call after that of the success: for one there is always the other."""
    return "call-" + success_name.partition("-")[2]


def _random_name() -> str:
    from uuid import uuid4  # noqa: PLC0415 - most starts only read

    return uuid4().hex


def _is_id(document: Document | None) -> bool:
    match document:
        case {"id": str(known)}:
            return bool(known)
        case _:
            return False
