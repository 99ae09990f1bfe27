"""Counts the installations that went back to the version before, as their apps report (D-232)."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from licserver.errors import InvalidInputError
from licserver.protocol.public_api import InvalidRequest, invalid_update_response, unknown_key_response
from licserver.protocol.rollbacks import RollbackReport, parse_report, report_response
from licserver.services import Services
from licserver.web.deactivation import find_by_key
from licserver.web.rate_limits import Limits
from licserver.web.responses import send


def create_rollbacks(
    services: Services, limits: Limits, read_body: Callable[[web.Request], Awaitable[bytes]]
) -> Handler:
    """Return the handler of `protocol.rollbacks.ROLLED_BACK_PATH`."""

    def count(report: RollbackReport) -> bool:
        license_ = find_by_key(services, report.license_key)
        return services.rollouts.count_rollback(
            license_, report.slug, report.version, report.domain, report.platform
        )

    async def respond(request: web.Request) -> web.StreamResponse:
        report = parse_report(await read_body(request))
        if isinstance(report, InvalidRequest):
            return await limits.answer_miss(request, invalid_update_response(report))
        try:
            return send(report_response(await asyncio.to_thread(count, report)))
        except InvalidInputError:  # no such key, and no text that could be one
            return await limits.answer_miss(request, unknown_key_response(), report.domain)

    return respond
