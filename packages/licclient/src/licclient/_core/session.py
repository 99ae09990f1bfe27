"""The session of a client: what a feature needs of it, and the only thing that it is given.

A feature sends a request by `call`, holds a `lock` that all processes of a user share, finds the key of the
`license`, reads the clock by `now`, and keeps its records in `storage`. What it keeps in memory for a client
is created by `part`, once.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from licclient._core.activations import Activation, Activations
from licclient._core.clock import Clock, checked
from licclient._core.lazy import lazy
from licclient._core.log import debug, describe
from licclient._core.model import CachedLicense, License, Outage, Settings
from licclient._core.policy import FAILED_FOR
from licclient._core.records import Document, Put, Storage, record_name
from licclient._core.requests import Call, path_of, tidy_key
from licclient._core.runners import Flow, Wait, send_with_retries
from licclient._core.storage import CallLock, StateFolder
from licclient._core.successes import Subject, Successes
from licclient.errors import (
    InvalidRequestError,
    LicclientError,
    LicenseRefusedError,
    NotActivatedError,
    ServiceUnavailableError,
    StateUnreadableError,
    UntrustedResponseError,
)

if TYPE_CHECKING:
    import logging
    import secrets
    import uuid

    from licclient._core import installation as installation_module
    from licclient._core import responses, signed_responses, status
    from licclient._core.kinds import InstallationKind
    from licclient._core.responses import Reply
    from licclient._core.status import LicenseStatus, Outcome
    from licclient._core.update_model import Update
else:
    installation_module = lazy("licclient._core.installation")
    responses = lazy("licclient._core.responses")
    signed_responses = lazy("licclient._core.signed_responses")
    status = lazy("licclient._core.status")
    logging = lazy("logging")
    secrets = lazy("secrets")
    uuid = lazy("uuid")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

CALL_MARGIN: Final = timedelta(seconds=1)
"""The time that a call may take beyond its limit, for our own address. Then others go ahead (D-58, D-120)."""

NO_KEY: Final = "The system's keyring did not return the license key. Unlock it, and try again."

_NONCE_BYTES: Final = 16


def no_key() -> ServiceUnavailableError:
    """Return the error for a keyring that does not give the key."""
    return ServiceUnavailableError(NO_KEY, outage=Outage.KEYRING)


class LastFailure:
    """The last failure of `require`, kept for a minute; also what leaves no record, as a locked keyring."""

    def __init__(self) -> None:
        self._last: tuple[Activation | None, datetime, LicclientError] | None = None

    def note(self, activation: Activation | None, now: datetime, problem: LicclientError) -> None:
        """Remember a failure."""
        self._last = activation, now, problem

    def lately(self, activation: Activation | None, now: datetime) -> LicclientError | None:
        """Return the failure of this activation if it is less than a minute old."""
        if self._last is None:
            return None
        failed_activation, failed_at, problem = self._last
        is_recent = timedelta(0) <= now - failed_at < FAILED_FOR
        return problem.with_traceback(None) if failed_activation == activation and is_recent else None


class InstalledFile(Protocol):
    """A license file of this computer."""

    @property
    def result(self) -> License | LicclientError:
        """The license that it grants now, or the error that `verify` raises."""
        ...

    @property
    def ends_at(self) -> datetime:
        """When it ends, by the clock of the service."""
        ...

    def describe(self, now: datetime, update: "Update | None") -> "LicenseStatus":
        """Return what a settings page shows of it."""
        ...


class LicenseFileStore(Protocol):
    """The license file of this computer, for apps with pinned keys."""

    def find(self, now: datetime, key: str | None = None) -> InstalledFile | None:
        """Return the installed file, if it is for this key."""

    def install(self, raw: bytes, now: datetime) -> License:
        """Check a file, and remember it in place of any other; a `LicenseFileError` leaves that."""
        ...

    def note_answer(self, key: str, answer: object, now: datetime) -> None:
        """Note what the server said of the license of a file."""

    def forget(self, *, unless_of: str | None = None) -> None:
        """Forget the file, but not one for the key `unless_of`."""


class ClientAccess(Generic[T_co]):
    """The part of a client that its optional features may use.

    Attributes:
        session: Returns the session; raises `RuntimeError` if the client is closed.
        transport: Returns what sends requests.
        run: Runs a flow; for an asynchronous client it returns an awaitable.
        look_again: Has the worker look at the state again.
        release_at_close: Takes something with `release(seconds)`, which is called when the client is closed.
        activate: Verifies a key by a call, and remembers it.
    """

    def __init__(
        self,
        session: "Callable[[], Session]",
        transport: Callable[[], T_co],
        run: Callable[[Flow[Any]], Any],
        look_again: Callable[[], None],
        release_at_close: Callable[[Any], None],
        activate: "Callable[[Session, str], Flow[License]]",
    ) -> None:
        self.session, self.transport, self.run, self.look_again = session, transport, run, look_again
        self.release_at_close, self.activate = release_at_close, activate


class Session:
    """Shared by the features of a client. Safe to share among threads.

    Without a clock it reads the real one.

    Attributes:
        now: Returns the present instant; aware, UTC.
        installation: Name of the record with this installation's id (D-45).
        installation_copy: Name of a second record with it, for when the first one is lost or damaged.
        worker_pause: Seconds after which a worker reads a clock for tests again; None for a real clock.
        open_license_files: Loads the feature that holds the license file.
        find_kind: Returns the kind of published file that replaces this installation; None if that is unsure.
        failure: Answers `require` again for a minute (D-119).
        last_subject: What the license of the activation was found to be about, for a domain.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None,
        storage: Storage,
        open_license_files: "Callable[[Session], LicenseFileStore]",
        find_kind: "Callable[[], InstallationKind | None]",
    ) -> None:
        self.settings, self.storage, self.open_license_files = settings, storage, open_license_files
        self.find_kind = find_kind
        self.now: Callable[[], datetime] = checked(clock)
        self.worker_pause: float | None = getattr(clock, "worker_pause", None)
        self.activations, self.successes = Activations(settings, storage), Successes(settings, storage)
        self.installation = record_name("installation", settings.server)
        self.installation_copy = record_name("installation_copy", settings.server)
        self.failure = LastFailure()
        self.last_subject: tuple[Activation, str, Subject] | None = None
        self._parts: dict[Any, Any] = {}

    def load_optional(self, name: str) -> Document | None:
        """Return a record that can be done without; None also when it cannot be read."""
        with suppress(StateUnreadableError):
            return self.storage.load(name)
        return None

    def part(self, create: Callable[[Settings, Storage], T]) -> T:
        """Return what a feature keeps in memory for this client; created by the first call."""
        if create not in self._parts:
            self._parts.setdefault(create, create(self.settings, self.storage))
        part: T = self._parts[create]
        return part

    @cached_property
    def kind(self) -> "InstallationKind | None":
        """The kind of file that update checks request (D-371); None for none."""
        return self.settings.kind or self.find_kind()

    @cached_property
    def license_files(self) -> LicenseFileStore:
        """The license file of this computer; for apps with pinned keys."""
        return self.open_license_files(self)

    def license_file(self, key: str | None = None) -> InstalledFile | None:
        """Return the installed license file, if it is for this key."""
        return self.license_files.find(self.now(), key) if self.settings.public_keys else None

    # --- for features -----------------------------------------------------------------------

    def call(
        self,
        call: Call,
        read: "Callable[[Reply], T | LicclientError]",
        key: str,
        *,
        unknown: LicclientError | None = None,
        seconds: float | None = None,
    ) -> Flow[T | LicclientError]:
        """Send a request; return the problem, or what `read` makes of a trusted response.

        It is `unknown`, if given, when the service does not have the endpoint. `key` is masked, `seconds` is
        the deadline, by default the client's time limit.
        """
        call, limit = with_nonce(self, call), self.settings.timeout.total_seconds()
        reply = (yield from send_with_retries(call, limit if seconds is None else seconds)).result
        if isinstance(reply, ServiceUnavailableError):
            return reply
        parsed = read(reply)
        if (
            unknown
            and reply.status in responses.UNKNOWN_ENDPOINT
            and isinstance(parsed, ServiceUnavailableError)
        ):
            return responses.note_origin(unknown, reply, key)
        signed = signed_responses.require_signature(call, reply, parsed, self.settings, self.now())
        result = responses.note_origin(
            signed if isinstance(signed, UntrustedResponseError) else parsed, reply, key
        )
        if isinstance(result, LicclientError):
            debug("%s: %s", path_of(call.url), describe(result))
        if isinstance(result, LicenseRefusedError) and responses.is_slug_refused(reply):
            # A person reads "no updates" or "no trials": only the app's developer can know that it is a slip.
            logging.getLogger("licclient").warning(
                "The license service refused slug=%r: %s Compare it with the slug of the product there.",
                self.settings.slug,
                result.message,
            )
        return result

    def lock(self, name: str) -> CallLock:
        """Return the lock for a call that all threads and processes of a user would make (D-58)."""
        folder = self.storage.folder()
        lock = None if folder is None else folder / f"{name}.lock"
        owner = id(self.storage) if folder is None else str(folder)
        return CallLock((owner, name), lock, (self.settings.timeout + CALL_MARGIN).total_seconds())

    def license(self, typed: str | None) -> tuple[str, Subject]:
        """Return a license's key, from the keyring if it is there, and what the license is about."""
        domain = self.domain()
        if typed is not None:
            subject = typed_subject(self, typed, domain)
            return subject.key or "", subject
        activation = find_activation(self)
        key = activated_subject(self, activation, domain).key or self.activations.key_of(activation)
        if key is None:
            raise no_key()
        return key, self.successes.subject(key, domain)

    def domain(self) -> str:
        """Return the application's domain, or a random id of this installation, one per server (D-45)."""
        if self.settings.domain is not None:
            return self.settings.domain
        try:
            installation_id = _read_id(self.storage.load(self.installation))
        except StateUnreadableError:
            if installation_id := _read_id(self.load_optional(self.installation_copy)):
                return installation_id
            raise
        return installation_id or _restore_installation(self)

    def remember_key(self, key: str) -> None:
        """Remember a key that was found good."""
        domain, slug = self.domain(), self.settings.slug
        checks = None if slug is None else check_name(self, key, slug)
        self.activations.remember(key, domain, self.successes.subject(key, domain).name, checks)
        activation = self.activations.find()
        account = self.keyring_account()
        if account is not None and activation is not None and activation.key is None:
            installation_module.store_id(account, domain)  # beside the key

    def keyring_account(self) -> str | None:
        """Return the keyring's account for the id of this installation, one for each chosen folder (D-326).

        None if the app passes a domain, or a storage of its own, which keeps everything by itself (D-180).
        """
        if self.settings.domain is not None or not isinstance(self.storage, StateFolder):
            return None
        root = self.storage.root()
        return None if root is None else record_name("installation", self.settings.server, root)


def wait_for(lock: CallLock) -> Flow[None]:
    """Wait until no other thread or process makes the call."""
    while not lock.is_ours():
        yield Wait(lock.pause)


def _restore_installation(session: Session) -> str:
    """Write the id of this installation from a copy, or make a new one, and return it."""
    restored = _read_id(session.storage.load(session.installation_copy))
    if not restored and (account := session.keyring_account()) is not None:
        restored = installation_module.fetch_id(account) or ""
    document = {"id": restored or random_name()}
    installation_id = _read_id(
        session.storage.change(
            session.installation, lambda existing: existing if _read_id(existing) else document
        )
    )
    copy_installation(session)
    return installation_id


def copy_installation(session: Session) -> None:
    """Keep the id twice: a new one would take another activation slot."""
    document = None if session.settings.domain else session.storage.load(session.installation)
    installation_id = _read_id(document)
    if installation_id and _read_id(session.storage.load(session.installation_copy)) != installation_id:
        session.storage.change(session.installation_copy, lambda _: {"id": installation_id})


def with_nonce(session: Session, call: Call) -> Call:
    """Ask for a signed response if keys are pinned (D-62)."""
    if not session.settings.public_keys:
        return call
    return signed_responses.request_signature(
        call, session.settings.public_keys, secrets.token_urlsafe(_NONCE_BYTES)
    )


def random_name() -> str:
    """Return a random name."""
    return uuid.uuid4().hex


def _read_id(document: Document | None) -> str:
    installation_id = (document or {}).get("id")
    return installation_id if isinstance(installation_id, str) else ""


# --- which license ----------------------------------------------------------------------------


def find_activation(session: Session) -> Activation:
    """Return the activation of this computer; raise `NotActivatedError` without an activation."""
    activation = session.activations.find()
    if activation is None:
        raise NotActivatedError
    return activation


def typed_subject(session: Session, typed: str, domain: str) -> Subject:
    """Return what the license of a typed key is about; raise `InvalidRequestError` for no key."""
    return session.successes.subject(read_key(typed), domain)


def activated_subject(
    session: Session, activation: Activation, domain: str, seconds: float | None = None
) -> Subject:
    """Return what the license of the activation is about; without its key where that spares the keyring.

    `seconds` are as for `Activations.key_of`.
    """
    last = session.last_subject
    if last is not None and last[0] is activation and last[1] == domain:
        return last[2]  # the file of the activation has not changed
    key = activation.key
    if key is not None:
        subject = session.successes.subject(read_key(key), domain)
        session.last_subject = activation, domain, subject
        return subject
    is_found_by_name = activation.domain == domain and session.successes.can_find(activation.license)
    if not is_found_by_name and (key := session.activations.key_of(activation, seconds)) is not None:
        return session.successes.subject(read_key(key), domain)
    return Subject(None, domain, activation.license)


def find_success(
    session: Session, subject: Subject, now: datetime
) -> tuple[CachedLicense | None, StateUnreadableError | None]:
    """Return the remembered success, and why it cannot be read: the service may be asked all the same."""
    try:
        return session.successes.find_and_mark(subject, now), None
    except StateUnreadableError as problem:
        return None, problem


def read_key(typed: str) -> str:
    """Return a key as `verify` takes it, or raise `InvalidRequestError`."""
    key = tidy_key(typed)
    if isinstance(key, InvalidRequestError):
        raise key
    return key


def license_or_raise(result: License | LicclientError) -> License:
    """Return a license; raise anything else."""
    if isinstance(result, LicclientError):
        raise result
    return result


# --- records ----------------------------------------------------------------------------------


def call_name(subject: Subject) -> str:
    """Return the name of the record of the last call: for each success there is one."""
    return "call-" + subject.name.partition("-")[2]


def check_name(session: Session, key: str, slug: str) -> str:
    """Return the name of the record of a key's update checks."""
    return record_name("update", session.settings.server, key, slug)


def of_channels(session: Session, name: str) -> str:
    """Name the record of checks in the client's channels: after a change of these a check is due (D-228).

    So it is after a change of the kind that the app names.
    """
    which = list(session.settings.channels)
    if session.settings.kind is not None:
        which.append(f"kind {session.settings.kind}")  # no channel has a space
    return record_name("update", name, *which) if which else name


def last_outcome(session: Session, subject: Subject) -> "Outcome | None":
    """Return how the last call for a license ended."""
    return status.read_outcome(session.load_optional(call_name(subject)))


def forget_records(session: Session, success_name: str) -> None:
    """Forget a success, and how the last call for it ended."""
    subject = Subject(None, "", success_name)
    for name in (success_name, call_name(subject)):
        session.storage.change(name, Put(None))
