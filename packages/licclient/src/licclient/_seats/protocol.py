"""Pure: the request to take, renew or release a seat, and its response."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from licclient._core.arguments import is_text
from licclient._core.model import Reason, Settings
from licclient._core.requests import Call, post_call
from licclient._core.responses import LICENSE_REFUSALS, Reply, masked, read_failure, read_json_object
from licclient.errors import LicclientError, NoSeatError

SEAT_PATH: Final = "/api/v1/licenses/seat"

_SEAT_REFUSALS: Final = {
    **LICENSE_REFUSALS,
    "license_revoked": Reason.REVOKED,
    "product_mismatch": Reason.OTHER_PRODUCT,
}

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
            return read_failure(reply, key, _SEAT_REFUSALS)


def is_released(reply: Reply) -> bool:
    """Return whether a request to release a seat needs no repetition: it is free, or was refused."""
    return read_json_object(reply.body).get("released") is not False
