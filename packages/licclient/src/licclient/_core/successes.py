"""The last success for each key, as it is remembered.

A success is read from the disk again whenever the file has changed, and with pinned keys its signature is
then checked again (D-62). What has not changed is still in memory, and neither read nor checked twice.
"""

from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from licclient._core.lazy import lazy
from licclient._core.model import CachedLicense, Settings
from licclient._core.policy import mark
from licclient._core.records import (
    Document,
    Put,
    Storage,
    read_cached_license,
    record_name,
    write_cached_license,
)
from licclient.errors import StateUnreadableError

if TYPE_CHECKING:
    from licclient._core import signed_responses
else:
    signed_responses = lazy("licclient._core.signed_responses")

_MOST_SUBJECTS: Final = 64
"""How many of them, and of their successes, are kept in memory."""


class Subject(NamedTuple):
    """The key and domain of a success, and its record's name; no key if its keyring has not been asked."""

    key: str | None
    domain: str
    name: str

    def __repr__(self) -> str:
        return f"Subject(domain={self.domain!r}, name={self.name!r})"


class Successes:
    """The successes of one client. Safe to share among threads."""

    def __init__(self, settings: Settings, state: Storage) -> None:
        self._settings = settings
        self._state = state
        # Apart, so that a client without pins, such as the command line, never takes a signed record's place.
        self._kind = "signed" if settings.public_keys else "license"
        self.subject = lru_cache(_MOST_SUBJECTS)(self._subject)
        """Returns the `Subject` of a key and a domain."""
        self._read: dict[str, tuple[Document, CachedLicense | None]] = {}  # by the record's name

    def _subject(self, key: str, domain: str) -> Subject:
        return Subject(key, domain, record_name(self._kind, self._settings.server, key, domain))

    def can_find(self, name: str) -> bool:
        """Return whether a record can be read without its key; one that was signed is checked with it."""
        return not self._settings.public_keys and name.startswith(f"{self._kind}-")

    def find(self, subject: Subject) -> CachedLicense | None:
        """Return the stored success, or None when there is no valid one."""
        return self._read_valid(subject, self._state.load(subject.name))

    def find_and_mark(self, subject: Subject, now: datetime) -> CachedLicense | None:
        """Return a success, and note the latest instant that the clock has shown (D-43)."""
        cached = self.find(subject)
        if cached is None or mark(cached, now, self._settings) is cached:
            return cached

        def edit(document: Document | None) -> Document | None:
            newest = self._read_valid(subject, document)
            moved = newest and mark(newest, now, self._settings)
            return document if moved is None or moved is newest else self._write(moved)

        try:
            document = self._state.change(subject.name, edit)
        except StateUnreadableError:  # since it was found: nothing is noted this time
            return cached
        return self._read_valid(subject, document)

    def put(self, subject: Subject, cached: CachedLicense | None) -> None:
        """Remember a success in the place of any other; None to forget it."""
        self._state.change(subject.name, Put(None if cached is None else self._write(cached)))

    def _read_valid(self, subject: Subject, document: Document | None) -> CachedLicense | None:
        if document is None or (subject.key is None and self._settings.public_keys):
            return None
        parsed = self._read.get(subject.name)
        # The very same object: the file has not changed since, or another document would have come of it.
        if parsed is None or parsed[0] is not document:
            if len(self._read) >= _MOST_SUBJECTS:
                self._read.clear()
            parsed = self._read[subject.name] = document, self._parse(subject, document)
        return parsed[1]

    def _parse(self, subject: Subject, document: Document) -> CachedLicense | None:
        if not self._settings.public_keys:
            return read_cached_license(document)
        return signed_responses.read_signed_success(
            document, subject.key or "", subject.domain, self._settings
        )

    def _write(self, cached: CachedLicense) -> Document:
        if not self._settings.public_keys:
            return write_cached_license(cached)
        return signed_responses.write_signed_success(cached)
