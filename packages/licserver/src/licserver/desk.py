"""asyncio in front of the synchronous store: everybody who waits is served by one statement.

Two queues, each with a thread of its own: readers, and claims. A queue that is idle begins at the
next turn of the event loop with whoever is there; while it is busy the others gather and are the
next batch. There is no timer: somebody alone is served at once.
"""

import asyncio
from collections.abc import Callable, Sequence
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
    """Gathers what is asked in the same moment and hands it to one call on one thread.

    Args:
        serve: Called on the thread with the asks in their order; returns as many replies. A reply
            that is an exception is raised to its own asker alone; one that `serve` itself raises
            goes to all of the batch.
        name: The thread's, for who looks at a dump.
    """

    def __init__(self, serve: Callable[[Sequence[Ask]], Sequence[Reply | Exception]], name: str) -> None:
        self._serve = serve
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting: list[tuple[Ask, asyncio.Future[Reply]]] = []
        self._running: asyncio.Task[None] | None = None

    async def ask(self, ask: Ask) -> Reply:
        """Wait for the reply to one ask."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        self._waiting.append((ask, future))
        if self._running is None:
            self._running = loop.create_task(self._run(loop))
        return await future

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                # Who has gone away meanwhile is not served: nobody would learn of a slot taken.
                batch = [(ask, future) for ask, future in batch if not future.done()]
                if not batch:
                    continue
                replies: Sequence[Reply | Exception]
                try:
                    replies = await loop.run_in_executor(self._thread, self._serve, [ask for ask, _ in batch])
                    if len(replies) != len(batch):  # else the last ones would wait for ever
                        raise RuntimeError(f"{len(replies)} replies to {len(batch)} asks")  # noqa: TRY301
                except Exception as error:  # noqa: BLE001 - handed on to each of the askers
                    replies = [error] * len(batch)
                for (_, future), reply in zip(batch, replies, strict=True):
                    if future.done():
                        continue
                    if isinstance(reply, Exception):
                        future.set_exception(reply)
                    else:
                        future.set_result(reply)
        finally:
            self._running = None

    def close(self) -> None:
        """Let the thread finish what it does, and end it."""
        self._thread.shutdown(wait=True)


class Desk:
    """What the public endpoints ask, served in batches.

    Every method raises `StoreUnavailable` when the database fails.

    Args:
        store: The batch side of the database.
    """

    def __init__(self, store: BatchStore) -> None:
        self._store = store
        self._sightings: BatchQueue[Sighting, License | None] = BatchQueue(store.look_up, "desk-verify")
        self._updates: BatchQueue[UpdateAsk, tuple[License | None, Product | None]] = BatchQueue(
            store.look_up_updates, "desk-update"
        )
        self._claims: BatchQueue[Claim, VerifyVerdict] = BatchQueue(store.admit, "desk-claim")

    async def look_up(self, sighting: Sighting) -> License | None:
        """Load the license that is asked for."""
        return await self._sightings.ask(sighting)

    async def admit(self, claim: Claim) -> VerifyVerdict:
        """Judge a claim on the locked record and, if it is granted, take the slot durably."""
        return await self._claims.ask(claim)

    async def look_up_update(self, ask: UpdateAsk) -> tuple[License | None, Product | None]:
        """Load the license and the product that an update check names."""
        return await self._updates.ask(ask)

    async def look_up_download(self, subject: LinkSubject) -> tuple[License | None, Release | None]:
        """Load what a download link names; a download is rare and long, so it asks alone."""
        look_up = partial(self._store.look_up_download, subject.license_id, subject.release_id)
        return await asyncio.to_thread(look_up)

    def close(self) -> None:
        """Serve nobody any more."""
        for queue in (self._sightings, self._updates, self._claims):
            queue.close()
