"""Counts uses of metered entitlements for installations that a verify has activated."""

import asyncio
from collections.abc import Mapping

from aiohttp import web
from aiohttp.typedefs import Handler

from licserver.database.hot_path.store import Lookup
from licserver.domain import decisions
from licserver.domain.decisions import Valid, VerifyRefusal
from licserver.domain.entitlements import resolve_stored
from licserver.domain.records import Environment
from licserver.protocol import consumption, public_api
from licserver.services import Services
from licserver.services.account import CUSTOMER
from licserver.services.consumption import QuotaExceededError
from licserver.web.public import PublicEndpoints
from licserver.web.responses import send


def create_consumption(services: Services, public: PublicEndpoints) -> Handler:
    """Return the handler of `consumption.CONSUME_PATH`; the license is judged as by a verify."""
    services = services.acting_as(CUSTOMER)

    async def respond(request: web.Request) -> web.StreamResponse:
        call = consumption.parse_consume(await public.read_body(request))
        if isinstance(call, public_api.InvalidRequest):
            return await public.limits.answer_miss(request, public_api.invalid_update_response(call))
        key, license_ = call.license_key, None
        environment = Environment(call.domain, public.callers.find(request).ip)
        if decisions.is_license_key(key) or decisions.is_imported_key(key):
            lookup = Lookup(public.vault.license_id(key), environment)
            license_ = await public.queries.find_license(lookup)
        match decisions.evaluate_verify(key, license_, environment, public.clock()):
            case VerifyRefusal.EXPIRED:
                return send(consumption.license_expired_response())
            case Valid(takes_slot=True) | VerifyRefusal.ENVIRONMENT:
                return send(consumption.not_activated_response())
            case Valid(license=found):
                quota = (resolve_stored(found.plan, found.overrides) or {}).get(call.name)
            case _:
                return await public.limits.answer_miss(
                    request, public_api.unknown_key_response(), call.domain
                )
        if not isinstance(quota, Mapping):
            return send(consumption.not_metered_response())
        count = services.consumption.consume
        try:
            use = await asyncio.to_thread(count, found.id, call.name, quota, call.amount, call.use_id)
        except QuotaExceededError as refusal:
            _, used, limit, resets_at = refusal.use
            return send(consumption.quota_exceeded_response(str(refusal), used, limit, resets_at))
        return send(consumption.consumed_response(*use))

    return respond
