"""How often passwords were tried lately, counted where all servers of a vendor see it (D-131)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import Connection, case, delete, func, select

from licserver.database.repositories.base import Repository, adding_to
from licserver.database.tables import tries

_WINDOW: Final = 60
_KEPT: Final = 10
"""Minutes for which counts are kept. Two would do; a server whose clock is fast must not sweep another's."""


class Share(NamedTuple):
    """What somebody may use of a minute.

    Args:
        who: 16 bytes that stand for an address, a network or a name.
        limit: Attempts a minute.
    """

    who: bytes
    limit: int


class FailedLoginRepository(Repository):
    """Attempts in a sliding minute: of the last whole one counts the share that is still within it."""

    def take_try(self, shares: Sequence[Share], now: datetime) -> bool:
        """Count an attempt in all of `shares`, or in none of them.

        Returns:
            False, and nothing is counted or written, when one of them is used up.
        """
        minute, into = divmod(now.timestamp(), _WINDOW)
        share = 1 - into / _WINDOW
        with self._reading() as connection:  # a refusal keeps nobody from writing
            if _is_over(connection, shares, int(minute), share, 0):
                return False
        with self._writing() as connection:
            connection.execute(delete(tries).where(tries.c.minute < minute - _KEPT))
            savepoint = connection.begin_nested()
            add = adding_to(connection, tries)
            connection.execute(
                add.on_conflict_do_update(
                    index_elements=list(tries.primary_key.columns),
                    set_={"count": tries.c.count + 1},
                ),
                # in one order, so that no two of them wait for each other
                [
                    {"minute": int(minute), "who": who, "count": 1}
                    for who in sorted({one.who for one in shares})
                ],
            )
            # Checked again now that others wait: attempts of the same moment count as well.
            if _is_over(connection, shares, int(minute), share, 1):
                savepoint.rollback()
                return False
            savepoint.commit()
            return True


def forget_tries(connection: Connection, now: datetime) -> None:
    """Remove counts that count no more."""
    connection.execute(delete(tries).where(tries.c.minute < now.timestamp() // _WINDOW - _KEPT))


def _is_over(connection: Connection, shares: Sequence[Share], minute: int, share: float, own: int) -> bool:
    """Return whether one of `shares` is used up; `own` attempts of ours are counted already."""
    weighed = func.sum(tries.c.count * case((tries.c.minute == minute, 1.0), else_=share))
    who = [one.who for one in shares]
    of = select(tries.c.who, weighed).where(tries.c.who.in_(who), tries.c.minute.in_([minute, minute - 1]))
    used = {bytes(row[0]): row[1] for row in connection.execute(of.group_by(tries.c.who))}
    return any(used.get(one.who, 0.0) >= one.limit + own for one in shares)
