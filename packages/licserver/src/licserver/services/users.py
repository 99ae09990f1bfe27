"""Users of the console and their passwords (D-96)."""

import enum
import re
from datetime import timedelta
from typing import Final, NamedTuple

from licserver.database.repositories.users import UserRow
from licserver.errors import Conflict, Unknown, WrongUse
from licserver.security.passwords import check_password, hash_password
from licserver.services.base import Room

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
    """A user with the session that he came with.

    Args:
        user_id: The store's number.
        name: Stands in the audit log.
        token: The session's; what pages show of it is only what `sessions.csrf_token` makes of it.
        needs: What is missing before the session is good for anything else.
    """

    user_id: int
    name: str
    token: str
    needs: Needs = Needs.NOTHING

    def __repr__(self) -> str:
        return f"SignedIn({self.name})"  # a token is a credential


class Users(Room):
    """The users of the console.

    Passwords take a tenth of a second to hash: nothing here that takes one is for an event loop.
    """

    def add_user(self, name: str, password: str) -> str:
        """Add a user, and give the name as it is kept: in lower case.

        Raises:
            WrongUse: for a name that cannot be or is taken, or a password that is too weak.
        """
        name = self.check_new_user(name)
        check_password(name, password)
        password_hash = hash_password(password)  # before others who write have to wait
        with self._records.together() as books:
            if not books.add_user(name, password_hash, self._clock()):
                raise _taken(name)
            self._note(books, "user.add", ("user", name))
        return name

    def check_new_user(self, name: str) -> str:
        """Refuse a name before a password is asked for; gives it as it would be kept.

        Raises:
            WrongUse: for a name that cannot be or is taken.
        """
        name = name.strip().lower()
        if _NAME.fullmatch(name) is None:
            raise WrongUse(
                f"{name!r} is no user name: use up to 64 letters, digits, dots and hyphens, or a mail address"
            )
        if self._records.user(name) is not None:
            raise _taken(name)
        return name

    def users(self) -> list[UserRow]:
        """All users, by name."""
        return self._records.users()

    def user(self, name: str) -> UserRow:
        """One user.

        Raises:
            Unknown: when there is none.
        """
        user = self._find_user(name)
        if user is None:
            raise Unknown(f"there is no user {name!r}; `licserver user list` shows all")
        return user

    def _find_user(self, typed: str) -> UserRow | None:
        """Find a user by what was typed as the name."""
        name = read_name(typed)
        return None if name is None else self._records.user(name)

    def set_password(self, name: str, password: str) -> None:
        """Change a password, and sign the user out everywhere.

        Args:
            name: Whose.
            password: The new one.

        Raises:
            WrongUse: for an unknown user, or a password that is too weak.
        """
        user = self.user(name)
        password_hash = self._hash_password(user, password)
        with self._records.together() as books:
            books.set_user_password(user.id, password_hash, self._clock())
            self._note(books, "user.password", ("user", user.name))

    @staticmethod
    def _hash_password(user: UserRow, password: str) -> str:
        check_password(user.name, password)
        return hash_password(password)

    def remove_user(self, name: str) -> None:
        """Remove a user; whoever is signed in with the name is signed out.

        Raises:
            WrongUse: for an unknown user.
        """
        user = self.user(name)
        with self._records.together() as books:
            books.remove_user(user.id)
            self._note(books, "user.remove", ("user", user.name))


def read_name(typed: str) -> str | None:
    """Bring what was typed into the form of a user's name; None if it cannot be one."""
    name = typed.strip().lower()
    return name if _NAME.fullmatch(name) else None


def _taken(name: str) -> Conflict:
    return Conflict(f"there is a user {name} already; `licserver user password {name}` changes the password")
