"""What an event loop needs: long work on a thread of its own, and nothing left behind by a cancelled task."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from licclient._sockets import start_thread

_T = TypeVar("_T")


class Stop:
    """Set when either the app or the task's end wants it.

    Args:
        told: What the app handed in, if it did; asked whether it `is_set`.
    """

    def __init__(self, told: Any = None) -> None:
        self._told = told
        self._ended = threading.Event()

    def set(self) -> None:
        """End the work."""
        self._ended.set()

    def is_set(self) -> bool:
        """Tell whether the work shall end."""
        return self._ended.is_set() or (self._told is not None and self._told.is_set())


async def run_apart(work: Callable[[], _T], stop: Stop) -> _T:
    """Do long work on a thread of its own, which the loop's own pool of threads could not spare.

    Args:
        work: Ends soon after `stop` is set.
        stop: Set when the waiting task is cancelled; the work is then seen through, and its result dropped.
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


class Handshake:
    """Closes a connection that is given up in the middle of its TLS handshake.

    httpcore closes it when the handshake fails, but not when whoever waits for it is cancelled.
    """

    def __init__(self) -> None:
        self._stream: Any = None

    async def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of a connection that is not yet in anybody's care: httpcore's `trace` extension."""
        if event.endswith("connect_tcp.complete"):
            self._stream = info["return_value"]
        elif event.endswith("start_tls.complete"):
            self._stream = None

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError) and self._stream is not None:
            with suppress(Exception):
                await self._stream.aclose()
