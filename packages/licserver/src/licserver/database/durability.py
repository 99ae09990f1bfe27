"""Transactions that need not survive a power cut, because what they did is repeated then."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

_REPEATED: Final[ContextVar[bool]] = ContextVar("repeated", default=False)


def is_repeated() -> bool:
    """Return whether a lost transaction of the caller is repeated."""
    return _REPEATED.get()


@contextlib.contextmanager
def repeated_if_lost() -> Iterator[None]:
    """Let transactions on SQLite not wait for the disk; they survive the end of the process, as all do.

    The writer's lock is held for half the time. PostgreSQL, which many write to at a time, is not affected.
    """
    token = _REPEATED.set(True)
    try:
        yield
    finally:
        _REPEATED.reset(token)
