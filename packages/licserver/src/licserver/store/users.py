"""The rows behind the console's users and their sessions."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, insert, select, update

from licserver.store.shelf import Shelf
from licserver.store.tables import sessions, users


class UserRow(NamedTuple):
    """A user as kept; the hash is for `passwords` alone."""

    id: int
    name: str
    password_hash: str
    created_at: datetime
    password_changed_at: datetime

    def __repr__(self) -> str:
        return f"UserRow({self.name})"


_USER = select(
    users.c.id, users.c.name, users.c.password_hash, users.c.created_at, users.c.password_changed_at
)


class UserBooks(Shelf):
    """Users and sessions."""

    def add_user(self, name: str, password_hash: str, now: datetime) -> bool:
        """Add a user; False when the name is taken."""
        row = {"name": name, "password_hash": password_hash, "created_at": now, "password_changed_at": now}
        return self._insert_unless_taken(insert(users).values(row))

    def users(self) -> list[UserRow]:
        """Load all, by name."""
        with self._reading() as connection:
            return [UserRow(*row) for row in connection.execute(_USER.order_by(users.c.name))]

    def user(self, name: str) -> UserRow | None:
        """Load one."""
        with self._reading() as connection:
            row = connection.execute(_USER.where(users.c.name == name)).first()
        return None if row is None else UserRow(*row)

    def set_user_password(self, user_id: int, password_hash: str, now: datetime) -> None:
        """Change a password, and end all sessions of the user."""
        with self._writing() as connection:
            connection.execute(
                update(users)
                .where(users.c.id == user_id)
                .values(password_hash=password_hash, password_changed_at=now)
            )
            connection.execute(delete(sessions).where(sessions.c.user_id == user_id))

    def renew_user_hash(self, user: UserRow, password_hash: str) -> UserRow:
        """Keep the same password under better parameters, unless it was changed meanwhile."""
        same = (users.c.id == user.id, users.c.password_hash == user.password_hash)
        with self._writing() as connection:
            connection.execute(update(users).where(*same).values(password_hash=password_hash))
        return user._replace(password_hash=password_hash)

    def remove_user(self, user_id: int) -> None:
        """Remove a user with all sessions."""
        with self._writing() as connection:
            connection.execute(delete(sessions).where(sessions.c.user_id == user_id))
            connection.execute(delete(users).where(users.c.id == user_id))

    # --- sessions -----------------------------------------------------------------------------

    def begin_session(self, user: UserRow, token_hash: bytes, now: datetime, expires_at: datetime) -> bool:
        """Begin a session; False when the user's password is another one by now, or the user is gone.

        What has run out is swept at the same time: sessions are few, and nothing else looks after them.
        """
        row = {"token_hash": token_hash, "user_id": user.id, "created_at": now, "expires_at": expires_at}
        with self._writing() as connection:
            held = select(users.c.password_hash).where(users.c.id == user.id).with_for_update()
            if connection.scalar(held) != user.password_hash:
                return False
            connection.execute(delete(sessions).where(sessions.c.expires_at <= now))
            connection.execute(insert(sessions).values(row))
            return True

    def session(self, token_hash: bytes, now: datetime) -> UserRow | None:
        """Load the user of a session that has not run out."""
        with self._reading() as connection:
            row = connection.execute(
                _USER.join(sessions, sessions.c.user_id == users.c.id).where(
                    sessions.c.token_hash == token_hash, sessions.c.expires_at > now
                )
            ).first()
        return None if row is None else UserRow(*row)

    def end_session(self, token_hash: bytes) -> None:
        """End a session."""
        with self._writing() as connection:
            connection.execute(delete(sessions).where(sessions.c.token_hash == token_hash))
