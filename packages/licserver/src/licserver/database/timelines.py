"""The highest timeline of each PostgreSQL system that was seen, kept in the data folder (D-259).

Each promotion begins a higher timeline. So a process that starts while only a former primary can be reached
recognises it.
"""

import json
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from licserver import libraries
from licserver.database.hosts import Server
from licserver.errors import StoreError
from licserver.security.private_files import new_file, sync_folder

FILE: Final = "timelines.json"
_LOCK_SECONDS: Final = 5.0

_log = logging.getLogger("licserver.database")


class Timelines:
    """The highest timelines. Thread-safe; `newest` may be read at any time.

    Args:
        folder: Where they are kept; if it is missing or None, they are forgotten with the process.
        keep: Whether to write what is new.

    Raises:
        StoreError: if the file in the folder cannot be read.
    """

    def __init__(self, folder: Path | None = None, *, keep: bool = True) -> None:
        self.file: Final = None if folder is None else folder / FILE
        self.newest: Mapping[str, int] = {} if self.file is None else _read(self.file)
        self._keep = keep
        self._lock = threading.Lock()

    def note(self, server: Server) -> None:
        """Remember a server's timeline if it is the highest of its system; durably from the second on."""
        if server.timeline <= self.newest.get(server.system, 0):
            return
        with self._lock:
            if server.timeline <= self.newest.get(server.system, 0):
                return
            self.newest = {**self.newest, server.system: server.timeline}
            if server.timeline > 1 and self._keep and self.file is not None:
                self._save(self.file)

    @property
    def how_to_forget(self) -> str:
        """The instruction to accept a lower timeline again."""
        delete = "" if self.file is None else f" delete {self.file},"
        return f"stop licserver on every machine,{delete} and start it again"

    def _save(self, file: Path) -> None:
        if not file.parent.is_dir():
            return
        try:
            with libraries.filelock.FileLock(file.with_suffix(".lock"), timeout=_LOCK_SECONDS, mode=0o600):
                newest = _read(file)
                newest |= {name: max(timeline, newest.get(name, 0)) for name, timeline in self.newest.items()}
                with new_file(file, replace=True) as target:
                    target.write(json.dumps(newest).encode())
                sync_folder(file.parent)
        except (OSError, StoreError, libraries.filelock.Timeout) as problem:
            _log.warning(
                "cannot note in %s that a database host was promoted: %s; a restart would accept the former "
                "primary if it alone can be reached",
                file,
                problem,
            )


def _read(file: Path) -> dict[str, int]:
    try:
        content = json.loads(file.read_text("utf-8"))
        return {str(system): int(timeline) for system, timeline in content.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is damaged"
        raise StoreError(
            f"cannot read {file}: {reason}; it names the newest timeline of the database: see that it can be "
            "read, or if it is lost, that no former primary runs, and delete it"
        ) from None
