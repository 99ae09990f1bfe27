"""Passwords of the console's users: what they must be like, and how they are kept (D-96)."""

from functools import cache
from typing import TYPE_CHECKING, Final

from licserver.errors import WrongUse

if TYPE_CHECKING:
    from argon2 import PasswordHasher

MIN_LENGTH: Final = 12
MAX_LENGTH: Final = 1024
"""Characters; without an upper end a megabyte could be given to the hash."""


def check_password(name: str, password: str) -> None:
    """Refuse what is easily guessed.

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
    if password.strip().casefold() == name.casefold() or len(set(password)) < 4:  # noqa: PLR2004 - aaaa, abab
        raise WrongUse("this password would be guessed at once; choose another")


def hash_password(password: str) -> str:
    """Make what is kept of a password; takes some 0.1 s and 64 MiB, so never in an event loop."""
    return _hasher().hash(password)


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
        _hasher().verify(kept or _nobodys(), password)
        return kept is not None
    except (VerificationError, InvalidHashError):
        return False


def is_dated(kept: str) -> bool:
    """Tell whether a hash was made with other parameters than those of today."""
    return _hasher().check_needs_rehash(kept)


@cache
def _nobodys() -> str:
    return _hasher().hash("nobody's password")


@cache
def _hasher() -> "PasswordHasher":
    """Argon2id as RFC 9106 recommends where memory is scarce: 64 MiB and three passes, some 0.1 s."""
    from argon2 import PasswordHasher  # noqa: PLC0415 - a process without a console does without

    return PasswordHasher()
