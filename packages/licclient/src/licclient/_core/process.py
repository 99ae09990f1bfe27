"""Locks within this process, and what the child of a fork starts anew.

A child has only the thread that forked. A lock that another thread of the parent held would never be released
there, and a connection would be shared with the parent.
"""

import os
import threading
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

_RENEWALS: Final[WeakKeyDictionary[object, Callable[[Any], None]]] = WeakKeyDictionary()


def renew_in_child(owner: object, renew: Callable[[Any], None]) -> None:
    """Call `renew(owner)` in each child that is forked, as long as the owner is in use.

    It makes locks anew, and forgets threads and connections without closing them: they are the parent's.
    """
    _RENEWALS[owner] = renew


def _renew_all() -> None:
    for owner, renew in list(_RENEWALS.items()):
        renew(owner)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew_all)


class NamedLocks:
    """Locks by name, such as a folder's path: one for all objects of this process that share the name."""

    def __init__(self) -> None:
        self._renew()
        renew_in_child(self, NamedLocks._renew)

    def _renew(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[object, threading.Lock] = WeakValueDictionary()

    def get(self, name: object) -> threading.Lock:
        """Return the lock of this name."""
        with self._guard:
            return self._locks.setdefault(name, threading.Lock())


LOCKS: Final = NamedLocks()
