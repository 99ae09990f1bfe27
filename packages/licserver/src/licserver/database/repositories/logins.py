"""Sign-ins to the console: attempts of the last minute, failures of a day, and addresses known for a user."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Final, NamedTuple

from sqlalchemy import Connection, case, delete, func, select

from licserver.database.repositories.base import Repository, insert_into
from licserver.database.tables import failed_logins, known_addresses, tries, users

_WINDOW: Final = 60
"""Seconds."""
_KEPT: Final = 10
"""Minutes for which counts are kept. Two would do; a server whose clock is fast must not delete another's."""


class Limit(NamedTuple):
    """Attempts allowed in a minute.

    Args:
        who: 16 bytes that stand for an address, a network or a name.
        limit: Attempts a minute.
    """

    who: bytes
    limit: int


class LoginRepository(Repository):
    """Attempts, failures and known addresses."""

    def count_attempt(self, limits: Sequence[Limit], now: datetime) -> bool:
        """Count an attempt against all of `limits`, or against none of them (D-131).

        The minute slides: of the last whole minute, the share counts that is still within it.

        Returns:
            False, and nothing is counted or written, when one of them is used up.
        """
        minute, into = divmod(now.timestamp(), _WINDOW)
        share = 1 - into / _WINDOW
        with self._reading() as connection:  # a refusal blocks no writer
            if _is_over(connection, limits, int(minute), share, 0):
                return False
        with self._writing() as connection:
            connection.execute(delete(tries).where(tries.c.minute < minute - _KEPT))
            savepoint = connection.begin_nested()
            add = insert_into(connection, tries)
            connection.execute(
                add.on_conflict_do_update(
                    index_elements=list(tries.primary_key.columns),
                    set_={"count": tries.c.count + 1},
                ),
                # in one order, so that no two of them deadlock
                [
                    {"minute": int(minute), "who": who, "count": 1}
                    for who in sorted({one.who for one in limits})
                ],
            )
            # Checked again now that others wait: simultaneous attempts count as well.
            if _is_over(connection, limits, int(minute), share, 1):
                savepoint.rollback()
                return False
            savepoint.commit()
            return True

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
        """Store where a user has signed in from; keep the `limit` latest addresses."""
        latest = (
            select(known_addresses.c.address)
            .where(known_addresses.c.user_id == user_id)
            .order_by(known_addresses.c.last_used_at.desc(), known_addresses.c.address)
            .limit(limit)
        )
        with self._writing() as connection:
            add = insert_into(connection, known_addresses).values(
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
            add = insert_into(connection, failed_logins).values(
                action=action, subject=subject, day=day, count=count
            )
            keys = list(failed_logins.primary_key.columns)
            more = {"count": failed_logins.c.count + count}
            connection.execute(add.on_conflict_do_update(index_elements=keys, set_=more))
            total: int = connection.execute(select(failed_logins.c.count).where(*this)).scalar_one()
            return total


def delete_old_attempts(connection: Connection, now: datetime) -> None:
    """Delete counts of minutes that are over."""
    connection.execute(delete(tries).where(tries.c.minute < now.timestamp() // _WINDOW - _KEPT))


def _is_over(connection: Connection, limits: Sequence[Limit], minute: int, share: float, own: int) -> bool:
    """Return whether one of `limits` is used up; `own` attempts of ours are counted already."""
    weighed = func.sum(tries.c.count * case((tries.c.minute == minute, 1.0), else_=share))
    who = [one.who for one in limits]
    of = select(tries.c.who, weighed).where(tries.c.who.in_(who), tries.c.minute.in_([minute, minute - 1]))
    used = {bytes(row[0]): row[1] for row in connection.execute(of.group_by(tries.c.who))}
    return any(used.get(one.who, 0.0) >= one.limit + own for one in limits)
