"""Deliveries of shops are processed: what they do not contain is asked for at the shop (D-219)."""

from functools import partial
from typing import Final

from licserver.database.repositories.queue import Job
from licserver.database.repositories.sales import QUEUE
from licserver.jobs import shop_apis
from licserver.jobs.worker import BackgroundWorker
from licserver.services.installation import Services
from licserver.services.sales.problems import SCAN_SECONDS
from licserver.shops.facts import Fact

MAX_ROUNDS: Final = 3
"""How often a shop is asked for one delivery: what it answers may name something else."""


def register_sales(background: BackgroundWorker, services: Services) -> None:
    """Let the background process deliveries."""
    sales, problems = services.sales, services.sale_problems

    async def process(job: Job) -> bool:
        event, fetched = int(job.payload["event"]), list[Fact]()
        for _ in range(MAX_ROUNDS):
            query = await background.on_thread(partial(sales.find_fetches, event, [*fetched]))
            if query is None:
                break
            facts = [fact async for fact in shop_apis.fetch_facts(*query, services.now())]
            if not facts:
                break
            fetched += facts
        return await background.on_thread(lambda: sales.process(event, fetched, job))

    background.register(QUEUE, process)
    background.every(SCAN_SECONDS, problems.send_mail)
