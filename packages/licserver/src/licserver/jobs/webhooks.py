"""Sends webhooks in the background."""

from typing import Final

from licserver.database.durability import repeated_if_lost
from licserver.database.repositories.queue import Job
from licserver.database.repositories.webhooks import DELIVERIES, EVENTS
from licserver.jobs.outbound import post
from licserver.jobs.worker import KEPT, SWEEP_SECONDS, JobWorker
from licserver.services.installation import Services
from licserver.services.webhooks import SCAN_SECONDS

AT_ONCE: Final = 64  # requests of a process
SHARE: Final = 4  # requests to an endpoint at a time: a silent endpoint must not delay the others


def _sweep(services: Services) -> None:
    services.repositories.webhooks.sweep(services.context.settled_now() - KEPT)


def register_webhooks(worker: JobWorker, services: Services) -> None:
    """Register the queues of events and deliveries, and the periodic scan for ended licenses."""
    webhooks, networks = services.webhooks, services.settings.webhook_networks

    async def deliver(job: Job) -> bool:
        attempt = await worker.on_thread(lambda: webhooks.prepare(job))
        if attempt is None:
            return False
        outcome = await post(attempt.url, attempt.body, attempt.headers, networks)

        def record() -> bool:
            with repeated_if_lost():
                return webhooks.record(job, *outcome)

        return await worker.on_thread(record)

    def fan_out(job: Job) -> bool:
        with repeated_if_lost():
            return webhooks.fan_out(job)

    worker.register(EVENTS, fan_out)
    worker.register(DELIVERIES, deliver, at_once=AT_ONCE, share=SHARE)
    worker.every(SCAN_SECONDS, webhooks.scan)
    worker.every(SWEEP_SECONDS, services.repositories.webhooks.name_owners)
    worker.every(SWEEP_SECONDS, lambda: _sweep(services))
