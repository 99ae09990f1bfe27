"""Deliveries of shops are processed: what they do not contain is asked for at the shop (D-219)."""

import time
from functools import partial
from typing import Final

from licserver.database.repositories.queue import Job
from licserver.database.repositories.sales import QUEUE
from licserver.errors import ContinueJobError, InvalidInputError
from licserver.jobs import shop_apis
from licserver.jobs.worker import JobWorker
from licserver.services.installation import Services
from licserver.services.sales.problems import SCAN_SECONDS
from licserver.shops.facts import Fact

SLICE_SECONDS: Final = 4.0
"""For which a delivery is processed, part by part, before those that are due have their turn."""

MAX_ROUNDS: Final = 3
"""How often a shop is asked for one delivery: what it answers may name something else."""


def register_sales(worker: JobWorker, services: Services) -> None:
    """Let the background process deliveries."""
    sales, problems = services.sales, services.sale_problems

    async def process(job: Job) -> bool:
        event, fetched = int(job.payload["event"]), list[Fact]()
        failure: InvalidInputError | None = None
        for _ in range(MAX_ROUNDS):
            query = await worker.on_thread(partial(sales.find_fetches, event, [*fetched]))
            if query is None:
                break
            try:
                facts = [fact async for fact in shop_apis.fetch_facts(*query, services.now())]
            except InvalidInputError as problem:
                if any(fetch.is_needed for fetch in query[-1]):
                    raise
                failure = problem
                break
            if not facts:
                break
            fetched += facts
        work, started_at = sales.start(event, fetched, job, stays=failure is not None), time.monotonic()
        while not await worker.on_thread(work.go_on):
            if time.monotonic() - started_at > SLICE_SECONDS:
                raise ContinueJobError("a part of the licenses is issued or changed", services.now())
        if failure is not None:  # what is known is done; the shop is asked again by the schedule
            raise failure
        return True

    worker.register(QUEUE, process)
    worker.every(SCAN_SECONDS, problems.send_mail)
