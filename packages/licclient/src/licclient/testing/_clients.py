"""What clients of a fake service are constructed with: clock and storage."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from licclient._typed_key import mask_key

if TYPE_CHECKING:
    from licclient._records import Document

START: Final = datetime(2030, 1, 15, 12, tzinfo=UTC)
"""Where a `LicenseClock` starts: always the same, so that a test that passes today passes tomorrow."""


class LicenseClock:
    """A clock that stands still until it is moved.

    Attributes:
        now: What it shows; aware. May be set.
        worker_pause: Seconds after which a worker reads it again; see `clock` of `LicenseClient`.
    """

    worker_pause: Final = 0.02

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now

    def move(self, span: timedelta | None = None, /, **parts: float) -> None:
        """Move the clock, back if negative: by `timedelta(days=1)`, or as `days=1, hours=2`."""
        self.now += timedelta(**parts) if span is None else span


class MemoryStorage:
    """A `licclient.Storage` in memory; clients that share one are on one computer.

    Attributes:
        machine_id: Names the computer when a trial is started.
    """

    def __init__(self) -> None:
        self.machine_id = uuid4().hex
        self._records: dict[str, Document] = {}
        self._lock = threading.RLock()

    def load(self, name: str) -> "Document | None":
        """Return a record."""
        return self._records.get(name)

    def change(self, name: str, edit: "Callable[[Document | None], Document | None]") -> "Document | None":
        """Replace or delete a record."""
        with self._lock:
            after = edit(self.load(name))
            if after is None:
                self._records.pop(name, None)
            else:
                self._records[name] = after
            return after

    def folder(self) -> None:
        """Return None: no other process uses this storage."""


class ActivatedStorage(MemoryStorage):
    """A `MemoryStorage` in which every app finds one key, as if it had been entered earlier.

    Attributes:
        key: The key; None for none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.key: str | None = None

    def load(self, name: str) -> "Document | None":
        """Return a record."""
        known = super().load(name)
        if known is None and self.key is not None and name.startswith("activation-"):
            with self._lock:  # one object until it changes: clients compare by identity
                document = {"hint": mask_key(self.key), "domain": "", "license": "", "key": self.key}
                return self._records.setdefault(name, document)
        return known

    def change(self, name: str, edit: "Callable[[Document | None], Document | None]") -> "Document | None":
        """Replace or delete a record."""
        after = super().change(name, edit)
        if after is None and name.startswith("activation-"):
            self.key = None
        return after
