"""Signing in to the console: limits of attempts, sessions, and failed logins (D-96, D-165)."""

import contextlib
import hashlib
import secrets
from datetime import datetime, timedelta
from typing import Final

from licserver.database.repositories.login_attempts import Share
from licserver.database.repositories.repository import Repositories
from licserver.database.repositories.sessions import NewSession
from licserver.database.repositories.users import UserRow
from licserver.domain.environments import network_of
from licserver.domain.records import Actor, ActorKind
from licserver.errors import StoreUnavailable
from licserver.security.passwords import hash_password, is_dated, is_password
from licserver.services.users import SESSION_TIME, Needs, SignedIn, Users, read_name

PENDING_TIME: Final = timedelta(minutes=10)
"""For how long a password is good for a code."""

TRIES: Final = 20
"""Attempts a minute of an address, and of all addresses for one name (D-165)."""
NETWORK_TRIES: Final = 40
"""Attempts a minute of a network (IPv4 /24, IPv6 /48) for all names."""
NETWORK_NAME_TRIES: Final = 10
"""Attempts a minute of a network for one name: no network can use up what a name has."""
KNOWN_TRIES: Final = 10
"""Attempts a minute for a name at an address from which its user has signed in, beside all of the above."""
KNOWN_NETWORK_TRIES: Final = 60
"""The same for all names of a network."""

_KNOWN_ADDRESSES: Final = 8
"""Of a user: what is guessed from them is bounded."""
_TOUCH: Final = timedelta(minutes=1)
"""A session that is in use is written once in this time."""

SIGN_IN_FAILED: Final = "user.sign_in_failed"
SIGN_IN_THROTTLED: Final = "user.sign_in_throttled"
CODE_FAILED: Final = "user.code_failed"
TOKEN_REFUSED: Final = "token.refused"
TOKEN_FORBIDDEN: Final = "token.forbidden"


class Logins(Users):
    """Sessions of the console.

    Passwords take a tenth of a second to hash: nothing here that takes one is for an event loop.
    """

    def sign_in(self, name: str, password: str, address: str | None = None) -> SignedIn | None:
        """Begin a session; None for a wrong name or password, which take as long as the right ones.

        Args:
            name: As typed.
            password: As typed.
            address: From where; remembered as one of the user's. Not remembered if None.

        Returns:
            The user. A session that needs a code is good for nothing else, for ten minutes.
        """
        user = self._find_user(name)
        if not is_password(None if user is None else user.password_hash, password) or user is None:
            return None
        if is_dated(user.password_hash):
            user = self._records.renew_user_hash(user, hash_password(password))
        with self._records.together() as books:
            return self._begin(books, user, address)

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
        password_hash = self._hash_password(user, new)
        with self._records.together() as books:
            books.set_user_password(user.id, password_hash, self._clock())
            self._note(books, "user.password", ("user", user.name))
            return self._begin_anew(books, user._replace(password_hash=password_hash))

    def signed_in(self, token: str) -> SignedIn | None:
        """Find who came with a session's token; None when it has expired or was ended."""
        now = self._clock()
        session = self._records.session(digest_token(token), now, self._idle_since(now))
        if session is None:
            return None
        if now - session.last_used_at >= _TOUCH:
            with contextlib.suppress(StoreUnavailable):  # what is only read can be read while nobody writes
                self._records.use_session(digest_token(token), now)
        needs = Needs.NOTHING
        if session.is_pending:
            needs = Needs.CODE
        elif self.settings.second_factor_required and not session.user.has_second_factor:
            needs = Needs.ENROLMENT
        return SignedIn(session.user.id, session.user.name, token, needs)

    def sign_out(self, token: str) -> None:
        """End a session; one that has ended already, or still needs a code, leaves no line in the log."""
        now = self._clock()
        session = self._records.session(digest_token(token), now, self._idle_since(now))
        with self._records.together() as books:
            has_ended = books.end_session(digest_token(token))
            if has_ended and session is not None and not session.is_pending:
                acting = self._acting(session.user)
                acting._note(books, "user.sign_out", ("user", session.user.name))  # noqa: SLF001 - our own

    # --- limits -------------------------------------------------------------------------------

    def is_known_address(self, address: str, name: str) -> bool:
        """Return whether the user of a name has signed in from an address lately.

        Args:
            address: As it is counted.
            name: As typed.
        """
        known_as = read_name(name)  # PostgreSQL takes no NUL, which may be typed
        return known_as is not None and self._records.is_known_address(
            known_as, self._address_digest(address)
        )

    def may_try(self, address: str, name: str, *, is_known: bool = False) -> bool:
        """Count an attempt; False when there were too many within a minute (D-165).

        To be called before anything is compared: many attempts at once gain nothing.

        Args:
            address: From where, as it is counted.
            name: As typed; whether there is such a user makes no difference.
            is_known: From `is_known_address`.
        """
        name, network = _login_name(name), network_of(address)

        def share(kind: str, of: str, limit: int) -> Share:
            return Share(self.vault.pseudonym(kind, of), limit)

        shares = [
            share("address", address, TRIES),
            share("network", network, NETWORK_TRIES),
            share("user", name, TRIES),
            share("network and user", f"{network} {name}", NETWORK_NAME_TRIES),
        ]
        if is_known:  # what others do counts here in no way
            shares = [
                share("known address and user", f"{address} {name}", KNOWN_TRIES),
                share("known network", network, KNOWN_NETWORK_TRIES),
            ]
        return self._records.take_try(shares, self._clock())

    # --- failures -----------------------------------------------------------------------------

    def find_login_name(self, typed: str) -> str | None:
        """Return the user's name if there is such a user: anything else that is typed may be a password."""
        user = self._find_user(typed)
        return None if user is None else user.name

    def note_failed_logins(self, action: str, subject: str | None, count: int, address: str) -> None:
        """Count failed logins or refused tokens; the first, 10th, 100th … of a day are in the audit log.

        Args:
            action: One of the five above.
            subject: An existing user or token; None for any other.
            count: How many there were.
            address: Where the last one came from.
        """
        now = self._clock()
        with self._records.together() as books:
            total = books.count_failed_logins(action, subject or "", now.date(), count)
            if count >= total or len(str(total)) > len(str(total - count)):
                object_ = (action.partition(".")[0], subject or "-")
                self._note(books, action, object_, attempts=total, address=address)

    # --- sessions -----------------------------------------------------------------------------

    def _begin(
        self, books: Repositories, user: UserRow, address: str | None, *, is_verified: bool = False
    ) -> SignedIn | None:
        """Begin a session; None when the user has another password by now, or does not exist any more."""
        begun = self._begin_anew(books, user, is_verified=is_verified)
        if begun is None or begun.needs is Needs.CODE:
            return begun
        if address is not None:
            books.remember_address(user.id, self._address_digest(address), self._clock(), _KNOWN_ADDRESSES)
        factors = "password and code" if is_verified else "password"
        acting = self._acting(user)
        acting._note(books, "user.sign_in", ("user", user.name), factors=factors, address=address)  # noqa: SLF001 - our own
        return begun

    def _begin_anew(self, books: Repositories, user: UserRow, *, is_verified: bool = True) -> SignedIn | None:
        """Begin a session of a user who is signed in, without a line in the log."""
        token, now = secrets.token_urlsafe(32), self._clock()
        new = NewSession(digest_token(token), now, now + SESSION_TIME, now + PENDING_TIME, is_verified)
        is_pending = books.begin_session(user, new, self._idle_since(now))
        if is_pending is None:
            return None
        return SignedIn(user.id, user.name, token, Needs.CODE if is_pending else Needs.NOTHING)

    def _acting(self, user: UserRow) -> "Logins":
        return self.acting_as(Actor(ActorKind.USER, user.name))

    def _idle_since(self, now: datetime) -> datetime:
        return now - timedelta(minutes=self.settings.session_idle_minutes)

    def _address_digest(self, address: str) -> bytes:
        return self.vault.pseudonym("known address", address)


def _login_name(typed: str) -> str:
    return typed.strip().lower()[:64]


def digest_token(token: str) -> bytes:
    """Return what the database keeps of a token; it cannot be used in place of it."""
    return hashlib.sha256(token.encode()).digest()
