"""What both clients are made of: the constructor, and what the methods of both need.

What is imported within functions is not needed by an application that makes its client later, or never.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from os import PathLike
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, overload
from weakref import WeakSet

import licclient
from licclient._clock import Clock

if TYPE_CHECKING:
    import httpx

    from licclient._async_transport import AsyncTransport
    from licclient._flows.background import Callbacks
    from licclient._flows.context import Context
    from licclient._flows.updates import UpdateCheck
    from licclient._model import Settings
    from licclient._seat import AsyncSeat, OnLost, Seat
    from licclient._settings import ClientSettings
    from licclient._storage import Storage
    from licclient._transport import Transport
    from licclient._worker import AsyncWorker, Deliver, OnStatus, OnUpdate, Worker

REFRESH_EVERY: Final = 60.0
"""Seconds between two refreshes that `require` starts behind an answer: a click is no reason to ask again."""

CLOSE_SECONDS: Final = 0.8
"""How long closing waits for what runs in the background, the worker's end included."""

_S = TypeVar("_S", bound="Seat | AsyncSeat")
_W = TypeVar("_W", bound="Worker | AsyncWorker")
_T = TypeVar("_T", bound="Transport | AsyncTransport")


class BaseClient(Generic[_W, _T]):
    """Constructor of both clients; the arguments are described in `LicenseClient`."""

    _is_async: ClassVar[bool]
    _worker: _W | None
    _open_transport: _T | None
    _refresh: Any

    @overload
    def __init__(
        self,
        base_url: str,
        *,
        product: str | None = None,
        slug: str | None = None,
        version: str | None = None,
        platform: str | None = "auto",
        channels: Iterable[str] = (),
        domain: str | None = None,
        state_dir: str | PathLike[str] | None = None,
        cache_for: timedelta = timedelta(hours=24),
        grace: timedelta = timedelta(hours=72),
        check_every: timedelta = timedelta(hours=12),
        timeout: float | timedelta = 10.0,
        public_keys: Iterable[str] | None = None,
        release_keys: Iterable[str] | None = None,
        download_origins: Iterable[str] | None = None,
        require_digest: bool = False,
        buy_url: str | None = None,
        support_url: str | None = None,
        manage_url: str | None = None,
        label: str | None = None,
        report_rollbacks: bool = False,
        clock: Clock | None = None,
        transport: "httpx.BaseTransport | httpx.AsyncBaseTransport | None" = None,
        storage: "Storage | None" = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        settings: "ClientSettings",
        /,
        *,
        clock: Clock | None = None,
        transport: "httpx.BaseTransport | httpx.AsyncBaseTransport | None" = None,
        storage: "Storage | None" = None,
    ) -> None: ...

    def __init__(
        self,
        base_url: "str | ClientSettings",
        *,
        clock: Clock | None = None,
        transport: "httpx.BaseTransport | httpx.AsyncBaseTransport | None" = None,
        storage: "Storage | None" = None,
        **options: Any,
    ) -> None:
        from licclient._arguments import check_edges, check_transport, read_folder
        from licclient._flows.context import create_context
        from licclient._protocol.links import is_in_the_clear
        from licclient._records import places_for
        from licclient._settings import ClientSettings, read_settings
        from licclient._storage import StateFolder

        given = (
            replace(base_url, **options)
            if isinstance(base_url, ClientSettings)
            else ClientSettings(base_url, **options)
        )
        settings = read_settings(given)
        self._given = given
        if is_in_the_clear(settings.server):
            import warnings

            message = "base_url is http: license keys travel in the clear, and anyone in between can answer"
            warnings.warn(f"{message}; use https", UserWarning, stacklevel=2)
        check_edges(clock, storage)
        check_transport(transport, is_async=self._is_async)
        if given.state_dir is None:
            state = StateFolder(None, places_for(settings))
        else:
            state = StateFolder(read_folder("state_dir", given.state_dir))
        self._context = create_context(settings, clock, storage or state)
        self._agent = f"licclient/{licclient.__version__}"
        self._opening = threading.Lock()
        self._given_transport: Any = transport
        # Also when a client is constructed again, as for a test with a fake service.
        self._worker = self._open_transport = self._refresh = None
        self._held_seats: WeakSet[Any] = WeakSet()  # a seat that is held is kept by its thread or task
        self._guard = threading.Lock()
        self._refreshed_at: float | None = None

    @property
    def settings(self) -> "ClientSettings":
        """The settings that the client was constructed with."""
        return self._given

    @property
    def last_update_check(self) -> "UpdateCheck":
        """Result of the latest `check_for_update` of this client, with the reason if that returned None."""
        from licclient._flows.updates import NOT_CHECKED

        return self._context.last_update_check or NOT_CHECKED

    def _create_transport(self, settings: "Settings", agent: str, given: Any) -> _T:
        raise NotImplementedError

    def _transport(self) -> _T:
        """Return what sends requests; made for the first one, since that loads httpx."""
        with self._opening:
            if self._open_transport is None:
                edges = self._context.settings, self._agent, self._given_transport
                self._open_transport = self._create_transport(*edges)
            return self._open_transport

    def _start_worker(
        self,
        worker: Callable[["Context", Callable[[], _T], "Callbacks"], _W],
        on_status: "OnStatus | None",
        on_update: "OnUpdate | None",
        deliver: "Deliver | None",
    ) -> _W:
        from licclient._arguments import check_callbacks
        from licclient._flows.background import Callbacks

        check_callbacks(self._context.settings, on_status, on_update, deliver)
        with self._guard:
            if self._worker is not None and self._worker.is_running:
                raise RuntimeError("this client has a worker that runs already")
            callbacks = Callbacks(on_status, on_update, deliver)
            self._worker = worker(self._context, self._transport, callbacks)
            return self._worker

    def _create_seat(
        self,
        seat: "Callable[[Context, Callable[[], _T], str | None, OnLost | None, Deliver | None], _S]",
        key: str | None,
        on_lost: "OnLost | None",
        deliver: "Deliver | None",
    ) -> _S:
        from licclient._arguments import check_call

        check_call("on_lost", on_lost)
        check_call("deliver", deliver)
        new = seat(self._context, self._transport, key, on_lost, deliver)
        self._held_seats.add(new)
        return new

    def _nudge(self) -> None:
        if self._worker is not None:
            self._worker.nudge()

    def _may_refresh(self) -> bool:
        """Return whether it is time for a refresh behind an answer; if so, count it as begun."""
        with self._guard:
            if self._refreshed_at is not None and monotonic() - self._refreshed_at < REFRESH_EVERY:
                return False
            self._refreshed_at = monotonic()
            return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._context.settings.server!r})"
