"""asyncio in front of `BatchStore`: requests that wait together are served by one statement.

An idle batcher runs at the next turn of the event loop, or later while each turn brings more requests. There
is no timer: a lone request waits for nothing, and an activation for a few turns. While a batch waits for
another machine or the disk, the loop goes on, and the requests of that time are the next batch.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Generic, TypeVar

from licserver.database.hot_path.activations import ActivationRequest
from licserver.database.hot_path.driver import LOCK_LIMIT, run_in_loop
from licserver.database.hot_path.lookups import Lookup
from licserver.database.hot_path.store import BatchStore
from licserver.database.hot_path.updates import UpdateQuery
from licserver.domain.decisions import VerifyVerdict
from licserver.domain.offers import OfferedProduct
from licserver.domain.records import LicenseSnapshot, Product, Release
from licserver.errors import LicenseLockedError, StoreUnavailableError
from licserver.protocol.downloads import LinkSubject

_THREADS: Final = 4  # not asyncio's, which may all wait for a bucket: the server would not be ready
MAX_BATCH: Final = 256  # requests of one statement; bounds its length, and how long the last one waits
ANSWER_LIMIT: Final = 1.9  # seconds until a request fails; a client has its response within two
LOCK_PAUSE: Final = 0.02  # seconds between two attempts to lock a license

_QUIET_TURNS: Final = 8
"""Turns of the event loop without a further activation that a batch of them lets pass before it begins.

Requests that arrive a few turns later share its commit. A pause that each activation renews might never end.
"""

Request = TypeVar("Request")
Result = TypeVar("Result")
Results = Sequence[Result | Exception]


class Batcher(Generic[Request, Result]):
    """Collects the requests of a moment and passes them to one call. It belongs to one event loop.

    Args:
        serve: Called with the requests in their order; returns as many results, or an awaitable of them. A
            result that is an exception is raised for its request; one that `serve` raises, for all.
        quiet_turns: Turns of the loop without a further request that an idle batcher lets pass.
    """

    def __init__(
        self,
        serve: Callable[[Sequence[Request]], Results[Result] | Awaitable[Results[Result]]],
        quiet_turns: int = 0,
    ) -> None:
        self._serve = serve
        self._quiet_turns = quiet_turns
        self._waiting: list[tuple[Request, asyncio.Future[Result]]] = []
        self._serving: asyncio.Future[Results[Result]] | None = None
        self._busy = False
        self._seen = self._turns_left = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, request: Request, deadline: float | None = None) -> asyncio.Future[Result]:
        """Add a request; the future must be awaited at once.

        At `deadline`, by the monotonic clock, it fails with a `TimeoutError`; if its batch has begun, that
        goes on.
        """
        # Looked up once: until Python 3.12 it is a system call each time.
        loop = self._loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        if deadline is not None:
            timer = loop.call_at(deadline, _time_out, future)
            future.add_done_callback(lambda _: timer.cancel())
        self._waiting.append((request, future))
        if not self._busy:
            self._busy = True
            self._seen, self._turns_left = 1, self._quiet_turns
            loop.call_soon(self._begin, loop)
        return future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve, unless more requests came in this turn of the loop, or quiet turns are left.

        A statement costs almost the same for one and for ten; without this a known verify takes a fifth more.
        """
        count = len(self._waiting)
        if count == self._seen:
            self._turns_left -= 1
        self._seen = count
        if self._turns_left >= 0 and count < MAX_BATCH:
            loop.call_soon(self._begin, loop)
        else:
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Serve batches until none waits, or one has to be awaited."""
        while self._waiting:
            # Skip cancelled requests. A disconnected client is not cancelled: its slot stays taken, and a
            # retry finds it.
            batch = [(request, future) for request, future in self._waiting[:MAX_BATCH] if not future.done()]
            del self._waiting[:MAX_BATCH]
            if not batch:
                continue
            try:
                results = self._serve([request for request, _ in batch])
            except Exception as error:  # noqa: BLE001 - raised for each request
                results = [error] * len(batch)
            if isinstance(results, Awaitable):
                self._serving = asyncio.ensure_future(results)
                self._serving.add_done_callback(partial(self._end, batch))
                return
            _resolve(batch, results)
        self._busy = False

    def _end(
        self,
        batch: list[tuple[Request, asyncio.Future[Result]]],
        serving: asyncio.Future[Results[Result]],
    ) -> None:
        self._serving = None
        if serving.cancelled():
            error: BaseException | None = RuntimeError("the server is shutting down")
        else:
            error = serving.exception()
        _resolve(batch, serving.result() if error is None else [error] * len(batch))
        self._serve_waiting()

    async def finish(self) -> None:
        """Wait for the batch that is being served."""
        while self._serving is not None:
            await asyncio.wait([self._serving])
            await asyncio.sleep(0)  # its callback runs in this turn


def _time_out(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def _resolve(
    batch: list[tuple[Request, asyncio.Future[Result]]], results: Sequence[Result | BaseException]
) -> None:
    """Resolve each waiting future; skip those cancelled in the meantime."""
    if len(results) != len(batch):  # or the last ones would wait for ever
        results = [RuntimeError(f"{len(results)} results for {len(batch)} requests")] * len(batch)
    for (_, future), result in zip(batch, results, strict=True):
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


class PublicQueries:
    """The database as the public endpoints use it; a failure is a `StoreUnavailableError`."""

    def __init__(self, store: BatchStore) -> None:
        self._store = store
        self._lookups: Batcher[Lookup, LicenseSnapshot | None]
        self._updates: Batcher[UpdateQuery, tuple[LicenseSnapshot | None, Product | None]]
        self._threads = ThreadPoolExecutor(_THREADS, "queries")
        if store.is_remote:
            self._lookups = Batcher(partial(run_in_loop, store.find_licenses))
            self._updates = Batcher(partial(run_in_loop, store.find_updates))
        else:
            # A read of a local file never waits for a lock.
            self._lookups = Batcher(store.find_licenses)
            self._updates = Batcher(store.find_updates)
        self._activations: Batcher[ActivationRequest, VerifyVerdict] = Batcher(
            partial(run_in_loop, store.activate), _QUIET_TURNS
        )

    def find_license(self, lookup: Lookup) -> Awaitable[LicenseSnapshot | None]:
        """Load a license as an environment sees it."""
        return self._lookups.submit(lookup)

    async def activate(self, request: ActivationRequest, began: float | None = None) -> VerifyVerdict:
        """Decide a request on the locked license; if it is granted, take the slot durably.

        A request that waits for one slow batch and is part of the next one would take as long as both: after
        `ANSWER_LIMIT` it fails. What its batch writes stays, and a retry finds it. On PostgreSQL it is
        retried while another transaction has the license locked; requests for other licenses do not wait.

        Args:
            began: When the client's request began, by the monotonic clock; default: now.
        """
        now = time.monotonic()
        deadline = (now if began is None else began) + ANSWER_LIMIT
        while True:
            try:
                return await self._activations.submit(request, deadline)
            except TimeoutError:
                raise StoreUnavailableError("the database failed: no activation in time") from None
            except LicenseLockedError:
                if time.monotonic() > now + LOCK_LIMIT:
                    raise
            await asyncio.sleep(LOCK_PAUSE)

    def find_update(self, query: UpdateQuery) -> Awaitable[tuple[LicenseSnapshot | None, Product | None]]:
        """Load the license and the product of an update check."""
        return self._updates.submit(query)

    async def find_download(self, subject: LinkSubject) -> tuple[LicenseSnapshot | None, Release | None]:
        """Load the license and the release of a download link; downloads are rare, and not batched."""
        return await self._on_thread(self._store.find_download, subject.license_id, subject.release_id)

    async def find_releases(self, slug: str) -> OfferedProduct | None:
        """Load a product with all its releases, for feeds; not batched either.

        A file is read in the event loop, as for update checks: a thread takes longer than the statement.
        """
        if not self._store.is_remote:
            return self._store.find_releases(slug)
        return await self._on_thread(self._store.find_releases, slug)

    async def _on_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def watch_hosts(self) -> None:
        """Look again and again whether another host of the database was promoted, and has to be used."""
        while True:
            pause = self._store.look()
            if pause is None:
                return
            await asyncio.sleep(pause)

    async def ping(self) -> None:
        """Run an empty statement."""
        await self._on_thread(self._store.ping)

    async def close(self) -> None:
        """Wait for what is being served, then close threads and connections."""
        for batcher in (self._lookups, self._updates, self._activations):
            await batcher.finish()
        await asyncio.to_thread(self._threads.shutdown)
        self._store.close()
