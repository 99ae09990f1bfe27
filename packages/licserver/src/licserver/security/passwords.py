"""Passwords of the console's users: what they must be like, and how they are kept (D-96)."""

import os
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

from licserver.errors import WrongUse

if TYPE_CHECKING:
    from argon2 import PasswordHasher

MIN_LENGTH: Final = 12
MAX_LENGTH: Final = 1024
"""Characters; without an upper end a megabyte could be given to the hash."""

_JUDGED: Final = 20
"""Characters that zxcvbn reads: 72 of a hostile password take it 13 s, and 20 at most 0.5 s."""
_LEAST_SCORE: Final = 3
"""Of zxcvbn's 0 to 4: at least 10^8 guesses."""
_NICENESS: Final = 10
"""Of a thread that hashes: it gets a tenth of a processor that other threads want."""

R = TypeVar("R")


def check_password(name: str, password: str) -> None:
    """Refuse a password that is short, common or otherwise easily guessed (D-166).

    Args:
        name: Whose password it is to be.
        password: As typed.

    Raises:
        WrongUse: saying what is wrong; the password is not repeated.
    """
    if len(password) < MIN_LENGTH:
        raise WrongUse(f"a password has at least {MIN_LENGTH} characters; four words of a sentence will do")
    if len(password) > MAX_LENGTH:
        raise WrongUse(f"a password has at most {MAX_LENGTH} characters")
    from zxcvbn import zxcvbn  # noqa: PLC0415 - 10 MiB of words that only this needs

    judged = zxcvbn(password[:_JUDGED], [name, *re.split(r"[^a-z0-9]+", name), "licserver"])
    if judged["score"] < _LEAST_SCORE:
        raise WrongUse(
            "this password is common or easy to guess; use four unrelated words, or one that a password "
            "manager has made"
        )


def hash_password(password: str) -> str:
    """Make what is kept of a password; takes some 0.1 s and 64 MiB, so never in an event loop."""
    return _with_low_priority(lambda: _hasher().hash(password))


def is_password(kept: str | None, password: str) -> bool:
    """Compare a password with what is kept; takes as long as `hash_password`, also when nobody has it.

    Args:
        kept: From `hash_password`; None for a user who does not exist, so that the time tells nothing.
        password: As typed.
    """
    if len(password) > MAX_LENGTH:
        return False
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - as `_hasher`

    try:
        _with_low_priority(lambda: _hasher().verify(kept or _nobodys(), password))
        return kept is not None
    except (VerificationError, InvalidHashError):
        return False


def is_dated(kept: str) -> bool:
    """Tell whether a hash was made with other parameters than those of today."""
    return _hasher().check_needs_rehash(kept)


def _with_low_priority(work: Callable[[], R]) -> R:
    """Hash on a thread of its own, which cannot raise its priority again.

    Argon2 runs four threads, which inherit it: at the usual priority they delay all requests by 0.1 s. The
    caller's thread keeps its priority, because others wait for the database that it writes.
    """
    with ThreadPoolExecutor(1, "password-hash", initializer=_lower_priority) as thread:
        return thread.submit(work).result()


def _lower_priority() -> None:
    if sys.platform == "linux":  # elsewhere a thread has no niceness of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


@cache
def _nobodys() -> str:
    return _hasher().hash("nobody's password")


@cache
def _hasher() -> "PasswordHasher":
    """Argon2id as RFC 9106 recommends where memory is scarce: 64 MiB and three passes, some 0.1 s."""
    from argon2 import PasswordHasher  # noqa: PLC0415 - a process without a console does without

    return PasswordHasher()
