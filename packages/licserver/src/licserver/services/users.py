"""Users of the console (D-96): passwords, sign-in, sessions, limits of attempts, failed logins."""

import contextlib
import enum
import hashlib
import re
import secrets
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from licserver.database.repositories.users import Limit, NewSession, Session, User
from licserver.domain.environments import provider_network
from licserver.domain.instants import CONSOLE_SESSION
from licserver.domain.records import Actor, ActorKind, Role
from licserver.errors import ConflictError, InvalidInputError, NotFoundError, StoreUnavailableError
from licserver.security.passwords import check_password, hash_password, needs_rehash, verify_password
from licserver.services.context import Context, Service

SESSION_TIME: Final = CONSOLE_SESSION
"""A working day, counted from the sign-in."""

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._@+-]{0,62}[a-z0-9])?")


class Needs(enum.Enum):
    """The step that a session with the right password still needs."""

    NOTHING = enum.auto()
    CODE = enum.auto()
    """A code of the user's second factor."""
    ENROLMENT = enum.auto()
    """A second factor, which the settings require and the user lacks."""


class SignedIn(NamedTuple):
    """A user with a session; pages contain only the CSRF token derived from its `token`."""

    user_id: int
    name: str
    token: str
    needs: Needs = Needs.NOTHING
    role: Role = Role.READ_ONLY

    def may(self, role: str) -> bool:
        """Return whether the user's role includes a role."""
        return self.role.includes(Role(role))

    def __repr__(self) -> str:
        return f"SignedIn({self.name})"  # a token is a credential


class UserService(Service):
    """Adds, changes and removes users.

    Hashing a password takes a tenth of a second: methods with a password must not run in an event loop.
    """

    def add(self, name: str, password: str, role: Role = Role.OWNER) -> str:
        """Add a user; return the name as stored, in lower case."""
        name = self.check_new_name(name)
        password_hash = hash_new_password(name, password)
        with self._context.transaction() as tx:
            if not tx.repositories.users.add(name, password_hash, role, tx.now()):
                raise _taken(name)
            tx.write_audit("user.add", ("user", name), role=role.value)
        return name

    def check_new_name(self, name: str) -> str:
        """Validate a name before the password prompt; return its stored form."""
        stored, shape = read_name(name), "up to 64 letters, digits, dots and hyphens, or a mail address"
        if stored is None:
            raise InvalidInputError(f"{name.strip().lower()!r} is not a valid user name: use {shape}")
        if self._context.repositories.users.find(stored) is not None:
            raise _taken(stored)
        return stored

    def list_all(self) -> list[User]:
        """Return all users, by name."""
        return self._context.repositories.users.list_all()

    def find(self, typed: str) -> User | None:
        """Return the user with a typed name; None for an unknown or malformed name."""
        name = read_name(typed)
        return None if name is None else self._context.repositories.users.find(name)

    def get(self, name: str) -> User:
        """Return a user."""
        user = self.find(name)
        if user is None:
            raise NotFoundError(f"there is no user {name!r}; `licserver user list` shows all")
        return user

    def set_password(self, name: str, password: str) -> None:
        """Change a password, and end all sessions of the user."""
        user = self.get(name)
        password_hash = hash_new_password(user.name, password)
        with self._context.transaction() as tx:
            tx.repositories.users.set_password(user.id, password_hash, tx.now())
            tx.write_audit("user.password", ("user", user.name))

    def set_role(self, name: str, role: Role) -> None:
        """Change the role of a user, effective with the next request."""
        user = self.get(name)
        with self._context.transaction() as tx:
            if role is not Role.OWNER:
                _keep_an_owner(tx, user)
            tx.repositories.users.set_role(user.id, role)
            tx.write_audit("user.role", ("user", user.name), role=[user.role.value, role.value])

    def remove(self, name: str) -> None:
        """Remove a user, and end all sessions of the user."""
        user = self.get(name)
        with self._context.transaction() as tx:
            _keep_an_owner(tx, user)
            tx.repositories.users.remove(user.id)
            tx.write_audit("user.remove", ("user", user.name))


def _keep_an_owner(tx: Context, user: User) -> None:
    """Refuse to remove the last owner in the console, where no other owner could be added."""
    owners = [candidate.id for candidate in tx.repositories.users.list_all() if candidate.role is Role.OWNER]
    if owners == [user.id] and tx.actor.kind is ActorKind.USER:
        raise ConflictError(f"{user.name} is the only owner; make another user an owner first")


def hash_new_password(name: str, password: str) -> str:
    """Validate and hash a password; slow, so never within a transaction."""
    check_password(name, password)
    return hash_password(password)


def read_name(typed: str) -> str | None:
    """Return the stored form of a typed name; None if it is malformed."""
    name = typed.strip().lower()
    return name if _NAME.fullmatch(name) else None


def _taken(name: str) -> ConflictError:
    advice = f"`licserver user password {name}` changes the password"
    return ConflictError(f"there is a user {name} already; {advice}")


# --- signing in -------------------------------------------------------------------------------

PENDING_TIME: Final = timedelta(minutes=10)  # between password and code
TRIES: Final = 20  # attempts a minute of an address, and of all addresses for a name
NETWORK_TRIES: Final = 40  # attempts a minute of a network (IPv4 /24, IPv6 /48) for all names
NETWORK_NAME_TRIES: Final = 10
"""Attempts a minute of a network for a name: no network can use up the attempts of a name."""
KNOWN_TRIES: Final = 10
"""Attempts a minute for a name at an address from which its user has signed in; counted separately."""
KNOWN_NETWORK_TRIES: Final = 60  # the same for all names of a network
_KNOWN_ADDRESSES: Final = 8  # stored addresses of a user; bounds the attempts from all of them
_TOUCH: Final = timedelta(minutes=1)  # the last use of a session is stored once in this time

SIGN_IN_FAILED: Final = "user.sign_in_failed"
SIGN_IN_THROTTLED: Final = "user.sign_in_throttled"
CODE_FAILED: Final = "user.code_failed"
TOKEN_REFUSED: Final = "token.refused"
TOKEN_FORBIDDEN: Final = "token.forbidden"


class LoginService(Service):
    """Sessions of the console.

    Hashing a password takes a tenth of a second: methods with a password must not run in an event loop.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._users = UserService(context)

    def sign_in(self, name: str, password: str, address: str | None = None) -> SignedIn | None:
        """Create a session; return None, after the same time, for a wrong name or password.

        The address, unless None, becomes a known address of the user. A session that needs a code permits
        only entering the code, and ends after ten minutes.
        """
        user = self._users.find(name)
        if not verify_password(None if user is None else user.password_hash, password) or user is None:
            return None
        if needs_rehash(user.password_hash):
            user = self._context.repositories.users.renew_hash(user, hash_password(password))
        with self._context.transaction() as tx:
            return LoginService(tx).begin_session(user, address)

    def change_password(self, session: SignedIn, old: str, new: str) -> SignedIn | None:
        """Change the user's own password, and replace all sessions; return None for a wrong old password.

        The current session ends as well: the user may suspect that its cookie was copied.
        """
        user = self._users.get(session.name)
        if not verify_password(user.password_hash, old):
            return None
        password_hash = hash_new_password(user.name, new)
        with self._context.transaction() as tx:
            tx.repositories.users.set_password(user.id, password_hash, tx.now())
            tx.write_audit("user.password", ("user", user.name))
            return LoginService(tx).renew_session(user._replace(password_hash=password_hash))

    def authenticate(self, token: str) -> SignedIn | None:
        """Return the user of a session's token; None for an expired or ended session."""
        now, session = self._context.now(), self._find_session(token)
        if session is None:
            return None
        if now - session.last_used_at >= _TOUCH:
            with contextlib.suppress(StoreUnavailableError):  # pages still work with a read-only database
                self._context.repositories.sessions.set_last_used(digest_token(token), now)
        needs = Needs.NOTHING
        if session.is_pending:
            needs = Needs.CODE
        elif self._context.settings.second_factor_required and not session.user.has_second_factor:
            needs = Needs.ENROLMENT
        return SignedIn(session.user.id, session.user.name, token, needs, session.user.role)

    def sign_out(self, token: str) -> None:
        """End a session; audit it unless it had ended already or still needed a code."""
        session = self._find_session(token)
        with self._context.transaction() as tx:
            has_ended = tx.repositories.sessions.remove(digest_token(token))
            if has_ended and session is not None and not session.is_pending:
                audit_as(tx, session.user, "user.sign_out")

    def begin_session(self, user: User, address: str | None, *, is_verified: bool = False) -> SignedIn | None:
        """Create a session and audit the sign-in, within a transaction.

        Return None if the user was removed, or the password was changed since it was verified.
        """
        begun = self.renew_session(user, is_verified=is_verified)
        if begun is None or begun.needs is Needs.CODE:
            return begun
        if address is not None:
            digest, logins = self._address_digest(address), self._context.repositories.logins
            logins.remember_address(user.id, digest, self._context.now(), _KNOWN_ADDRESSES)
        factors = "password and code" if is_verified else "password"
        audit_as(self._context, user, "user.sign_in", factors=factors, address=address)
        return begun

    def renew_session(self, user: User, *, is_verified: bool = True) -> SignedIn | None:
        """Begin a session of a signed-in user, without auditing it; otherwise as `begin_session`."""
        token, now = secrets.token_urlsafe(32), self._context.now()
        new = NewSession(digest_token(token), now, now + SESSION_TIME, now + PENDING_TIME, is_verified)
        is_pending = self._context.repositories.sessions.add(user, new, self._idle_since(now))
        if is_pending is None:
            return None
        needs = Needs.CODE if is_pending else Needs.NOTHING
        return SignedIn(user.id, user.name, token, needs, user.role)

    def find_session_user(self, token: str) -> User | None:
        """Return the user of a session that needs a code; None for any other or ended session."""
        session = self._find_session(token)
        return session.user if session is not None and session.is_pending else None

    def is_known_address(self, address: str, name: str) -> bool:
        """Return whether the user of a name has recently signed in from an address."""
        known_as, logins = read_name(name), self._context.repositories.logins
        # PostgreSQL accepts no NUL, which may be typed.
        return known_as is not None and logins.is_known_address(known_as, self._address_digest(address))

    def count_attempt(self, address: str, name: str, *, is_known: bool = False) -> bool:
        """Count an attempt; return False after too many attempts within a minute (D-165).

        Call it before comparing a password: then simultaneous attempts gain nothing. Unknown names are
        counted in the same way; `is_known` is from `is_known_address`.
        """
        name, network = name.strip().lower()[:64], provider_network(address)
        counted = [
            ("address", address, TRIES),
            ("network", network, NETWORK_TRIES),
            ("user", name, TRIES),
            ("network and user", f"{network} {name}", NETWORK_NAME_TRIES),
        ]
        if is_known:  # attempts from unknown addresses do not count here
            counted = [
                ("known address and user", f"{address} {name}", KNOWN_TRIES),
                ("known network", network, KNOWN_NETWORK_TRIES),
            ]
        limits = [Limit(self._context.vault.pseudonym(kind, of), limit) for kind, of, limit in counted]
        return self._context.repositories.logins.count_attempt(limits, self._context.now())

    def find_name(self, typed: str) -> str | None:
        """Return the name of a typed name's user; None otherwise, as the text may be a password."""
        user = self._users.find(typed)
        return None if user is None else user.name

    def record_failures(self, action: str, subject: str | None, count: int, address: str) -> None:
        """Count failed logins or refused tokens; audit the first, 10th, 100th … of a day.

        `action` is a constant of this module, such as `SIGN_IN_FAILED`; `subject` is an existing user or
        token, or None for any other name.
        """
        with self._context.transaction() as tx:
            total = tx.repositories.logins.count_failed_logins(action, subject or "", tx.now().date(), count)
            if count >= total or len(str(total)) > len(str(total - count)):
                object_ = (action.partition(".")[0], subject or "-")
                tx.write_audit(action, object_, attempts=total, address=address)

    def _find_session(self, token: str) -> Session | None:
        now = self._context.now()
        return self._context.repositories.sessions.find(digest_token(token), now, self._idle_since(now))

    def _idle_since(self, now: datetime) -> datetime:
        return now - timedelta(minutes=self._context.settings.session_idle_minutes)

    def _address_digest(self, address: str) -> bytes:
        return self._context.vault.pseudonym("known address", address)


def audit_as(tx: Context, user: User, action: str, **details: object) -> None:
    """Audit an action of a user on the user's own account."""
    tx.acting_as(Actor(ActorKind.USER, user.name)).write_audit(action, ("user", user.name), **details)


def digest_token(token: str) -> bytes:
    """Return the digest of a token, which the database stores in place of the token."""
    return hashlib.sha256(token.encode()).digest()
