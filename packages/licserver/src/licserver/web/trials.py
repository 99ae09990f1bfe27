"""Starts trials."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from licserver.domain.trials import TrialRefusal
from licserver.protocol import public_api, trials
from licserver.services import Services
from licserver.services.account import CUSTOMER
from licserver.web.rate_limits import Limits
from licserver.web.responses import send

_MISSES: Final = {TrialRefusal.PRODUCT_NOT_FOUND, TrialRefusal.TOO_MANY}


def create_trials(
    services: Services, limits: Limits, read_body: Callable[[web.Request], Awaitable[bytes]]
) -> Handler:
    """Return the handler of `trials.TRIAL_PATH`."""
    start = services.acting_as(CUSTOMER).trials.start

    async def respond(request: web.Request) -> web.StreamResponse:
        call = trials.parse_trial(await read_body(request))
        if isinstance(call, public_api.InvalidRequest):
            return await limits.answer_miss(request, public_api.invalid_update_response(call))
        found = await asyncio.to_thread(start, call.slug, call.machine, limits.address(request))
        if not isinstance(found, TrialRefusal):
            return send(trials.trial_response(*found))
        refusal = trials.no_trial_response(found)
        return await limits.answer_miss(request, refusal) if found in _MISSES else send(refusal)

    return respond
