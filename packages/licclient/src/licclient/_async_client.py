"""`AsyncLicenseClient`: the methods of `LicenseClient`, with the same flows run for an event loop."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from datetime import timedelta
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Never, Self, overload

from licclient import _features
from licclient._base_client import (
    CLOSE_SECONDS,
    AsyncLicensed,
    AsyncOtherwise,
    BaseClient,
    Otherwise,
    P,
    R,
    S_co,
    Y,
    check_download,
    check_downloaded,
    check_entitled,
    check_entitlement,
    check_installation,
    read_wait,
    split_entitlement,
    verify_cached,
    verify_forced,
)
from licclient._core.arguments import check_flag
from licclient._core.clock import monotonic
from licclient._core.lazy import lazy
from licclient._core.log import NOT_REFRESHED, debug
from licclient._core.model import License
from licclient.errors import LicclientError

if TYPE_CHECKING:
    import asyncio

    from licclient import _doctor, _worker
    from licclient._core import async_transport, network, storage
    from licclient._core.async_transport import AsyncTransport
    from licclient._core.runners import Deliver, Flow
    from licclient._core.status import LicenseStatus
    from licclient._core.update_model import Downloaded, Update, UpdateCheck
    from licclient._updates.download import Cancel, Progress
    from licclient._worker import AsyncWorker, OnStatus, OnUpdate
    from licclient.install._detection import DetectedInstallation
    from licclient.install._plan import InstallationReceipt, InstalledUpdate, UpdatePlan
else:
    asyncio = lazy("asyncio")
    async_transport = lazy("licclient._core.async_transport")
    network = lazy("licclient._core.network")
    storage = lazy("licclient._core.storage")
    _doctor = lazy("licclient._doctor")
    _worker = lazy("licclient._worker")


class AsyncLicenseClient(_features.AsyncFeatures, BaseClient["AsyncWorker", "AsyncTransport"]):
    """The twin of `LicenseClient` for asyncio: arguments, results and errors are the same.

    Use it as an asynchronous context manager, or call `aclose`. A closed client raises `RuntimeError`.
    Cancelling a task returns at once; what it was writing is written whole. `progress` is called in the event
    loop; cancelling the task ends a download like `cancel` does.
    """

    _is_async = True
    _refresh: "asyncio.Task[None] | None"
    _question: "asyncio.Task[License | LicclientError] | None"

    async def verify(self, key: str | None = None, *, force: bool = False) -> License:
        """Return the license if the key holds; as `LicenseClient.verify`."""
        try:
            return await self._run(_features.verification.verify(self._session, key, force=force))
        finally:
            if force:
                self._look_again()

    async def activate(self, key: str) -> License:
        """Verify a key that a person entered, and remember it; as `LicenseClient.activate`."""
        license_ = await self._run(_features.activation.activate(self._session, key, verify_cached))
        self._look_again()
        return license_

    async def start_trial(self) -> License:
        """Start the trial of this computer; as `LicenseClient.start_trial`."""
        license_ = await self._run(_features.trials.start_trial(self._session, verify_forced))
        self._look_again()
        return license_

    async def require(
        self, entitlement: str | None = None, *, wait: float | timedelta | None = None
    ) -> License:
        """Return the license of the activated key, or raise; as `LicenseClient.require`.

        A coroutine keeps no loop from running, so without `wait` it waits in the loop of windows, too.
        """
        check_entitlement(entitlement)
        seconds = None if wait is None else read_wait(wait)
        license_, is_due = await on_thread(_features.require.remembered_license, self._session, seconds)
        if license_ is None:
            return check_entitled(await self._confirm(seconds), entitlement)
        if is_due and self._may_refresh():
            self._refresh = network.start_task(self._verify_quietly(), "licclient-refresh")
        return check_entitled(license_, entitlement)

    async def _verify_quietly(self) -> None:
        flow = _features.verification.verify(self._own_session, None, force=False, is_background=True)
        try:
            await self._run(flow)
        except LicclientError:
            pass  # logged where it came from, and the next answer tries again
        except (OSError, RuntimeError) as problem:  # as in `_worker.Refresh`
            debug(NOT_REFRESHED, problem)

    async def _confirm(self, seconds: float | None) -> License:
        if seconds is None:
            return await self._run(_features.require.confirm(self._session))
        loop, question = asyncio.get_running_loop(), self._question
        if question is None or question.done() or question.get_loop() is not loop:
            question = self._question = loop.create_task(self._ask(), name="licclient-refresh")
        done, _ = await asyncio.wait([question], timeout=seconds)
        outcome = question.result() if done else _features.require.not_asked()
        return _features.session.license_or_raise(outcome)

    async def _ask(self) -> License | LicclientError:
        try:
            return await self._run(_features.require.confirm(self._own_session))
        except LicclientError as problem:
            return problem

    @overload
    def licensed(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def licensed(
        self, function: Callable[P, AsyncGenerator[Y, R]], /
    ) -> Callable[P, AsyncGenerator[Y, R]]: ...

    @overload
    def licensed(
        self,
        entitlement: str | None = None,
        /,
        *,
        otherwise: None = None,
        wait: float | timedelta | None = None,
    ) -> AsyncLicensed[Never]: ...

    @overload
    def licensed(
        self,
        entitlement: str | None = None,
        /,
        *,
        otherwise: AsyncOtherwise[S_co],
        wait: float | timedelta | None = None,
    ) -> AsyncLicensed[S_co]: ...

    @overload
    def licensed(
        self,
        entitlement: str | None = None,
        /,
        *,
        otherwise: Otherwise[S_co],
        wait: float | timedelta | None = None,
    ) -> AsyncLicensed[S_co]: ...

    def licensed(
        self,
        function: Callable[..., Any] | str | None = None,
        *,
        otherwise: Callable[..., Any] | None = None,
        wait: float | timedelta | None = None,
    ) -> Any:
        """Decorate an `async def` that needs a license; as `LicenseClient.licensed`.

        `otherwise` may be an `async def`, too. One that yields ends without items if there is no license.
        """
        name, decorated = split_entitlement(function)
        seconds = None if wait is None else read_wait(wait)
        decorate = AsyncLicensed[Any](partial(self.require, name, wait=seconds), otherwise, name)
        return decorate if decorated is None else decorate(decorated)

    async def reset(self) -> None:
        """Forget what this app remembers on this computer; as `LicenseClient.reset`."""
        await on_thread(_features.activation.reset, self._session)
        self._look_again()

    async def forget_key(self) -> None:
        """Forget the key on this computer; as `LicenseClient.forget_key`."""
        await on_thread(_features.activation.forget_key, self._session)
        self._look_again()

    async def deactivate(self, key: str | None = None) -> None:
        """Free the slot of this computer, and forget the key; as `LicenseClient.deactivate`."""
        await self._run(_features.activation.deactivate(self._session, key))
        self._look_again()

    async def status(self) -> "LicenseStatus":
        """Return what a settings page shows; as `LicenseClient.status`."""
        return await on_thread(_features.status.status, self._session)

    async def check_for_update(self, key: str | None = None, *, force: bool = False) -> "UpdateCheck":
        """Return whether there is a newer version to download; as `LicenseClient.check_for_update`."""
        return await self._run(_features.updates.check_for_update(self._session, key, force=force))

    async def skip_update(self, update: "Update") -> None:
        """Remember that a person does not want this version; as `LicenseClient.skip_update`."""
        await on_thread(_features.updates.skip_update, self._session, update)

    async def is_skipped(self, update: "Update") -> bool:
        """Return whether this very version was skipped; as `LicenseClient.is_skipped`."""
        return await on_thread(_features.updates.is_skipped, self._session, update)

    async def confirm_version(self, *, no_way_back: bool = False) -> None:
        """Report that this version of the app works; as `LicenseClient.confirm_version`."""
        self._check_open()
        await on_thread(_features.install.confirm_running, no_way_back=no_way_back)

    async def download(
        self,
        update: "Update",
        to: str | PathLike[str],
        progress: "Progress | None" = None,
        cancel: "Cancel | None" = None,
        *,
        key: str | None = None,
    ) -> "Downloaded":
        """Download an update, verified, into a folder; as `LicenseClient.download`."""
        self._check_open()
        check_download(update, progress, cancel)
        flow = _features.downloads.download(
            self._session, update, storage.read_folder("to", to), progress, key
        )
        transport = await on_thread(self._transport)  # one for all of it, as in `LicenseClient`
        is_cancelled = None if cancel is None else cancel.is_set
        return await _features.runners.run_async(flow, lambda: transport, is_cancelled)

    async def plan_update(self, *, installation: "DetectedInstallation | None" = None) -> "UpdatePlan":
        """Return what `install_update` does on this computer; as `LicenseClient.plan_update`."""
        self._check_open()
        check_installation(installation)
        return await on_thread(_features.installing.plan_update, self._session, installation)

    async def install_update(
        self,
        update: "Update",
        progress: "Progress | None" = None,
        cancel: "Cancel | None" = None,
        *,
        key: str | None = None,
        downloaded: "Downloaded | None" = None,
        restart: bool = True,
        installation: "DetectedInstallation | None" = None,
    ) -> "InstalledUpdate":
        """Download an update, and install it; as `LicenseClient.install_update`."""
        self._check_open()
        check_download(update, progress, cancel)
        check_flag("restart", restart)
        check_installation(installation)
        check_downloaded(downloaded)
        flow = _features.installing.install_update(
            self._session,
            update,
            progress,
            key,
            downloaded=downloaded,
            installation=installation,
            restart=restart,
        )
        transport = await on_thread(self._transport)  # one for all of it, as in `LicenseClient`
        is_cancelled = None if cancel is None else cancel.is_set
        return await _features.runners.run_async(flow, lambda: transport, is_cancelled)

    async def installation_receipt(self) -> "InstallationReceipt | None":
        """Return what the last `install_update` came to; as `LicenseClient.installation_receipt`."""
        return await on_thread(_features.installing.read_receipt, self._session)

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
        return self._start_worker(_worker.AsyncWorker, on_status, on_update, deliver)

    async def stop(self) -> None:
        """Stop the background worker, if one runs; as `LicenseClient.stop`."""
        if self._worker is not None:
            await self._worker.stop()

    async def diagnose(self) -> str:
        """Find out why something does not work; as `LicenseClient.diagnose`."""
        edges = self._session, self._agent, self._given_transport
        _, report = await network.on_daemon_thread(lambda: _doctor.diagnose(*edges))
        return report

    async def aclose(self) -> None:
        """Stop background work, which takes less than a second, and close all connections."""
        until = monotonic() + CLOSE_SECONDS
        await self.stop()
        for held in list(self._to_release):
            await held.release(max(until - monotonic(), 0.0))
        tasks = filter(None, (self._refresh, self._question))
        self._refresh = self._question = None
        # A task of another loop ended with that loop, or is for that loop to end.
        for task in [task for task in tasks if task.get_loop() is asyncio.get_running_loop()]:
            await asyncio.wait([task], timeout=max(until - monotonic(), 0.0))
            task.cancel()
        with self._opening:
            self._is_closed = True
            transport = self._open_transport
        if transport is not None:
            await transport.aclose()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, flow: "Flow[R]") -> R:
        return await _features.runners.run_async(flow, self._transport)

    def _transport(self) -> "AsyncTransport":
        with self._opening:
            if self._open_transport is None:
                edges = self._own_session.settings, self._agent, self._given_transport
                self._open_transport = async_transport.AsyncTransport(*edges)
                if self._is_closed:  # for what was under way
                    self._open_transport.refuse()
            return self._open_transport


async def on_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do on a thread what may wait for the disk or the keyring; the loop's end does not wait for it."""
    return await network.on_daemon_thread(partial(work, *args, **kwargs))
