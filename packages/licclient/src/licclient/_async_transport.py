"""The network for an event loop: calls and downloads on threads of their own, httpx's look-ups included.

The loop's own pool of threads would hold its end up for as long as the system's resolver takes, and an import
of httpx or a trust store in the loop is a window that stands still.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from licclient._model import Settings
from licclient._protocol.requests import Call
from licclient._protocol.responses import Attempt
from licclient._sockets import start_thread

if TYPE_CHECKING:
    import httpx

    from licclient._transport import Transport

_T = TypeVar("_T")


class Stop:
    """Set when the app's own event is set, or the task was cancelled.

    Args:
        event: The app's, or None; only its `is_set` is called.
    """

    def __init__(self, event: Any = None) -> None:
        self._event = event
        self._ended = threading.Event()

    def set(self) -> None:
        """Stop the work."""
        self._ended.set()

    def is_set(self) -> bool:
        """Return whether the work must stop."""
        return self._ended.is_set() or (self._event is not None and self._event.is_set())


async def run_apart(work: Callable[[], _T], stop: Stop, *, sees_through: bool = True) -> _T:
    """Do long work on a thread of its own, which the loop's own pool of threads could not spare.

    Args:
        work: Ends soon after `stop` is set.
        stop: Set when the waiting task is cancelled.
        sees_through: Whether a cancelled task waits for the work to end; its result is dropped.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
            settle = partial(done.set_result, result)
        except BaseException as problem:  # noqa: BLE001 - handed to whoever waits
            settle = partial(done.set_exception, problem)
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(settle)

    start_thread(run)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        stop.set()
        if sees_through:
            await asyncio.wait([done])
            done.exception()  # taken note of: the task's own end is what counts
        raise


def in_loop(call: Callable[..., object], stop: Stop) -> Callable[..., None]:
    """Turn a callback of the app into one that a thread may call: it is run in the loop, and waited for.

    What it raises is raised in the thread. After `stop` it is not called any more.
    """
    loop = asyncio.get_running_loop()

    async def run(*told: object) -> None:
        if not stop.is_set():
            call(*told)

    def send(*told: object) -> None:
        asyncio.run_coroutine_threadsafe(run(*told), loop).result()

    return send


class AsyncTransport:
    """`Transport` for `AsyncLicenseClient`; arguments and results are the same.

    A cancelled task cuts its call, and ends a tenth of a second later.
    """

    def __init__(self, settings: Settings, agent: str, given: "httpx.BaseTransport | None" = None) -> None:
        self._made_with = settings, agent, given
        self._opening = threading.Lock()
        self._open: Transport | None = None

    def on_thread(self) -> "Transport":
        """Return what makes the calls. Takes long the first time, so never in the loop."""
        from licclient._transport import Transport  # noqa: PLC0415 - loads httpx

        with self._opening:
            if self._open is None:
                self._open = Transport(*self._made_with)
            return self._open

    async def own_ip(self) -> str:
        """As `Transport.own_ip`."""
        return await _apart(lambda is_off: self.on_thread().own_ip(is_off))

    async def send(self, call: Call, seconds: float) -> Attempt:
        """As `Transport.send`."""
        return await _apart(lambda is_off: self.on_thread().send(call, seconds, is_off))

    async def aclose(self) -> None:
        """Close what is open."""
        with self._opening:
            transport, self._open = self._open, None
        if transport is not None:
            transport.close()


async def _apart(work: Callable[[Callable[[], bool]], _T]) -> _T:
    stop = Stop()
    return await run_apart(lambda: work(stop.is_set), stop, sees_through=False)
