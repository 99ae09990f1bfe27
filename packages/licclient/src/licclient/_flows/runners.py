"""Run a flow: one operation of a client, such as a verify, as a generator that both clients share.

A flow reads top to bottom. It uses the state folder and the keyring itself, and yields an operation for
everything that the two clients do differently; the runner carries it out and sends its outcome back:

    OwnAddress()          str: our address on the way to the service; `0.0.0.0` if there is none
    Send(call, seconds)   Attempt: one request and its response, within so many seconds
    Wait(seconds, wake)   None; an event, if given, ends the wait
    Notify(callback)      None; in the calling thread, or in the event loop
    OpenDownload(…)       Incoming: a response to a download, being received on a thread
    Receive(…)            its head or next chunks

What a callback raises is raised where the flow yielded it, and so is `DownloadCancelledError` when the
application cancels.

`run` does so in the calling thread. `run_async` advances the flow on threads, since each step may wait for
the disk or the keyring, and sends and waits in the event loop. A new operation is a class here, and a `case`
in each runner.
"""

import threading
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from licclient._protocol.requests import Call
from licclient.errors import DownloadCancelledError

if TYPE_CHECKING:
    import asyncio

    from licclient._async_transport import AsyncTransport
    from licclient._protocol.responses import Attempt
    from licclient._transport import Transport

    Event = threading.Event | asyncio.Event

R = TypeVar("R")

POLL_SECONDS: Final = 0.1
"""How often it is checked whether the application cancelled."""


# Plain classes: a dataclass or a NamedTuple takes up to 1 ms to make, at each start of an application.
class OwnAddress:
    """Find the address of this computer on the way to the service (D-45)."""


class Send:
    """Send one request, once, and read the whole response; no outcome takes longer than `seconds`."""

    __match_args__ = ("call", "seconds")

    def __init__(self, call: Call, seconds: float) -> None:
        self.call, self.seconds = call, seconds


class Wait:
    """Wait for a while, holding no thread of the event loop's."""

    __match_args__ = ("seconds", "wake")

    def __init__(self, seconds: float, wake: "Event | None" = None) -> None:
        self.seconds, self.wake = seconds, wake


class Notify:
    """Call the application back."""

    __match_args__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback


class OpenDownload:
    """Request a file; the outcome is an `Incoming`."""

    __match_args__ = ("link", "headers")

    def __init__(self, link: str, headers: Mapping[str, str]) -> None:
        self.link, self.headers = link, headers


class Receive:
    """Wait for the head or the next chunks of a file; the outcome is as from `Incoming.receive`."""

    __match_args__ = ("incoming", "seconds")

    def __init__(self, incoming: Any, seconds: float) -> None:
        self.incoming, self.seconds = incoming, seconds


Operation = OwnAddress | Send | Wait | Notify | OpenDownload | Receive
Flow = Generator[Operation, Any, R]


def send_with_retries(call: Call, seconds: float) -> "Flow[Attempt]":
    """Send a request, and again when that may help (D-54); `seconds` is the deadline for all of it."""
    from random import random  # noqa: PLC0415 - most starts send nothing

    from licclient._pace import retry_pause  # noqa: PLC0415 - as above

    deadline, retries = time.monotonic() + seconds, 0
    while True:
        attempt: Attempt = yield Send(call, deadline - time.monotonic())
        if not attempt.may_retry:
            return attempt
        left = deadline - time.monotonic()
        pause = retry_pause(retries, attempt.result.retry_after, random(), left)  # noqa: S311 - jitter
        if pause is None:
            return attempt
        yield Wait(pause)
        retries += 1


def run(
    flow: Flow[R], open_transport: "Callable[[], Transport]", is_cancelled: Callable[[], bool] = lambda: False
) -> R:
    """Run a flow in this thread, close it, and return or raise what it does.

    `open_transport` is called when something has to be sent, since it loads httpx. `is_cancelled` is checked
    ten times a second while sending or waiting, which it ends.
    """
    outcome: Any = None
    with closing(flow):
        while True:
            try:
                operation = _advance(flow, outcome, is_cancelled)
            except StopIteration as end:
                result: R = end.value
                return result
            match operation:
                case Send(call, seconds):
                    outcome = open_transport().send(call, seconds, is_cancelled)
                case OwnAddress():
                    outcome = open_transport().own_ip(is_cancelled)
                case Wait(seconds, wake):
                    _wait(seconds, wake, is_cancelled)
                    outcome = None
                case Notify(callback):
                    outcome = _notify(callback)
                case OpenDownload(link, headers):
                    from licclient._incoming import Incoming  # noqa: PLC0415 - loads httpx

                    outcome = Incoming(open_transport(), link, headers)
                case Receive(incoming, seconds):
                    outcome = incoming.receive(seconds, is_cancelled)


def _wait(seconds: float, wake: "Event | None", is_cancelled: Callable[[], bool]) -> None:
    if isinstance(wake, threading.Event):
        wake.wait(seconds)
        wake.clear()
        return
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and not is_cancelled():
        time.sleep(min(left, POLL_SECONDS))


class _Raised:
    """What a callback raised, on its way into the flow."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _notify(callback: Callable[[], object]) -> _Raised | None:
    try:
        callback()
    except Exception as error:  # noqa: BLE001 - raised in the flow
        return _Raised(error)
    return None


def _advance(flow: Flow[R], outcome: object, is_cancelled: Callable[[], bool]) -> Operation:
    if isinstance(outcome, _Raised):
        return flow.throw(outcome.error)
    if is_cancelled():
        return flow.throw(DownloadCancelledError("The download was cancelled."))
    return flow.send(outcome)


async def run_async(
    flow: Flow[R],
    open_transport: "Callable[[], AsyncTransport]",
    is_cancelled: Callable[[], bool] | None = None,
) -> R:
    """Run a flow for the event loop, and return or raise what it does.

    Cancelling it returns at once: a step that is on a thread ends by itself, and then the flow is closed, so
    that its locks are released and its files are whole. The loop's end does not wait for that either: a
    keyring may hang in it.
    """
    import asyncio  # noqa: PLC0415 - costs 40 ms, which the synchronous client does not pay

    from licclient._network import on_daemon_thread, start_thread  # noqa: PLC0415 - loads socket

    is_running, outcome = threading.Lock(), None

    def advance() -> Operation | _Done[R]:
        with is_running:
            try:
                return _advance(flow, outcome, is_cancelled or (lambda: False))
            except StopIteration as end:
                return _Done(end.value)

    def close() -> None:
        with is_running:  # as soon as no step is
            flow.close()

    try:
        while True:
            operation = await on_daemon_thread(advance)
            if isinstance(operation, _Done):
                result: R = operation.result
                return result
            work = _carry_out(operation, open_transport)
            outcome = await (work if is_cancelled is None else _unless_cancelled(work, is_cancelled))
    except asyncio.CancelledError:
        start_thread(close)
        raise


async def _carry_out(operation: Operation, open_transport: "Callable[[], AsyncTransport]") -> Any:
    """Return the outcome of an operation."""
    import asyncio  # noqa: PLC0415 - as above

    from licclient._network import on_daemon_thread  # noqa: PLC0415 - loads socket

    match operation:
        case Send(call, seconds):
            return await (await asyncio.to_thread(open_transport)).send(call, seconds)
        case OwnAddress():
            return await (await asyncio.to_thread(open_transport)).own_ip()
        case Wait(seconds, asyncio.Event() as wake):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):  # `wait_for` may lose a cancellation until 3.12
                    await wake.wait()
            wake.clear()
        case Wait(seconds):
            await asyncio.sleep(seconds)
        case Notify(callback):
            return _notify(callback)
        case OpenDownload(link, headers):
            return (await asyncio.to_thread(open_transport)).download(link, headers)
        case Receive(incoming, seconds):
            return await on_daemon_thread(lambda: incoming.receive(seconds))
    return None


async def _unless_cancelled(work: Coroutine[Any, Any, R], is_cancelled: Callable[[], bool]) -> R | None:
    """Await an operation, and end it when the application cancels; that is checked ten times a second."""
    import asyncio  # noqa: PLC0415 - as above

    task = asyncio.ensure_future(work)
    try:
        while not is_cancelled():
            done, _ = await asyncio.wait([task], timeout=POLL_SECONDS)
            if done:
                return task.result()
        return None
    finally:
        task.cancel()


class _Done(Generic[R]):
    """What a flow returned: a `StopIteration` cannot pass from a thread to the event loop."""

    def __init__(self, result: R) -> None:
        self.result = result
