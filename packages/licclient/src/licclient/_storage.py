"""The state folder and locks between processes: private files, replaced atomically; nothing here raises.

Whatever goes wrong with the disk, an app that holds a good license keeps running: what cannot be read is a
miss, and what cannot be written is remembered in this process alone.
"""

import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, Protocol, Self

from licclient._records import ONE_PLACE, Document, Places, seal, unseal

if TYPE_CHECKING:
    from filelock import BaseFileLock

MAX_RECORD_BYTES: Final = 4 * 1024 * 1024
"""Longer files are not read: what is remembered has at most 1 MiB, and JSON may write it longer."""

MOST_IN_MEMORY: Final = 512
"""How many records are kept in memory: an app has a handful, who looks after many keys has no end of them."""

LOCK_SECONDS: Final = 2.0
"""How long to wait for another process; a write takes a millisecond."""

REPLACE_PAUSES: Final = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds between tries: Windows refuses to replace a file that a virus scanner or a reader has open."""

FOLDER_PAUSES: Final = (*REPLACE_PAUSES, 0.5, *[1.0] * 9)
"""The same for a folder with a new version: a virus scanner reads all of its files, for up to ten seconds."""

# What only some systems have is 0 on the others. A pipe without a writer would wait forever, and a link may
# lead anywhere.
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_READ: Final = (
    os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
)

_Signature = tuple[int, int, int, int]
_Edit = Callable[[Document | None], Document | None]


class Storage(Protocol):
    """Where a client keeps its state: named JSON records. Safe to share among threads; never raises."""

    def load(self, name: str) -> Document | None:
        """Return a record, which must not be changed: the same object until it is replaced."""

    def change(self, name: str, edit: Callable[[Document | None], Document | None]) -> Document | None:
        """Replace a record by `edit(record)` atomically, delete it for None; return the new record."""

    def folder(self) -> Path | None:
        """Return a folder for locks between processes; None when only this process uses the storage."""


class StateFolder:
    """The records of one app, as files. Threads may share it; other processes' writes are seen at once.

    Without a folder they are in the platform's folder for application state; `places` are in it. A folder is
    made, private to the user, when the first record is written.
    """

    def __init__(self, folder: Path | None, places: Places = ONE_PLACE) -> None:
        self._folder = folder
        self._places = places
        self._guard = threading.Lock()
        self._paths: dict[str, Path] = {}  # putting one together costs more than looking at the file
        # name → what the file looked like, and what it said; also what could not be written.
        self._memory: dict[str, tuple[_Signature | None, Document | None]] = {}
        self._unwritten: set[str] = set()
        self._has_complained = False

    def load(self, name: str) -> Document | None:
        """Return a record, or None when there is none that can be read. Never raises, never waits."""
        path = self._path(name)
        signature = _signature(path)
        known = self._memory.get(name)
        if known is not None and known[0] == signature:
            return known[1]
        raw = None if path is None else read_private(path)
        if raw is None and known is None and self._places.app:
            raw = self._adopt(name)
            signature = _signature(path)
        document = None if raw is None else unseal(name, raw)
        self._remember(name, signature, document)
        return document

    def change(self, name: str, edit: _Edit) -> Document | None:
        """Read a record, edit it and write it, with no other process or thread between. Never raises.

        `edit` gets the record or None, which it must not change, and returns the new one, None to remove it,
        or the very object that it got to leave it. Return the record now in force: in this process also when
        it could not be written.
        """
        self.load(name)  # it may have to be brought from elsewhere, which takes the lock
        with self._alone(name) as may_write:
            before = self.load(name)
            after = edit(before)
            if after is before:
                return after
            if after is None:
                self._remove(name, draft_too=may_write)
                is_done = _signature(self._path(name)) is None
            else:
                is_done = may_write and self._write(name, seal(name, after))
                if not may_write:
                    self._complain(f"its lock is not given back: {self.folder()}")
            (self._unwritten.discard if is_done else self._unwritten.add)(name)
            self._remember(name, _signature(self._path(name)), after)
            return after

    def _remember(self, name: str, signature: _Signature | None, document: Document | None) -> None:
        self._memory[name] = signature, document
        if len(self._memory) <= MOST_IN_MEMORY:
            return
        for old in list(self._memory)[: MOST_IN_MEMORY // 2]:  # the older half; a dict keeps its order
            if old not in self._unwritten:  # of that there is no other copy
                self._memory.pop(old, None)
                self._paths.pop(old, None)

    # --- the disk -----------------------------------------------------------------------------

    def folder(self) -> Path | None:
        """Return the app's folder; None when there is no place for it."""
        root = self._root()
        return None if root is None else root / self._places.app

    def _root(self) -> Path | None:
        if self._folder is None:
            from platformdirs import user_state_path  # noqa: PLC0415 - often not needed

            with suppress(OSError, RuntimeError):  # such as: no home folder
                self._folder = user_state_path("licclient", appauthor=False)
        return self._folder

    def _path(self, name: str) -> Path | None:
        path = self._paths.get(name)
        if path is None and (root := self._root()) is not None:
            folder = root / self._places.elsewhere.get(name, self._places.app)
            path = self._paths[name] = folder / f"{name}.state"
        return path

    def _adopt(self, name: str) -> bytes | None:
        """Bring a record from the one folder that earlier versions had for all apps; None when none is there.

        What other apps may need stays there, for those with an earlier version.
        """
        root, path = self._root(), self._path(name)
        if root is None or path is None:
            return None
        old = root / path.name
        raw = read_private(old)
        if raw is None:
            return None
        with self._alone(name) as may_write:
            is_there = _signature(path) is not None or (may_write and self._write(name, raw))
            if is_there and name not in self._places.elsewhere:
                _discard(old)
        return raw

    @contextmanager
    def _alone(self, name: str) -> Iterator[bool]:
        """Hold the lock of a record's folder around the block; yields whether it may be written in it."""
        if not self._guard.acquire(timeout=LOCK_SECONDS):
            yield False
            return
        try:
            with self._file_lock(self._path(name)) as may_write:
                yield may_write
        finally:
            self._guard.release()

    @contextmanager
    def _file_lock(self, path: Path | None) -> Iterator[bool]:
        try:
            lock = None if path is None else take_lock(path.parent / "licclient.lock", LOCK_SECONDS)
        except TimeoutError:
            yield False
            return
        try:
            yield True  # also without a lock: the write itself will show what is wrong
        finally:
            if lock is not None:
                release_lock(lock)

    def _write(self, name: str, raw: bytes) -> bool:
        path = self._path(name)
        if path is None:
            self._complain("there is no folder for it")
            return False
        draft = path.with_suffix(".draft")
        try:
            draft.unlink(missing_ok=True)  # of a process that was killed; its name is free for us alone
            with open(os.open(draft, _WRITE, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor, for its mode
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            replace_file(draft, path)
        except OSError as problem:
            _discard(draft)
            self._complain(f"{problem.strerror or type(problem).__name__}: {path.parent}")
            return False
        return True

    def _complain(self, reason: str) -> None:
        """Log, once, what the app's developer would otherwise learn from customers (D-52)."""
        if self._has_complained:
            return
        self._has_complained = True
        import logging  # noqa: PLC0415 - for this alone

        logging.getLogger("licclient").warning(
            "The state cannot be written (%s): the next start may ask for the license key again and take"
            " another slot, unless the app passes a domain.",
            reason,
        )

    def _remove(self, name: str, *, draft_too: bool) -> None:
        """Remove a record, also without the lock: a refusal must not be lost to a busy disk.

        With the lock the draft as well that a killed process left: a key may stand in it. What `_adopt` left
        where it was would be brought again.
        """
        path, root = self._path(name), self._root()
        if path is None:
            return
        with suppress(OSError):
            _patiently(path.unlink)
        if self._places.app and root is not None:
            _discard(root / path.name)
        if draft_too:
            _discard(path.with_suffix(".draft"))


def _discard(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def read_folder(name: str, value: str | os.PathLike[str]) -> Path:
    """Read a folder's path, once: it stays the same folder wherever the app works later.

    Raise `TypeError` for no path of text, and `ValueError` for a blank one: that would be the working folder.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a path of text, not of {type(text).__name__}")
    if not text.strip() or "\0" in text:
        raise ValueError(f"{name} must be the path of a folder")
    path = Path(text)
    with suppress(RuntimeError):  # no home folder: then ~ is a name like any other
        path = path.expanduser()
    return path.absolute()


def make_private(folder: Path) -> None:
    """Make a folder, and whatever is missing above it, for the user alone."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def replace_file(source: Path, target: Path, pauses: Iterable[float] = REPLACE_PAUSES) -> None:
    """Give a finished file its name at one stroke, over whatever file had it before.

    Raise `OSError` if that cannot be done, also not after waiting out another reader.
    """
    _patiently(lambda: source.replace(target), pauses)


def _patiently(act: Callable[[], object], pauses: Iterable[float] = REPLACE_PAUSES) -> None:
    for pause in pauses:
        try:
            act()
            return
        except PermissionError:
            if os.name != "nt":
                raise
            sleep(pause)
    act()


def _signature(path: Path | None) -> _Signature | None:
    """Return what a file looks like from outside; it changes whenever the file is replaced."""
    if path is None:
        return None
    try:
        status = os.lstat(path)  # `Path.lstat` costs 1 µs more, at each answer from the cache
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_private(path: Path) -> bytes | None:
    """Read a plain file of bearable size; None for links, folders, pipes, devices and everything else."""
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_RECORD_BYTES:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_RECORD_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def take_lock(path: Path, seconds: float) -> "BaseFileLock | None":
    """Take a lock of the operating system, which any thread may release.

    Raise `TimeoutError` if somebody else holds it. Return None on a file system without locks, or one that
    cannot be written.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - most starts only read

    try:
        make_private(path.parent)
        lock = FileLock(path, timeout=seconds, mode=0o600, thread_local=False)
        lock.acquire()
    except Timeout:
        raise
    except (OSError, NotImplementedError, RuntimeError):
        return None
    return lock


def release_lock(lock: "BaseFileLock", path: Path | None = None) -> None:
    """Release a lock; with its path, remove its file as well."""
    if path is not None:
        _discard(path)  # while it is held: whoever waits looks whether it is still the same file
    with suppress(OSError):  # the folder's file system went away, and the lock with it
        lock.release()
    if path is not None and os.name == "nt":
        _discard(path)  # Windows removes no open file, and here nobody loses a lock by it


PAUSE: Final = 0.02
"""Seconds between two looks at a lock that somebody else holds."""

LEAST_SECONDS: Final = 2.0
"""What is left for a call of one's own however long the wait was: less would be as good as none."""


class CallLock:
    """The right to make a call: one at a time for one key, for all threads and processes of a user (D-58).

    A lock of the operating system, so a process that is killed releases it. Whoever holds it leaves a result
    for all who waited; one that hangs is waited for only as long as a call may take (`patience`, seconds).
    Leave it as a context manager, on any thread.
    """

    pause = PAUSE

    def __init__(self, lock: Path | None, patience: float) -> None:
        self._path = lock
        self._patience = patience
        self._began = monotonic()
        self._lock: BaseFileLock | None = None

    def is_ours(self) -> bool:
        """Try to take the lock, without waiting; True also when there is nothing to wait for."""
        if self._path is None or self._lock is not None:
            return True
        try:
            self._lock = take_lock(self._path, 0)
        except TimeoutError:
            return monotonic() >= self._began + self._patience
        return True  # also without a lock: better twice than never

    def left(self, seconds: float) -> float:
        """Return how much of a call's time limit is left for it: the wait for the lock is part of that."""
        return max(min(LEAST_SECONDS, seconds), self._began + seconds - monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            release_lock(lock, self._path)
