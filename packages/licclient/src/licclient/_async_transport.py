"""The network for an event loop: calls and downloads on threads of their own, httpx's look-ups included.

The loop's own pool of threads would hold its end up for as long as the system's resolver takes, and an import
of httpx or a trust store in the loop is a window that stands still.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from licclient._apart import Stop, run_apart
from licclient._model import Settings
from licclient._wire import Call, Reply
from licclient.errors import ServiceUnavailableError

if TYPE_CHECKING:
    import httpx

    from licclient._transport import Transport

_T = TypeVar("_T")


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

    async def send(self, call: Call, seconds: float | None = None) -> Reply | ServiceUnavailableError:
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
    return await run_apart(lambda: work(stop.is_set), stop)
