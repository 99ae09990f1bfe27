"""Pure: requests for floating seats, and their responses (D-239)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from licclient._model import Settings
from licclient._protocol.requests import Call, is_text, post_call
from licclient._protocol.responses import Reply, masked, read_failure, read_json_object
from licclient.errors import LicclientError, NoSeatError

SEAT_PATH: Final = "/api/v1/licenses/seat"

MAX_LEASE: Final = 24 * 3600
"""Seconds; a longer lease is not the service's."""


@dataclass(frozen=True, slots=True)
class HeldSeat:
    """The service's word that a seat is held for so many seconds; `used` of the license's `seats` are."""

    lease_seconds: int
    seats: int
    used: int


def seat_call(settings: Settings, key: str, domain: str, seat: str, *, release: bool = False) -> Call:
    """Return a request to take, renew or release a seat, named by 32 random hexadecimal digits."""
    fields: dict[str, object] = {"license_key": key, "domain": domain, "seat": seat}
    if release:
        fields["release"] = True
    elif settings.slug is not None:
        fields["slug"] = settings.slug
    if not release and "label" in (settings.machine or {}):
        fields["label"] = (settings.machine or {})["label"]
    return post_call(settings, SEAT_PATH, fields)


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
        case _:
            return read_failure(reply, key, refused=(401, 403))
