"""The two clients, side by side: the same few lines around the same steps. Keep them alike.

They differ in one thing: the asynchronous one waits for network and disk on threads.
"""

import threading
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

import licclient
from licclient._clock import Clock
from licclient._flows.runners import run, run_async, send_with_retries
from licclient._flows.verification import verify
from licclient._life import AsyncLife, Life
from licclient._model import License, Settings, Update
from licclient._threads import in_thread

if TYPE_CHECKING:
    import httpx

    from licclient._async_transport import AsyncTransport
    from licclient._flows.downloads import Cancel, Progress
    from licclient._part_file import Downloaded
    from licclient._settings import ClientSettings
    from licclient._storage import Storage
    from licclient._transport import Transport
    from licclient._update_steps import UpdateCheck


class _Client:
    """Constructor of both clients; the arguments are described in `LicenseClient`."""

    @overload
    def __init__(
        self,
        base_url: str,
        *,
        product: str | None = None,
        slug: str | None = None,
        version: str | None = None,
        domain: str | None = None,
        state_dir: str | PathLike[str] | None = None,
        cache_for: timedelta = timedelta(hours=24),
        grace: timedelta = timedelta(hours=72),
        check_every: timedelta = timedelta(hours=12),
        timeout: float | timedelta = 10.0,
        public_keys: Iterable[str] | None = None,
        release_keys: Iterable[str] | None = None,
        download_origins: Iterable[str] | None = None,
        clock: Clock | None = None,
        transport: "httpx.BaseTransport | None" = None,
        storage: "Storage | None" = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        settings: "ClientSettings",
        /,
        *,
        clock: Clock | None = None,
        transport: "httpx.BaseTransport | None" = None,
        storage: "Storage | None" = None,
    ) -> None: ...

    def __init__(
        self,
        base_url: "str | ClientSettings",
        *,
        clock: Clock | None = None,
        transport: "httpx.BaseTransport | None" = None,
        storage: "Storage | None" = None,
        **options: Any,
    ) -> None:
        # Here, so that importing costs next to nothing for an app that makes its client later, or never.
        from licclient._arguments import check_edges, read_folder  # noqa: PLC0415 - as above
        from licclient._flows.context import create_context  # noqa: PLC0415 - as above
        from licclient._key_steps import KeySteps  # noqa: PLC0415 - as above
        from licclient._protocol.links import is_in_the_clear  # noqa: PLC0415 - as above
        from licclient._settings import ClientSettings, read_settings  # noqa: PLC0415 - as above
        from licclient._state_places import places_for  # noqa: PLC0415 - as above
        from licclient._storage import StateFolder  # noqa: PLC0415 - as above
        from licclient._update_steps import NOT_CHECKED  # noqa: PLC0415 - as above

        given = (
            replace(base_url, **options)
            if isinstance(base_url, ClientSettings)
            else ClientSettings(base_url, **options)
        )
        settings = read_settings(given)
        if is_in_the_clear(settings.server):
            import warnings  # noqa: PLC0415 - rarely needed

            message = "base_url is http: license keys travel in the clear, and anybody on the way can answer"
            warnings.warn(f"{message}; use https", UserWarning, stacklevel=2)
        check_edges(clock, transport, storage)
        if given.state_dir is None:
            state = StateFolder(None, places_for(settings))
        else:
            state = StateFolder(read_folder("state_dir", given.state_dir))
        self._context = create_context(settings, clock, storage or state)
        self._steps = KeySteps(self._context)
        self._agent = f"licclient/{licclient.__version__}"
        self._seconds = settings.timeout.total_seconds()
        self._opening = threading.Lock()
        self._given_transport = transport
        self._last_update_check = NOT_CHECKED
        super().__init__()

    @property
    def last_update_check(self) -> "UpdateCheck":
        """The result of this client's latest `check_for_update`: why it returned None."""
        return self._last_update_check

    def _transport_options(self) -> "tuple[Settings, str, httpx.BaseTransport | None]":
        return self._steps.settings, self._agent, self._given_transport

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._steps.settings.server!r})"


class LicenseClient(_Client, Life):
    """Verifies license keys, and finds and downloads updates.

    Safe to share among threads. Use it as a context manager, or call `close`; a closed client opens again
    with the next call.

    Args:
        base_url: Address of the license service; or a `ClientSettings` with the address and all options.
        **options: As the attributes of `ClientSettings`, which describes them.
        clock: Returns the present instant as an aware datetime; for tests.
        transport: An httpx transport that sends the requests, such as `httpx.MockTransport`; the system's
            proxies are not used then. Both clients call `handle_request`, on a thread, and close it.
        storage: Where the state is kept instead of `state_dir`.

    Warns:
        UserWarning: `base_url` is `http`, and not this very machine.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range, or no usable address.
        ImportError: `public_keys` or `release_keys` without the extra.
    """

    _open_transport: "Transport | None" = None

    def verify(self, key: str | None = None, *, force: bool = False) -> License:
        """Return the license if the key holds: from a fresh cache (D-41), else from the server.

        However many threads and processes ask in the same moment, one of them makes the call, and the others
        take what it is told (D-58).

        Args:
            key: White space and lower case are repaired (D-02). None for the key that was activated.
            force: Ask the server also when the cache is fresh.

        Raises:
            NotActivatedError: No key was given, and none was activated on this computer.
            LicenseRefusedError: The server said no, or the key is for another product.
            InvalidRequestError: There is no key in `key`, or the server called the request malformed.
            ServiceUnavailableError: No answer, and neither cache nor grace holds.
            UntrustedResponseError: What came as an answer was not signed by a pinned key for this very call.
        """
        return run(verify(self._context, key, force=force), self._transport)

    def check_for_update(self, key: str | None = None, *, force: bool = False) -> Update | None:
        """Return a newer version that the customer may download, or None; `last_update_check` has the reason.

        Refusals and outages are None as well. Without `force` the server is asked at most once per
        `check_every`; in between, what it offered is returned again (D-46, D-48).

        Args:
            key: As in `verify`.
            force: Ask the server now, such as after a click on "Check now".

        Raises:
            ValueError: The client was made without `slug` or `version`.
        """
        from licclient._update_steps import Asking  # noqa: PLC0415 - loaded with the client, not with the package

        found = self._steps.begin_check(key, force=force)
        if isinstance(found, Asking):
            call = self._steps.check_call(found)
            found = self._steps.end_check(
                found, call, run(send_with_retries(call, self._seconds), self._transport).result
            )
        self._last_update_check = found
        return found.update

    def download(
        self,
        update: Update,
        to: str | PathLike[str],
        progress: "Progress | None" = None,
        cancel: "Cancel | None" = None,
    ) -> "Downloaded":
        """Download an update, verified, into a folder; goes on where an earlier try was cut off (D-48, D-55).

        Args:
            update: From `check_for_update`.
            to: The folder; made if it is missing. A file of the same name is replaced.
            progress: Called some twenty times a second with the bytes that are there, the bytes in all, and
                the speed in bytes a second; not backwards unless the server replaced the file meanwhile.
                What it raises ends the download; the part stays.
            cancel: Looked at ten times a second; when it `is_set`, such as a `threading.Event`, the download
                ends, and the part stays.

        Returns:
            The file, under the name that the server gave it, made safe; with its size and digest.

        Raises:
            NotActivatedError: The key of a remembered offer was forgotten meanwhile.
            LicenseRefusedError: The key is refused by now, or its support is over.
            InvalidRequestError: The server called the request malformed.
            ServiceUnavailableError: No answer, too slow, or cut off too often; what has come stays for the
                next try.
            UntrustedResponseError: The file is not what the server declared, and nothing of it is kept; or no
                pinned key signed the response with the fresh link.
            DownloadCancelledError: `cancel` was set.
            OSError: The folder cannot be written, or the disk has no room for the file.
            TypeError: An argument is not what it must be.
            ValueError: The client was made without `slug` or `version`, or `to` is blank.
        """
        from licclient._arguments import check_download, read_folder  # noqa: PLC0415 - as below
        from licclient._flows.downloads import download  # noqa: PLC0415 - most starts download nothing

        check_download(update, progress, cancel)
        is_cancelled = cancel.is_set if cancel is not None else lambda: False
        flow = download(self._steps, update, read_folder("to", to), progress, is_cancelled)
        return run(flow, self._transport, is_cancelled)

    def close(self) -> None:
        """Stop the worker, if there is one, and close what is open."""
        self._stop()
        with self._opening:
            transport, self._open_transport = self._open_transport, None
        if transport is not None:
            transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _transport(self) -> "Transport":
        from licclient._transport import Transport  # noqa: PLC0415 - loads httpx

        with self._opening:
            if self._open_transport is None:
                self._open_transport = Transport(*self._transport_options())
            return self._open_transport


class AsyncLicenseClient(_Client, AsyncLife):
    """The twin of `LicenseClient` for asyncio: arguments, results and errors are the same.

    Use it as an asynchronous context manager, or call `aclose`; a closed client opens again with the next
    call. `progress` is called in the event loop; cancelling the task ends a download like `cancel` does.
    """

    _open_transport: "AsyncTransport | None" = None

    async def verify(self, key: str | None = None, *, force: bool = False) -> License:
        """Return the license if the key holds; as `LicenseClient.verify`."""
        return await run_async(verify(self._context, key, force=force), self._transport)

    async def check_for_update(self, key: str | None = None, *, force: bool = False) -> Update | None:
        """Return a newer version to download, or None; as `LicenseClient.check_for_update`."""
        from licclient._update_steps import Asking  # noqa: PLC0415 - as in `LicenseClient`

        found = await in_thread(self._steps.begin_check, key, force=force)
        if isinstance(found, Asking):
            call = self._steps.check_call(found)
            attempt = await run_async(send_with_retries(call, self._seconds), self._transport)
            found = await in_thread(self._steps.end_check, found, call, attempt.result)
        self._last_update_check = found
        return found.update

    async def download(
        self,
        update: Update,
        to: str | PathLike[str],
        progress: "Progress | None" = None,
        cancel: "Cancel | None" = None,
    ) -> "Downloaded":
        """Download an update, verified, into a folder; as `LicenseClient.download`."""
        from licclient._arguments import check_download, read_folder  # noqa: PLC0415 - as below
        from licclient._async_transport import Stop, in_loop, run_apart  # noqa: PLC0415 - loads asyncio

        check_download(update, progress, cancel)
        folder = read_folder("to", to)
        stop = Stop(cancel)
        tell = None if progress is None else in_loop(progress, stop)
        transport = self._transport()

        def work() -> "Downloaded":
            from licclient._flows.downloads import download  # noqa: PLC0415 - as above

            flow = download(self._steps, update, folder, tell, stop.is_set)
            return run(flow, transport.on_thread, stop.is_set)

        return await run_apart(work, stop)

    async def aclose(self) -> None:
        """Stop the worker, if there is one, and close what is open."""
        await self._stop()
        with self._opening:
            transport, self._open_transport = self._open_transport, None
        if transport is not None:
            await transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _transport(self) -> "AsyncTransport":
        from licclient._async_transport import AsyncTransport  # noqa: PLC0415 - loads asyncio

        with self._opening:
            if self._open_transport is None:
                self._open_transport = AsyncTransport(*self._transport_options())
            return self._open_transport
