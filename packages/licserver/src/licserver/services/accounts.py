"""Users of the console with their passwords (D-96), and tokens of the admin API."""

import enum
import hashlib
import re
import secrets
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

from licserver.database.repositories.tokens import Token
from licserver.database.repositories.users import User
from licserver.domain.environments import is_printable
from licserver.domain.records import Scope
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.security.passwords import check_password, hash_password
from licserver.security.redaction import TOKEN_PREFIX
from licserver.services.context import Context
from licserver.services.license_terms import check_line

SESSION_TIME: Final = timedelta(hours=12)
"""A working day, from the sign-in on, however much a session is used."""

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._@+-]{0,62}[a-z0-9])?")


class Needs(enum.Enum):
    """What a session with the right password still needs."""

    NOTHING = enum.auto()
    CODE = enum.auto()
    """A code of the user's second factor."""
    ENROLMENT = enum.auto()
    """A second factor: the settings require one, and the user has none."""


class SignedIn(NamedTuple):
    """A user with a session; pages contain only the CSRF token derived from its `token`."""

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
        """Add a user; return the name as stored, in lower case."""
        name = self.check_new_name(name)
        password_hash = hash_new_password(name, password)
        with self._context.transaction() as tx:
            if not tx.repositories.users.add(name, password_hash, tx.now()):
                raise _taken(name)
            tx.write_audit("user.add", ("user", name))
        return name

    def check_new_name(self, name: str) -> str:
        """Validate a name before a password is asked for; return it as it would be stored."""
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
        """Return one user."""
        user = self.find(name)
        if user is None:
            raise NotFoundError(f"there is no user {name!r}; `licserver user list` shows all")
        return user

    def set_password(self, name: str, password: str) -> None:
        """Change a password, and sign the user out everywhere."""
        user = self.get(name)
        password_hash = hash_new_password(user.name, password)
        with self._context.transaction() as tx:
            tx.repositories.users.set_password(user.id, password_hash, tx.now())
            tx.write_audit("user.password", ("user", user.name))

    def remove(self, name: str) -> None:
        """Remove a user and end all sessions of the name."""
        user = self.get(name)
        with self._context.transaction() as tx:
            tx.repositories.users.remove(user.id)
            tx.write_audit("user.remove", ("user", user.name))


def hash_new_password(name: str, password: str) -> str:
    """Validate and hash a password; slow, so never within a transaction."""
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


MAX_TOKEN_NAME: Final = 100
_TOKEN_BYTES: Final = 32


class TokenService:
    """Creates, revokes and authenticates tokens."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def create(self, name: str, scope: Scope, expires_on: date | None = None) -> tuple[Token, str]:
        """Create a token; return its record and its text, which is stored nowhere.

        A name is used once, also after revocation: the audit log must be clear. `expires_on` is the last day,
        UTC.
        """
        name = check_line("a token's name", name, MAX_TOKEN_NAME)
        now = self._context.now()
        if expires_on is not None and expires_on < now.date():
            raise InvalidInputError(f"{expires_on} has passed; the token would never be valid")
        text = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        with self._context.transaction() as tx:
            if not tx.repositories.tokens.add(name, _hash(text), scope, expires_on, now):
                raise ConflictError(f"there is a token {name!r} already; give this one another name")
            tx.write_audit("token.create", ("token", name), scope=scope.value, expires_on=expires_on)
        return self.get(name), text

    def list_all(self) -> list[Token]:
        """Return all tokens, by name, revoked ones as well."""
        return self._context.repositories.tokens.list_all()

    def get(self, name: str) -> Token:
        """Return one token."""
        found = self._context.repositories.tokens.find(name=name) if is_printable(name) else None
        if found is None:
            raise NotFoundError(f"there is no token {name!r}; `licserver token list` shows all")
        return found

    def revoke(self, name: str) -> Token:
        """Revoke a token; it is refused from the next request on."""
        found = self.get(name)
        with self._context.transaction() as tx:
            if tx.repositories.tokens.revoke(found.id, tx.now()):
                tx.write_audit("token.revoke", ("token", name))
        return self.get(name)

    def authenticate(self, text: str) -> Token | None:
        """Find the valid token of a request, and store the day of its use; None for any other text."""
        if not text.isascii():
            return None
        # By its hash, so that the time it takes reveals nothing about an existing token.
        token, now = self._context.repositories.tokens.find(token_hash=_hash(text)), self._context.now()
        if token is None or not is_valid(token, now):
            return None
        if token.last_used_on is None or token.last_used_on < now.date():
            self._context.repositories.tokens.set_last_used(token.id, now.date())
        return token

    def find_refused_name(self, text: str) -> str | None:
        """Return the name of an expired or revoked token; None when there was never such a token."""
        token = self._context.repositories.tokens.find(token_hash=_hash(text)) if text.isascii() else None
        return None if token is None else token.name


def is_valid(token: Token, now: datetime) -> bool:
    """Return whether a token may be used; its last day is included, UTC."""
    has_expired = token.expires_on is not None and now.date() > token.expires_on
    return token.revoked_at is None and not has_expired


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()  # of 256 random bits: nothing to guess
