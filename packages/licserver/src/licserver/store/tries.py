"""How often passwords were tried lately, counted where all servers of a vendor see it (D-131)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, case, delete, func, select

from licserver.store.shelf import Shelf, adding_to
from licserver.store.tables import tries

_WINDOW: Final = 60
_KEPT: Final = 10
"""Minutes for which counts are kept. Two would do; a server whose clock is fast must not sweep another's."""


class TryBooks(Shelf):
    """Tries, counted in a sliding minute: of the last whole one counts the share that is still within it."""

    def take_try(self, who: Sequence[bytes], limit: int, now: datetime) -> bool:
        """Count a try for all of `who`, or for none of them.

        Args:
            who: 16 bytes each.
            limit: How many a minute each has.
            now: When it is.

        Returns:
            False, and nothing is counted or written, when one of them has had as many.
        """
        minute, into = divmod(now.timestamp(), _WINDOW)
        share = 1 - into / _WINDOW
        with self._reading() as connection:  # whoever is told to wait keeps nobody from writing
            if _most(connection, who, int(minute), share) >= limit:
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
                [{"minute": int(minute), "who": one, "count": 1} for one in sorted(set(who))],
            )
            # Looked at again now that others wait: those who came at the same moment count as well.
            if _most(connection, who, int(minute), share) >= limit + 1:
                savepoint.rollback()
                return False
            savepoint.commit()
            return True


def forget_tries(connection: Connection, now: datetime) -> None:
    """Remove counts that count no more."""
    connection.execute(delete(tries).where(tries.c.minute < now.timestamp() // _WINDOW - _KEPT))


def _most(connection: Connection, who: Sequence[bytes], minute: int, share: float) -> float:
    """Load how many tries the busiest of `who` had within the last minute."""
    weighed = func.sum(tries.c.count * case((tries.c.minute == minute, 1.0), else_=share))
    of = select(weighed).where(tries.c.who.in_(list(who)), tries.c.minute.in_([minute, minute - 1]))
    return max(connection.scalars(of.group_by(tries.c.who)), default=0.0)
