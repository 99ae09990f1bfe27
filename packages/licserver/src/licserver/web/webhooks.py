"""Sends webhooks in the background."""

from typing import Final

from licserver.database.repositories.queue import Job
from licserver.database.repositories.webhooks import DELIVERIES, EVENTS
from licserver.services import Services
from licserver.services.webhooks import SCAN_SECONDS
from licserver.web.background import KEPT, SWEEP_SECONDS, BackgroundWorker
from licserver.web.outbound import post

AT_ONCE: Final = 8  # requests of a process


def register_webhooks(background: BackgroundWorker, services: Services) -> None:
    """Let a process find endpoints for events, send these, and write events of what ends by itself."""
    webhooks, networks = services.webhooks, services.settings.webhook_networks

    async def deliver(job: Job) -> bool:
        attempt = await background.on_thread(lambda: webhooks.prepare(job))
        if attempt is None:
            return False
        answer = await post(attempt.url, attempt.body, attempt.headers, networks)
        return await background.on_thread(lambda: webhooks.record(job, *answer))

    background.register(EVENTS, webhooks.fan_out)
    background.register(DELIVERIES, deliver, at_once=AT_ONCE)
    background.every(SCAN_SECONDS, webhooks.scan)
    background.every(SWEEP_SECONDS, lambda: services.repositories.webhooks.sweep(services.now() - KEPT))
