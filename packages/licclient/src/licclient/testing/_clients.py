"""Tools of a test beside the service: clock, storage, requests, and faults."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from licclient._core.arguments import check_text, wrong_type
from licclient._core.typed_key import mask_key
from licclient.testing._arguments import checked

if TYPE_CHECKING:
    from licclient._core.records import Document

START: Final = datetime(2030, 1, 15, 12, tzinfo=UTC)
"""Where a `LicenseClock` starts: always the same, so that a test that passes today passes tomorrow."""


class LicenseClock:
    """A clock that stands still until it is moved.

    Attributes:
        now: What it shows; aware. May be set.
        worker_pause: Seconds after which a worker reads it again; see `clock` of `LicenseClient`.
    """

    worker_pause: Final = 0.02

    @checked
    def __init__(self, now: datetime = START) -> None:
        if now.tzinfo is None:
            raise ValueError("now must have a time zone, such as datetime.UTC")
        self.now = now

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now

    @checked
    def move(self, span: timedelta | None = None, /, **parts: float) -> None:
        """Move the clock, back if negative: by `timedelta(days=1)`, or as `days=1, hours=2`."""
        for name, value in parts.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise wrong_type(name, "a number", value)
        try:
            self.now += timedelta(**parts) if span is None else span
        except (OverflowError, ValueError):
            name = next(iter(parts), "span")
            raise ValueError(f"{name} leads to a date that no calendar has") from None


class MemoryStorage:
    """A `licclient.types.Storage` in memory; clients that share one are on one computer.

    Attributes:
        machine_id: Names the computer when a trial is started.
        key: A license key that every app finds here, as if it had been entered earlier; None for none.
    """

    def __init__(self) -> None:
        self.machine_id = uuid4().hex
        self._key: str | None = None
        self._records: dict[str, Document] = {}
        self._lock = threading.RLock()

    @property
    def key(self) -> str | None:
        """The license key that every app finds here."""
        return self._key

    @key.setter
    def key(self, key: str | None) -> None:
        check_text("key", key)
        self._key = key

    def load(self, name: str) -> "Document | None":
        """Return a record."""
        if not isinstance(name, str):
            raise wrong_type("name", "a string", name)
        with self._lock:
            if self.key is not None and name.startswith("activation-"):
                # One object until it changes: clients compare by identity.
                document = {"hint": mask_key(self.key), "domain": "", "license": "", "key": self.key}
                return self._records.setdefault(name, document)
            return self._records.get(name)

    def change(self, name: str, edit: "Callable[[Document | None], Document | None]") -> "Document | None":
        """Replace or delete a record."""
        if not callable(edit):
            raise wrong_type("edit", "callable", edit)
        with self._lock:
            after = edit(self.load(name))
            if after is not None:
                self._records[name] = after
            else:
                self._records.pop(name, None)
                self.key = None if name.startswith("activation-") else self.key
            return after

    def folder(self) -> None:
        """Return None: no other process uses this storage."""


class Misbehaviour(StrEnum):
    """The faults that a service, or something in its place, can cause in an app."""

    SLOW = "slow"
    """No response within the client's time limit; the test does not wait for it."""
    ERROR = "error"
    """500 with an HTML page."""
    BUSY = "busy"
    """429."""
    LOGIN_PAGE = "login_page"
    """200 with the login page of a hotel's network."""
    REDIRECT = "redirect"
    """302 to another address."""
    GARBAGE = "garbage"
    """200 with JSON that does not follow the protocol."""
    CUT = "cut"
    """Downloads break off half way; everything else works."""
    WRONG_FILE = "wrong_file"
    """Downloads have other bytes than announced; everything else works."""
    NO_DIGEST = "no_digest"
    """Downloads come without a digest, as from a server of the plain protocol; everything else works."""
    UNSIGNED = "unsigned"
    """Nothing is signed, so an app that pins keys can trust nothing; everything else works."""


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request that arrived.

    Attributes:
        kind: The end of its address, such as `verify` or `update-check`; `other` for one that is unknown.
        license_key: The key in it, or None.
        fields: The JSON body of a verify; else the query.
        headers: With names in lower case.
    """

    kind: str
    license_key: str | None = field(repr=False)
    fields: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
