"""Deliveries of shops, `POST /events/in/NAME`: stored before the response, processed after it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from licserver.database.repositories.queue import Job
from licserver.database.repositories.sales import QUEUE
from licserver.errors import NotFoundError
from licserver.protocol import public_api
from licserver.services import Services
from licserver.services.sources import BadSignatureError
from licserver.web import shop_apis
from licserver.web.background import BackgroundWorker
from licserver.web.rate_limits import MISS_DELAY, Limits
from licserver.web.responses import read_body, send, send_too_many
from licserver.web.worker_threads import WorkerThreads

PATH: Final = "/events/in/{name}"
MAX_BODY_BYTES: Final = 1 << 20

_log = logging.getLogger("licserver.sales")


@dataclass(frozen=True, slots=True)
class SaleDeliveries:
    """Takes deliveries; `threads` verify and store them, and `wake` has them processed."""

    services: Services
    wake: Callable[[], None]
    limits: Limits
    threads: WorkerThreads

    async def receive(self, request: web.Request) -> web.StreamResponse:
        """Respond once the delivery is stored; a shop repeats what gets no 2xx."""
        body = await read_body(request, MAX_BODY_BYTES, self.services.settings.body_timeout)
        headers = {name.lower(): value for name, value in request.headers.items()}
        name = request.match_info["name"]
        try:
            receipt = await self.threads.run(self.services.sources.receive, name, headers, body)
        except NotFoundError:
            answer = public_api.error_response(404, "not_found", "There is no such source.")
            return await self.limits.answer_miss(request, answer)
        except BadSignatureError as wrong:
            if not await self.limits.may_miss(request):  # or anybody could fill the log
                return send_too_many(MISS_DELAY)
            _log.warning("a delivery for the source %s was refused: %s", name, wrong)
            return send(
                public_api.error_response(
                    401,
                    "bad_signature",
                    "The signature is missing, wrong or too old; the server's log has more.",
                )
            )
        if receipt.status == "accepted":
            self.wake()
        elif receipt.status == "unreadable":
            _log.warning("a delivery of the source %s cannot be read: %s", name, receipt.reason)
        content = {"status": receipt.status, **({"reason": receipt.reason} if receipt.reason else {})}
        return send(public_api.json_response(200, content))


def register_sales(background: BackgroundWorker, services: Services) -> None:
    """Let the background process deliveries; Paddle's API is asked for e-mail addresses (D-219)."""
    secret, sales = services.settings.paddle_api_key, services.sales
    key = "" if secret is None else secret.get_secret_value()
    is_test = shop_apis.is_sandbox(key)

    async def process(job: Job) -> bool:
        event, email = int(job.payload["event"]), None
        if key and (
            customer := await background.on_thread(lambda: sales.find_customer(event, is_test=is_test))
        ):
            email = await shop_apis.find_email(key, customer)
        return await background.on_thread(lambda: sales.process(event, email, job))

    background.register(QUEUE, process)
