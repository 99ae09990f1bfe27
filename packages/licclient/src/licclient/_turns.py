"""One call at a time for one key, whoever asks: threads, tasks, and all processes of a user (D-58).

A lock of the operating system, so a process that is killed lets go of it. It is waited for without holding up
anybody: the one whose turn it is answers for all who waited, and an owner that hangs is waited for only as
long as a call may take.
"""

from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from filelock import BaseFileLock

PAUSE: Final = 0.02
"""Seconds between two looks at a lock that somebody else holds."""

LEAST_SECONDS: Final = 2.0
"""What is left for a call of one's own however long the wait was: less would be as good as none."""


class Turn:
    """The right to make a call. Leave it as a context manager, on whichever thread.

    Args:
        lock: The lock's file; None when there is no folder to have one in.
        patience: Seconds until we go ahead without the lock.
    """

    pause = PAUSE

    def __init__(self, lock: Path | None, patience: float) -> None:
        self._path = lock
        self._patience = patience
        self._began = monotonic()
        self._lock: BaseFileLock | None = None

    def is_ours(self) -> bool:
        """Try to take the turn, without waiting; True also when there is nothing to wait for."""
        if self._path is None or self._lock is not None:
            return True
        from filelock import FileLock, Timeout  # noqa: PLC0415 - most starts only read

        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Taken on one thread of a pool and given back on another, so not bound to a thread.
            lock = FileLock(self._path, timeout=0, mode=0o600, thread_local=False)
            lock.acquire()
        except Timeout:
            return monotonic() >= self._began + self._patience
        except (OSError, NotImplementedError, RuntimeError):
            return True  # a file system without locks, or one that cannot be written: better twice than never
        self._lock = lock
        return True

    def left(self, seconds: float) -> float:
        """Return how long the call itself may take, so that the wait for the turn is part of its time limit.

        Args:
            seconds: The time limit of a call as a whole.
        """
        return max(min(LEAST_SECONDS, seconds), self._began + seconds - monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock, self._lock = self._lock, None
        if lock is None or self._path is None:
            return
        with suppress(OSError):  # Windows removes no open file
            self._path.unlink()  # while it is held: who waits looks whether it is still the same file
        with suppress(OSError):  # the folder's file system went away, and the lock with it
            lock.release()
