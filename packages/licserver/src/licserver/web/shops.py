"""Deliveries of shops, `POST /events/in/NAME`: stored before the response, processed after it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from licserver.errors import NotFoundError
from licserver.limits import MAX_DELIVERY_BODY_BYTES
from licserver.protocol import public_api
from licserver.runtime.worker_threads import WorkerThreads
from licserver.services import Services
from licserver.services.sources import BadSignatureError
from licserver.web.rate_limits import MISS_DELAY, Limits
from licserver.web.responses import LargeBodies, read_body, send, send_too_many

PATH: Final = "/events/in/{name}"
PATH_SECRET: Final = ":path-secret"  # no header of a request has such a name

LARGE_BYTES: Final = 128 << 10  # nearly all deliveries are smaller, and so are never refused
MAX_LARGE: Final = 16
"""Large deliveries that are read at a time: anyone can send some, before the signature is verified."""
LARGE_SHARE: Final = 4  # of an address: not every shop repeats what is refused

_log = logging.getLogger("licserver.sales")


@dataclass(frozen=True, slots=True)
class SaleDeliveries:
    """Takes deliveries; `threads` verify and store them, and `wake` has them processed."""

    services: Services
    wake: Callable[[], None]
    limits: Limits
    threads: WorkerThreads
    large: LargeBodies = field(default_factory=lambda: LargeBodies(LARGE_BYTES, MAX_LARGE, LARGE_SHARE))

    async def receive(self, request: web.Request) -> web.StreamResponse:
        """Respond once the delivery is stored; a shop repeats what gets no 2xx."""
        timeout = self.services.settings.body_timeout
        address = self.limits.address(request)
        body = await read_body(request, MAX_DELIVERY_BODY_BYTES, timeout, self.large, address)
        headers = {name.lower(): value for name, value in request.headers.items()}
        headers[PATH_SECRET] = request.query.get("secret", "")  # of shops that sign nothing
        name = request.match_info["name"]
        try:
            receipt = await self.threads.run(self.services.sources.receive, name, headers, body)
        except NotFoundError:
            answer = public_api.error_response(404, "not_found", "There is no such source.")
            return await self.limits.answer_miss(request, answer)
        except BadSignatureError as wrong:
            if not await self.limits.may_miss(request):  # or any caller could fill the log
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
