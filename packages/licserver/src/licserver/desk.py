"""asyncio in front of the synchronous store: everybody who waits is served by one statement.

A queue that is idle serves, at the next turn of the event loop, whoever came in this one. There is no
timer: somebody alone is served at once. Where serving may have to wait, for another machine or for the
disk to confirm a write, it runs on a thread, and those who come meanwhile are the next batch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Generic, TypeVar

from licserver.model import License, Product, Release
from licserver.rules import VerifyVerdict
from licserver.signing import LinkSubject
from licserver.store import BatchStore, Claim, Sighting, UpdateAsk

MAX_BATCH: Final = 256
"""Asks answered by one statement; bounds the statement's length and the wait of the last in line."""

Ask = TypeVar("Ask")
Reply = TypeVar("Reply")


class BatchQueue(Generic[Ask, Reply]):
    """Gathers what is asked in the same moment and hands it to one call.

    It belongs to the event loop that first asks.

    Args:
        serve: Called with the asks in their order; returns as many replies. A reply that is an
            exception is raised to its own asker alone; one that `serve` itself raises goes to all of
            the batch.
        thread: Name of a thread of its own on which `serve` is called; None for the event loop
            itself, when it never has to wait.
    """

    def __init__(
        self, serve: Callable[[Sequence[Ask]], Sequence[Reply | Exception]], thread: str | None
    ) -> None:
        self._serve = serve
        self._thread = None if thread is None else ThreadPoolExecutor(1, thread)
        self._waiting: list[tuple[Ask, asyncio.Future[Reply]]] = []
        self._busy = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def ask(self, ask: Ask) -> asyncio.Future[Reply]:
        """Ask; to be awaited at once."""
        # Asked for once: until Python 3.12 it is a system call each time.
        loop = self._loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        self._waiting.append((ask, future))
        if not self._busy:
            self._busy = True
            loop.call_soon(self._begin, loop)
        return future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve whoever waits; on the thread if there is one."""
        while self._waiting:
            # Who has gone away meanwhile is not served: nobody would learn of a slot taken.
            batch = [(ask, future) for ask, future in self._waiting[:MAX_BATCH] if not future.done()]
            del self._waiting[:MAX_BATCH]
            asks = [ask for ask, _ in batch]
            if not batch:
                continue
            if self._thread is None:
                _hand_out(batch, self._served(asks))
                continue
            try:
                running = loop.run_in_executor(self._thread, self._served, asks)
            except RuntimeError as closed:  # the thread has ended
                _hand_out(batch, [closed] * len(batch))
                continue
            running.add_done_callback(partial(self._end, loop, batch))
            return
        self._busy = False

    def close(self) -> None:
        """Let the thread finish what it does, and end it."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _served(self, asks: Sequence[Ask]) -> Sequence[Reply | Exception]:
        try:
            replies = self._serve(asks)
            if len(replies) != len(asks):  # else the last ones would wait for ever
                raise RuntimeError(f"{len(replies)} replies to {len(asks)} asks")  # noqa: TRY301
            return replies
        except Exception as error:  # noqa: BLE001 - handed on to each of the askers
            return [error] * len(asks)

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: list[tuple[Ask, asyncio.Future[Reply]]],
        running: asyncio.Future[Sequence[Reply | Exception]],
    ) -> None:
        _hand_out(batch, running.result())
        self._begin(loop)


def _hand_out(batch: list[tuple[Ask, asyncio.Future[Reply]]], replies: Sequence[Reply | Exception]) -> None:
    """Give each asker its reply; who was cancelled while it was served has no use for it."""
    for (_, future), reply in zip(batch, replies, strict=True):
        if future.done():
            continue
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)


class Desk:
    """What the public endpoints ask, served in batches.

    Every method raises `StoreUnavailable` when the database fails.

    Args:
        store: The batch side of the database.
    """

    def __init__(self, store: BatchStore) -> None:
        self._store = store
        # A read of a local file never waits for a lock, and costs less than the hop to a thread.
        self._sightings: BatchQueue[Sighting, License | None] = BatchQueue(
            store.look_up, "desk-verify" if store.is_remote else None
        )
        self._updates: BatchQueue[UpdateAsk, tuple[License | None, Product | None]] = BatchQueue(
            store.look_up_updates, "desk-update" if store.is_remote else None
        )
        self._claims: BatchQueue[Claim, VerifyVerdict] = BatchQueue(store.admit, "desk-claim")

    def look_up(self, sighting: Sighting) -> Awaitable[License | None]:
        """Load the license that is asked for."""
        return self._sightings.ask(sighting)

    def admit(self, claim: Claim) -> Awaitable[VerifyVerdict]:
        """Judge a claim on the locked record and, if it is granted, take the slot durably."""
        return self._claims.ask(claim)

    def look_up_update(self, ask: UpdateAsk) -> Awaitable[tuple[License | None, Product | None]]:
        """Load the license and the product that an update check names."""
        return self._updates.ask(ask)

    async def look_up_download(self, subject: LinkSubject) -> tuple[License | None, Release | None]:
        """Load what a download link names; a download is rare and long, so it asks alone."""
        look_up = partial(self._store.look_up_download, subject.license_id, subject.release_id)
        return await asyncio.to_thread(look_up)

    async def ping(self) -> None:
        """Find out whether the database answers."""
        await asyncio.to_thread(self._store.ping)

    def close(self) -> None:
        """Let the threads finish what they do, and end them."""
        for queue in (self._sightings, self._updates, self._claims):
            queue.close()
        self._store.close()
