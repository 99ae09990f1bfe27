"""`AsyncLicenseClient`: the methods of `LicenseClient`, with the same flows run for an event loop."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from os import PathLike
from time import monotonic
from typing import TYPE_CHECKING, Any, Never, Self, overload

from licclient import _flows
from licclient._base_client import (
    CLOSE_SECONDS,
    AsyncLicensed,
    AsyncOtherwise,
    BaseClient,
    Otherwise,
    P,
    R,
    S_co,
    check_download,
    check_entitled,
    check_entitlement,
    split_entitlement,
)
from licclient._model import License, Update
from licclient.errors import LicclientError

if TYPE_CHECKING:
    import asyncio

    from licclient._async_transport import AsyncTransport
    from licclient._flows.downloads import Cancel, Progress
    from licclient._flows.runners import Flow
    from licclient._part_file import Downloaded
    from licclient._seat import AsyncSeat, OnLost
    from licclient._status import LicenseStatus
    from licclient._worker import AsyncWorker, Deliver, OnStatus, OnUpdate


class AsyncLicenseClient(BaseClient["AsyncWorker", "AsyncTransport"]):
    """The twin of `LicenseClient` for asyncio: arguments, results and errors are the same.

    Use it as an asynchronous context manager, or call `aclose`; a closed client opens again with the next
    call. Cancelling a task returns at once; what it was writing is written whole. `progress` is called in the
    event loop; cancelling the task ends a download like `cancel` does.
    """

    _is_async = True
    _refresh: "asyncio.Task[None] | None"

    async def verify(self, key: str | None = None, *, force: bool = False) -> License:
        """Return the license if the key holds; as `LicenseClient.verify`."""
        return await self._run(_flows.verification.verify(self._context, key, force=force))

    async def activate(self, key: str) -> License:
        """Verify a key that a person entered, and remember it; as `LicenseClient.activate`."""
        found = await self._run(_flows.activation.activate(self._context, key))
        self._nudge()
        return found

    async def start_trial(self) -> License:
        """Start the trial of this computer; as `LicenseClient.start_trial`."""
        found = await self._run(_flows.activation.start_trial(self._context))
        self._nudge()
        return found

    async def require(self, entitlement: str | None = None) -> License:
        """Return the license of the activated key, or raise; as `LicenseClient.require`."""
        import asyncio

        check_entitlement(entitlement)
        known, is_due = await on_thread(_flows.activation.remembered_license, self._context)
        if known is None:
            return check_entitled(await self.verify(), entitlement)
        if is_due and self._may_refresh():
            self._refresh = asyncio.create_task(self._verify_quietly(), name="licclient-refresh")
        return check_entitled(known, entitlement)

    async def _verify_quietly(self) -> None:
        with suppress(LicclientError, OSError, RuntimeError):
            await self.verify()

    @overload
    def licensed(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def licensed(
        self, entitlement: str | None = None, /, *, otherwise: None = None
    ) -> AsyncLicensed[Never]: ...

    @overload
    def licensed(
        self, entitlement: str | None = None, /, *, otherwise: AsyncOtherwise[S_co]
    ) -> AsyncLicensed[S_co]: ...

    @overload
    def licensed(
        self, entitlement: str | None = None, /, *, otherwise: Otherwise[S_co]
    ) -> AsyncLicensed[S_co]: ...

    def licensed(
        self, function: Callable[..., Any] | str | None = None, *, otherwise: Callable[..., Any] | None = None
    ) -> Any:
        """Decorate an `async def` that needs a license; as `LicenseClient.licensed`.

        `otherwise` may be an `async def`, too.
        """
        name, decorated = split_entitlement(function)
        decorate = AsyncLicensed[Any](partial(self.require, name), otherwise, name)
        return decorate if decorated is None else decorate(decorated)

    async def forget_key(self) -> None:
        """Forget the key on this computer; as `LicenseClient.forget_key`."""
        await on_thread(_flows.activation.forget_key, self._context)
        self._nudge()

    async def deactivate(self, key: str | None = None) -> None:
        """Free the slot of this computer, and forget the key; as `LicenseClient.deactivate`."""
        await self._run(_flows.activation.deactivate(self._context, key))
        self._nudge()

    async def request_license_file(self) -> str:
        """Return the request for a license file; as `LicenseClient.request_license_file`."""
        return await on_thread(_flows.activation.request_file, self._context)

    async def install_license_file(self, file: "str | PathLike[str] | bytes") -> License:
        """Install a license file; as `LicenseClient.install_license_file`."""
        found = await on_thread(_flows.activation.install_file, self._context, file)
        self._nudge()
        return found

    def seat(
        self, key: str | None = None, *, on_lost: "OnLost | None" = None, deliver: "Deliver | None" = None
    ) -> "AsyncSeat":
        """Return a floating seat, for `async with`; as `LicenseClient.seat`."""
        from licclient._seat import AsyncSeat

        return self._create_seat(AsyncSeat, key, on_lost, deliver)

    async def consume(self, entitlement: str, amount: int = 1) -> int:
        """Use some of a metered entitlement; as `LicenseClient.consume`."""
        return await self._run(_flows.consumption.consume(self._context, entitlement, amount))

    async def status(self) -> "LicenseStatus":
        """Return what a settings page shows; as `LicenseClient.status`."""
        return await on_thread(_flows.activation.status, self._context)

    async def check_for_update(self, key: str | None = None, *, force: bool = False) -> Update | None:
        """Return a newer version to download, or None; as `LicenseClient.check_for_update`."""
        return await self._run(_flows.updates.check_for_update(self._context, key, force=force))

    async def skip_update(self, update: Update) -> None:
        """Remember that a person does not want this version; as `LicenseClient.skip_update`."""
        await on_thread(_flows.updates.skip_update, self._context, update)

    async def is_skipped(self, update: Update) -> bool:
        """Return whether this very version was skipped; as `LicenseClient.is_skipped`."""
        return await on_thread(_flows.updates.is_skipped, self._context, update)

    async def download(
        self,
        update: Update,
        to: str | PathLike[str],
        progress: "Progress | None" = None,
        cancel: "Cancel | None" = None,
    ) -> "Downloaded":
        """Download an update, verified, into a folder; as `LicenseClient.download`."""
        from licclient._storage import read_folder

        check_download(update, progress, cancel)
        flow = _flows.downloads.download(self._context, update, read_folder("to", to), progress)
        transport = await on_thread(self._transport)  # one for all of it, as in `LicenseClient`
        is_cancelled = None if cancel is None else cancel.is_set
        return await _flows.runners.run_async(flow, lambda: transport, is_cancelled)

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
        from licclient._worker import AsyncWorker

        return self._start_worker(AsyncWorker, on_status, on_update, deliver)

    async def stop(self) -> None:
        """Stop the background worker, if one runs; as `LicenseClient.stop`."""
        if self._worker is not None:
            await self._worker.stop()

    async def diagnose(self) -> str:
        """Find out why something does not work; as `LicenseClient.diagnose`."""
        from licclient._doctor import diagnose
        from licclient._network import on_daemon_thread

        edges = self._context, self._agent, self._given_transport
        _, report = await on_daemon_thread(lambda: diagnose(*edges))
        return report

    async def aclose(self) -> None:
        """Stop what runs in the background, which takes less than a second, and close what is open."""
        import asyncio

        until = monotonic() + CLOSE_SECONDS
        await self.stop()
        for seat in list(self._held_seats):
            await seat.release(max(until - monotonic(), 0.0))
        refresh, self._refresh = self._refresh, None
        # One of another loop ended with that loop, or is for that loop to end.
        if refresh is not None and refresh.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([refresh], timeout=max(until - monotonic(), 0.0))
            refresh.cancel()
        transport, self._open_transport = self._open_transport, None
        if transport is not None:
            await transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, flow: "Flow[R]") -> R:
        return await _flows.runners.run_async(flow, self._transport)

    def _transport(self) -> "AsyncTransport":
        with self._opening:
            if self._open_transport is None:
                from licclient._async_transport import AsyncTransport

                edges = self._context.settings, self._agent, self._given_transport
                self._open_transport = AsyncTransport(*edges)
            return self._open_transport


async def on_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do on a thread what may wait for the disk or the keyring."""
    import asyncio

    return await asyncio.to_thread(work, *args, **kwargs)
