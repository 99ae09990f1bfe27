"""Passwords of console users: strength, hashing and verification."""

import os
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, TypeVar

from licserver import libraries
from licserver.errors import InvalidInputError

MIN_LENGTH: Final = 12
MAX_LENGTH: Final = 1024  # characters; without a limit, a request could have a megabyte hashed
_MAX_RATED: Final = 20  # characters that zxcvbn reads: at most 0.5 s; 72 hostile characters take 13 s
_MIN_SCORE: Final = 3  # of zxcvbn's 0 to 4: at least 10^8 guesses
_NICENESS: Final = 16  # of the hashing thread: Argon2's four together get a tenth of a busy processor
R = TypeVar("R")


def check_password(name: str, password: str) -> None:
    """Refuse a password that is short, common or easy to guess (D-166)."""
    if len(password) < MIN_LENGTH:
        raise InvalidInputError(
            f"the password needs at least {MIN_LENGTH} characters; use four words, for example"
        )
    if len(password) > MAX_LENGTH:
        raise InvalidInputError(f"the password may have at most {MAX_LENGTH} characters")
    user_inputs = [name, *re.split(r"[^a-z0-9]+", name), "licserver"]
    rating = libraries.zxcvbn.zxcvbn(password[:_MAX_RATED], user_inputs)
    if rating["score"] < _MIN_SCORE:
        raise InvalidInputError(
            "this password is common or easy to guess; use four unrelated words, or a password manager"
        )


def hash_password(password: str) -> str:
    """Return a hash to store; takes 0.1 s and 64 MiB, so not in an event loop."""
    return _with_low_priority(lambda: _hasher().hash(password))


def verify_password(stored: str | None, password: str) -> bool:
    """Compare a password with the stored hash; None for an unknown user takes as long."""
    if len(password) > MAX_LENGTH:
        return False
    try:
        _with_low_priority(lambda: _hasher().verify(stored or _dummy_hash(), password))
        return stored is not None
    except (libraries.argon2.exceptions.VerificationError, libraries.argon2.exceptions.InvalidHashError):
        return False


def needs_rehash(stored: str) -> bool:
    """Return whether a hash has other parameters than the current ones."""
    return _hasher().check_needs_rehash(stored)


def _with_low_priority(work: Callable[[], R]) -> R:
    """Run a hashing function on a new thread, because a thread cannot raise its priority again.

    Argon2's four threads inherit the priority: at the normal one they delay all requests by 0.1 s. The
    calling thread keeps its priority, because others wait for its database transactions.
    """
    with ThreadPoolExecutor(1, "password-hash", initializer=_lower_priority) as thread:
        return thread.submit(work).result()


def _lower_priority() -> None:
    if sys.platform == "linux":  # elsewhere a thread has no priority of its own
        thread = threading.get_native_id()
        os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))  # real-time classes know no niceness
        os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)


@cache
def _dummy_hash() -> str:
    return _hasher().hash("no user's password")


@cache
def _hasher() -> "libraries.argon2.PasswordHasher":
    """Return Argon2id with RFC 9106's parameters for little memory: 64 MiB, three passes."""
    return libraries.argon2.PasswordHasher()
