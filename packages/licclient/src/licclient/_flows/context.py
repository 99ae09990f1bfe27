"""What the flows of one client share, and the last success for a key as it is remembered.

A success is read from the disk again whenever the file has changed, and with pinned keys its signature is
then checked again (D-62). What has not changed is still in memory, and neither read nor checked twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

from licclient._activation import Activations
from licclient._clock import Clock, checked
from licclient._model import Held, Settings
from licclient._policy import mark
from licclient._records import Document, read_held, record_name, write_held
from licclient._storage import Storage

if TYPE_CHECKING:
    from licclient._flows.updates import UpdateCheck
    from licclient._signatures.license_files import Installed, LicenseFiles
    from licclient._signatures.releases import SignedReleases


_MOST_SUBJECTS: Final = 64
"""How many of them, and of their successes, are kept in memory."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a success is for; without the key when it lies in a keyring that has not been asked."""

    key: str | None = field(repr=False)
    domain: str
    name: str


class Successes:
    """The successes of one client. Safe to share among threads."""

    def __init__(self, settings: Settings, state: Storage) -> None:
        self._settings = settings
        self._state = state
        # Apart, so that a client without pins, such as the command line, never takes a signed record's place.
        self._kind = "signed" if settings.public_keys else "license"
        self.subject = lru_cache(_MOST_SUBJECTS)(self._subject)
        """Returns what a key and a domain are about."""
        self._read: dict[str, tuple[Document, Held | None]] = {}  # by the record's name

    def _subject(self, key: str, domain: str) -> Subject:
        return Subject(key, domain, record_name(self._kind, self._settings.server, key, domain))

    def can_find(self, name: str) -> bool:
        """Return whether a record can be read without its key; one that was signed is checked with it."""
        return not self._settings.public_keys and name.startswith(f"{self._kind}-")

    def find(self, subject: Subject) -> Held | None:
        """Return the stored success, or None when there is no valid one."""
        return self._believed(subject, self._state.load(subject.name))

    def find_marked(self, subject: Subject, now: datetime) -> Held | None:
        """Return a success, and note the latest instant that the clock has shown (D-43)."""
        held = self.find(subject)
        if held is None or mark(held, now, self._settings) is held:
            return held

        def edit(document: Document | None) -> Document | None:
            newest = self._believed(subject, document)
            moved = newest and mark(newest, now, self._settings)
            return document if moved is None or moved is newest else self._write(moved)

        return self._believed(subject, self._state.change(subject.name, edit))

    def put(self, subject: Subject, held: Held | None) -> None:
        """Remember a success in the place of any other; None to forget it."""
        after = None if held is None else self._write(held)
        self._state.change(subject.name, lambda _: after)

    def _believed(self, subject: Subject, document: Document | None) -> Held | None:
        if document is None or (subject.key is None and self._settings.public_keys):
            return None
        known = self._read.get(subject.name)
        # The very same object: the file has not changed since, or another document would have come of it.
        if known is None or known[0] is not document:
            if len(self._read) >= _MOST_SUBJECTS:
                self._read.clear()
            known = self._read[subject.name] = document, self._judge(subject, document)
        return known[1]

    def _judge(self, subject: Subject, document: Document) -> Held | None:
        if not self._settings.public_keys:
            return read_held(document)
        from licclient._signatures.responses import read_signed_success  # noqa: PLC0415 - for apps with pinned keys

        return read_signed_success(document, subject.key or "", subject.domain, self._settings)

    def _write(self, held: Held) -> Document:
        if not self._settings.public_keys:
            return write_held(held)
        from licclient._signatures.responses import write_signed_success  # noqa: PLC0415 - as above

        return write_signed_success(held)


@dataclass(eq=False)
class Context:
    """The parts of one client that its flows use. Safe to share among threads.

    Attributes:
        now: Returns the present instant; aware, UTC.
        installation: Name of the record with this installation's id (D-45).
        worker_pause: Seconds after which a worker reads the clock again, if it is one for tests; else None.
    """

    settings: Settings
    now: Callable[[], datetime]
    storage: Storage
    activations: Activations
    successes: Successes
    installation: str
    worker_pause: float | None
    last_update_check: "UpdateCheck | None" = None

    @cached_property
    def releases(self) -> "SignedReleases":
        """What the vendor signed about releases."""
        from licclient._signatures.releases import SignedReleases  # noqa: PLC0415 - most starts offer nothing

        return SignedReleases(self.settings, self.storage)

    @cached_property
    def license_files(self) -> "LicenseFiles":
        """The license file of this computer; for apps with pinned keys."""
        from licclient._flows.verification import installation_domain  # noqa: PLC0415 - it imports this module
        from licclient._signatures.license_files import LicenseFiles  # noqa: PLC0415 - for apps with pinned keys

        return LicenseFiles(self.settings, self.storage, lambda: installation_domain(self))

    def license_file(self, key: str | None = None) -> "Installed | None":
        """Return the installed license file, if it is for this key."""
        return self.license_files.find(self.now(), key) if self.settings.public_keys else None


def create_context(settings: Settings, clock: Clock | None, storage: Storage) -> Context:
    """Create the context of a client; without a clock it reads the real one."""
    activations, successes = Activations(settings, storage), Successes(settings, storage)
    pause = getattr(clock, "worker_pause", None)
    installation = record_name("installation", settings.server)
    return Context(settings, checked(clock), storage, activations, successes, installation, pause)
