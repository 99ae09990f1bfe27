"""Shared by both clients: the constructor, the helpers of their methods, and `licensed`.

What is imported within functions is not needed by an application that makes its client later, or never.
"""

import inspect
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import timedelta
from functools import cache, wraps
from os import PathLike
from os.path import isfile
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Never, ParamSpec, TypeVar, overload
from weakref import WeakSet

from licclient import _core, _features
from licclient._core.arguments import check_call, read_seconds, refuse_copies, takes_own_arguments, wrong_type
from licclient._core.clock import Clock, monotonic
from licclient._core.lazy import lazy
from licclient._core.model import License, is_entitlement_name
from licclient.errors import LicclientError, NotEntitledError

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from licclient import _worker as _worker_module
    from licclient._core import kinds, network, process, records, requests, update_model
    from licclient._core import settings as settings_module
    from licclient._core import storage as storage_module
    from licclient._core.async_transport import AsyncTransport
    from licclient._core.kinds import InstallationKind
    from licclient._core.model import Settings
    from licclient._core.records import Storage
    from licclient._core.runners import Deliver, Flow
    from licclient._core.session import ClientAccess, LicenseFileStore, Session
    from licclient._core.settings import ClientSettings, Pages, Trust, Updates
    from licclient._core.transport import Transport
    from licclient._updates import check as check_module
    from licclient._worker import AsyncWorker, Callbacks, OnStatus, OnUpdate, Worker
else:
    kinds = lazy("licclient._core.kinds")
    network = lazy("licclient._core.network")
    process = lazy("licclient._core.process")
    records = lazy("licclient._core.records")
    requests = lazy("licclient._core.requests")
    settings_module = lazy("licclient._core.settings")
    storage_module = lazy("licclient._core.storage")
    update_model = lazy("licclient._core.update_model")
    check_module = lazy("licclient._updates.check")
    _worker_module = lazy("licclient._worker")


REFRESH_EVERY: Final = 60.0
"""Seconds between two refreshes that `require` starts behind an answer: a click is no reason to ask again."""

MAX_WAIT: Final = 3600.0
"""Most seconds that `require` waits; threads cannot wait for any time."""

CLOSE_SECONDS: Final = 0.8
"""How long closing waits for what runs in the background, the worker's end included."""

_W = TypeVar("_W", bound="Worker | AsyncWorker")
_T = TypeVar("_T", bound="Transport | AsyncTransport")


class _Default:
    """The default of an argument: not passed. A signature shows it as it is written."""

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __repr__(self) -> str:
        return self._shown


_NONE: Any = _Default("None")
_TEN_SECONDS: Any = _Default("10.0")
_UPDATES: Any = _Default("Updates()")
_TRUST: Any = _Default("Trust()")
_PAGES: Any = _Default("Pages()")


def _name_argument(name: str) -> str:
    return settings_module.name_argument(name, "")


@takes_own_arguments(_name_argument)
class BaseClient(Generic[_W, _T]):
    """Constructor of both clients; the arguments are described in `LicenseClient`."""

    _is_async: ClassVar[bool]
    _worker: _W | None
    _open_transport: _T | None
    _refresh: Any
    """A request behind an answer from the disk."""
    _question: Any
    """A request whose answer `require` did not wait for."""

    @overload
    def __init__(
        self,
        base_url: str,
        *,
        product: str | None = None,
        slug: str | None = None,
        version: str | None = None,
        domain: str | None = None,
        label: str | None = None,
        storage: "str | PathLike[str] | Storage | None" = None,
        timeout: float | timedelta = 10.0,
        updates: "Updates" = ...,
        trust: "Trust" = ...,
        pages: "Pages" = ...,
        clock: Clock | None = None,
        transport: "httpx.BaseTransport | httpx.AsyncBaseTransport | None" = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        base_url: "ClientSettings",
        *,
        product: str | None = ...,
        slug: str | None = ...,
        version: str | None = ...,
        domain: str | None = ...,
        label: str | None = ...,
        storage: "str | PathLike[str] | Storage | None" = ...,
        timeout: float | timedelta = ...,
        updates: "Updates" = ...,
        trust: "Trust" = ...,
        pages: "Pages" = ...,
        clock: Clock | None = None,
        transport: "httpx.BaseTransport | httpx.AsyncBaseTransport | None" = None,
    ) -> None: ...

    def __init__(
        self,
        base_url: "str | ClientSettings",
        *,
        product: str | None = _NONE,
        slug: str | None = _NONE,
        version: str | None = _NONE,
        domain: str | None = _NONE,
        label: str | None = _NONE,
        storage: "str | PathLike[str] | Storage | None" = _NONE,
        timeout: float | timedelta = _TEN_SECONDS,
        updates: "Updates" = _UPDATES,
        trust: "Trust" = _TRUST,
        pages: "Pages" = _PAGES,
        clock: Clock | None = None,
        transport: "httpx.BaseTransport | httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        options: dict[str, Any] = {
            "product": product,
            "slug": slug,
            "version": version,
            "domain": domain,
            "label": label,
            "storage": storage,
            "timeout": timeout,
            "updates": updates,
            "trust": trust,
            "pages": pages,
        }
        passed = {name: value for name, value in options.items() if not isinstance(value, _Default)}
        given = (
            replace(base_url, **passed)
            if isinstance(base_url, settings_module.ClientSettings)
            else settings_module.ClientSettings(base_url, **passed)
        )
        settings = settings_module.read_settings(given)
        self._given = given
        if requests.is_in_the_clear(settings.server):
            message = "base_url is http: license keys travel in the clear, and anyone in between can answer"
            warnings.warn(f"{message}; use https", UserWarning, stacklevel=3)
        check_clock(clock)
        check_transport(transport, is_async=self._is_async)
        self._own_session = _features.session.Session(
            settings, clock, self._open_storage(given, settings), open_license_files, find_kind
        )
        self._is_closed = False
        self._agent = f"licclient/{_core.__version__}"
        self._given_transport: Any = transport
        # Also when a client is constructed again, as for a test with a fake service.
        self._renew()
        process.renew_in_child(self, BaseClient._renew)

    @staticmethod
    def _open_storage(given: "ClientSettings", settings: "Settings") -> "Storage":
        lock_timeout = settings.timeout.total_seconds()
        if given.storage is None:
            return storage_module.StateFolder(None, records.places_for(settings), lock_timeout)
        if storage_module.is_storage(given.storage):
            return given.storage
        if not isinstance(given.storage, str | PathLike):
            expected = "the path of a folder, or have load, change and folder as a Storage"
            raise wrong_type("storage", expected, given.storage)
        folder = storage_module.read_folder_path("storage", given.storage)
        # On some systems it would look as if nothing had been stored yet.
        if isfile(folder):  # noqa: PTH113 - a text
            raise ValueError("storage must be the path of a folder, and there is a file")
        return storage_module.StateFolder(folder, lock_timeout=lock_timeout)

    def _renew(self) -> None:
        """Start with nothing open; in a child process what the parent has open stays the parent's."""
        self._opening = threading.Lock()
        self._worker = self._open_transport = self._refresh = self._question = None
        self._to_release: WeakSet[Any] = WeakSet()  # what features hold at the service; its thread keeps it
        self._dialogs: WeakSet[Any] = WeakSet()  # those of licclient.dialogs; open ones are closed with us
        self._guard = threading.Lock()
        self._refreshed_at: float | None = None

    @property
    def settings(self) -> "ClientSettings":
        """The settings that the client was constructed with."""
        return self._given

    @property
    def state_folder(self) -> "Path | None":
        """The folder of the app's state; it may not exist yet. None without a folder, as with `storage=`."""
        return self._own_session.storage.folder()

    @property
    def _session(self) -> "Session":
        """The session of the flows; raise `RuntimeError` if the client is closed (D-297)."""
        self._check_open()
        return self._own_session

    def _access(self) -> "ClientAccess[_T]":
        """Return what a feature uses of this client."""
        return _features.session.ClientAccess(
            lambda: self._session,
            self._transport,
            self._run,
            self._look_again,
            self._to_release.add,
            activate_forced,
        )

    def _run(self, flow: "Flow[Any]") -> Any:
        """Run a flow: for an asynchronous client, return an awaitable."""
        raise NotImplementedError

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this client is closed: create another one, or close it later")

    def _transport(self) -> _T:
        """Return what sends requests; made for the first one, since that loads httpx."""
        raise NotImplementedError

    def _start_worker(
        self,
        worker: Callable[["Session", Callable[[], _T], "Callbacks"], _W],
        on_status: "OnStatus | None",
        on_update: "OnUpdate | None",
        deliver: "Deliver | None",
    ) -> _W:
        check_callbacks(self._session.settings, on_status, on_update, deliver)
        with self._guard:
            if self._worker is not None and self._worker.is_running:
                raise RuntimeError("this client has a worker that runs already")
            callbacks = _worker_module.Callbacks(on_status, on_update, deliver)
            self._worker = worker(self._session, self._transport, callbacks)
            return self._worker

    def _look_again(self) -> None:
        if self._worker is not None:
            self._worker.look_again()

    def _may_refresh(self) -> bool:
        """Return whether it is time for a refresh behind an answer; if so, count it as begun."""
        with self._guard:
            if self._refreshed_at is not None and monotonic() - self._refreshed_at < REFRESH_EVERY:
                return False
            self._refreshed_at = monotonic()
            return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._own_session.settings.server!r})"

    def __reduce__(self) -> Never:
        """Refuse copies: locks and connections belong to one object, and to one process."""
        refuse_copies(self, f"create another one, with {type(self).__name__}(client.settings)")


# --- how features reach each other ----------------------------------------------------------------


def open_license_files(session: "Session") -> "LicenseFileStore":
    """Load the feature that holds the license file."""
    return _features.offline.open_license_files(session)


@cache
def find_kind() -> "InstallationKind | None":
    """Return the kind of published file that replaces this installation; None for none, or if unsure."""
    installation = _features.install.detect()
    return kinds.read_published_kind(installation.kind) if installation.is_certain else None


def verify_cached(session: "Session", key: str) -> "Flow[License]":
    """Verify a key, for features that remember one."""
    return _features.verification.verify(session, key, force=False)


def verify_forced(session: "Session", key: str) -> "Flow[License]":
    """Verify a key by a call, for features that obtain one."""
    return _features.verification.verify(session, key, force=True)


def activate_forced(session: "Session", key: str) -> "Flow[License]":
    """Verify a key by a call and remember it, for features that make it valid here."""
    return _features.activation.activate(session, key, verify_forced)


# --- what an app hands in, looked at before anything is done with it -----------------------------


def check_transport(transport: object, *, is_async: bool) -> None:
    """Raise `TypeError` for what cannot send the requests of this client."""
    if transport is None or callable(getattr(transport, "handle_request", None)):
        return
    if not callable(getattr(transport, "handle_async_request", None)):
        kinds = "httpx.AsyncBaseTransport or httpx.BaseTransport" if is_async else "httpx.BaseTransport"
        raise TypeError(f"transport must be an {kinds}, such as httpx.MockTransport")
    if not is_async:
        raise TypeError(
            "transport must be an httpx.BaseTransport; an AsyncBaseTransport is for AsyncLicenseClient"
        )


def check_clock(clock: object) -> None:
    """Raise `TypeError` for what cannot stand in for the clock."""
    if clock is not None and not callable(clock):
        raise TypeError("clock must be callable and return an aware datetime")


def check_download(update: object, progress: object, cancel: object) -> None:
    """Raise `TypeError` for what cannot be downloaded, reported to, or asked whether it `is_set`."""
    check_module.check_update(update)
    check_call("progress", progress)
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise TypeError("cancel must have is_set(), such as threading.Event has")


def check_downloaded(downloaded: object) -> None:
    """Raise `TypeError` unless it is what `download` returned, or None."""
    if downloaded is not None and not isinstance(downloaded, update_model.Downloaded):
        raise wrong_type("downloaded", "what download returned", downloaded)


def check_installation(installation: object) -> None:
    """Raise `TypeError` unless it is what `licclient.install.detect` returns, or None."""
    if installation is not None and not hasattr(installation, "kind"):
        raise wrong_type("installation", "what licclient.install.detect returned", installation)


def check_callbacks(
    settings: "Settings", on_status: object, on_update: object, deliver: Callable[..., object] | None
) -> None:
    """Raise `TypeError` for what cannot be called, `ValueError` for `on_update` without slug or version."""
    check_call("on_status", on_status)
    check_call("on_update", on_update)
    check_call("deliver", deliver)
    if on_update is not None:
        _features.updates.installed_version(settings)


# --- @client.licensed -----------------------------------------------------------------------------


P = ParamSpec("P")
R = TypeVar("R")
Y = TypeVar("Y")
S_co = TypeVar("S_co", covariant=True)

Otherwise = Callable[[LicclientError], License | S_co]
AsyncOtherwise = Callable[[LicclientError], Awaitable[License | S_co]]


def check_function(function: object) -> None:
    """Raise `TypeError` unless `function` is one: a mistake here must not open a feature."""
    if not callable(function):
        # Without the value: it may be a license key.
        raise TypeError(
            f"licensed decorates functions, not {type(function).__name__}: it takes no key;"
            " use verify(key), or activate(key) once"
        )
    if isinstance(function, type):
        raise TypeError("licensed decorates functions, not classes: decorate the methods that need a license")


def check_entitlement(name: object) -> None:
    """Raise `TypeError` unless `name` can be that of an entitlement, or is None."""
    if name is not None and not is_entitlement_name(name):
        # Without the value: it may be a license key.
        raise TypeError(
            f"an entitlement is named by up to 40 lower-case letters, digits and _ . -, not by this"
            f" {type(name).__name__}; a license key goes to verify(key), or activate(key) once"
        )


def read_wait(wait: object) -> float:
    """Return a time to wait in seconds; `TypeError` for none, `ValueError` for less than none."""
    return read_seconds("wait", wait, MAX_WAIT, is_zero_allowed=True)


def split_entitlement(given: Any) -> tuple[str | None, Any]:
    """Return the name of a feature and the function to decorate, of which one was given."""
    return (given, None) if is_entitlement_name(given) else (None, given)


def check_entitled(license_: License, entitlement: str | None) -> License:
    """Return a license that includes a feature, or raise `NotEntitledError`; without a name, any license."""
    if entitlement is not None and not license_.entitlements.grants(entitlement):
        raise NotEntitledError(entitlement)
    return license_


class _Licensed:
    """What both decorators are made with: `check` returns the license or raises.

    `otherwise` is called with that error; a license that it returns must include `entitlement`.
    """

    def __init__(
        self, check: Callable[[], Any], otherwise: Callable[..., Any] | None, entitlement: str | None = None
    ) -> None:
        if otherwise is not None and not callable(otherwise):  # here, and not when a customer clicks
            raise TypeError(f"otherwise must be callable, not {type(otherwise).__name__}")
        self._check = check
        self._otherwise = otherwise
        self._entitlement = entitlement


class Licensed(_Licensed, Generic[S_co]):
    """Decorate functions of the synchronous client."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | S_co]]: ...

    @overload
    def __call__(
        self, function: Callable[P, AsyncGenerator[Y, R]], /
    ) -> Callable[P, AsyncGenerator[Y, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | S_co]: ...

    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        check_function(function)
        if runs_in_loop(function):

            async def check() -> License:
                return await network.on_daemon_thread(self._check)

            return AsyncLicensed[Any](check, self._otherwise, self._entitlement)(function)

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                self._check()
            except LicclientError as problem:
                if self._otherwise is None:
                    raise
                result = self._otherwise(problem)
                if not isinstance(result, License):
                    return result
                check_entitled(result, self._entitlement)
            return function(*args, **kwargs)

        return checked


class AsyncLicensed(_Licensed, Generic[S_co]):
    """Decorate functions of the asynchronous client; arguments as for `Licensed`."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | S_co]]: ...

    @overload
    def __call__(
        self, function: Callable[P, AsyncGenerator[Y, R]], /
    ) -> Callable[P, AsyncGenerator[Y, R]]: ...

    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        check_function(function)
        if not runs_in_loop(function):
            # It would wait for the license in the event loop, or run without one.
            raise TypeError("AsyncLicenseClient.licensed decorates only `async def` functions")

        @wraps(function)
        async def checked(*args: Any, **kwargs: Any) -> Any:
            is_licensed, result = await self._ask()
            return await function(*args, **kwargs) if is_licensed else result

        @wraps(function)
        async def checked_items(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            is_licensed, _ = await self._ask()  # a generator has no place for another result
            if not is_licensed:
                return
            async with aclosing(function(*args, **kwargs)) as items:
                step, value = items.asend, None
                with suppress(StopAsyncIteration):
                    while True:
                        item = await step(value)
                        try:
                            step, value = items.asend, (yield item)
                        except GeneratorExit:  # `aclosing` closes it
                            raise
                        except BaseException as problem:  # noqa: BLE001 - what the caller throws in
                            step, value = items.athrow, problem

        return checked_items if _is_kind(inspect.isasyncgenfunction, function) else checked

    async def _ask(self) -> tuple[bool, Any]:
        """Return whether there is a license, and what `otherwise` returned in its place."""
        try:
            await self._check()
        except LicclientError as problem:
            if self._otherwise is None:
                raise
            result = self._otherwise(problem)
            if inspect.isawaitable(result):
                result = await result
            if not isinstance(result, License):
                return False, result
            check_entitled(result, self._entitlement)
        return True, None


def runs_in_loop(function: Callable[..., Any]) -> bool:
    """Return whether a function's body runs in an event loop, in which nothing may wait."""
    return _is_kind(inspect.iscoroutinefunction, function) or _is_kind(inspect.isasyncgenfunction, function)


def _is_kind(is_of_kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Return whether a function, or an object that can be called like one, is of a kind."""
    return is_of_kind(function) or is_of_kind(getattr(type(function), "__call__", None))  # noqa: B004 - its kind
