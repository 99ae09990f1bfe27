"""The background worker of a client, and the refresh after an answer from the disk.

A worker keeps the license fresh, looks for updates, and reports what changed.
"""

import atexit
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Never, Self

from licclient._core.arguments import refuse_copies
from licclient._core.foreign import is_failure
from licclient._core.lazy import lazy
from licclient._core.log import NOT_REFRESHED, debug
from licclient._core.model import License
from licclient._core.records import read_update_check
from licclient._core.runners import STOP_SECONDS, Flow, Notify, Wait, run, run_async
from licclient._core.schedule import next_update_check, next_verify
from licclient._core.session import Session, activated_subject, last_outcome
from licclient._core.status import LicenseStatus, is_expired
from licclient._core.update_model import Update
from licclient._status import status
from licclient._updates.check import check_for_update, checks_of
from licclient._verification.flow import verify_online
from licclient.errors import LicclientError, StateUnreadableError

if TYPE_CHECKING:
    import asyncio

    from licclient._core import network
    from licclient._core.async_transport import AsyncTransport
    from licclient._core.runners import Event
    from licclient._core.transport import Transport
    from licclient._uses import flow as flow_module
else:
    asyncio = lazy("asyncio")
    network = lazy("licclient._core.network")
    flow_module = lazy("licclient._uses.flow")


SLICE: Final = 30.0
"""Seconds of one wait: so late is a suspended computer, or another process's activation, noticed."""

LEAST_PAUSE: Final = 0.5
"""Seconds between two looks, whatever the schedule."""

ASLEEP: Final = timedelta(minutes=10)
"""After so long without a look, the computer was suspended: its waking is a start like any (D-137)."""


class Callbacks:
    """Calls the application back: each change once, and never after the end.

    `deliver` runs a function on a thread of the application's choice.
    """

    def __init__(
        self,
        on_status: Callable[[LicenseStatus], object] | None,
        on_update: Callable[[Update], object] | None,
        deliver: Callable[[Callable[[], object]], object] | None,
    ) -> None:
        self._on_status = on_status
        self._on_update = on_update
        self._deliver = deliver
        self._status: LicenseStatus | None = None
        self._update: Update | None = None
        self.is_over = False

    def report(self, status: LicenseStatus, *, with_update: bool = False) -> Flow[None]:
        """Report a status if it is new, and its offer if that is new."""
        # The offer has a callback of its own, and comes and goes with it.
        update, status = status.update, replace(status, update=None)
        if status != self._status:
            self._status = status
            yield from self._call(self._on_status, status)
        if with_update and update is not None and update != self._update:
            self._update = update
            yield from self._call(self._on_update, update)

    def _call(self, callback: Callable[[Any], object] | None, news: object) -> Flow[None]:
        if callback is None:
            return
        call = partial(self._unless_over, callback, news)
        yield Notify(call if self._deliver is None else partial(self._deliver, call))

    def _unless_over(self, callback: Callable[[Any], object], news: object) -> None:
        if not self.is_over:
            callback(news)


@dataclass(slots=True)
class _Times:
    """When a worker started or its computer woke up, and when it last tried a call."""

    started_at: datetime
    looked_at: datetime
    verified_at: datetime | None = None
    checked_at: datetime | None = None
    asleep: timedelta = ASLEEP

    def look(self, now: datetime) -> datetime:
        """Take note of the time, once for a whole decision: a computer may be suspended meanwhile."""
        if now - self.looked_at > self.asleep:
            self.started_at = now
        self.looked_at = now
        return now


def work(
    session: Session, callbacks: Callbacks, wake: "Event", report_error: Callable[[BaseException], object]
) -> Flow[None]:
    """Work until `callbacks` is over, or the flow is closed.

    `wake` ends a wait; `report_error` gets what a callback of the application raised.
    """
    pause = session.worker_pause  # the clock of a test: each jump is time that passes, awake
    times = _Times(now := session.now(), now, asleep=ASLEEP if pause is None else timedelta.max)
    shown: tuple[datetime | None, datetime | None] | None = None
    while not callbacks.is_over:
        seconds = SLICE if pause is None else pause
        try:
            yield from _turn(session, callbacks, times)
            now = times.look(session.now())
            planned = plan(session, times, now)
            if planned != shown:
                debug("Next verify: %s; next update check: %s.", *(at or "none" for at in planned))
                shown = planned
            first = min((at for at in planned if at is not None), default=None)
            if first is not None and pause is None:
                seconds = min(max((first - now).total_seconds(), LEAST_PAUSE), SLICE)
        except StateUnreadableError:  # by the next look it may be readable
            pass
        except BaseException as problem:  # an app's callback that fails must not end the worker
            if not is_failure(problem):
                raise
            yield Notify(partial(report_error, problem))
        if not callbacks.is_over:
            yield Wait(seconds, wake)


def _turn(session: Session, callbacks: Callbacks, times: _Times) -> Flow[None]:
    yield from callbacks.report(status(session))
    now = times.look(session.now())
    verify_at, _ = plan(session, times, now)
    if verify_at is not None and verify_at <= now:
        with suppress(LicclientError):
            license_ = yield from verify_online(
                session, None, force=False, is_background=True
            )  # also beside a license file
            if license_.entitlements:
                yield from flow_module.report_uses(session, license_)
        times.verified_at = session.now()
        yield from callbacks.report(status(session))
    now = times.look(session.now())
    _, check_at = plan(session, times, now)
    if check_at is not None and check_at <= now and not callbacks.is_over:
        yield from check_for_update(session, None, force=False)
        times.checked_at = session.now()
    yield from callbacks.report(status(session), with_update=True)


def plan(session: Session, times: _Times, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return when to verify and when to check for updates; None for not at all. Leaves a keyring asleep."""
    activation = session.activations.find()
    if activation is None:
        return None, None
    subject = activated_subject(session, activation, session.domain(), 0)
    held, last = session.successes.find(subject), last_outcome(session, subject)
    name, settings = subject.name, session.settings
    verify_at = next_verify(name, held, last, times.verified_at, times.started_at, now, settings)
    checks = None if settings.version is None else checks_of(session, activation)
    if checks is None or (held is None and not is_expired(last)):
        return verify_at, None
    done = read_update_check(session.storage.load(checks))
    return verify_at, next_update_check(name, done, times.checked_at, times.started_at, now, settings)


OnStatus = Callable[[LicenseStatus], object]
"""Called with the status: at once, and then whenever it changes."""

OnUpdate = Callable[[Update], object]
"""Called with an update, once."""


class Worker:
    """The background worker of a `LicenseClient`, as a thread; its `start` makes one."""

    def __init__(
        self, session: Session, open_transport: "Callable[[], Transport]", callbacks: Callbacks
    ) -> None:
        self._callbacks = callbacks
        self._wake = threading.Event()
        flow = work(session, callbacks, self._wake, _report)
        self._thread = threading.Thread(
            target=lambda: run(flow, open_transport), name="licclient-worker", daemon=True
        )
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it still works; not after a callback that ended its thread, such as by `sys.exit`."""
        return not self._callbacks.is_over and self._thread.is_alive()

    def look_again(self) -> None:
        """Have it look now, such as after the key changed elsewhere; `activate` and `forget_key` do so."""
        self._wake.set()

    def stop(self) -> None:
        """End it. No callback runs afterwards; a call on its way is waited for at most a second."""
        self._callbacks.is_over = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def __reduce__(self) -> Never:
        """Refuse copies."""
        refuse_copies(self, "call client.start of another client")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _report(problem: BaseException) -> None:
    seen = (type(problem), problem, problem.__traceback__, threading.current_thread())
    threading.excepthook(threading.ExceptHookArgs(seen))


class AsyncWorker:
    """The twin of `Worker`, as a task of the running event loop; it calls back in the loop."""

    def __init__(
        self, session: Session, open_transport: "Callable[[], AsyncTransport]", callbacks: Callbacks
    ) -> None:
        self._callbacks = callbacks
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        flow = work(session, callbacks, self._wake, self._report)
        self._task = network.start_task(run_async(flow, open_transport), "licclient-worker")

    @property
    def is_running(self) -> bool:
        """Whether it still works."""
        return not self._callbacks.is_over and not self._task.done() and not self._loop.is_closed()

    def look_again(self) -> None:
        """As `Worker.look_again`; only in the loop's own thread."""
        self._wake.set()

    def cancel(self) -> None:
        """End it without waiting; no callback runs afterwards."""
        self._callbacks.is_over = True
        if not self._loop.is_closed():
            self._task.cancel()

    async def stop(self) -> None:
        """End it; as `Worker.stop`."""
        self.cancel()
        if self._task is not asyncio.current_task() and not self._loop.is_closed():
            await asyncio.wait([self._task], timeout=STOP_SECONDS)

    def __reduce__(self) -> Never:
        """Refuse copies."""
        refuse_copies(self, "call client.start of another client")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _report(self, problem: BaseException) -> None:
        # Without the task: from Python 3.12 on, its session would be entered, in which this is called.
        self._loop.call_exception_handler({"message": "a callback of licclient failed", "exception": problem})


class Refresh:
    """A verify on a thread of its own, behind an answer from the disk.

    A program that ends meanwhile waits for it for a moment: else a program that always ends soon would never
    learn of a refusal (D-176). What it writes is written whole or not at all.
    """

    def __init__(self, verify: Callable[[], License]) -> None:
        self._verify = verify
        self._outcome: License | LicclientError | None = None
        self._thread = threading.Thread(target=self._run, name="licclient-refresh", daemon=True)
        atexit.register(self.join, STOP_SECONDS)
        with suppress(RuntimeError):  # no more threads: then the answer from the disk is all there is
            self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._verify()
        except LicclientError as problem:
            self._outcome = problem
        except (OSError, RuntimeError) as problem:  # the disk, no more threads, a client that was closed
            debug(NOT_REFRESHED, problem)
        finally:
            atexit.unregister(self.join)

    @property
    def is_running(self) -> bool:
        """Whether it is still on its way."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> License | LicclientError | None:
        """Return what came of it; None if it takes longer than so many seconds."""
        self.join(seconds)
        return self._outcome

    def join(self, seconds: float) -> None:
        """Wait for it so long."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(seconds, 0.0))
