"""Who may use the console: users, their passwords, and where they are signed in (D-96)."""

import hashlib
import re
import secrets
from datetime import timedelta
from typing import Final, NamedTuple

from licserver.errors import Conflict, Unknown, WrongUse
from licserver.model import Actor, ActorKind
from licserver.passwords import check_password, hash_password, is_dated, is_password
from licserver.store.users import UserRow
from licserver.vendor.room import Room

SESSION_TIME: Final = timedelta(hours=12)
"""A working day, from the sign-in on: a session costs no write while it is used."""

TRIES: Final = 20
"""Passwords a minute for one address, and for one name from wherever they come (D-97)."""

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._@+-]{0,62}[a-z0-9])?")


class SignedIn(NamedTuple):
    """A user with the session that he came with.

    Args:
        user_id: The store's number.
        name: Stands in the audit log.
        token: The session's; what pages show of it is only what `sessions.csrf_token` makes of it.
    """

    user_id: int
    name: str
    token: str

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
        known_as = name.strip().lower()
        user = self._records.user(known_as) if _NAME.fullmatch(known_as) else None
        if user is None:
            raise Unknown(f"there is no user {name!r}; `licserver user list` shows all")
        return user

    def set_password(self, name: str, password: str) -> None:
        """Change a password, and sign the user out everywhere.

        Args:
            name: Whose.
            password: The new one.

        Raises:
            WrongUse: for an unknown user, or a password that is too weak.
        """
        self._set_password(self.user(name), password)

    def change_password(self, who: SignedIn, old: str, new: str) -> SignedIn | None:
        """Change one's own password; all sessions of the user end, and a new one begins.

        The session that acts ends as well: its cookie may have been copied, and that may be why.

        Returns:
            The user with the new session; None when the old password is wrong.

        Raises:
            WrongUse: when the new one is too weak, or the user was removed meanwhile.
        """
        user = self.user(who.name)
        if not is_password(user.password_hash, old):
            return None
        token = secrets.token_urlsafe(32)
        self._set_password(user, new, token)
        return SignedIn(user.id, user.name, token)

    def _set_password(self, user: UserRow, password: str, token: str | None = None) -> None:
        """Change a password, end all sessions of the user, and begin one with `token`, if there is one."""
        check_password(user.name, password)
        password_hash = hash_password(password)
        with self._records.together() as books:
            now = self._clock()
            books.set_user_password(user.id, password_hash, now)
            if token is not None:
                changed = user._replace(password_hash=password_hash)
                books.begin_session(changed, _digest(token), now, now + SESSION_TIME)
            self._note(books, "user.password", ("user", user.name))

    def remove_user(self, name: str) -> None:
        """Remove a user; whoever is signed in with the name is signed out.

        Raises:
            WrongUse: for an unknown user.
        """
        user = self.user(name)
        with self._records.together() as books:
            books.remove_user(user.id)
            self._note(books, "user.remove", ("user", user.name))

    def sign_in(self, name: str, password: str) -> SignedIn | None:
        """Begin a session; None for a wrong name or password, which take as long as the right ones."""
        known_as = name.strip().lower()
        user = self._records.user(known_as) if _NAME.fullmatch(known_as) else None
        if not is_password(None if user is None else user.password_hash, password) or user is None:
            return None
        if is_dated(user.password_hash):
            user = self._records.renew_user_hash(user, hash_password(password))
        token, now = secrets.token_urlsafe(32), self._clock()
        # Only when the password is still the one that was judged: it may have been changed meanwhile.
        with self._records.together() as books:
            if not books.begin_session(user, _digest(token), now, now + SESSION_TIME):
                return None
            acting = self.acting_as(Actor(ActorKind.USER, user.name))
            acting._note(books, "user.sign_in", ("user", user.name))  # noqa: SLF001 - our own
        return SignedIn(user.id, user.name, token)

    def may_try(self, address: str, name: str) -> bool:
        """Count a try of a password; False when there were too many within a minute (D-97, D-131).

        To be asked before the password is compared: who tries many at once gains nothing.

        Args:
            address: From where, as it is counted.
            name: As typed; whether there is such a user makes no difference.
        """
        known_as = name.strip().lower()[:64]
        who = [self.vault.pseudonym("address", address), self.vault.pseudonym("user", known_as)]
        return self._records.take_try(who, TRIES, self._clock())

    def signed_in(self, token: str) -> SignedIn | None:
        """Find who came with a session's token; None when it has run out or was ended."""
        found = self._records.session(_digest(token), self._clock())
        return None if found is None else SignedIn(found.id, found.name, token)

    def sign_out(self, token: str) -> None:
        """End a session; one that has ended already leaves no line in the log."""
        user = self._records.session(_digest(token), self._clock())
        with self._records.together() as books:
            books.end_session(_digest(token))
            if user is not None:
                acting = self.acting_as(Actor(ActorKind.USER, user.name))
                acting._note(books, "user.sign_out", ("user", user.name))  # noqa: SLF001 - our own


def _taken(name: str) -> Conflict:
    return Conflict(f"there is a user {name} already; `licserver user password {name}` changes the password")


def _digest(token: str) -> bytes:
    """What the database keeps of a token: nobody who reads it there can use it."""
    return hashlib.sha256(token.encode()).digest()
