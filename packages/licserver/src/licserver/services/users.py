"""Users of the console and their passwords (D-96)."""

import enum
import re
from datetime import timedelta
from typing import Final, NamedTuple

from licserver.database.repositories.users import User
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.security.passwords import check_password, hash_password
from licserver.services.context import Context

SESSION_TIME: Final = timedelta(hours=12)
"""A working day, from the sign-in on, however much a session is used."""

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._@+-]{0,62}[a-z0-9])?")


class Needs(enum.Enum):
    """What a session with the right password still needs (D-167)."""

    NOTHING = enum.auto()
    CODE = enum.auto()
    """A code of the user's second factor."""
    ENROLMENT = enum.auto()
    """A second factor: the settings require one, and the user has none."""


class SignedIn(NamedTuple):
    """A user with a session.

    Args:
        user_id: The user's number.
        name: For the audit log.
        token: The session's; pages contain only the CSRF token derived from it.
        needs: What is missing before the session permits anything else.
    """

    user_id: int
    name: str
    token: str
    needs: Needs = Needs.NOTHING

    def __repr__(self) -> str:
        return f"SignedIn({self.name})"  # a token is a credential


class UserService:
    """Adds, changes and removes users.

    Hashing a password takes a tenth of a second: methods that take one must not run in an event loop.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def add(self, name: str, password: str) -> str:
        """Add a user; return the name as stored, in lower case.

        Raises:
            InvalidInputError: for a name that is invalid or taken, or a password that is too weak.
        """
        name = self.check_new_name(name)
        password_hash = hash_new_password(name, password)
        with self._context.transaction() as tx:
            if not tx.repositories.users.add(name, password_hash, tx.now()):
                raise _taken(name)
            tx.write_audit("user.add", ("user", name))
        return name

    def check_new_name(self, name: str) -> str:
        """Validate a name before a password is asked for; return it as it would be stored.

        Raises:
            InvalidInputError: for a name that is invalid or taken.
        """
        name = name.strip().lower()
        if _NAME.fullmatch(name) is None:
            raise InvalidInputError(
                f"{name!r} is no user name: use up to 64 letters, digits, dots and hyphens, or a mail address"
            )
        if self._context.repositories.users.find(name) is not None:
            raise _taken(name)
        return name

    def list_all(self) -> list[User]:
        """Return all users, by name."""
        return self._context.repositories.users.list_all()

    def find(self, typed: str) -> User | None:
        """Find a user by what was typed as the name."""
        name = read_name(typed)
        return None if name is None else self._context.repositories.users.find(name)

    def get(self, name: str) -> User:
        """Return one user.

        Raises:
            NotFoundError: when there is none.
        """
        user = self.find(name)
        if user is None:
            raise NotFoundError(f"there is no user {name!r}; `licserver user list` shows all")
        return user

    def set_password(self, name: str, password: str) -> None:
        """Change a password, and sign the user out everywhere.

        Raises:
            InvalidInputError: for an unknown user, or a password that is too weak.
        """
        user = self.get(name)
        password_hash = hash_new_password(user.name, password)
        with self._context.transaction() as tx:
            tx.repositories.users.set_password(user.id, password_hash, tx.now())
            tx.write_audit("user.password", ("user", user.name))

    def remove(self, name: str) -> None:
        """Remove a user and end all sessions of the name.

        Raises:
            InvalidInputError: for an unknown user.
        """
        user = self.get(name)
        with self._context.transaction() as tx:
            tx.repositories.users.remove(user.id)
            tx.write_audit("user.remove", ("user", user.name))


def hash_new_password(name: str, password: str) -> str:
    """Validate and hash a password; slow, so never within a transaction.

    Raises:
        InvalidInputError: for one that is too weak.
    """
    check_password(name, password)
    return hash_password(password)


def read_name(typed: str) -> str | None:
    """Return what was typed as a user's name is stored; None if it cannot be one."""
    name = typed.strip().lower()
    return name if _NAME.fullmatch(name) else None


def _taken(name: str) -> ConflictError:
    return ConflictError(
        f"there is a user {name} already; `licserver user password {name}` changes the password"
    )
