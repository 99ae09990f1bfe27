"""A floating seat: take it, renew it until it is given up or lost, and give it up."""

from collections.abc import Callable
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from licclient._clock import uptime
from licclient._flows.context import Context
from licclient._flows.runners import Flow, Notify, Wait, send_with_retries
from licclient._flows.verification import ask, find_key
from licclient._protocol.seats import HeldSeat, read_seat, seat_call
from licclient.errors import InvalidRequestError, LicclientError, LicenseRefusedError, NoSeatError

if TYPE_CHECKING:
    from licclient._flows.runners import Event

SLICE: Final = 10.0
"""Seconds of one wait: so late is it noticed that the computer was suspended."""

ASLEEP: Final = 60.0
"""Seconds without a look after which the computer was suspended, and the network may need a moment."""


class Lease:
    """What a client knows of its seat.

    Times are seconds of `clock`, which no change of the time of day moves; in a test, of the test's clock.

    Attributes:
        seat: The id: kept while it is not known whether the service has granted it.
        until: When it ends if it is not renewed, counted from before the request.
        held: The service's latest word; None before the first.
        is_over: Whether it was given up or lost.
    """

    def __init__(self, context: Context, typed: str | None) -> None:
        self.seat = token_hex(16)
        self.clock: Callable[[], float] = uptime
        if context.worker_pause is not None:
            self.clock = lambda: context.now().timestamp()
        self.until = self.renew_at = 0.0
        self.held: HeldSeat | None = None
        self.is_over = False
        self._context, self._typed = context, typed
        self._owner: tuple[str, str] | None = None

    @property
    def is_held(self) -> bool:
        """Whether the service keeps the seat for us."""
        return not self.is_over and self.clock() < self.until

    @property
    def pause(self) -> float:
        """Seconds between two renewals."""
        return self.held.lease_seconds / 3 if self.held is not None else 0.0

    def owner(self) -> tuple[str, str]:
        """Return key and domain; raise a `LicclientError` if there is no key."""
        if self._owner is None:
            key, subject = find_key(self._context, self._typed)
            self._owner = key, subject.domain
        return self._owner


def renew(context: Context, lease: Lease, seconds: float | None = None) -> Flow[LicclientError | None]:
    """Take or renew the seat; return why it was not granted."""
    asked_at, (key, domain) = lease.clock(), lease.owner()
    call = seat_call(context.settings, key, domain, lease.seat)
    unknown = NoSeatError("This license service has no floating seats.", 0)
    answer = yield from ask(
        context, call, lambda reply: read_seat(reply, key, context.now()), unknown=unknown, seconds=seconds
    )
    if isinstance(answer, LicclientError):
        return answer
    lease.held = answer
    lease.until, lease.renew_at = asked_at + answer.lease_seconds, asked_at + lease.pause
    return None


def take(context: Context, lease: Lease) -> Flow[None]:
    """Take a seat; errors are those of `Seat.take`."""
    problem = yield from renew(context, lease)
    if problem is not None:
        raise problem


def hold(
    context: Context, lease: Lease, wake: "Event", report_lost: Callable[[LicclientError], object]
) -> Flow[None]:
    """Renew a seat that is held until it is given up or lost; `wake` ends a wait.

    After a suspension there is a pause's time to reach the service and take the seat again. `report_lost` is
    called once if it is lost: refused, or not renewed in time.
    """
    patience, looked_at = lease.until, lease.clock()
    problem: LicclientError | None = None
    while not lease.is_over:
        now = lease.clock()
        if context.worker_pause is None and now - looked_at > ASLEEP:
            patience, problem = now + lease.pause, None
        looked_at = now
        if problem is not None and (_is_final(problem) or now >= max(lease.until, patience)):
            lease.is_over = True
            yield Notify(partial(report_lost, problem))
        elif now < lease.renew_at:
            left = min(lease.renew_at - now, SLICE)
            yield Wait(left if context.worker_pause is None else context.worker_pause, wake)
        else:
            seconds = context.settings.timeout.total_seconds()
            left = lease.until - now
            problem = yield from renew(context, lease, min(seconds, left) if left > 0 else seconds)
            if problem is not None:
                again = lease.clock() + lease.pause / 8
                lease.renew_at = min(again, lease.until) if lease.is_held else again


def _is_final(problem: LicclientError) -> bool:
    """Return whether the service has refused the seat; one that does not know seats may be a gateway."""
    if isinstance(problem, NoSeatError):
        return problem.seats != 0
    return isinstance(problem, LicenseRefusedError | InvalidRequestError)


def release(context: Context, lease: Lease, seconds: float) -> Flow[None]:
    """Give a seat up; without an answer it ends by itself."""
    key, domain = lease.owner()
    call = seat_call(context.settings, key, domain, lease.seat, release=True)
    yield from send_with_retries(call, seconds)
