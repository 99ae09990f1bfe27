"""Frees the slots of an installation that its customer gives up."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from licserver.domain import decisions
from licserver.domain.records import IssuedLicense
from licserver.errors import InvalidInputError, NotFoundError, TooManyMovesError
from licserver.protocol import public_api
from licserver.services import Services
from licserver.services.account import CUSTOMER
from licserver.web.rate_limits import Limits
from licserver.web.responses import send


def create_deactivation(
    services: Services, limits: Limits, read_body: Callable[[web.Request], Awaitable[bytes]]
) -> Handler:
    """Return the handler of `public_api.DEACTIVATE_PATH`."""
    services = services.acting_as(CUSTOMER)

    def deactivate(call: public_api.DeactivateRequest) -> int:
        return services.self_service.deactivate(find_by_key(services, call.license_key), call.domain)

    async def respond(request: web.Request) -> web.StreamResponse:
        call = public_api.parse_deactivate(await read_body(request))
        if isinstance(call, public_api.InvalidRequest):
            return await limits.answer_miss(request, public_api.invalid_update_response(call))
        try:
            return send(public_api.deactivated_response(await asyncio.to_thread(deactivate, call)))
        except TooManyMovesError as refusal:
            return send(public_api.too_many_moves_response(str(refusal), refusal.retry_at))
        except InvalidInputError:  # no such key, and no text that could be one
            return await limits.answer_miss(request, public_api.unknown_key_response(), call.domain)

    return respond


def find_by_key(services: Services, key: str) -> IssuedLicense:
    """Return the license of a key that its product accepts; anything else is an `InvalidInputError`."""
    license_ = services.licenses.get(key)
    if not decisions.is_license_key(key):
        product = services.products.get(license_.product_slug)
        if not product.accepts_imported_keys or license_.id != services.vault.license_id(key):
            raise NotFoundError("this key is not accepted")
    return license_
