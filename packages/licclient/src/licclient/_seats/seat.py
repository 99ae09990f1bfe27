"""A floating seat of a license, held by a thread or by a task of an event loop."""

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Generic, Never, Self, TypeVar

from licclient._core.arguments import refuse_copies
from licclient._core.clock import monotonic, uptime
from licclient._core.lazy import lazy
from licclient._core.runners import (
    STOP_SECONDS,
    Deliver,
    Flow,
    Notify,
    Wait,
    run,
    run_async,
    send_with_retries,
)
from licclient._core.session import Session
from licclient._seats.protocol import HeldSeat, is_released, read_seat, seat_call
from licclient._seats.renewal import Lost, Pause, Renew, next_step, retry_at
from licclient.errors import (
    LicclientError,
    NoSeatError,
    ServiceUnavailableError,
)

if TYPE_CHECKING:
    import asyncio
    from asyncio import Task

    from licclient._core import network
    from licclient._core.async_transport import AsyncTransport
    from licclient._core.runners import Event
    from licclient._core.transport import Transport
else:
    asyncio = lazy("asyncio")
    network = lazy("licclient._core.network")


ASLEEP: Final = 60.0
"""Seconds without a look after which the computer was suspended, and the network may need a moment."""


class Lease:
    """The client's state of its seat.

    Times are seconds of `clock`, which no change of the time of day moves; in a test, of the test's clock.

    Attributes:
        seat: The id: kept while it is not known whether the service has granted it.
        until: When it ends if it is not renewed, counted from before the request.
        held: The service's latest word; None before the first.
        is_over: Whether it was given up or lost.
        was_sent: Whether the service may have granted it.
    """

    def __init__(self, session: Session, typed: str | None) -> None:
        self.seat = token_hex(16)
        self.clock: Callable[[], float] = uptime
        if session.worker_pause is not None:
            self.clock = lambda: session.now().timestamp()
        self.until = self.renew_at = 0.0
        self.held: HeldSeat | None = None
        self.is_over = self.was_sent = False
        self._session, self._typed = session, typed
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
            key, subject = self._session.license(self._typed)
            self._owner = key, subject.domain
        return self._owner


def renew(session: Session, lease: Lease, seconds: float | None = None) -> Flow[LicclientError | None]:
    """Take or renew the seat; return why it was not granted."""
    sent_at, (key, domain) = lease.clock(), lease.owner()
    call = seat_call(session.settings, key, domain, lease.seat)
    lease.was_sent = True
    unknown = NoSeatError("This license service has no floating seats.", 0)
    answer = yield from session.call(
        call,
        lambda reply: read_seat(reply, key, session.now()),
        key,
        unknown=unknown,
        seconds=seconds,
    )
    if isinstance(answer, LicclientError):
        return answer
    lease.held = answer
    lease.until, lease.renew_at = sent_at + answer.lease_seconds, sent_at + lease.pause
    return None


def take(session: Session, lease: Lease) -> Flow[None]:
    """Take a seat; errors are those of `Seat.take`."""
    problem = yield from renew(session, lease)
    if problem is not None:
        raise problem


def hold(
    session: Session, lease: Lease, wake: "Event", report_lost: Callable[[LicclientError], object]
) -> Flow[None]:
    """Renew a seat that is held until it is given up or lost; `wake` ends a wait.

    After a suspension there is a pause's time to reach the service and take the seat again. `report_lost` is
    called once if it is lost: refused, or not renewed in time.
    """
    grace_until, looked_at = lease.until, lease.clock()
    problem: LicclientError | None = None
    timeout, test_pause = session.settings.timeout.total_seconds(), session.worker_pause
    while not lease.is_over:
        now = lease.clock()
        if test_pause is None and now - looked_at > ASLEEP:
            grace_until, problem = now + lease.pause, None
        looked_at = now
        match next_step(lease.until, lease.renew_at, grace_until, problem, now, timeout):
            case Lost(error):
                lease.is_over = True
                yield Notify(partial(report_lost, error))
            case Pause(seconds):
                yield Wait(seconds if test_pause is None else test_pause, wake)
            case Renew(seconds):
                problem = yield from renew(session, lease, seconds)
                if problem is not None:
                    lease.renew_at = retry_at(lease.until, lease.pause, lease.clock())


def release(session: Session, lease: Lease, seconds: float) -> Flow[None]:
    """Give a seat up; without an answer it ends by itself."""
    key, domain = lease.owner()
    call = seat_call(session.settings, key, domain, lease.seat, release=True)
    deadline = monotonic() + seconds
    while (remaining := deadline - monotonic()) > 0:
        result = (yield from send_with_retries(call, remaining)).result
        # The request that takes it may have been cut off, and reach the service after this one.
        if lease.held is not None or isinstance(result, ServiceUnavailableError) or is_released(result):
            return
        yield Wait(min(RELEASE_PAUSE, max(deadline - monotonic(), 0.0)))


RELEASE_PAUSE: Final = 1.0
"""Seconds until a seat is released again that the service does not know yet."""

RELEASE_SECONDS: Final = 3.0
"""How long giving a seat up waits for the service; without its answer the seat ends by itself."""

OnLost = Callable[[LicclientError], object]
"""Called once when a seat is lost, with the reason."""

_T = TypeVar("_T", bound="Transport | AsyncTransport")


class BaseSeat(Generic[_T]):
    """Shared by both kinds of seats."""

    def __init__(
        self,
        session: Session,
        open_transport: Callable[[], _T],
        key: str | None,
        on_lost: OnLost | None,
        deliver: Deliver | None,
    ) -> None:
        self._session, self._open_transport, self._key = session, open_transport, key
        self._on_lost, self._deliver = on_lost, deliver
        self.check_open: Callable[[], object] = lambda: None
        """Raises `RuntimeError` if the client is closed."""
        self._lease = Lease(session, key)
        self._thread: threading.Thread | None = None

    def __reduce__(self) -> Never:
        """Refuse copies."""
        refuse_copies(self, "call client.seats.take for another one")

    @property
    def is_held(self) -> bool:
        """Whether this computer holds the seat now; sends no request."""
        return self._lease.is_held

    @property
    def seats(self) -> int | None:
        """How many seats the license has; None as long as none is taken."""
        return None if self._lease.held is None else self._lease.held.seats

    @property
    def used(self) -> int | None:
        """How many were in use when the seat was last renewed, this one included."""
        return None if self._lease.held is None else self._lease.held.used

    def _new_lease(self) -> Lease:
        """Return the lease to take; the same one again if it is not known what became of it."""
        self.check_open()
        if self._lease.is_held:
            raise RuntimeError("this seat is held already")
        self._end()
        return self._lease

    def _end(self) -> Lease | None:
        """End the lease, so that no callback runs for it; return it if it was not lost."""
        lease = self._lease
        if lease.held is None:
            return None
        self._lease = Lease(self._session, self._key)
        was_over, lease.is_over = lease.is_over, True
        return None if was_over else lease

    def _start_thread(self, flow: Flow[None], open_transport: Callable[[], "Transport"]) -> None:
        self._thread = threading.Thread(
            target=run, args=(flow, open_transport), name="licclient-seat", daemon=True
        )
        self._thread.start()

    @contextmanager
    def _released_if_cut_off(
        self, lease: Lease, open_transport: Callable[[], "Transport"]
    ) -> Generator[None]:
        """Release a seat on a thread if the block, which takes or releases it, is cut off."""
        try:
            yield
        except LicclientError:
            raise
        except BaseException:  # cancelled, or Ctrl-C
            if lease.was_sent:
                lease.is_over = True
                self._lease = Lease(self._session, self._key)
                if not sys.is_finalizing():  # as in `_network.start_thread`
                    self._start_thread(release(self._session, lease, RELEASE_SECONDS), open_transport)
            raise

    def _report_lost(self, lease: Lease, problem: LicclientError) -> None:
        if self._on_lost is None:
            return
        call = partial(self._unless_left, lease, self._on_lost, problem)
        call() if self._deliver is None else self._deliver(call)

    def _unless_left(self, lease: Lease, on_lost: OnLost, problem: LicclientError) -> None:
        if lease is self._lease:
            on_lost(problem)


class Seat(BaseSeat["Transport"]):
    """A floating seat, as `client.seats.take` returns it.

    As a context manager it is taken at the start of the block and given up at its end. One thread renews it
    meanwhile. It may be taken again after it was lost or given up::

        with client.seats.take(on_lost=save_and_warn) as seat:  # raises `NoSeatError` if all are in use
            ...

    It is lost when it was taken back, when the license does not hold any more, or when the service could not
    be reached until its end, two minutes by default. A program that is killed loses it as well.
    """

    _is_taken_first = False

    def take_first(self) -> Self:
        """Take a new seat; a `with` that follows does not take it again."""
        self.take()
        self._is_taken_first = True
        return self

    def take(self) -> Self:
        """Take a seat again, after it was lost or released.

        Raises:
            NoSeatError: All are in use, or the license or the service has none.
            NotActivatedError: No key was given, and none was activated on this computer.
            LicclientError: As `LicenseClient.verify`.
            RuntimeError: It is held already.
        """
        lease = self._new_lease()
        with self._released_if_cut_off(lease, self._open_transport):
            run(take(self._session, lease), self._open_transport)
            self._wake = threading.Event()
            flow = hold(self._session, lease, self._wake, partial(self._report_lost, lease))
            self._start_thread(flow, self._open_transport)
        return self

    def release(self, seconds: float = RELEASE_SECONDS) -> None:
        """Give the seat up, if it is held. Without an answer within `seconds` it ends by itself."""
        self._is_taken_first = False
        lease = self._end()
        if lease is not None:
            self._wake.set()
            with self._released_if_cut_off(lease, self._open_transport):
                run(release(self._session, lease, seconds), self._open_transport)
            seconds = STOP_SECONDS
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def __enter__(self) -> Self:
        is_first, self._is_taken_first = self._is_taken_first, False
        return self if is_first and self.is_held else self.take()

    def __exit__(self, *_: object) -> None:
        self.release()


class AsyncSeat(BaseSeat["AsyncTransport"]):
    """The twin of `Seat` for an event loop: a task renews it."""

    _task: "Task[None] | None" = None

    def __await__(self) -> Generator[Any, None, Self]:
        return self.take().__await__()

    async def take(self) -> Self:
        """Take a seat; as `Seat.take`. One that is cancelled meanwhile is given up behind."""
        lease = self._new_lease()
        with self._released_if_cut_off(lease, self._on_thread()):
            await run_async(take(self._session, lease), self._open_transport)
            flow = hold(self._session, lease, asyncio.Event(), partial(self._report_lost, lease))
            self._task = network.start_task(run_async(flow, self._open_transport), "licclient-seat")
        return self

    async def release(self, seconds: float = RELEASE_SECONDS) -> None:
        """Give the seat up; as `Seat.release`."""
        lease = self._end()
        if lease is not None:
            if self._task is not None:
                self._task.cancel()
            with self._released_if_cut_off(lease, self._on_thread()):
                await run_async(release(self._session, lease, seconds), self._open_transport)
        elif self._thread is not None:
            await network.on_daemon_thread(partial(self._thread.join, seconds))

    def _on_thread(self) -> Callable[[], "Transport"]:
        """Return what opens a transport for threads: no task outlives the end of this loop."""
        loop = asyncio.get_running_loop()
        return lambda: self._open_transport().blocking(loop)

    async def __aenter__(self) -> Self:
        return await self.take()

    async def __aexit__(self, *_: object) -> None:
        await self.release()
