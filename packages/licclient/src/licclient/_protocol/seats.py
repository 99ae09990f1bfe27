"""Pure: requests for floating seats, and their responses (D-239)."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from licclient._model import Settings
from licclient._protocol.requests import MAX_VERIFY_BYTES, Call, is_text
from licclient._protocol.responses import (
    Reply,
    masked,
    read_invalid,
    read_json_object,
    read_refusal,
    unusable_response,
)
from licclient.errors import LicclientError, NoSeatError

SEAT_PATH: Final = "/api/v1/licenses/seat"

MAX_LEASE: Final = 24 * 3600
"""Seconds; a longer lease is not the service's."""

_HEADERS: Final = {"Accept": "application/json", "Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class HeldSeat:
    """The service's word that a seat is held for so many seconds; `used` of the license's `seats` are."""

    lease_seconds: int
    seats: int
    used: int


def seat_call(settings: Settings, key: str, domain: str, seat: str, *, release: bool = False) -> Call:
    """Return a request to take or renew a seat, or to release it.

    Args:
        settings: Where to send it, for which product, and from which machine.
        key: As from `tidy_key`.
        domain: As for `verify_call`.
        seat: 32 hexadecimal digits, drawn for this seat.
        release: Whether to give it up.
    """
    fields: dict[str, object] = {"license_key": key, "domain": domain, "seat": seat}
    if release:
        fields["release"] = True
    elif settings.slug is not None:
        fields["slug"] = settings.slug
    if not release and "label" in (settings.machine or {}):
        fields["label"] = (settings.machine or {})["label"]
    return Call("POST", settings.server + SEAT_PATH, _HEADERS, json.dumps(fields).encode(), MAX_VERIFY_BYTES)


def read_seat(reply: Reply, key: str, now: datetime) -> HeldSeat | LicclientError:
    """Parse the response to a request for a seat; `now` is when `retry_after` counts from."""
    body = read_json_object(reply.body)
    match reply.status, body:
        case 200, {"lease_seconds": int(lease), "seats": int(seats), "used": int(used)} if (
            0 < lease <= MAX_LEASE and not isinstance(body["lease_seconds"], bool)
        ):
            return HeldSeat(lease, seats, used)
        case 403, {
            "error": "no_seat",
            "message": str(message),
            "seats": int(seats),
            "retry_after": int(after),
        } if is_text(message) and seats > 0 and 0 <= after <= MAX_LEASE:
            return NoSeatError(masked(message, key), seats, now + timedelta(seconds=after))
        case 403, {"error": "seat_lost" | "not_floating" as code, "message": str(message)} if is_text(
            message
        ):
            return NoSeatError(masked(message, key), None if code == "seat_lost" else 0)
        case 401 | 403, _:
            return read_refusal(reply, key) or unusable_response(reply.status)
        case 404 | 405 | 501, _:
            return NoSeatError("This license service has no floating seats.", 0)
        case 422, {"message": str(), "errors": dict(errors)}:
            return read_invalid(errors, key)
        case _:
            return unusable_response(reply.status, reply.retry_after)
