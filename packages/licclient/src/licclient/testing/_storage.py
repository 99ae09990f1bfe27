"""Storage in memory."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from licclient._records import Document


class MemoryStorage:
    """A `licclient.Storage` that forgets everything with the process; several clients may share one."""

    def __init__(self) -> None:
        self._records: dict[str, Document] = {}
        self._lock = threading.RLock()

    def load(self, name: str) -> "Document | None":
        """Return a record."""
        return self._records.get(name)

    def change(self, name: str, edit: "Callable[[Document | None], Document | None]") -> "Document | None":
        """Replace or delete a record."""
        with self._lock:
            after = edit(self._records.get(name))
            if after is None:
                self._records.pop(name, None)
            else:
                self._records[name] = after
            return after

    def folder(self) -> None:
        """Return None: no other process uses this storage."""
