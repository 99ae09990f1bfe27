"""What runs behind an application: one worker per client, and a refresh after an answer from the disk."""

import atexit
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from licclient._flows.background import Callbacks, work
from licclient._flows.context import Context
from licclient._flows.runners import run, run_async
from licclient._model import Update
from licclient._status import LicenseStatus
from licclient.errors import LicclientError

if TYPE_CHECKING:
    from licclient._async_transport import AsyncTransport
    from licclient._transport import Transport

STOP_SECONDS: Final = 0.8
"""How long stopping waits for a call on its way; then it is left alone: it reports to nobody any more."""

OnStatus = Callable[[LicenseStatus], object]
"""Called with the status: at once, and then whenever it changes."""

OnUpdate = Callable[[Update], object]
"""Called with an update, once."""

Deliver = Callable[[Callable[[], object]], object]
"""Runs a function on a thread of the app's choice; `licclient.deliver` has some.

Defined here because freezers collect both toolkits for whoever imports that module.
"""


class Worker:
    """The background worker of a `LicenseClient`, as a thread; its `start` makes one."""

    def __init__(
        self, context: Context, open_transport: "Callable[[], Transport]", callbacks: Callbacks
    ) -> None:
        self._callbacks = callbacks
        self._wake = threading.Event()
        flow = work(context, callbacks, self._wake, _report)
        self._thread = threading.Thread(
            target=lambda: run(flow, open_transport), name="licclient-worker", daemon=True
        )
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it still works; not after a callback that ended its thread, such as by `sys.exit`."""
        return not self._callbacks.is_over and self._thread.is_alive()

    def nudge(self) -> None:
        """Have it look now, such as after the key changed elsewhere; `activate` and `forget_key` do so."""
        self._wake.set()

    def stop(self) -> None:
        """End it. Afterwards nobody is called back; a call on its way is waited for at most a second."""
        self._callbacks.is_over = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _report(problem: Exception) -> None:
    seen = (type(problem), problem, problem.__traceback__, threading.current_thread())
    threading.excepthook(threading.ExceptHookArgs(seen))


class AsyncWorker:
    """The twin of `Worker`, as a task of the running event loop; it calls back in the loop."""

    def __init__(
        self, context: Context, open_transport: "Callable[[], AsyncTransport]", callbacks: Callbacks
    ) -> None:
        import asyncio  # noqa: PLC0415 - the synchronous client does not pay for it

        self._callbacks = callbacks
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        flow = work(context, callbacks, self._wake, self._report)
        self._task = self._loop.create_task(run_async(flow, open_transport), name="licclient-worker")

    @property
    def is_running(self) -> bool:
        """Whether it still works."""
        return not self._callbacks.is_over and not self._task.done() and not self._loop.is_closed()

    def nudge(self) -> None:
        """As `Worker.nudge`; only in the loop's own thread."""
        self._wake.set()

    def cancel(self) -> None:
        """End it without waiting; nobody is called back any more."""
        self._callbacks.is_over = True
        if not self._loop.is_closed():
            self._task.cancel()

    async def stop(self) -> None:
        """End it; as `Worker.stop`."""
        import asyncio  # noqa: PLC0415 - as above

        self.cancel()
        if self._task is not asyncio.current_task() and not self._loop.is_closed():
            await asyncio.wait([self._task], timeout=STOP_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _report(self, problem: Exception) -> None:
        seen = {"message": "a callback of licclient failed", "exception": problem, "task": self._task}
        self._loop.call_exception_handler(seen)


class Refresh:
    """A verify on a thread of its own, behind an answer from the disk.

    A program that ends meanwhile waits for it for a moment: else one that is always short would never learn
    of a refusal (D-176). What it writes is written whole or not at all.
    """

    def __init__(self, verify: Callable[[], object]) -> None:
        self._verify = verify
        self._thread = threading.Thread(target=self._run, name="licclient-refresh", daemon=True)
        atexit.register(self.join, STOP_SECONDS)
        with suppress(RuntimeError):  # no more threads: then the answer from the disk is all there is
            self._thread.start()

    def _run(self) -> None:
        with suppress(LicclientError, OSError, RuntimeError):
            self._verify()
        atexit.unregister(self.join)

    def join(self, seconds: float) -> None:
        """Wait for it so long."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(seconds, 0.0))
