"""The state folder and locks between processes: private files, replaced atomically.

Reading a record has three outcomes: its content, nothing, or `StateUnreadableError`. Damaged content counts
as nothing. A failed read does not: it is repeated for a moment, and then the record is neither replaced nor
taken for missing (D-52). What cannot be written is remembered in this process alone.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import sleep
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self, TypeGuard, TypeVar

from licclient._core.clock import monotonic
from licclient._core.lazy import lazy
from licclient._core.process import LOCKS
from licclient._core.records import ONE_PLACE, Document, Places, Put, Storage, seal, unseal
from licclient.errors import StateUnreadableError

if TYPE_CHECKING:
    import logging
    import pathlib
    from io import BufferedReader
    from pathlib import Path

    import filelock
    import platformdirs
    from filelock import BaseFileLock
else:
    filelock = lazy("filelock")
    logging = lazy("logging")
    pathlib = lazy("pathlib")
    platformdirs = lazy("platformdirs")

MAX_RECORD_BYTES: Final = 4 * 1024 * 1024
"""Longer files are not read: state has at most 1 MiB, and JSON may write it longer."""

MOST_IN_MEMORY: Final = 512
"""How many records are kept in memory: an app has a handful, a tool for many keys has thousands."""

LOCK_SECONDS: Final = 2.0
"""How long to wait for another process; a write takes a millisecond."""

WAIT_AGAIN: Final = 10.0
"""Seconds after a wait in vain without another wait: the owner of a lock kept for two seconds hangs."""

REPLACE_PAUSES: Final = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds between tries: Windows refuses to replace a file that a virus scanner or a reader has open."""

SHORT_PAUSES: Final = REPLACE_PAUSES[:3]
"""The same where memory has an older content to go on with: a click must not wait for longer."""

FOLDER_PAUSES: Final = (*REPLACE_PAUSES, 0.5, *[1.0] * 9)
"""The same for a folder with a new version: a virus scanner reads all of its files, for up to ten seconds."""

# What only some systems have is 0 on the others. A pipe without a writer would wait forever, and a link may
# lead anywhere.
_NO_LINKS: Final = getattr(os, "O_NOFOLLOW", 0)
_BINARY: Final = getattr(os, "O_BINARY", 0)
NEW_FILE: Final = os.O_CREAT | os.O_EXCL | _NO_LINKS | _BINARY
"""Flags of `os.open` for a file that is made: a link or another file in its place is an error."""
_READ: Final = os.O_RDONLY | _BINARY | getattr(os, "O_NONBLOCK", 0) | _NO_LINKS

_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
CANNOT_LOCK: Final = _CANNOT_SYNC | {errno.ENOLCK, errno.EBADF}
"""Errors of file systems without locks; EBADF is that of NFS 4."""

MAX_PATH: Final = 30_000
"""No system takes longer paths."""

_INVALID_NAME: Final = 123  # Windows: no file can have this name

_Signature = tuple[int, int, int, int]
_UNKNOWN: Final[_Signature] = (-1, -1, -1, -1)  # of no file: the next look reads it
_Edit = Callable[[Document | None], Document | None]
_T = TypeVar("_T")


class StateFolder:
    """The records of one app, as files. Threads may share it; other processes' writes are seen at once.

    Without a folder they are in the platform's folder for application state; `places` are in it. A folder is
    made, private to the user, when the first record is written. It waits `lock_timeout` seconds for a lock,
    at most `LOCK_SECONDS`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        places: Places = ONE_PLACE,
        lock_timeout: float | None = None,
    ) -> None:
        # Texts, not paths: to load `pathlib` costs a start that is answered from here 3 ms.
        self._folder = None if folder is None else os.fspath(folder)
        self._lock_timeout = lock_timeout
        # One call writes several records: after a wait in vain it does not wait again for each of them.
        self._waited_at: float | None = None
        self._places = places
        self._paths: dict[str, str] = {}  # putting one together costs more than looking at the file
        # name → what the file looked like, and what it said; also what could not be written.
        self._memory: dict[str, tuple[_Signature | None, Document | None]] = {}
        self._unwritten: set[str] = set()
        self._has_complained = False

    def load(self, name: str) -> Document | None:
        """Return a record; None if it is missing or damaged.

        A read that fails is repeated for at most 0.4 s. Then what memory has is returned; without that, raise
        `StateUnreadableError`.
        """
        try:
            cached = self._memory.get(name)
            # `_read` does the same: this spares each answer from the cache some calls.
            if cached is not None and cached[0] == _signature(self._path(name)):
                return cached[1]
            return self._read(name, adopt=True)
        except OSError:
            return self._load_again(name)

    def _load_again(self, name: str) -> Document | None:
        cached = self._memory.get(name)
        document = None if cached is None else cached[1]
        try:
            pauses = REPLACE_PAUSES if document is None else SHORT_PAUSES
            return repeat(lambda: self._read(name, adopt=True), pauses)
        except OSError as problem:
            if document is None:
                raise self._unreadable(name, problem) from problem
            return document

    def change(self, name: str, edit: _Edit) -> Document | None:
        """Read a record, edit it and write it, with no other process or thread between.

        `edit` gets the record or None, which it must not change, and returns the new one, None to remove it,
        or the very object that it got to leave it. Return the record now in force: in this process also when
        it could not be written.

        Raise `StateUnreadableError` if the record cannot be read. A `Put` does not need to know it: it
        removes such a record, and replaces it in memory alone.
        """
        with suppress(StateUnreadableError):
            self.load(name)  # it may have to be brought from elsewhere, which takes the lock
        with self._alone(name) as has_lock:
            may_write = has_lock
            try:
                before = repeat(lambda: self._read(name, adopt=False))
            except OSError as problem:
                if not isinstance(edit, Put):
                    raise self._unreadable(name, problem) from problem
                before, may_write = {}, has_lock and edit.document is None
                self._complain(f"{_reason(problem)}: {self._path(name)}")
            after = edit(before)
            if after is before:
                return after
            if after is None:
                self._remove(name, draft_too=may_write)
                is_done = self._is_absent(name)
            else:
                is_done = may_write and self._write(name, seal(name, after))
                if not has_lock:
                    self._complain(f"its lock is not given back: {self.folder()}")
            (self._unwritten.discard if is_done else self._unwritten.add)(name)
            try:
                signature = _signature(self._path(name))
            except OSError:
                signature = _UNKNOWN
            self._remember(name, signature, after)
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

    def _read(self, name: str, *, adopt: bool) -> Document | None:
        """Return the record on the disk, from memory if unchanged. Raise `OSError` if it is unreadable."""
        path, cached = self._path(name), self._memory.get(name)
        signature = _signature(path)
        if cached is not None and cached[0] == signature:
            return cached[1]
        raw = None if path is None else read_private(path)
        if raw is None and cached is None and adopt and self._places.app:
            raw = self._adopt(name)
            signature = _signature(path)
        document = None if raw is None else unseal(name, raw)
        self._remember(name, signature, document)
        return document

    def _is_absent(self, name: str) -> bool:
        try:
            return _signature(self._path(name)) is None
        except OSError:
            return False

    def _unreadable(self, name: str, problem: OSError) -> StateUnreadableError:
        return StateUnreadableError(_reason(problem), str(self._path(name)))

    def folder(self) -> "Path | None":
        """Return the app's folder; None when there is no place for it."""
        root = self.root()
        return None if root is None else pathlib.Path(root, self._places.app)

    def files(self) -> "list[Path]":
        """Return the files of this app's records, also those that it shares; raise `OSError` as `look_at`."""
        folder = self.folder()
        if folder is None:
            return []
        names = repeat(lambda: os.listdir(folder)) if is_folder(folder) else []  # noqa: PTH208 - raises at once
        files = {folder / name for name in names if name.endswith(".state")}
        shared = [path for name in self._places.elsewhere if (path := self._path(name)) is not None]
        files.update(pathlib.Path(path) for path in shared if look_at(pathlib.Path(path)) is not None)
        return sorted(files)

    def root(self) -> str | None:
        """Return the folder that the app has chosen, otherwise the platform's; None without either."""
        if self._folder is None:
            with suppress(OSError, RuntimeError):  # such as: no home folder
                self._folder = str(platformdirs.user_state_path("licclient", appauthor=False))
        return self._folder

    def _path(self, name: str) -> str | None:
        path = self._paths.get(name)
        if path is None and (root := self.root()) is not None:
            folder = self._places.elsewhere.get(name, self._places.app)
            path = self._paths[name] = os.path.join(root, folder, f"{name}.state")  # noqa: PTH118 - a text
        return path

    def _adopt(self, name: str) -> bytes | None:
        """Bring a record from the one folder that earlier versions had for all apps; None when none is there.

        What other apps may need stays there, for those with an earlier version.
        """
        old = self._shared_path(name)
        if old is None:
            return None
        raw = read_private(old)
        if raw is None:
            return None
        with self._alone(name) as may_write:
            is_there = not self._is_absent(name) or (may_write and self._write(name, raw))
            if is_there and name not in self._places.elsewhere:
                _discard(old)
        return raw

    def _shared_path(self, name: str) -> "Path | None":
        """Return where earlier versions kept a record, in one folder for all apps."""
        root = self.root()
        return None if root is None else pathlib.Path(root, f"{name}.state")

    @contextmanager
    def _alone(self, name: str) -> Iterator[bool]:
        """Hold the lock of a record's folder around the block; yields whether it may be written in it."""
        path = self._path(name)
        guard = LOCKS.get(id(self) if path is None else os.path.dirname(path))  # noqa: PTH120 - a text
        if not guard.acquire(timeout=self._wait()):
            self._waited_at = monotonic()
            yield False
            return
        try:
            with self._file_lock(path) as may_write:
                self._waited_at = None if may_write else monotonic()
                yield may_write
        finally:
            guard.release()

    def _wait(self) -> float:
        """Return how long to wait for a lock."""
        if self._waited_at is not None and monotonic() - self._waited_at < WAIT_AGAIN:
            return 0.0
        return LOCK_SECONDS if self._lock_timeout is None else min(self._lock_timeout, LOCK_SECONDS)

    @contextmanager
    def _file_lock(self, path: str | None) -> Iterator[bool]:
        try:
            lock = None
            if path is not None:
                lock = take_lock(pathlib.Path(path).parent / "licclient.lock", self._wait())
        except TimeoutError:
            yield False
            return
        try:
            yield True  # also without a lock: the write itself reports the cause
        finally:
            if lock is not None:
                release_lock(lock)

    def _write(self, name: str, raw: bytes) -> bool:
        text_path = self._path(name)
        if text_path is None:
            self._complain("there is no folder for it")
            return False
        path = pathlib.Path(text_path)
        try:
            write_file(path, raw, path.with_suffix(".draft"), 0o600)
        except OSError as problem:
            self._complain(f"{_reason(_why_not_made(path.parent) or problem)}: {path.parent}")
            return False
        return True

    def _complain(self, reason: str) -> None:
        """Log, once, what the app's developer would otherwise learn from customers."""
        if self._has_complained:
            return
        self._has_complained = True
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
        text_path, shared = self._path(name), self._shared_path(name)
        if text_path is None:
            return
        path = pathlib.Path(text_path)
        with suppress(OSError):
            _retry_while_locked(path.unlink)
        if self._places.app and shared is not None:
            _discard(shared)
        if draft_too:
            _discard(path.with_suffix(".draft"))


def _reason(problem: OSError) -> str:
    return problem.strerror or type(problem).__name__


def repeat(act: Callable[[], _T], pauses: Iterable[float] = REPLACE_PAUSES) -> _T:
    """Return what `act` does, repeated while it raises `OSError`; then that."""
    for pause in pauses:
        try:
            return act()
        except OSError:
            sleep(pause)
    return act()


def _discard(path: "Path") -> None:
    with suppress(OSError):
        path.unlink()


def is_storage(value: object) -> TypeGuard[Storage]:
    """Return whether a value has the methods of `Storage`; a path has none of them."""
    return all(callable(getattr(value, name, None)) for name in ("load", "change", "folder"))


def read_folder(name: str, value: str | os.PathLike[str]) -> "Path":
    """Return the path of a folder; errors as of `read_folder_path`."""
    return pathlib.Path(read_folder_path(name, value))


def read_folder_path(name: str, value: str | os.PathLike[str]) -> str:
    """Read a folder's path, once: it stays the same folder wherever the app works later.

    Raise `TypeError` for no path of text, and `ValueError` for a blank one: that would be the working folder.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a path of text, not of {type(text).__name__}")
    try:
        path = disk_name(text)
    except UnicodeError:  # half of a surrogate pair
        path = text = ""
    if not text.strip() or "\0" in text or len(text) > MAX_PATH:
        raise ValueError(f"{name} must be the path of a folder")
    return path if _is_plain_path(path) else _make_absolute(path)


def _is_plain_path(path: str) -> bool:
    """Return whether a path is absolute already and in its shortest spelling: that needs no `pathlib`."""
    root, *parts = path.split("/")
    return os.name != "nt" and root == "" and not {"", "."}.intersection(parts)


def _make_absolute(text: str) -> str:
    path = pathlib.Path(text)
    with suppress(RuntimeError):  # no home folder: then ~ is a name like any other
        path = path.expanduser()
    return str(path.absolute())


def disk_name(name: str) -> str:
    """Return a name or path as `os` takes it: in UTF-8 if Python takes the file system for one of ASCII."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return os.fsdecode(name.encode())
    return name


def make_private(folder: "Path") -> None:
    """Make a folder, and whatever is missing above it, for the user alone."""
    for missing in reversed([parent for parent in (folder, *folder.parents) if not parent.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _why_not_made(folder: "Path") -> OSError | None:
    """Return why a folder cannot be made; None if it is there."""
    try:
        make_private(folder)
    except OSError as problem:
        return problem
    return None


def make_folder(folder: "Path") -> None:
    """Make a folder, and whatever is missing above it; what fails is repeated as in `read_with_retries`."""
    repeat(lambda: folder.mkdir(parents=True, exist_ok=True))


def write_file(path: "Path", content: bytes, draft: "Path", mode: int, shared: int = 0) -> None:
    """Write a file durably and at one stroke, by way of a draft beside it; raise `OSError` with none left.

    The umask applies to `mode`, and not to the permissions in `shared`.
    """
    try:
        draft.unlink(missing_ok=True)  # of a process that was killed; its name is free for us alone
        with open(draft, "wb", opener=with_flags(os.O_WRONLY | NEW_FILE, mode)) as file:
            if shared:
                with suppress(OSError):  # a file system without modes of its own, such as FAT
                    os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & 0o777 | shared)
            file.write(content)
            file.flush()
            sync_file(file)
        replace_file(draft, path)
    except OSError:
        _discard(draft)
        raise


def sync_file(file: BinaryIO) -> None:
    """Make what was written durable, where the file system can; raise `OSError` if the disk fails."""
    try:
        os.fsync(file.fileno())
    except OSError as problem:
        if problem.errno not in _CANNOT_SYNC:
            raise
        _log_no_sync("A file", problem)


def sync_folder(folder: "Path") -> None:
    """Make the names in a folder durable, where its file system can; Windows does so by itself.

    Never raises: the folder's files are whole with or without this.
    """
    if os.name == "nt":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as problem:
        _log_no_sync(f"The folder {folder}", problem)


def _log_no_sync(place: str, problem: OSError) -> None:
    logging.getLogger("licclient").info("%s cannot be synced: %s", place, _reason(problem))


def replace_file(source: "Path", target: "Path", pauses: Iterable[float] = REPLACE_PAUSES) -> None:
    """Give a finished file its name at one stroke, over whatever file had it before.

    Raise `OSError` if that cannot be done, also not after waiting out another reader.
    """
    _retry_while_locked(lambda: source.replace(target), pauses)


def move_file(source: "Path", target: "Path") -> None:
    """Give a file another name as `replace_file` does; on Windows only a free one, or `FileExistsError`."""
    _retry_while_locked(lambda: source.rename(target))


def _retry_while_locked(act: Callable[[], object], pauses: Iterable[float] = REPLACE_PAUSES) -> None:
    for pause in pauses:
        try:
            act()
            return
        except PermissionError:
            if os.name != "nt":
                raise
            sleep(pause)
    act()


def _signature(path: str | None) -> _Signature | None:
    """Return what a file looks like from outside; it changes whenever the file is replaced.

    None when there is no file. Raise `OSError` when that cannot be found out.
    """
    if path is None:
        return None
    try:
        status = os.lstat(path)
    except OSError as problem:
        if is_absence(problem):
            return None
        raise
    except ValueError:  # no file can have this name
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_absence(problem: OSError) -> bool:
    """Return whether an error means that there is no such file, rather than that it is out of reach."""
    return problem.errno in _ABSENT or getattr(problem, "winerror", None) == _INVALID_NAME


def read_private(path: "str | Path") -> bytes | None:
    """Read a plain file of bearable size; None for a missing file, a link, a folder, a pipe or a device.

    Raise `OSError` when a file is there, or may be there, and cannot be read.
    """
    try:
        descriptor = os.open(path, _READ)
    except ValueError:  # no file can have this name
        return None
    except OSError as problem:
        if is_absence(problem) or not _is_plain(path):
            return None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_RECORD_BYTES:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_RECORD_BYTES)
    finally:
        os.close(descriptor)


def open_plain(path: "Path") -> "BufferedReader":
    """Open a file by a given name, to read it. Raise `OSError` for anything but a plain file.

    A pipe, which might have no writer for ever, is refused as well, and at once. Links are followed.
    """
    with ExitStack() as unless_plain:
        file = open(path, "rb", opener=with_flags(_READ & ~_NO_LINKS))  # noqa: SIM115 - for the caller
        unless_plain.callback(file.close)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a plain file", str(path))
        unless_plain.pop_all()
        return file


def with_flags(flags: int, permissions: int = 0o600) -> Callable[[str, int], int]:
    """Return what `open` takes as `opener` to use flags of `os.open`.

    `open` closes what it has opened if it fails; on Windows an open file can be neither replaced nor removed.
    """
    return lambda path, _: os.open(path, flags, permissions)


def read_with_retries(path: "Path") -> bytes | None:
    """Read as `read_private` does; a read that fails is repeated for at most 0.4 s."""
    return repeat(lambda: read_private(path))


def open_temporary(folder: "Path", prefix: str) -> BinaryIO:
    """Make a file that has no name, or on Windows none once it is closed; by one try.

    `tempfile` tries 10,000 names where Windows refuses to make a file, as in `Program Files`.
    """
    path = folder / f"{prefix}{os.urandom(8).hex()}"
    flags = os.O_RDWR | NEW_FILE | getattr(os, "O_TEMPORARY", 0)
    file = open(path, "w+b", opener=with_flags(flags))  # noqa: SIM115 - for the caller
    if os.name != "nt":  # Windows removes it when it is closed
        try:
            path.unlink()
        except BaseException:
            file.close()
            raise
    return file


def look_at(path: "Path", *, follow_links: bool = False) -> os.stat_result | None:
    """Return the content at a path; None for nothing. Retry a failure for at most 0.4 s, then raise it."""

    def look() -> os.stat_result | None:
        try:
            # `Path.exists` and the like take a failure for an absence from Python 3.14 on.
            return os.stat(path, follow_symlinks=follow_links)  # noqa: PTH116 - as above
        except OSError as problem:
            if is_absence(problem):
                return None
            raise

    return repeat(look)


def is_folder(path: "Path") -> bool:
    """Return whether there is a folder, also behind a link; raise `OSError` as `look_at`."""
    status = look_at(path, follow_links=True)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _is_plain(path: "str | Path") -> bool:
    """Return whether there is a plain file. Raise `OSError` when that cannot be found out."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError as problem:
        if is_absence(problem):
            return False
        raise


def create_lock(path: "Path", seconds: float, **options: Any) -> "BaseFileLock":
    """Return a lock of the operating system, which any thread may release; it is not taken yet.

    Taking it raises `filelock.Timeout`; or `OSError` or `NotImplementedError` on a file system without locks:
    a file in the lock's place, as later versions of filelock make, would outlive a process that is killed.
    """
    if hasattr(filelock.FileLock, "fallback_to_soft"):
        options["fallback_to_soft"] = False
    return filelock.FileLock(path, timeout=seconds, thread_local=False, **options)


def take_lock(path: "Path", seconds: float) -> "BaseFileLock | None":
    """Take a lock of the operating system, which any thread may release.

    Raise `TimeoutError` if another process holds it. Return None on a file system without locks, or one that
    cannot be written.
    """
    try:
        make_private(path.parent)
        lock = create_lock(path, seconds, mode=0o600)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            _require_file(path)
            lock.acquire()
    except filelock.Timeout:
        raise
    except (OSError, NotImplementedError, RuntimeError):
        return None
    return lock


def _require_file(path: "Path") -> None:
    """Raise `OSError` where no file can be made: filelock takes that for a held lock."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS, 0o600))
    except PermissionError:
        if os.name != "nt":  # there, a file that is being removed refuses as well
            raise


def release_lock(lock: "BaseFileLock", path: "Path | None" = None) -> None:
    """Release a lock; with its path, remove its file as well."""
    if path is not None:
        _discard(path)  # while it is held: a waiting process checks whether it is still the same file
    with suppress(OSError):  # the folder's file system went away, and the lock with it
        lock.release()
    if path is not None and os.name == "nt":
        _discard(path)  # Windows removes no open file, and no process loses a lock by it


PAUSE: Final = 0.02
"""Seconds between two attempts to take a held lock."""

LEAST_SECONDS: Final = 2.0
"""Seconds left for the caller's own call after any wait: fewer would be as good as none."""


_CALLS: Final[dict[object, "CallLock"]] = {}
"""The current calls of this process: name → owner."""

if hasattr(os, "register_at_fork"):  # the child makes none of them
    os.register_at_fork(after_in_child=_CALLS.clear)


class CallLock:
    """The right to make a call: one at a time for one key, for all threads and processes of a user (D-58).

    Within the process it goes by `name`; between processes by a lock of the operating system in a folder,
    which a process that is killed releases. Its owner leaves a result for all waiting calls; an owner
    that hangs is waited for only as long as a call may take (`timeout`, seconds). Leave it as a context
    manager, on any thread.
    """

    pause = PAUSE

    def __init__(self, name: object, lock: "Path | None", timeout: float) -> None:
        self._name = name
        self._path = lock
        self._timeout = timeout
        self._began = monotonic()
        self._lock: BaseFileLock | None = None
        self._is_ours = False

    def is_ours(self) -> bool:
        """Try to take the lock, without waiting; True also when it is not waited for any longer."""
        if not self._is_ours:
            self._is_ours = self._is_taken() or monotonic() >= self._began + self._timeout
        return self._is_ours

    def _is_taken(self) -> bool:
        if _CALLS.setdefault(self._name, self) is not self:
            return False
        try:
            self._lock = None if self._path is None else take_lock(self._path, 0)
        except TimeoutError:
            return False
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
        if _CALLS.get(self._name) is self:
            _CALLS.pop(self._name, None)
