"""One worker per client, behind the app: keeps the license fresh, looks for updates, and tells what changed.

It sleeps in short slices and reads the clock after each, so a computer that was suspended is noticed within
one; and it is told to stop by an event, so it ends at once wherever it sleeps. Two classes side by side.
"""

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from licclient._cadence import RETRY_FIRST, RETRY_MOST, Course, Plan
from licclient._key_steps import KeySteps
from licclient._model import License, Source, Update
from licclient._status import LicenseStatus
from licclient._threads import in_thread
from licclient.errors import LicclientError

if TYPE_CHECKING:
    import asyncio

_T = TypeVar("_T")
_Event = TypeVar("_Event", bound="threading.Event | asyncio.Event")
_Found = TypeVar("_Found", bound=License | Awaitable[License])
_Offer = TypeVar("_Offer", bound=Update | Awaitable[Update | None] | None)

SLICE: Final = 30.0
"""Seconds of one sleep: so late is a suspended computer, or another process's activation, noticed."""

LEAST_PAUSE: Final = 0.5
"""Seconds between two looks, whatever the plan says."""

ASLEEP: Final = timedelta(minutes=10)
"""When nobody has looked for so long, the computer was suspended: its waking is a start like any (D-137)."""

STOP_SECONDS: Final = 0.8
"""How long `stop` waits for a call on its way; then it is left alone: it tells nobody any more."""

OnStatus = Callable[[LicenseStatus], object]
OnUpdate = Callable[[Update], object]
Deliver = Callable[[Callable[[], object]], object]
"""Runs a function on a thread of the app's choice; see `licclient.deliver`."""


class Bell:
    """Calls the app back: each change once, and never after the end."""

    def __init__(
        self, on_status: OnStatus | None, on_update: OnUpdate | None, deliver: Deliver | None
    ) -> None:
        self._on_status = on_status
        self._on_update = on_update
        self._deliver = deliver or _right_here
        self._is_over = False
        self._told_status: LicenseStatus | None = None
        self._told_update: Update | None = None

    def status(self, status: LicenseStatus) -> None:
        """Tell a status, if it says anything new."""
        # The offer has a call of its own, and comes and goes with it.
        status = replace(status, update=None)
        if status != self._told_status:
            self._told_status = status
            self._ring(self._on_status, status)

    def update(self, update: Update | None) -> None:
        """Tell an offer, if it is a new one."""
        if update is not None and update != self._told_update:
            self._told_update = update
            self._ring(self._on_update, update)

    def _ring(self, call: Callable[[_T], object] | None, news: _T) -> None:
        if call is not None:
            self._deliver(lambda: None if self._is_over else call(news))

    def end(self) -> None:
        """Tell nothing from now on, also not what is on its way already."""
        self._is_over = True


class _Pace:
    """When to do what next, and how often it went wrong: the half of a worker that both flavours share."""

    def __init__(self, steps: KeySteps) -> None:
        self._steps = steps
        self._looked_at = steps.now()
        self._course = Course(self._looked_at)
        self._verify_after: datetime | None = None
        self._check_after: datetime | None = None

    def is_verify_due(self) -> bool:
        """Tell whether the license is to be confirmed now."""
        now = self._look()
        return _has_come(self._plan(now).verify_at, now)

    def is_check_due(self) -> bool:
        """Tell whether to look for an update now."""
        now = self._look()
        return _has_come(self._plan(now).check_at, now)

    def pause(self) -> float:
        """Return how long to sleep, in seconds."""
        now = self._look()
        first = self._plan(now).first()
        return SLICE if first is None else min(max((first - now).total_seconds(), LEAST_PAUSE), SLICE)

    def went(self, found: License | None) -> None:
        """Take note of how a verify ended: well only if what came of it holds, by this computer's clock, too.

        Args:
            found: None when it raised.
        """
        well = (
            found is not None and found.source is not Source.GRACE and self._steps.status().source is not None
        )
        self._course = replace(self._course, failures=0 if well else self._course.failures + 1)
        self._verify_after = None if well else self._steps.now() + RETRY_FIRST

    def checked(self) -> None:
        """Take note of an update check; one that could not be made, such as without its key, is still due."""
        now = self._steps.now()
        is_due = _has_come(self._steps.plan(self._course, now).check_at, now)
        self._check_after = now + RETRY_FIRST if is_due else None

    def _look(self) -> datetime:
        """Read the clock, once for a whole decision: a computer may be suspended anywhere within one."""
        now = self._steps.now()
        if now - self._looked_at > ASLEEP:
            self._course = replace(self._course, started_at=now)
        self._looked_at = now
        return now

    def _plan(self, now: datetime) -> Plan:
        """Say when to do what; what went wrong and left no trace is not tried at once again."""
        plan = self._steps.plan(self._course, now)
        return Plan(
            _put_off(plan.verify_at, self._verify_after, now), _put_off(plan.check_at, self._check_after, now)
        )


def _has_come(at: datetime | None, now: datetime) -> bool:
    return at is not None and at <= now


def _put_off(at: datetime | None, until: datetime | None, now: datetime) -> datetime | None:
    if at is None or until is None or until - now > RETRY_MOST:  # a clock set back
        return at
    return max(at, until)


def _right_here(call: Callable[[], object]) -> None:
    call()


class _Parts(Generic[_Event, _Found, _Offer]):
    """What both flavours are made of.

    Args:
        wake: Set to end a sleep.
        steps: The client's.
        verify: The client's.
        check: The client's `check_for_update`.
        bell: Whom to tell.
    """

    def __init__(
        self,
        wake: _Event,
        steps: KeySteps,
        verify: Callable[[], _Found],
        check: Callable[[], _Offer],
        bell: Bell,
    ) -> None:
        self._wake = wake
        self._steps = steps
        self._verify = verify
        self._check = check
        self._bell = bell
        self._pace = _Pace(steps)
        self._is_over = False

    def nudge(self) -> None:
        """Look again now, such as after a key was entered."""
        self._wake.set()


class Worker(_Parts[threading.Event, License, Update | None]):
    """What `LicenseClient.start` returns: stop it, or leave it as a context manager."""

    def __init__(
        self, steps: KeySteps, verify: Callable[[], License], check: Callable[[], Update | None], bell: Bell
    ) -> None:
        super().__init__(threading.Event(), steps, verify, check, bell)
        self._thread = threading.Thread(target=self._run, name="licclient-worker", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it still works; not after a callback that ended its thread, such as by `sys.exit`."""
        return not self._is_over and self._thread.is_alive()

    def retire(self) -> None:
        """Let it end, without waiting for that; nobody is called back any more."""
        self._bell.end()
        self._is_over = True
        self._wake.set()

    def stop(self) -> None:
        """End it. Afterwards nobody is called back; a call on its way is waited for at most a second."""
        self.retire()
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._is_over:
            self._wake.clear()
            pause = SLICE
            try:
                self._turn()
                pause = self._pace.pause()
            except Exception as problem:  # noqa: BLE001 - an app's callback that fails must not end the worker
                told = (type(problem), problem, problem.__traceback__, threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(told))
            if not self._is_over:
                self._wake.wait(pause)

    def _turn(self) -> None:
        self._bell.status(self._steps.status())
        if self._pace.is_verify_due():
            self._refresh()
            self._bell.status(self._steps.status())
        if not self._is_over and self._pace.is_check_due():
            self._check()
            self._pace.checked()
        self._bell.update(self._steps.status().update)

    def _refresh(self) -> None:
        found = None
        with suppress(LicclientError):
            found = self._verify()
        self._pace.went(found)


class AsyncWorker(_Parts["asyncio.Event", Awaitable[License], Awaitable[Update | None]]):
    """The twin of `Worker`, as a task of the running event loop; it calls back in the loop."""

    def __init__(
        self,
        steps: KeySteps,
        verify: Callable[[], Awaitable[License]],
        check: Callable[[], Awaitable[Update | None]],
        bell: Bell,
    ) -> None:
        import asyncio  # noqa: PLC0415 - the other flavour need not pay for it

        super().__init__(asyncio.Event(), steps, verify, check, bell)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="licclient-worker")

    @property
    def is_running(self) -> bool:
        """Whether it still works."""
        return not self._is_over and not self._task.done() and not self._task.get_loop().is_closed()

    def retire(self) -> None:
        """Let it end, without waiting for that; nobody is called back any more."""
        self._bell.end()
        self._is_over = True
        if not self._task.get_loop().is_closed():
            self._task.cancel()

    async def stop(self) -> None:
        """End it; as `Worker.stop`."""
        import asyncio  # noqa: PLC0415 - as above

        self.retire()
        if self._task is not asyncio.current_task():
            await asyncio.wait([self._task], timeout=STOP_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _run(self) -> None:
        import asyncio  # noqa: PLC0415 - as above

        while not self._is_over:
            self._wake.clear()
            pause = SLICE
            try:
                await self._turn()
                pause = await in_thread(self._pace.pause)
            except Exception as problem:  # noqa: BLE001 - as above
                told = {"message": "a callback of licclient failed", "exception": problem, "task": self._task}
                asyncio.get_running_loop().call_exception_handler(told)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)

    async def _turn(self) -> None:
        self._bell.status(await in_thread(self._steps.status))
        if await in_thread(self._pace.is_verify_due):
            await self._refresh()
            self._bell.status(await in_thread(self._steps.status))
        if not self._is_over and await in_thread(self._pace.is_check_due):
            await self._check()
            await in_thread(self._pace.checked)
        self._bell.update((await in_thread(self._steps.status)).update)

    async def _refresh(self) -> None:
        found = None
        with suppress(LicclientError):
            found = await self._verify()
        await in_thread(self._pace.went, found)
