"""Requests and responses of floating seats, which the specification does not have. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final

from licserver.domain.seats import NoSeat, SeatRefusal, SeatRequest, SeatVerdict
from licserver.domain.text import read_machine
from licserver.protocol.public_api import (
    ApiResponse,
    InvalidFieldError,
    InvalidRequest,
    error_response,
    format_instant,
    json_response,
    parse_fields,
    read_domain,
    read_matching,
    read_object,
    read_text,
)

SEAT_PATH: Final = "/api/v1/licenses/seat"


_SEAT_ID: Final = re.compile("[0-9a-f]{32}")


_SEAT_REFUSALS: Final = {
    SeatRefusal.INVALID_LICENSE: (401, "invalid_license", "The license key is not valid."),
    SeatRefusal.REVOKED: (403, "license_revoked", "The license has been revoked."),
    SeatRefusal.EXPIRED: (401, "license_expired", "The license has expired."),
    SeatRefusal.PRODUCT_MISMATCH: (403, "product_mismatch", "The license was issued for another product."),
    SeatRefusal.NOT_FLOATING: (403, "not_floating", "This license has no floating seats."),
    SeatRefusal.LOST: (403, "seat_lost", "This seat was released or taken back; take another one."),
}


@dataclass(frozen=True, slots=True, repr=False)
class SeatCall:
    """A valid request to take, renew or release a seat; without a repr, because it holds a license key."""

    license_key: str
    request: SeatRequest
    is_release: bool


def _seat_id(value: Any) -> str:
    return read_matching(_SEAT_ID, "must be 32 lower-case hexadecimal digits.", read_text(value))


def _is_release(value: Any) -> bool:
    """Read whether a seat is released; another value would take it, for the whole lease."""
    if value is not None and not isinstance(value, bool):
        raise InvalidFieldError("must be true or false.")
    return value is True


_FIELDS: Final = {"license_key": read_text, "domain": read_domain, "seat": _seat_id, "release": _is_release}


def parse_seat(body: bytes) -> SeatCall | InvalidRequest:
    """Parse the body of a request; ignore an unusable slug or label, as in a verify (D-195)."""
    values = read_object(body)
    fields = parse_fields(_FIELDS, values)
    if isinstance(fields, InvalidRequest):
        return fields
    slug, machine = values.get("slug"), read_machine(values.get("label"), None)
    request = SeatRequest(
        bytes.fromhex(fields["seat"]),
        fields["domain"],
        slug if isinstance(slug, str) and slug else None,
        machine and machine.label,
    )
    return SeatCall(fields["license_key"], request, fields["release"])


def seat_response(verdict: SeatVerdict, now: datetime, lease: timedelta) -> ApiResponse:
    """Format the response to a request for a seat; times are in seconds, too, for any clock."""
    if isinstance(verdict, SeatRefusal):
        return error_response(*_SEAT_REFUSALS[verdict])
    if isinstance(verdict, NoSeat):
        body = {
            "error": "no_seat",
            "message": f"All {verdict.seats} seats of this license are in use.",
            "seats": verdict.seats,
            "retry_at": format_instant(verdict.retry_at),
            "retry_after": max(1, ceil((verdict.retry_at - now).total_seconds())),
        }
        return json_response(403, body)
    body = {
        "seat": verdict.seat.id.hex(),
        "expires_at": format_instant(verdict.seat.expires_at),
        "lease_seconds": int(lease.total_seconds()),
        "seats": verdict.seats,
        "used": verdict.used,
    }
    return json_response(200, body)


def released_response(released: bool | SeatRefusal) -> ApiResponse:
    """Format the response to a request to release a seat."""
    if isinstance(released, SeatRefusal):
        return error_response(*_SEAT_REFUSALS[released])
    return json_response(200, {"released": released})
