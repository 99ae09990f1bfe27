"""The life of an app with its key, for both clients: enter it once, gate features on it, show it, forget it.

Two classes side by side, as in `_client`; keep them alike.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, Never, TypeVar, overload

from licclient._licensed import AsyncLicensed, AsyncOtherwise, Licensed, Otherwise, P, R, S_co
from licclient._model import License, Update
from licclient._threads import in_thread
from licclient.errors import LicclientError

if TYPE_CHECKING:
    import asyncio

    from licclient._key_steps import KeySteps
    from licclient._status import LicenseStatus
    from licclient._worker import AsyncWorker, Deliver, OnStatus, OnUpdate, Worker

BEHIND_EVERY: Final = 60.0
"""Seconds between two refreshes that `require` starts behind an answer: a click is no reason to ask again."""

CLOSE_SECONDS: Final = 0.8
"""How long closing waits for what runs behind the app, the worker's end included."""

_W = TypeVar("_W", bound="Worker | AsyncWorker")


class _Parts(Generic[_W]):
    """What both halves are made of."""

    _steps: "KeySteps"
    _agent: str

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._behind_at: float | None = None
        self._worker: _W | None = None

    def _begin(self, make: Callable[[], _W]) -> _W:
        with self._guard:
            if self._worker is not None and self._worker.is_running:
                raise RuntimeError("this client has a worker that runs already")
            self._worker = make()
            return self._worker

    def _nudge(self) -> None:
        if self._worker is not None:
            self._worker.nudge()

    def _may_refresh(self) -> bool:
        """Tell whether it is time for a refresh behind an answer; if so, count it as begun."""
        with self._guard:
            if self._behind_at is not None and monotonic() - self._behind_at < BEHIND_EVERY:
                return False
            self._behind_at = monotonic()
            return True


class Life(_Parts["Worker"]):
    """The half of `LicenseClient` that remembers a key."""

    def __init__(self) -> None:
        super().__init__()
        self._behind: _Behind | None = None

    @abstractmethod
    def verify(self, key: str | None = None, *, force: bool = False) -> License:
        """As in `LicenseClient`."""

    @abstractmethod
    def check_for_update(self, key: str | None = None, *, force: bool = False) -> Update | None:
        """As in `LicenseClient`."""

    def activate(self, key: str) -> License:
        """Verify a key that a person entered, and remember it when it is good.

        From then on `verify`, `check_for_update` and `require` need no key. It is kept in the system's
        keyring when the extra `licclient[keyring]` is installed and works, else in a private file of the
        state folder (D-57).

        Args:
            key: As typed or pasted: spaces, case, dashes of every kind and missing ones are repaired.

        Raises:
            MistypedKeyError: It cannot be a key, and says what is wrong; nobody was asked.
            LicclientError: As `verify`; whatever was remembered before stays.
        """
        repaired = self._steps.read_typed(key)
        license_ = self.verify(repaired)
        self._steps.remember_key(repaired)
        self._nudge()
        return license_

    def forget_key(self) -> None:
        """Forget the key on this computer. The service is not told: its activation slot stays taken."""
        self._steps.forget_key()
        self._nudge()

    def status(self) -> "LicenseStatus":
        """Return what a settings page shows; asks nobody, and raises for nothing."""
        return self._steps.status()

    def skip_update(self, update: Update) -> None:
        """Remember that a person does not want this version; in place of the one skipped before (D-87).

        It changes nothing but what `is_skipped` says: it is for windows that offer updates unasked.

        Raises:
            TypeError: No `Update`.
        """
        self._steps.skip(update)

    def is_skipped(self, update: Update) -> bool:
        """Tell whether this very version was skipped, in this app, by this user; asks nobody."""
        return self._steps.is_skipped(update)

    def start(
        self,
        *,
        on_status: "OnStatus | None" = None,
        on_update: "OnUpdate | None" = None,
        deliver: "Deliver | None" = None,
    ) -> "Worker":
        """Run one background worker that verifies the activated key and checks for updates when they are due.

        It reports the remembered status at once, then each change, and an update once. What no longer holds
        at its start, or when a suspended computer wakes up, is checked within half a minute; what holds and
        is due within four hours, so that not all apps ask at nine (D-137). It ends within a second, by its
        own `stop`, by `close` or as a context manager, and then calls nobody back any more (D-59).

        Args:
            on_status: Called with a `LicenseStatus`; its `update` is left to `on_update`.
            on_update: Called with an `Update`.
            deliver: Runs the callbacks on a thread of the app's choice, such as
                `licclient.deliver.to_tk(root)`; by default they are called on the worker's thread.

        Returns:
            The worker.

        Raises:
            RuntimeError: The client has one that runs.
            TypeError: Something that cannot be called, or a coroutine function: nobody would await it.
            ValueError: `on_update`, and the client was made without `slug` or `version`.
        """
        from licclient._arguments import check_callbacks  # noqa: PLC0415 - as below
        from licclient._worker import Bell, Worker  # noqa: PLC0415 - many apps have none

        check_callbacks(self._steps.settings, on_status, on_update, deliver)
        bell = Bell(on_status, on_update, deliver)
        return self._begin(lambda: Worker(self._steps, self.verify, self.check_for_update, bell))

    def stop(self) -> None:
        """Stop the background worker, if one runs; no callback is called any more."""
        if self._worker is not None:
            self._worker.stop()

    def _stop(self) -> None:
        """Stop what runs in the background; do not wait for it longer than `CLOSE_SECONDS`."""
        until = monotonic() + CLOSE_SECONDS
        self.stop()
        if self._behind is not None:
            self._behind.leave(until - monotonic())

    def diagnose(self) -> str:
        """Find out why something does not work: a report for a mail to support, as of `licclient doctor`.

        It looks at name, proxy, TLS, the service and its clock, state folder, keyring and license. The key in
        it is masked, and the service is asked nothing about it. May take half a minute when a lot is wrong.
        """
        return _report(self._steps, self._agent)

    def require(self) -> License:
        """Return the license of the activated key, or raise.

        It does not wait for the network while anything remembered holds, grace included: it returns that
        and refreshes it in the background (D-59). Only after programs that ended before their refresh did,
        it waits for one, two seconds for each (D-117). When nothing holds it asks the server first, at most
        once a minute after a refusal (D-119).

        Raises:
            NotActivatedError: No key has been activated on this computer.
            LicclientError: As `verify`.
        """
        known, is_due = self._steps.recall_holding()
        if known is not None and is_due and self._may_refresh():
            patience = self._steps.begin_refresh()
            self._behind = _Behind(self._steps, self.verify)
            if patience:
                self._behind.join(patience)
                known, _ = self._steps.recall_holding()
        return self.verify() if known is None else known

    @overload
    def licensed(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def licensed(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def licensed(self, *, otherwise: None = None) -> Licensed[Never]: ...

    @overload
    def licensed(self, *, otherwise: Otherwise[S_co]) -> Licensed[S_co]: ...

    def licensed(
        self, function: Callable[..., Any] | None = None, *, otherwise: Callable[..., Any] | None = None
    ) -> Any:
        """Decorate a function that needs a license: `require` is called before each call of it.

        ::

            @client.licensed                                  # raises what `require` raises
            def export(): ...

            @client.licensed(otherwise=show_license_dialog)   # calls that with the error instead
            def export(): ...

        A decorated `async def` waits on a thread.

        Args:
            function: The function to decorate.
            otherwise: Called with the error when there is no license. If it returns a `License`, as
                `ask_for_key` does, the function runs; anything else is returned in its place.

        Raises:
            TypeError: What is decorated is not a function: a license key, a class.
        """
        decorate = Licensed[Any](self.require, otherwise)
        return decorate if function is None else decorate(function)


class _Behind:
    """A verify on a thread of its own, behind an answer from the disk.

    A daemon: what it writes is written whole or not at all, so the app's end need not wait for it. That it
    was cut off is then on the disk, because nobody noted that it was not.
    """

    def __init__(self, steps: "KeySteps", verify: Callable[[], object]) -> None:
        self._steps = steps
        self._verify = verify
        self._is_left = False
        self._thread = threading.Thread(target=self._run, name="licclient-refresh", daemon=True)
        with suppress(RuntimeError):  # no more threads: then the answer from the disk is all there is
            self._thread.start()

    def _run(self) -> None:
        with suppress(LicclientError, OSError, RuntimeError):
            self._verify()
        if not self._is_left:
            with suppress(LicclientError):
                self._steps.end_refresh()

    def join(self, seconds: float) -> None:
        """Wait for it so long."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(seconds, 0.0))

    def leave(self, seconds: float) -> None:
        """Wait for it so long, and then leave it to be cut off."""
        self.join(seconds)
        self._is_left = self._thread.is_alive()


class AsyncLife(_Parts["AsyncWorker"]):
    """The twin of `Life`."""

    def __init__(self) -> None:
        super().__init__()
        self._behind: asyncio.Task[None] | None = None

    @abstractmethod
    async def verify(self, key: str | None = None, *, force: bool = False) -> License:
        """As in `LicenseClient`."""

    @abstractmethod
    async def check_for_update(self, key: str | None = None, *, force: bool = False) -> Update | None:
        """As in `LicenseClient`."""

    async def activate(self, key: str) -> License:
        """Verify a key that a person entered, and remember it; as `LicenseClient.activate`."""
        repaired = self._steps.read_typed(key)
        license_ = await self.verify(repaired)
        await in_thread(self._steps.remember_key, repaired)
        self._nudge()
        return license_

    async def forget_key(self) -> None:
        """Forget the key on this computer; as `LicenseClient.forget_key`."""
        await in_thread(self._steps.forget_key)
        self._nudge()

    async def status(self) -> "LicenseStatus":
        """Return what a settings page shows; as `LicenseClient.status`."""
        return await in_thread(self._steps.status)

    async def skip_update(self, update: Update) -> None:
        """Remember that a person does not want this version; as `LicenseClient.skip_update`."""
        await in_thread(self._steps.skip, update)

    async def is_skipped(self, update: Update) -> bool:
        """Tell whether this very version was skipped; as `LicenseClient.is_skipped`."""
        return await in_thread(self._steps.is_skipped, update)

    def start(
        self,
        *,
        on_status: "OnStatus | None" = None,
        on_update: "OnUpdate | None" = None,
        deliver: "Deliver | None" = None,
    ) -> "AsyncWorker":
        """Run one background worker as a task of the running loop; as `LicenseClient.start`.

        ::

            async with client.start(on_status=show):
                ...
        """
        from licclient._arguments import check_callbacks  # noqa: PLC0415 - as below
        from licclient._worker import AsyncWorker, Bell  # noqa: PLC0415 - many apps have none

        check_callbacks(self._steps.settings, on_status, on_update, deliver)
        bell = Bell(on_status, on_update, deliver)
        return self._begin(lambda: AsyncWorker(self._steps, self.verify, self.check_for_update, bell))

    async def stop(self) -> None:
        """Stop the background worker, if one runs; as `LicenseClient.stop`."""
        if self._worker is not None:
            await self._worker.stop()

    async def _stop(self) -> None:
        """Stop what runs in the background; cancel it after `CLOSE_SECONDS`."""
        import asyncio  # noqa: PLC0415 - the other flavour need not pay for it

        until = monotonic() + CLOSE_SECONDS
        await self.stop()
        behind, self._behind = self._behind, None
        # One of another loop ended with that loop, or is for that loop to end.
        if behind is None or behind.done() or behind.get_loop() is not asyncio.get_running_loop():
            return
        await asyncio.wait([behind], timeout=max(until - monotonic(), 0.0))
        behind.cancel()
        await asyncio.wait([behind])

    async def diagnose(self) -> str:
        """Find out why something does not work; as `LicenseClient.diagnose`."""
        return await in_thread(_report, self._steps, self._agent)

    async def require(self) -> License:
        """Return the license of the activated key, or raise; as `LicenseClient.require`."""
        import asyncio  # noqa: PLC0415 - as above

        known, is_due = await in_thread(self._steps.recall_holding)
        if known is not None and is_due and self._may_refresh():
            patience = await in_thread(self._steps.begin_refresh)
            self._behind = asyncio.get_running_loop().create_task(self._refresh(), name="licclient-refresh")
            if patience:
                await asyncio.wait([self._behind], timeout=patience)
                known, _ = await in_thread(self._steps.recall_holding)
        return await self.verify() if known is None else known

    @overload
    def licensed(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def licensed(self, *, otherwise: None = None) -> AsyncLicensed[Never]: ...

    @overload
    def licensed(self, *, otherwise: AsyncOtherwise[S_co]) -> AsyncLicensed[S_co]: ...

    @overload
    def licensed(self, *, otherwise: Otherwise[S_co]) -> AsyncLicensed[S_co]: ...

    def licensed(
        self, function: Callable[..., Any] | None = None, *, otherwise: Callable[..., Any] | None = None
    ) -> Any:
        """Decorate an `async def` that needs a license; as `LicenseClient.licensed`.

        `otherwise` may be an `async def`, too.
        """
        decorate = AsyncLicensed[Any](self.require, otherwise)
        return decorate if function is None else decorate(function)

    async def _refresh(self) -> None:
        with suppress(LicclientError, OSError, RuntimeError):
            await self.verify()
        with suppress(LicclientError):  # not when it was cancelled, which is how its loop cuts it off
            await in_thread(self._steps.end_refresh)


def _report(steps: "KeySteps", agent: str) -> str:
    from licclient._doctor import examine, write_report  # noqa: PLC0415 - rarely needed

    return write_report(examine(steps, agent), steps.now())
