"""Moves: how often a customer may free a slot (D-218). Pure."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from licserver.domain.records import Environment

MOVES_COUNT_FOR: Final = timedelta(days=30)


class Move(NamedTuple):
    """The release of a computer, with all its environments."""

    at: datetime
    environments: frozenset[Environment]


def counted_moves(
    moves: Iterable[Move], active: Collection[Environment], now: datetime
) -> tuple[list[Move], list[Move]]:
    """Split moves into those that count, the earliest first, and the rest.

    The last move does not count if its computer has a slot again in all its environments, and neither does
    the move before it: a return is free. With a third computer in turn, each move counts.

    Args:
        active: The environments that have a slot.
    """
    counted: list[Move] = []
    uncounted: list[Move] = []
    for move in sorted(moves):
        (counted if now - move.at < MOVES_COUNT_FOR else uncounted).append(move)
    while returned := [move for move in counted[-2:] if move.environments.issubset(active)]:
        counted.remove(returned[-1])
        uncounted.append(returned[-1])
    return counted, uncounted


def next_move(counted: Sequence[Move], allowed: int, now: datetime) -> datetime | None:
    """Return when the next computer may be freed: `now`, a later instant, or None for never.

    `counted` is from `counted_moves`; `allowed` is the limit for 30 days.
    """
    if allowed == 0:
        return None
    return now if len(counted) < allowed else counted[-allowed].at + MOVES_COUNT_FOR
