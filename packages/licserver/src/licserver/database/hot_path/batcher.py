"""asyncio in front of the synchronous store: everybody who waits is served by one statement.

A queue that is idle serves, at the next turn of the event loop, whoever came in this one; while each turn
brings more, it lets them come first. There is no timer: somebody alone is served at once. Where serving
has to wait, for another machine or for the disk to confirm a write, the loop goes on, and those who
come meanwhile are the next batch.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, Generic, TypeVar

from licserver.database.hot_path import greenlet_bridge
from licserver.database.hot_path.batch_store import (
    ActivationRequest,
    ActivationTransaction,
    BatchStore,
    Lookup,
    UpdateQuery,
)
from licserver.domain.decisions import VerifyVerdict
from licserver.domain.records import License, Product, Release
from licserver.errors import LicenseLocked, StoreUnavailable
from licserver.protocol.download_links import LinkSubject

MAX_BATCH: Final = 256
"""Asks answered by one statement; bounds the statement's length and the wait of the last in line."""

QUICK: Final = 0.002
"""Seconds that the event loop waits for a commit, if the disk has confirmed the last one in less."""

LOCK_LIMIT: Final = 1.2
"""Seconds that a claim waits for another transaction to release its license."""

LOCK_PAUSE: Final = 0.02
"""Seconds between two tries to lock a license."""

Ask = TypeVar("Ask")
Reply = TypeVar("Reply")
Replies = Sequence[Reply | Exception]


class Batcher(Generic[Ask, Reply]):
    """Gathers what is asked in the same moment and hands it to one call.

    It belongs to the event loop that first asks.

    Args:
        serve: Called with the asks in their order; returns as many replies, at once, or something to
            await that gives them. A reply that is an exception is raised to its own asker alone; one
            that `serve` itself raises goes to all of the batch.
    """

    def __init__(self, serve: Callable[[Sequence[Ask]], Replies[Reply] | Awaitable[Replies[Reply]]]) -> None:
        self._serve = serve
        self._waiting: list[tuple[Ask, asyncio.Future[Reply]]] = []
        self._serving: asyncio.Future[Replies[Reply]] | None = None
        self._busy = False
        self._come = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def ask(self, ask: Ask) -> asyncio.Future[Reply]:
        """Ask; to be awaited at once."""
        # Asked for once: until Python 3.12 it is a system call each time.
        loop = self._loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        self._waiting.append((ask, future))
        if not self._busy:
            self._busy = True
            self._come = 1
            loop.call_soon(self._begin)
        return future

    def _begin(self) -> None:
        """Serve whoever waits, unless more are just coming.

        A statement costs almost as much for one as for ten, and what a turn of the loop brings is
        seldom more than ten: they came while the turn before was at work.
        """
        if self._come < len(self._waiting) < MAX_BATCH:
            self._come = len(self._waiting)
            asyncio.get_running_loop().call_soon(self._begin)
        else:
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Serve whoever waits, until that itself takes waiting for."""
        while self._waiting:
            # Who was cancelled meanwhile is not served. A caller who hangs up is not cancelled: his slot is
            # taken, and he finds it when he asks again.
            batch = [(ask, future) for ask, future in self._waiting[:MAX_BATCH] if not future.done()]
            del self._waiting[:MAX_BATCH]
            if not batch:
                continue
            try:
                replies = self._serve([ask for ask, _ in batch])
            except Exception as error:  # noqa: BLE001 - handed on to each of the askers
                replies = [error] * len(batch)
            if isinstance(replies, Awaitable):
                self._serving = asyncio.ensure_future(replies)
                self._serving.add_done_callback(partial(self._end, batch))
                return
            _hand_out(batch, replies)
        self._busy = False

    def _end(
        self, batch: list[tuple[Ask, asyncio.Future[Reply]]], serving: asyncio.Future[Replies[Reply]]
    ) -> None:
        self._serving = None
        if serving.cancelled():
            error: BaseException | None = RuntimeError("the service is ending")
        else:
            error = serving.exception()
        _hand_out(batch, serving.result() if error is None else [error] * len(batch))
        self._serve_waiting()

    async def finish(self) -> None:
        """Let what is being served come to its end."""
        while self._serving is not None:
            await asyncio.wait([self._serving])
            await asyncio.sleep(0)  # its end is told in this turn of the loop


def _hand_out(
    batch: list[tuple[Ask, asyncio.Future[Reply]]], replies: Sequence[Reply | BaseException]
) -> None:
    """Give each asker its reply; who was cancelled while it was served has no use for it."""
    if len(replies) != len(batch):  # else the last ones would wait for ever
        replies = [RuntimeError(f"{len(replies)} replies to {len(batch)} asks")] * len(batch)
    for (_, future), reply in zip(batch, replies, strict=True):
        if future.done():
            continue
        if isinstance(reply, BaseException):
            future.set_exception(reply)
        else:
            future.set_result(reply)


class LocalActivations:
    """Admits on a file of this machine; what may wait, for other writers or for the disk, is on a thread.

    A batch is judged in the event loop: on a thread it would pass the interpreter to and fro with the loop
    at each of its rows, and take four times as long. Of a commit the loop waits for `QUICK` at most, while
    the disk is quick: to come back by the loop costs a tenth of the admissions a second (D-173).

    Args:
        store: The batch side of a database of this machine.
        thread: For what waits; one thread, so that an admission is abandoned after the step that runs.
    """

    def __init__(self, store: BatchStore, thread: ThreadPoolExecutor) -> None:
        self._store = store
        self._thread = thread
        self._is_disk_quick = False  # until it was seen to be

    def admit(
        self, claims: Sequence[ActivationRequest]
    ) -> Replies[VerifyVerdict] | Awaitable[Replies[VerifyVerdict]]:
        """Admit a batch; at once, if the disk confirms it at once and nobody else writes."""
        admission = self._store.admission()
        if self._store.is_log_long or not admission.begin_at_once():
            return self._admit_in_turn(admission, claims)
        try:
            verdicts = admission.judge(claims)
            committed = self._thread.submit(self._commit, admission)
            if self._is_disk_quick:
                with contextlib.suppress(TimeoutError):
                    committed.result(QUICK)
                    return verdicts
        except BaseException:
            self._thread.submit(admission.abandon)
            raise
        return self._confirm(admission, verdicts, committed)

    async def _admit_in_turn(
        self, admission: ActivationTransaction, claims: Sequence[ActivationRequest]
    ) -> Replies[VerifyVerdict]:
        try:
            await asyncio.wrap_future(self._thread.submit(self._begin, admission))
            verdicts = admission.judge(claims)
        except BaseException:
            self._thread.submit(admission.abandon)
            raise
        return await self._confirm(admission, verdicts, self._thread.submit(self._commit, admission))

    async def _confirm(
        self, admission: ActivationTransaction, verdicts: Replies[VerifyVerdict], committed: Future[None]
    ) -> Replies[VerifyVerdict]:
        try:
            await asyncio.wrap_future(committed)
        except BaseException:
            self._thread.submit(admission.abandon)
            raise
        return verdicts

    def _begin(self, admission: ActivationTransaction) -> None:
        if self._store.is_log_long:
            with contextlib.suppress(StoreUnavailable):  # whoever is next tries again
                self._store.move_log()
        admission.begin()

    def _commit(self, admission: ActivationTransaction) -> None:
        began = time.perf_counter()
        admission.commit()
        self._is_disk_quick = time.perf_counter() - began < QUICK


class PublicQueries:
    """What the public endpoints ask, served in batches.

    Every method raises `StoreUnavailable` when the database fails.

    Args:
        store: The batch side of the database.
    """

    def __init__(self, store: BatchStore) -> None:
        self._store = store
        self._sightings: Batcher[Lookup, License | None]
        self._updates: Batcher[UpdateQuery, tuple[License | None, Product | None]]
        self._claims: Batcher[ActivationRequest, VerifyVerdict]
        self._thread: ThreadPoolExecutor | None = None
        if store.is_remote:
            self._sightings = Batcher(partial(greenlet_bridge.run, store.look_up))
            self._updates = Batcher(partial(greenlet_bridge.run, store.look_up_updates))
            self._claims = Batcher(partial(greenlet_bridge.run, store.admit))
        else:
            # A read of a local file never waits for a lock.
            self._sightings = Batcher(store.look_up)
            self._updates = Batcher(store.look_up_updates)
            self._thread = ThreadPoolExecutor(1, "desk-claim")
            self._claims = Batcher(LocalActivations(store, self._thread).admit)

    def look_up(self, sighting: Lookup) -> Awaitable[License | None]:
        """Load the license that is asked for."""
        return self._sightings.ask(sighting)

    def admit(self, claim: ActivationRequest) -> Awaitable[VerifyVerdict]:
        """Judge a claim on the locked record and, if it is granted, take the slot durably."""
        return self._admit_unlocked(claim) if self._store.is_remote else self._claims.ask(claim)

    async def _admit_unlocked(self, claim: ActivationRequest) -> VerifyVerdict:
        """Retry while another transaction has the license locked; claims of other licenses do not wait."""
        deadline = time.monotonic() + LOCK_LIMIT
        while True:
            try:
                return await self._claims.ask(claim)
            except LicenseLocked:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(LOCK_PAUSE)

    def look_up_update(self, ask: UpdateQuery) -> Awaitable[tuple[License | None, Product | None]]:
        """Load the license and the product that an update check names."""
        return self._updates.ask(ask)

    async def look_up_download(self, subject: LinkSubject) -> tuple[License | None, Release | None]:
        """Load what a download link names; a download is rare and long, so it asks alone."""
        look_up = partial(self._store.look_up_download, subject.license_id, subject.release_id)
        return await asyncio.to_thread(look_up)

    async def ping(self) -> None:
        """Find out whether the database answers."""
        await asyncio.to_thread(self._store.ping)

    async def close(self) -> None:
        """Let what is being served come to its end, and end the threads."""
        for queue in (self._sightings, self._updates, self._claims):
            await queue.finish()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        self._store.close()
