"""Sessions of the console."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, insert, or_, select, update

from licserver.database.repositories.base import Repository
from licserver.database.repositories.users import SELECT_USER, User
from licserver.database.tables import second_factors, sessions, users


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
            SELECT_USER.add_columns(sessions.c.is_pending, sessions.c.last_used_at)
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
