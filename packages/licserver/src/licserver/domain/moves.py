"""Pure: how often a customer may free a slot (D-218)."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from licserver.domain.records import Environment

MOVES_COUNT_FOR: Final = timedelta(days=30)


def counted_moves(
    freed: Mapping[Environment, datetime], active: Collection[Environment], now: datetime
) -> list[datetime]:
    """Return when the slots were freed that count, the earliest first.

    An environment that has a slot again does not count, so that nobody pays for going back to it.
    """
    return sorted(
        at for environment, at in freed.items() if environment not in active and now - at < MOVES_COUNT_FOR
    )


def next_move(counted: list[datetime], allowed: int, now: datetime) -> datetime | None:
    """Return when the next slot may be freed: `now`, a later instant, or None for never.

    Args:
        counted: As from `counted_moves`.
        allowed: In 30 days.
        now: Aware, UTC.
    """
    if allowed == 0:
        return None
    return now if len(counted) < allowed else counted[-allowed] + MOVES_COUNT_FOR
