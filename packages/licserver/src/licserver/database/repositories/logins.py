"""The rows of known addresses and of failed logins."""

from datetime import date, datetime

from sqlalchemy import delete, select

from licserver.database.repositories.base import Repository, adding_to
from licserver.database.tables import failed_logins, known_addresses, users


class LoginRepository(Repository):
    """Where users have signed in from, and how often somebody failed to."""

    def is_known_address(self, name: str, address: bytes) -> bool:
        """Return whether a user has signed in from an address."""
        statement = (
            select(known_addresses.c.user_id)
            .join(users, users.c.id == known_addresses.c.user_id)
            .where(users.c.name == name, known_addresses.c.address == address)
        )
        with self._reading() as connection:
            return connection.scalar(statement) is not None

    def remember_address(self, user_id: int, address: bytes, now: datetime, limit: int) -> None:
        """Note where a user has signed in from; keep the `limit` latest addresses."""
        latest = (
            select(known_addresses.c.address)
            .where(known_addresses.c.user_id == user_id)
            .order_by(known_addresses.c.last_used_at.desc(), known_addresses.c.address)
            .limit(limit)
        )
        with self._writing() as connection:
            add = adding_to(connection, known_addresses).values(
                user_id=user_id, address=address, last_used_at=now
            )
            keys = list(known_addresses.primary_key.columns)
            connection.execute(add.on_conflict_do_update(index_elements=keys, set_={"last_used_at": now}))
            kept = connection.scalars(latest).all()
            connection.execute(
                delete(known_addresses).where(
                    known_addresses.c.user_id == user_id, known_addresses.c.address.not_in(kept)
                )
            )

    def count_failed_logins(self, action: str, subject: str, day: date, count: int) -> int:
        """Add to a day's failed logins of a subject; return their number so far."""
        this = (failed_logins.c.action == action, failed_logins.c.subject == subject)
        with self._writing() as connection:
            connection.execute(delete(failed_logins).where(*this, failed_logins.c.day != day))
            add = adding_to(connection, failed_logins).values(
                action=action, subject=subject, day=day, count=count
            )
            keys = list(failed_logins.primary_key.columns)
            more = {"count": failed_logins.c.count + count}
            connection.execute(add.on_conflict_do_update(index_elements=keys, set_=more))
            total: int = connection.execute(select(failed_logins.c.count).where(*this)).scalar_one()
            return total
