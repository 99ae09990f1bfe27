"""Users of the console with their sessions and second factors, and tokens of the admin API."""

from collections.abc import Iterable
from datetime import date, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Row, delete, func, insert, or_, select, update

from licserver.database.repositories.base import Repository
from licserver.database.tables import recovery_codes, second_factors, sessions, tokens, users
from licserver.domain.records import Scope


class User(NamedTuple):
    """A user of the console; the hash is for `security.passwords` alone."""

    id: int
    name: str
    password_hash: str
    created_at: datetime
    password_changed_at: datetime
    has_second_factor: bool

    def __repr__(self) -> str:
        return f"User({self.name})"


_SELECT_USER: Final = select(
    users.c.id,
    users.c.name,
    users.c.password_hash,
    users.c.created_at,
    users.c.password_changed_at,
    select(second_factors.c.user_id)
    .where(second_factors.c.user_id == users.c.id, second_factors.c.confirmed_at.is_not(None))
    .exists(),
)


class UserRepository(Repository):
    """Users."""

    def add(self, name: str, password_hash: str, now: datetime) -> bool:
        """Add a user; return False when the name is taken."""
        row = {"name": name, "password_hash": password_hash, "created_at": now, "password_changed_at": now}
        return self._insert_unless_taken(insert(users).values(row))

    def list_all(self) -> list[User]:
        """Load all users, by name."""
        with self._reading() as connection:
            return [User(*row) for row in connection.execute(_SELECT_USER.order_by(users.c.name))]

    def find(self, name: str) -> User | None:
        """Load a user."""
        with self._reading() as connection:
            row = connection.execute(_SELECT_USER.where(users.c.name == name)).first()
        return None if row is None else User(*row)

    def set_password(self, user_id: int, password_hash: str, now: datetime) -> None:
        """Change a password, and end all sessions of the user."""
        values = {"password_hash": password_hash, "password_changed_at": now}
        with self._writing() as connection:
            connection.execute(update(users).where(users.c.id == user_id).values(values))
            connection.execute(delete(sessions).where(sessions.c.user_id == user_id))

    def renew_hash(self, user: User, password_hash: str) -> User:
        """Store the same password under better parameters, unless it was changed meanwhile."""
        same = (users.c.id == user.id, users.c.password_hash == user.password_hash)
        self._execute(update(users).where(*same).values(password_hash=password_hash))
        return user._replace(password_hash=password_hash)

    def remove(self, user_id: int) -> None:
        """Remove a user with all sessions."""
        with self._writing() as connection:
            connection.execute(delete(sessions).where(sessions.c.user_id == user_id))
            connection.execute(delete(users).where(users.c.id == user_id))


class Session(NamedTuple):
    """A session that has not ended.

    Args:
        user: Whose it is.
        is_pending: Whether the second factor is still missing.
        last_used_at: To the minute.
    """

    user: User
    is_pending: bool
    last_used_at: datetime


class NewSession(NamedTuple):
    """A session that is about to begin.

    Args:
        token_hash: SHA-256 of its token.
        now: When it begins.
        expires_at: When it ends, however much it is used.
        pending_until: The same, as long as the second factor is missing.
        is_verified: Whether the second factor was verified already, if the user has one.
    """

    token_hash: bytes
    now: datetime
    expires_at: datetime
    pending_until: datetime
    is_verified: bool = False


class SessionRepository(Repository):
    """Sessions."""

    def add(self, user: User, new: NewSession, idle_since: datetime) -> bool | None:
        """Begin a session; delete all that have ended.

        Args:
            user: With the password hash that was verified.
            new: The session.
            idle_since: Sessions that were last used before this have ended.

        Returns:
            Whether the session is pending. None, and no session begins, when the user has another password
            by now, or does not exist any more.
        """
        with self._writing() as connection:
            held = select(users.c.password_hash).where(users.c.id == user.id).with_for_update()
            if connection.scalar(held) != user.password_hash:
                return None
            confirmed = select(second_factors.c.user_id).where(
                second_factors.c.user_id == user.id, second_factors.c.confirmed_at.is_not(None)
            )
            is_pending = not new.is_verified and connection.scalar(confirmed) is not None
            ended = or_(sessions.c.expires_at <= new.now, sessions.c.last_used_at < idle_since)
            connection.execute(delete(sessions).where(ended))
            row = {
                "token_hash": new.token_hash,
                "user_id": user.id,
                "created_at": new.now,
                "expires_at": new.pending_until if is_pending else new.expires_at,
                "last_used_at": new.now,
                "is_pending": is_pending,
            }
            connection.execute(insert(sessions).values(row))
            return is_pending

    def find(self, token_hash: bytes, now: datetime, idle_since: datetime) -> Session | None:
        """Load a session that has not ended."""
        statement = (
            _SELECT_USER.add_columns(sessions.c.is_pending, sessions.c.last_used_at)
            .join(sessions, sessions.c.user_id == users.c.id)
            .where(
                sessions.c.token_hash == token_hash,
                sessions.c.expires_at > now,
                sessions.c.last_used_at >= idle_since,
            )
        )
        with self._reading() as connection:
            row = connection.execute(statement).first()
        return None if row is None else Session(User(*row[:-2]), *row[-2:])

    def set_last_used(self, token_hash: bytes, now: datetime) -> None:
        """Store when a session was last used."""
        self._execute(update(sessions).where(sessions.c.token_hash == token_hash).values(last_used_at=now))

    def remove(self, token_hash: bytes) -> bool:
        """End a session; return False when it has ended already."""
        return self._execute(delete(sessions).where(sessions.c.token_hash == token_hash)) == 1

    def remove_all(self, user_id: int) -> None:
        """End all sessions of a user."""
        self._execute(delete(sessions).where(sessions.c.user_id == user_id))


class SecondFactor(NamedTuple):
    """A second factor.

    Args:
        sealed_secret: Encrypted by the vault.
        created_at: When the secret was drawn.
        confirmed_at: When a first code was correct; None until then.
        last_step: Of the last code that was accepted.
        failures: Wrong codes in a row.
        failed_at: When the last one was typed.
    """

    sealed_secret: bytes
    created_at: datetime
    confirmed_at: datetime | None
    last_step: int
    failures: int
    failed_at: datetime | None

    def __repr__(self) -> str:
        return f"SecondFactor(confirmed_at={self.confirmed_at})"


class SecondFactorRepository(Repository):
    """Second factors of users."""

    def find(self, user_id: int) -> SecondFactor | None:
        """Load a user's second factor, confirmed or not."""
        columns = [second_factors.c[name] for name in SecondFactor._fields]
        with self._reading() as connection:
            row = connection.execute(select(*columns).where(second_factors.c.user_id == user_id)).first()
        return None if row is None else SecondFactor(*row)

    def propose(self, user_id: int, sealed_secret: bytes, now: datetime) -> bool:
        """Store a secret that is to be confirmed; return False when the user has a confirmed one."""
        unconfirmed = second_factors.c.confirmed_at.is_(None)
        row = {
            "user_id": user_id,
            "sealed_secret": sealed_secret,
            "created_at": now,
            "last_step": 0,
            "failures": 0,
        }
        with self._writing() as connection:
            connection.execute(delete(second_factors).where(second_factors.c.user_id == user_id, unconfirmed))
        return self._insert_unless_taken(insert(second_factors).values(row))

    def confirm(
        self, user_id: int, sealed_secret: bytes, step: int, digests: Iterable[bytes], now: datetime
    ) -> bool:
        """Confirm a second factor, and replace the recovery codes.

        Returns:
            False when it is confirmed already, or has another secret by now.
        """
        with self._writing() as connection:
            # A session that begins meanwhile waits for this, and finds the factor.
            connection.execute(select(users.c.id).where(users.c.id == user_id).with_for_update())
            this = (
                second_factors.c.user_id == user_id,
                second_factors.c.sealed_secret == sealed_secret,
                second_factors.c.confirmed_at.is_(None),
            )
            confirmed = update(second_factors).where(*this).values(confirmed_at=now, last_step=step)
            if connection.execute(confirmed).rowcount != 1:
                return False
            connection.execute(delete(recovery_codes).where(recovery_codes.c.user_id == user_id))
            rows = [{"user_id": user_id, "digest": digest} for digest in digests]
            connection.execute(insert(recovery_codes), rows)
            return True

    def use_step(self, user_id: int, step: int) -> bool:
        """Store a code's time step; return False when one as late was accepted before."""
        this = (second_factors.c.user_id == user_id, second_factors.c.last_step < step)
        return self._execute(update(second_factors).where(*this).values(last_step=step, failures=0)) == 1

    def use_recovery_code(self, user_id: int, digest: bytes) -> bool:
        """Delete a recovery code; return False when there is none like it."""
        this = (recovery_codes.c.user_id == user_id, recovery_codes.c.digest == digest)
        if self._execute(delete(recovery_codes).where(*this)) != 1:
            return False
        self._execute(update(second_factors).where(second_factors.c.user_id == user_id).values(failures=0))
        return True

    def count_recovery_codes(self, user_id: int) -> int:
        """Count the recovery codes that are left."""
        statement = select(func.count()).where(recovery_codes.c.user_id == user_id)
        with self._reading() as connection:
            return connection.scalar(statement) or 0

    def count_wrong_code(self, user_id: int, now: datetime) -> None:
        """Count a wrong code."""
        self._execute(
            update(second_factors)
            .where(second_factors.c.user_id == user_id)
            .values(failures=second_factors.c.failures + 1, failed_at=now)
        )

    def remove(self, user_id: int) -> bool:
        """Delete a user's second factor and recovery codes; return False when there is none."""
        self._execute(delete(recovery_codes).where(recovery_codes.c.user_id == user_id))
        return self._execute(delete(second_factors).where(second_factors.c.user_id == user_id)) == 1


class Token(NamedTuple):
    """A token of the admin API, without its secret.

    Args:
        id: Its number.
        name: For the audit log.
        scope: What it permits.
        created_at: When it was created.
        expires_on: Its last day, UTC, or None.
        revoked_at: When it was revoked, or None.
        last_used_on: The last day on which it was used, or None.
    """

    id: int
    name: str
    scope: Scope
    created_at: datetime
    expires_on: date | None
    revoked_at: datetime | None
    last_used_on: date | None


_SELECT_TOKEN = select(*(tokens.c[name] for name in Token._fields))


class TokenRepository(Repository):
    """Tokens."""

    def add(self, name: str, token_hash: bytes, scope: Scope, expires_on: date | None, now: datetime) -> bool:
        """Add a token; return False when the name is taken."""
        row = {
            "name": name,
            "token_hash": token_hash,
            "scope": scope.value,
            "created_at": now,
            "expires_on": expires_on,
        }
        return self._insert_unless_taken(insert(tokens).values(row))

    def list_all(self) -> list[Token]:
        """Load all tokens, by name."""
        with self._reading() as connection:
            return [_read_token(row) for row in connection.execute(_SELECT_TOKEN.order_by(tokens.c.name))]

    def find(self, *, name: str | None = None, token_hash: bytes | None = None) -> Token | None:
        """Load one token, by its name or by its hash."""
        this = tokens.c.name == name if token_hash is None else tokens.c.token_hash == token_hash
        with self._reading() as connection:
            row = connection.execute(_SELECT_TOKEN.where(this)).first()
        return None if row is None else _read_token(row)

    def revoke(self, token_id: int, now: datetime) -> bool:
        """Revoke a token; return False when it is revoked already."""
        this = (tokens.c.id == token_id) & tokens.c.revoked_at.is_(None)
        return self._execute(update(tokens).where(this).values(revoked_at=now)) == 1

    def set_last_used(self, token_id: int, day: date) -> None:
        """Store the day of a token's last use."""
        is_new = or_(tokens.c.last_used_on.is_(None), tokens.c.last_used_on < day)
        self._execute(update(tokens).where(tokens.c.id == token_id, is_new).values(last_used_on=day))


def _read_token(row: Row[Any]) -> Token:
    values = row._asdict()
    return Token(**{**values, "scope": Scope(values["scope"])})
