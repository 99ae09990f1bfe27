"""Run a flow, a generator that both clients share, in a thread or for an event loop; repeat its requests.

A flow reads top to bottom. It uses the state folder and the keyring itself, so each of its steps may wait for
the disk or for a person: it is no `auth_flow` of httpx, which does no I/O. It yields an operation for
everything that the two clients do differently; the runner carries it out and sends its outcome back:

    OwnAddress()          str: our address on the way to the service; else `0.0.0.0`
    Send(call, seconds)   Attempt: one request and its response, within so many seconds
    Wait(seconds, wake)   None; an event, if given, ends the wait
    Notify(callback)      None; in the calling thread, or in the event loop
    OpenDownload(file)    None; a response to a download is received on a thread from now on
    Receive(file, …)      its head or next chunks

No outcome is something that has to be closed: a flow that is cancelled would never receive it. What a
callback raises is raised where the flow yielded it, and so is `DownloadCancelledError` when the application
cancels.

`run` does so in the calling thread. `run_async` advances the flow on threads, since each step may wait for
the disk or the keyring, and sends and waits in the event loop. A new operation is a class here, and a `case`
in each runner.
"""

import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from licclient._core.clock import monotonic
from licclient._core.foreign import is_failure
from licclient._core.lazy import lazy
from licclient._core.log import debug
from licclient._core.requests import Call, path_of
from licclient.errors import DownloadCancelledError

if TYPE_CHECKING:
    import asyncio

    from licclient._core.async_transport import AsyncTransport
    from licclient._core.incoming import Incoming
    from licclient._core.responses import Attempt
    from licclient._core.transport import Transport

    Event = threading.Event | asyncio.Event
    import random

    from licclient._core import network, pace
else:
    asyncio = lazy("asyncio")
    network = lazy("licclient._core.network")
    pace = lazy("licclient._core.pace")
    random = lazy("random")

R = TypeVar("R")

POLL_SECONDS: Final = 0.1
"""How often it is checked whether the application cancelled."""


STOP_SECONDS: Final = 0.8
"""How long stopping waits for a call on its way; then it is abandoned: it calls no callback any more."""

Deliver = Callable[[Callable[[], object]], object]
"""Runs a function on a thread of the app's choice; `licclient.deliver` has some.

Defined here because freezers collect both toolkits for each importer of that module.
"""


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
    """Request the file of an `Incoming`."""

    __match_args__ = ("incoming",)

    def __init__(self, incoming: "Incoming") -> None:
        self.incoming = incoming


class Receive:
    """Wait for the head or the next chunks of a file; the outcome is as from `Incoming.receive`."""

    __match_args__ = ("incoming", "seconds")

    def __init__(self, incoming: "Incoming", seconds: float) -> None:
        self.incoming, self.seconds = incoming, seconds


Operation = OwnAddress | Send | Wait | Notify | OpenDownload | Receive
Flow = Generator[Operation, Any, R]


def send_with_retries(call: Call, seconds: float) -> "Flow[Attempt]":
    """Send a request, and again when that may help (D-54); `seconds` is the deadline for all of it."""
    deadline, retries = monotonic() + seconds, 0
    request_line = f"{call.method} {path_of(call.url)}"
    while True:
        began = monotonic()
        attempt: Attempt = yield Send(call, deadline - began)
        status = getattr(attempt.result, "status", None) or attempt.result
        debug("%s, after %.0f ms: %s", request_line, (monotonic() - began) * 1000, status)
        if not attempt.may_retry:
            return attempt
        remaining = deadline - monotonic()
        pause = pace.retry_pause(retries, attempt.result.retry_after, random.random(), remaining)
        if pause is None:
            return attempt
        debug("%s is repeated in %.1f s", request_line, pause)
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
    try:
        while True:
            try:
                operation = _advance(flow, outcome, is_cancelled)
            except StopIteration as end:
                result: R = end.value
                return result
            outcome = carry_out(operation, open_transport, is_cancelled)
    finally:
        flow.close()  # `closing` costs each answer from the cache 1 µs


def carry_out(
    operation: Operation, open_transport: "Callable[[], Transport]", is_cancelled: Callable[[], bool]
) -> Any:
    """Return the outcome of an operation."""
    match operation:
        case Send(call, seconds):
            return open_transport().send(call, seconds, is_cancelled)
        case OwnAddress():
            return open_transport().own_ip(is_cancelled)
        case Wait(seconds, wake):
            _wait(seconds, wake, is_cancelled)
        case Notify(callback):
            return _notify(callback)
        case OpenDownload(incoming):
            open_transport().start_download(incoming)
        case Receive(incoming, seconds):
            return incoming.receive(seconds, is_cancelled)
    return None


def _wait(seconds: float, wake: "Event | None", is_cancelled: Callable[[], bool]) -> None:
    if isinstance(wake, threading.Event):
        wake.wait(seconds)
        wake.clear()
        return
    deadline = monotonic() + seconds
    while (remaining := deadline - monotonic()) > 0 and not is_cancelled():
        time.sleep(min(remaining, POLL_SECONDS))


class _Raised:
    """An exception between flow and runner: of a callback on its way in, or of the flow on its way out."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _notify(callback: Callable[[], object]) -> _Raised | None:
    try:
        callback()
    except BaseException as error:  # raised in the flow
        if is_failure(error):
            return _Raised(error)
        raise
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
    steps, outcome = _Steps(flow, is_cancelled or (lambda: False)), None
    try:
        while True:
            step = await network.on_daemon_thread(partial(steps.advance, outcome))
            if isinstance(step, _Returned):
                result: R = step.result
                return result
            if isinstance(step, _Raised):
                break
            work = carry_out_async(step, open_transport)
            outcome = await (work if is_cancelled is None else _unless_cancelled(work, is_cancelled))
    except BaseException:  # cancelled, or the loop was closed
        with suppress(RuntimeError):  # no more threads; the end of the program releases locks as well
            network.start_thread(steps.close)
        raise
    raise step.error


class _Steps(Generic[R]):
    """A flow that is advanced on threads, step by step: each may wait for the disk or the keyring."""

    def __init__(self, flow: Flow[R], is_cancelled: Callable[[], bool]) -> None:
        self._flow, self._is_cancelled = flow, is_cancelled
        self._is_running = threading.Lock()

    def advance(self, outcome: object) -> "Operation | _Returned[R] | _Raised":
        """Return the next operation, or how the flow ended."""
        with self._is_running:
            try:
                return _advance(self._flow, outcome, self._is_cancelled)
            except StopIteration as end:
                return _Returned(end.value)
            except Exception as problem:  # noqa: BLE001 - raised where the flow is awaited
                return _Raised(problem)

    def close(self) -> None:
        """Close the flow as soon as no step runs."""
        with self._is_running:
            self._flow.close()


async def carry_out_async(operation: Operation, open_transport: "Callable[[], AsyncTransport]") -> Any:
    """As `carry_out`."""
    match operation:
        case Send(call, seconds):
            return await (await network.on_daemon_thread(open_transport)).send(call, seconds)
        case OwnAddress():
            return await (await network.on_daemon_thread(open_transport)).own_ip()
        case Wait(seconds, asyncio.Event() as wake):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):  # `wait_for` may lose a cancellation until 3.12
                    await wake.wait()
            wake.clear()
        case Wait(seconds):
            await asyncio.sleep(seconds)
        case Notify(callback):
            return _notify(callback)
        case OpenDownload(incoming):
            (await network.on_daemon_thread(open_transport)).start_download(incoming)
        case Receive(incoming, _) if incoming.is_ready():
            return incoming.receive(0)  # a thread for each batch takes as long as to write it
        case Receive(incoming, seconds):
            return await network.on_daemon_thread(lambda: incoming.receive(seconds))
    return None


async def _unless_cancelled(work: Coroutine[Any, Any, R], is_cancelled: Callable[[], bool]) -> R | None:
    """Await an operation, and end it when the application cancels; that is checked ten times a second."""
    task = asyncio.ensure_future(work)
    try:
        while not is_cancelled():
            done, _ = await asyncio.wait([task], timeout=POLL_SECONDS)
            if done:
                return task.result()
        return None
    finally:
        task.cancel()


class _Returned(Generic[R]):
    """The result of a flow: a `StopIteration` cannot pass from a thread to the event loop."""

    def __init__(self, result: R) -> None:
        self.result = result
