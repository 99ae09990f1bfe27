"""A floating seat of a license, held by a thread or by a task of an event loop."""

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from licclient._flows.context import Context
from licclient._flows.runners import run, run_async
from licclient._flows.seats import Lease, hold, release, take
from licclient._worker import STOP_SECONDS, Deliver
from licclient.errors import LicclientError

if TYPE_CHECKING:
    from asyncio import Task

    from licclient._async_transport import AsyncTransport
    from licclient._transport import Transport

RELEASE_SECONDS: Final = 3.0
"""How long giving a seat up waits for the service; without its answer the seat ends by itself."""

OnLost = Callable[[LicclientError], object]
"""Called once when a seat is lost, with the reason."""

_T = TypeVar("_T", bound="Transport | AsyncTransport")


class BaseSeat(Generic[_T]):
    """What both kinds of seats have."""

    def __init__(
        self,
        context: Context,
        open_transport: Callable[[], _T],
        key: str | None,
        on_lost: OnLost | None,
        deliver: Deliver | None,
    ) -> None:
        self._context, self._open_transport, self._key = context, open_transport, key
        self._on_lost, self._deliver = on_lost, deliver
        self._lease = Lease(context, key)

    @property
    def is_held(self) -> bool:
        """Whether this computer holds the seat now; asks nobody."""
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
        if self._lease.is_held:
            raise RuntimeError("this seat is held already")
        self._end()
        return self._lease

    def _end(self) -> Lease | None:
        """End the lease, so that nobody is called back about it; return it if it was not lost."""
        lease = self._lease
        if lease.held is None:
            return None
        self._lease = Lease(self._context, self._key)
        was_over, lease.is_over = lease.is_over, True
        return None if was_over else lease

    def _report_lost(self, lease: Lease, problem: LicclientError) -> None:
        if self._on_lost is None:
            return
        call = partial(self._unless_left, lease, self._on_lost, problem)
        call() if self._deliver is None else self._deliver(call)

    def _unless_left(self, lease: Lease, on_lost: OnLost, problem: LicclientError) -> None:
        if lease is self._lease:
            on_lost(problem)


class Seat(BaseSeat["Transport"]):
    """A floating seat of a `LicenseClient`, whose `seat` makes one.

    As a context manager it is taken at the start of the block and given up at its end. One thread renews it
    meanwhile. It may be taken again after it was lost or given up::

        with client.seat(on_lost=save_and_warn) as seat:  # raises `NoSeatError` if all are in use
            ...

    It is lost when it was taken back, when the license does not hold any more, or when the service could not
    be reached until its end, two minutes by default. A program that is killed loses it as well.
    """

    def take(self) -> Self:
        """Take a seat.

        Raises:
            NoSeatError: All are in use, or the license or the service has none.
            NotActivatedError: No key was given, and none was activated on this computer.
            LicclientError: As `LicenseClient.verify`.
            RuntimeError: It is held already.
        """
        lease = self._new_lease()
        run(take(self._context, lease), self._open_transport)
        self._wake = threading.Event()
        flow = hold(self._context, lease, self._wake, partial(self._report_lost, lease))
        self._thread = threading.Thread(
            target=run, args=(flow, self._open_transport), name="licclient-seat", daemon=True
        )
        self._thread.start()
        return self

    def release(self, seconds: float = RELEASE_SECONDS) -> None:
        """Give the seat up, if it is held. Without an answer within `seconds` it ends by itself."""
        lease = self._end()
        if lease is None:
            return
        self._wake.set()
        run(release(self._context, lease, seconds), self._open_transport)
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def __enter__(self) -> Self:
        return self.take()

    def __exit__(self, *_: object) -> None:
        self.release()


class AsyncSeat(BaseSeat["AsyncTransport"]):
    """The twin of `Seat` for an event loop: a task renews it."""

    _task: "Task[None]"

    async def take(self) -> Self:
        """Take a seat; as `Seat.take`."""
        import asyncio  # noqa: PLC0415 - the synchronous client does not pay for it

        lease = self._new_lease()
        await run_async(take(self._context, lease), self._open_transport)
        flow = hold(self._context, lease, asyncio.Event(), partial(self._report_lost, lease))
        self._task = asyncio.create_task(run_async(flow, self._open_transport), name="licclient-seat")
        return self

    async def release(self, seconds: float = RELEASE_SECONDS) -> None:
        """Give the seat up; as `Seat.release`."""
        lease = self._end()
        if lease is None:
            return
        self._task.cancel()
        await run_async(release(self._context, lease, seconds), self._open_transport)

    async def __aenter__(self) -> Self:
        return await self.take()

    async def __aexit__(self, *_: object) -> None:
        await self.release()
