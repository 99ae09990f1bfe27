"""Responds to apps that take, renew and release floating seats."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from licserver.domain.seats import SeatRefusal
from licserver.protocol.public_api import ApiResponse, InvalidRequest, invalid_update_response
from licserver.protocol.seats import SeatCall, parse_seat, released_response, seat_response
from licserver.security.redaction import mask
from licserver.services import Services
from licserver.web.rate_limits import Limits
from licserver.web.responses import send


def create_seats(
    services: Services, limits: Limits, read_body: Callable[[web.Request], Awaitable[bytes]]
) -> Handler:
    """Return the handler of `protocol.seats.SEAT_PATH`."""

    def decide(call: SeatCall) -> tuple[ApiResponse, bool]:
        """Return the response, and whether the key was a miss."""
        key, request = call.license_key, call.request
        if call.is_release:
            released = services.seats.release(key, request.seat_id)
            return released_response(released), released is SeatRefusal.INVALID_LICENSE
        request = request._replace(label=request.label and mask(request.label, key))
        verdict = services.seats.hold(key, request)
        response = seat_response(verdict, services.now(), services.seats.lease)
        return response, verdict is SeatRefusal.INVALID_LICENSE

    async def respond(request: web.Request) -> web.StreamResponse:
        call = parse_seat(await read_body(request))
        if isinstance(call, InvalidRequest):
            return await limits.answer_miss(request, invalid_update_response(call))
        response, is_miss = await asyncio.to_thread(decide, call)
        if is_miss:
            return await limits.answer_miss(request, response, call.request.domain)
        return send(response)

    return respond
