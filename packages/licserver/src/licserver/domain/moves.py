"""Moves: which computers hold slots, and how often a customer may free or move one (D-218, D-332). Pure."""

import enum
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from licserver.domain.records import Activation, Environment, EnvironmentPolicy, LicenseState

MOVES_COUNT_FOR: Final = timedelta(days=30)
"""How long a move counts, and how long the computer that lost its slot can learn which one has it."""

LEAST_IDLE: Final = 2
"""Days more than those between two stored sights after which a computer may count as idle."""

SHARED_RETURNS: Final = 5
"""Returns to a computer within `MOVES_COUNT_FOR` that mark a license as probably shared (D-335)."""

KEPT_RECORDS: Final = 12
"""Records of moves kept for a license beside the newest of each computer."""


class Move(NamedTuple):
    """The release of a computer, with all its environments."""

    at: datetime
    environments: frozenset[Environment]


class MoveHistory(NamedTuple):
    """The moves of a license that use up its number, the earliest first, and those that are free or over."""

    counted: list[Move]
    uncounted: list[Move]


class Computer(NamedTuple):
    """The activations of one domain, which are freed and moved together."""

    domain: str
    label: str | None
    last_seen_at: datetime
    held_until: datetime | None  # end of its license file
    environments: frozenset[Environment]

    def is_held(self, now: datetime) -> bool:
        """Return whether a license file holds its slots (D-236)."""
        return self.held_until is not None and self.held_until > now


class MoveRecord(NamedTuple):
    """The computer that lost its slots by a move, and the one that got a slot."""

    at: datetime  # that of no other move of the license
    domain: str
    label: str | None
    to_domain: str
    to_label: str | None


class MoveRefusal(enum.Enum):
    """Reasons why a license is not moved, or its computers are not listed."""

    INVALID_LICENSE = enum.auto()
    REVOKED = enum.auto()
    EXPIRED = enum.auto()
    NOT_ALLOWED = enum.auto()
    COMPUTER_NOT_FOUND = enum.auto()
    FILE_HELD = enum.auto()
    TOO_MANY = enum.auto()


class RefusedMove(NamedTuple):
    """A refusal; `retry_at` is when the move is possible, if that is known."""

    reason: MoveRefusal
    retry_at: datetime | None = None


UNKNOWN_KEY: Final = RefusedMove(MoveRefusal.INVALID_LICENSE)
"""The refusal of a key that no license has; it counts as a guess."""


class ComputerList(NamedTuple):
    """The computers of a license with their ids, as one of them sees them.

    `retry_at` is None while a move is left; `moved_to` is the move by which the requesting computer lost its
    slots.
    """

    slots: int | None
    used: int
    computers: Sequence[tuple[bytes, Computer]]
    moves_left: int
    retry_at: datetime | None
    moved_to: MoveRecord | None


def counted_moves(
    moves: Iterable[Move], active: Collection[Environment], now: datetime, policy: EnvironmentPolicy
) -> MoveHistory:
    """Split moves into those that count and the rest.

    The last move does not count if its computer is back, and neither does the move before it: a return is
    free. With a third computer in turn, each move counts.

    Args:
        active: The environments that have a slot.
    """
    counted: list[Move] = []
    uncounted: list[Move] = []
    for move in sorted(moves):
        (counted if now - move.at < MOVES_COUNT_FOR else uncounted).append(move)
    while returned := [move for move in counted[-2:] if _is_back(move, active, policy)]:
        counted.remove(returned[-1])
        uncounted.append(returned[-1])
    return MoveHistory(counted, uncounted)


def _is_back(move: Move, active: Collection[Environment], policy: EnvironmentPolicy) -> bool:
    """Return whether a computer has as many slots again as it gave up.

    Under `strict` in the same environments: others of its domain may be other computers. Otherwise its
    domain identifies it, whatever its address is now (D-336).
    """
    if policy is EnvironmentPolicy.STRICT:
        return move.environments.issubset(active)
    domains = {environment.domain for environment in move.environments}
    return sum(environment.domain in domains for environment in active) >= len(move.environments)


def next_move(counted: Sequence[Move], allowed: int, now: datetime) -> datetime | None:
    """Return when the next computer may be freed: `now`, a later instant, or None for never.

    `counted` is from `counted_moves`; `allowed` is the limit for 30 days.
    """
    if allowed == 0:
        return None
    return now if len(counted) < allowed else counted[-allowed].at + MOVES_COUNT_FOR


def group_computers(activations: Iterable[Activation]) -> list[Computer]:
    """Return the computers of activations, the latest seen first; the label is the newest."""
    by_domain: dict[str, list[Activation]] = {}
    for activation in activations:
        by_domain.setdefault(activation.environment.domain, []).append(activation)
    computers = [_describe(domain, of_domain) for domain, of_domain in by_domain.items()]
    return sorted(computers, key=lambda computer: (computer.last_seen_at, computer.domain), reverse=True)


def _describe(domain: str, activations: Sequence[Activation]) -> Computer:
    newest_first = sorted(activations, key=_seen_at, reverse=True)
    return Computer(
        domain,
        next((activation.label for activation in newest_first if activation.label is not None), None),
        _seen_at(newest_first[0]),
        max((held for activation in activations if (held := activation.offline_until)), default=None),
        frozenset(activation.environment for activation in activations),
    )


def _seen_at(activation: Activation) -> datetime:
    return activation.last_seen_at or activation.activated_at


def evaluate_license(state: LicenseState, allowed: int) -> RefusedMove | None:
    """Return why the holder of a key may neither list nor move its computers; None if they may.

    Args:
        state: The state of the license.
        allowed: Moves that the product allows in 30 days.
    """
    match state:
        case LicenseState.REVOKED:
            return RefusedMove(MoveRefusal.REVOKED)
        case LicenseState.EXPIRED:
            return RefusedMove(MoveRefusal.EXPIRED)
        case LicenseState.ACTIVE:
            return None if allowed else RefusedMove(MoveRefusal.NOT_ALLOWED)


def evaluate_move(
    source: Computer | None, counted: Sequence[Move], allowed: int, now: datetime
) -> Computer | RefusedMove:
    """Decide whether a computer's slots may be freed for another one; return the computer, or the refusal.

    `source` is None if it holds no slot; `counted` is from `counted_moves`.
    """
    if source is None:
        return RefusedMove(MoveRefusal.COMPUTER_NOT_FOUND)
    if source.is_held(now):
        return RefusedMove(MoveRefusal.FILE_HELD, source.held_until)
    next_at = next_move(counted, allowed, now)
    return source if next_at == now else RefusedMove(MoveRefusal.TOO_MANY, next_at)


def least_idle_days(last_seen_days: int) -> int:
    """Return the fewest days after which a computer counts as idle.

    A computer in use may be stored as seen every `last_seen_days` only (D-251), and not before the next day.
    """
    return last_seen_days + LEAST_IDLE


def find_idle(
    computers: Iterable[Computer], used_before: datetime, watched_since: datetime | None
) -> Computer | None:
    """Return the computer whose slots a new one may get: the one used longest ago, if it is idle (D-334).

    Args:
        used_before: A computer that was last used then or earlier is idle.
        watched_since: All count as used then (D-105), such as after a restore; None: now.
    """
    if watched_since is None or watched_since > used_before:
        return None
    idle = [computer for computer in computers if _used_until(computer) <= used_before]
    return min(idle, default=None, key=_used_until)


def _used_until(computer: Computer) -> datetime:
    """Return when a computer was last used; one with a license file sends no request until that ends."""
    return max(computer.last_seen_at, computer.held_until or computer.last_seen_at)


def is_probably_shared(records: Iterable[MoveRecord], now: datetime) -> bool:
    """Return whether computers that lost their slots got one again often, as if a license went to and fro."""
    lost = set[str]()
    returns = 0
    for record in sorted(records):
        if now - record.at < MOVES_COUNT_FOR:
            returns += record.to_domain in lost
            lost.add(record.domain)
    return returns >= SHARED_RETURNS


def find_moved_to(records: Iterable[MoveRecord], domain: str) -> MoveRecord | None:
    """Return the newest move by which a domain lost its slots."""
    return max((record for record in records if record.domain == domain), default=None)


def superseded_records(records: Iterable[MoveRecord]) -> list[MoveRecord]:
    """Return the records to delete: neither the newest of their computer nor of the newest of the license.

    Two computers may take turns without end; each needs its newest record.
    """
    newest_first = sorted(records, reverse=True)
    reported = set[str]()
    superseded: list[MoveRecord] = []
    for number, record in enumerate(newest_first):
        if record.domain in reported and number >= KEPT_RECORDS:
            superseded.append(record)
        reported.add(record.domain)
    return superseded


_MASKED_FROM: Final = 16  # characters of a domain of which eight may be shown


def mask_domain(domain: str) -> str:
    """Return enough of a domain to recognise it, and too little to call with."""
    return f"{domain[:4]}…{domain[-4:]}" if len(domain) >= _MASKED_FROM else f"{domain[:1]}…"
