"""Backups in a folder of the server, written in the background, a single backup at a time."""

import contextlib
import json
import logging
import shutil
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

from licserver import libraries
from licserver.errors import BackupError, ConflictError, InvalidInputError, LicserverError, NotFoundError
from licserver.security.private_files import new_file, remove_leftovers
from licserver.services.backup import write_backup
from licserver.services.installation import Services

_log = logging.getLogger("licserver.backup")

SUFFIX: Final = ".backup"
_LOCK: Final = ".lock"
_STATE: Final = ".latest.json"
_RESERVED: Final = 256 << 20
"""Bytes left free on the disk, on which the database may be as well."""
_INTERRUPTED: Final = "The server stopped while it was written. Make another one."


class BackupFile(NamedTuple):
    """A backup in the folder; `size` in bytes."""

    path: Path
    size: int
    written_at: datetime


@dataclass(frozen=True, slots=True)
class BackupRun:
    """The latest run of a backup.

    Args:
        file: The file's name.
        actor: The name of the user.
        is_running: Whether the file is being written.
        written: Bytes written so far; 0 after the run.
        problem: The reason of a failure.
    """

    file: str
    actor: str
    started_at: datetime
    is_running: bool = False
    written: int = 0
    problem: str | None = None


class BackupFolder:
    """The folder of this machine in which the server writes backups.

    1. `start` takes the folder's lock, and writes a backup on a background thread.
    2. `latest_run` reports the progress or the result, in every process of the server.
    3. `list_files` lists the finished files; `delete` removes a file.

    Example::

        folder = BackupFolder(services)
        if folder.obstacle is None:
            folder.start()
        run = folder.latest_run()

    `start` raises a `ConflictError` while another backup is being written, and an `InvalidInputError` if the
    folder cannot be used.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        settings = services.settings
        self.path = settings.backup_dir or settings.data_dir / "backups"

    @property
    def obstacle(self) -> str | None:
        """The reason why this installation cannot write backups, with advice; None if it can."""
        settings = self._services.settings
        if settings.secrets is not None and settings.backup_dir is None:
            return (
                "The secrets are kept outside of the data folder (LICSERVER_SECRETS), and a backup holds "
                "them. Set LICSERVER_BACKUP_DIR to a folder in which they may be."
            )
        return None

    def list_files(self) -> list[BackupFile]:
        """Return the backups in the folder, the latest first."""
        tz = self._services.now().tzinfo
        files = []
        for path in self.path.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):  # removed meanwhile
                status = path.lstat()
                if stat.S_ISREG(status.st_mode) and not path.name.startswith("."):
                    written_at = datetime.fromtimestamp(status.st_mtime, tz)
                    files.append(BackupFile(path, status.st_size, written_at))
        return sorted(files, key=lambda file: (file.written_at, file.path), reverse=True)

    def delete(self, name: str) -> None:
        """Delete a backup.

        Raises:
            NotFoundError: The folder has no backup of this name.
        """
        backup = next((file for file in self.list_files() if file.path.name == name), None)
        if backup is None:
            raise NotFoundError("this backup was deleted already")
        backup.path.unlink(missing_ok=True)
        self._services.audit.record("backup.delete", ("backup", name))

    def latest_run(self) -> BackupRun | None:
        """Return the progress or the result of the latest backup, of any process."""
        run = self._load_state()
        if run is None or not run.is_running:
            return run
        if self._is_locked():
            return replace(run, written=self._count_written(run.file))
        # Read again: the run may have ended in between.
        run = self._load_state()
        if run is not None and run.is_running:
            return replace(run, is_running=False, problem=_INTERRUPTED)
        return run

    def start(self) -> None:
        """Start a backup on a background thread; `latest_run` returns its result."""
        if self.obstacle is not None:
            raise InvalidInputError(self.obstacle)
        try:
            lock = self._lock()
        except OSError as error:
            problem = f"cannot write to {self.path}: {error.strerror}; see LICSERVER_BACKUP_DIR"
            raise InvalidInputError(problem) from None
        try:
            now = self._services.now()
            name = f"licserver-{now:%Y-%m-%d-%H%M%S}{SUFFIX}"
            self._services.audit.record("backup.write", ("installation", "-"))
            run = BackupRun(name, self._services.actor.name, now, is_running=True)
            self._save_state(run)
            self._services.context.threads.start(lambda: self._run(run, lock))
        except BaseException:
            lock.release()
            raise

    def _run(self, run: BackupRun, lock: "libraries.filelock.FileLock") -> None:
        problem = None
        try:
            # No other process has the lock: unfinished files are from a process that was killed.
            remove_leftovers(self.path, ".licserver-", float("inf"), 0)
            with new_file(self.path / run.file, replace=False) as file:
                target = _Target(file, self.path, self._services.context.threads.is_stopping)
                write_backup(self._services, cast("IO[bytes]", target), run.started_at)
        except (LicserverError, OSError) as error:
            problem = error.strerror or "I/O error" if isinstance(error, OSError) else str(error)
            _log.error("the backup %s failed: %s", run.file, problem)
        except Exception:  # noqa: BLE001 - logged and shown; no caller waits for this thread
            problem = "an internal error, which the server's log describes"
            _log.exception("the backup %s failed", run.file)
        finally:
            with contextlib.suppress(OSError):
                self._save_state(replace(run, is_running=False, problem=problem))
            lock.release()

    def _lock(self) -> "libraries.filelock.FileLock":
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = libraries.filelock.FileLock(self.path / _LOCK, timeout=1, mode=0o600, thread_local=False)
        try:
            lock.acquire()
        except libraries.filelock.Timeout:
            raise ConflictError("a backup is being made already; wait until it is done") from None
        return lock

    def _is_locked(self) -> bool:
        try:
            self._lock().release()
        except ConflictError:
            return True
        except OSError:  # the folder is gone
            return False
        return False

    def _count_written(self, name: str) -> int:
        with contextlib.suppress(OSError):  # renamed in the meantime
            return sum(path.stat().st_size for path in self.path.glob(f".{name}-*"))
        return 0

    def _save_state(self, run: BackupRun) -> None:
        with new_file(self.path / _STATE, replace=True) as file:
            file.write(json.dumps(asdict(run), default=datetime.isoformat).encode())

    def _load_state(self) -> BackupRun | None:
        try:
            values: dict[str, Any] = json.loads((self.path / _STATE).read_bytes())
            return BackupRun(**{**values, "started_at": datetime.fromisoformat(values["started_at"])})
        except (OSError, ValueError, TypeError, KeyError):  # no run yet
            return None


class _Target:
    """A file that fails before the disk is full, and when the server stops."""

    def __init__(self, file: IO[bytes], folder: Path, is_stopping: Callable[[], bool]) -> None:
        self._file, self._folder, self._is_stopping = file, folder, is_stopping
        self._unchecked = 0

    def write(self, piece: bytes) -> int:
        """Write a piece."""
        if self._is_stopping():
            raise BackupError(_INTERRUPTED)
        self._unchecked -= len(piece)
        if self._unchecked < 0:
            if shutil.disk_usage(self._folder).free < _RESERVED:
                raise BackupError("The disk has no space for it. Delete old backups, or use another disk.")
            self._unchecked = 1 << 20
        return self._file.write(piece)
