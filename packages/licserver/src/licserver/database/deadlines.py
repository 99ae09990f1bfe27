"""Until when a customer's request waits for the database."""

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

from licserver.errors import StoreUnavailableError

_DEADLINE: Final[ContextVar[float]] = ContextVar("deadline", default=float("inf"))


def read_deadline() -> float:
    """Return the instant of the monotonic clock at which the caller's wait ends."""
    return _DEADLINE.get()


@contextlib.contextmanager
def waiting_until(deadline: float) -> Iterator[None]:
    """Let a customer's request wait until an instant of the monotonic clock; raise if that is over.

    Services and repositories are those of the vendor's operations, which may wait longer.
    """
    if time.monotonic() > deadline:
        raise StoreUnavailableError("the database failed: others took all the time")
    before = _DEADLINE.set(deadline)
    try:
        yield
    finally:
        _DEADLINE.reset(before)
