"""Pure: when a seat that is held is renewed, and when it is lost.

Instants are seconds of a clock that no change of the time of day moves.
"""

from dataclasses import dataclass, field
from typing import Final

from licclient.errors import InvalidRequestError, LicclientError, LicenseRefusedError, NoSeatError

SLICE: Final = 10.0
"""Seconds of one wait: so late is it noticed that the computer was suspended."""

RETRIES: Final = 8
"""How many renewals that fail fit between two renewals."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next look."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the seat; the request may take so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The seat is lost."""

    problem: LicclientError = field(repr=False)


def next_step(
    until: float,
    renew_at: float,
    grace_until: float,
    problem: LicclientError | None,
    now: float,
    timeout: float,
) -> Pause | Renew | Lost:
    """Return what to do with a seat that is held.

    Args:
        until: When it ends if it is not renewed.
        renew_at: When to renew it.
        grace_until: Until when a renewal that failed does not lose it, also beyond `until`.
        problem: Why the last renewal failed; None if it did not.
        now: The present instant.
        timeout: Seconds of the client's time limit.
    """
    if problem is not None and (is_final(problem) or now >= max(until, grace_until)):
        return Lost(problem)
    if now < renew_at:
        return Pause(min(renew_at - now, SLICE))
    remaining = until - now
    return Renew(min(timeout, remaining) if remaining > 0 else timeout)


def retry_at(until: float, pause: float, now: float) -> float:
    """Return when to renew again after a failure; at the latest when the seat ends."""
    again = now + pause / RETRIES
    return min(again, until) if now < until else again


def is_final(problem: LicclientError) -> bool:
    """Return whether the service has refused the seat; one that does not know seats may be a gateway."""
    if isinstance(problem, NoSeatError):
        return problem.seats != 0
    return isinstance(problem, LicenseRefusedError | InvalidRequestError)
