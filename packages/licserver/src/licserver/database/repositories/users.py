"""Users of the console."""

from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import delete, insert, select, update

from licserver.database.repositories.base import Repository
from licserver.database.tables import second_factors, sessions, users


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


SELECT_USER: Final = select(
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
            return [User(*row) for row in connection.execute(SELECT_USER.order_by(users.c.name))]

    def find(self, name: str) -> User | None:
        """Load a user."""
        with self._reading() as connection:
            row = connection.execute(SELECT_USER.where(users.c.name == name)).first()
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
