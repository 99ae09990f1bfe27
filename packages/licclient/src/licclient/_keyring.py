"""The only file that names `keyring`: the operating system's place for secrets, when the extra is installed.

Importing keyring looks through all installed packages, and asking it may wake a service; so both happen
only when a key is stored, or fetched for a call. Whatever goes wrong there is "not here": a private file
stands in.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final, TypeVar

SECONDS: Final = 10.0
"""How long to wait for it: a locked one asks the person for a password, one without a desktop may hang."""

QUICK_SECONDS: Final = 0.5
"""How long to wait for it where a window is waiting: one that is unlocked answers within milliseconds."""

REST_FIRST: Final = 300.0
REST_MOST: Final = 3600.0
"""Seconds until one that gave no key is asked again, unless a person wants to know: doubling."""

_SERVICE: Final = "licclient"

_T = TypeVar("_T")


def store(account: str, key: str) -> bool:
    """Put a key there, under the name of its activation; return False when there is no keyring that works."""

    def work() -> bool:
        import keyring  # noqa: PLC0415 - an extra

        if not _is_safe(keyring.get_keyring()):
            return False
        keyring.set_password(_SERVICE, account, key)
        # Some backends take everything and keep nothing.
        return keyring.get_password(_SERVICE, account) == key

    try:
        return _patiently(work)
    except Exception:  # noqa: BLE001 - every backend fails in its own way, and its words may hold the key
        return False


def fetch(account: str) -> str | None:
    """Take a key out, however long that takes; None when it is not there, or cannot be had now."""
    try:
        import keyring  # noqa: PLC0415 - an extra

        return keyring.get_password(_SERVICE, account)
    except Exception:  # noqa: BLE001 - as above
        return None


def drop(account: str) -> None:
    """Remove a key, if it is there."""

    def work() -> None:
        import keyring  # noqa: PLC0415 - an extra

        keyring.delete_password(_SERVICE, account)

    with suppress(Exception):  # as above; it may be gone already
        _patiently(work)


def describe() -> str:
    """Return the name of the keyring, for support."""

    def work() -> str:
        import keyring  # noqa: PLC0415 - an extra

        found = keyring.get_keyring()
        name = f"{type(found).__module__}.{type(found).__name__}"
        return name if _is_safe(found) else f"{name}, not used"

    try:
        return _patiently(work)
    except ImportError:
        return "not installed (the extra licclient[keyring])"
    except Exception as problem:  # noqa: BLE001 - as above
        return f"does not work ({type(problem).__name__})"


def _patiently(work: Callable[[], _T]) -> _T:
    from licclient._network import run_with_deadline  # noqa: PLC0415 - loads socket, which most starts do without

    return run_with_deadline(SECONDS, work)


def _is_safe(backend: object) -> bool:
    """Return whether this is a real keyring: not "fail", "null", or the plain-text files of keyrings.alt."""
    if chained := getattr(backend, "backends", None):
        return _is_safe(chained[0])  # a chain of several; the first one is where it keeps things
    module = type(backend).__module__
    priority = getattr(backend, "priority", 0)
    return not module.startswith(("keyring.backends.fail", "keyring.backends.null", "keyrings.alt")) and (
        priority > 0
    )


# --- asked sparingly --------------------------------------------------------------------------


class Lender:
    """Hands out one key, and asks the keyring for it as seldom as can be (D-118).

    A locked keyring shows a person a window each time that it is asked. So there is one question at a time,
    whoever wants to know; what comes after everybody has stopped waiting still counts; and one that came to
    nothing is not asked again for a while. Safe to share among threads.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._question: _Question | None = None
        self._rest = REST_FIRST

    def key(self, account: str, record: object, seconds: float) -> str | None:
        """Return the key, or None when it cannot be had by then.

        `record` is what sends us there: another object than before is another activation. `seconds` is at
        most `SECONDS` for one question; 0 to ask nobody.
        """
        with self._guard:
            if self._question is not None and self._question.record is not record:
                self._forget()
            elif self._question is not None and self._question.failed_for() >= self._rest:
                self._rest = min(2 * self._rest, REST_MOST)
                self._question = None
            if self._question is None and seconds > 0:
                self._question = _Question(account, record)
            question = self._question
        return None if question is None else question.answer(seconds)

    def ask_again(self) -> None:
        """Ask again the next time: a person wants to know, and may have unlocked it."""
        with self._guard:
            if self._question is not None and self._question.failed_for() >= 0:
                self._forget()

    def forget(self) -> None:
        """Forget what was handed out, and what was not."""
        with self._guard:
            self._forget()

    def _forget(self) -> None:
        self._question, self._rest = None, REST_FIRST


class _Question:
    """One look into the keyring, on a thread of its own."""

    def __init__(self, account: str, record: object) -> None:
        self.record = record
        self._key: str | None = None
        self._until = monotonic() + SECONDS
        self._ended_at: float | None = None
        self._ended = threading.Event()
        thread = threading.Thread(target=self._ask, args=(account,), name="licclient-keyring", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._end()

    def _ask(self, account: str) -> None:
        try:
            self._key = fetch(account)
        finally:
            self._end()

    def _end(self) -> None:
        self._ended_at = monotonic()
        self._ended.set()

    def answer(self, seconds: float) -> str | None:
        self._ended.wait(max(min(seconds, self._until - monotonic()), 0.0))
        return self._key

    def failed_for(self) -> float:
        """Return how many seconds ago it came to nothing; less than 0 when it did not, or not yet."""
        if self._key is not None or self._ended_at is None:
            return -1.0
        return monotonic() - self._ended_at
