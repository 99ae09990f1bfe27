"""Requests and responses of the endpoint that counts uses of metered entitlements. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from licserver.domain.entitlements import MAX_NUMBER, is_name
from licserver.protocol.public_api import (
    ApiResponse,
    InvalidFieldError,
    InvalidRequest,
    error_response,
    format_instant,
    json_response,
    parse_fields,
    read_domain,
    read_object,
    read_text,
)

CONSUME_PATH: Final = "/api/v1/licenses/consume"

_USE_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")


@dataclass(frozen=True, slots=True, repr=False)
class ConsumeRequest:
    """A valid request to count a use; without a repr, because it holds a license key."""

    license_key: str
    domain: str
    name: str
    amount: int
    use_id: str


def _name(value: Any) -> str:
    if not (isinstance(value, str) and is_name(value)):
        raise InvalidFieldError("must be the name of an entitlement.")
    return value


def _amount(value: Any) -> int:
    if not (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_NUMBER):
        raise InvalidFieldError("must be a whole number from 1.")
    return value


def _use_id(value: Any) -> str:
    if not (isinstance(value, str) and _USE_ID.fullmatch(value)):
        raise InvalidFieldError("must have 8 to 64 letters, digits, - and _.")
    return value


_FIELDS: Final = {
    "license_key": read_text,
    "domain": read_domain,
    "name": _name,
    "amount": _amount,
    "use_id": _use_id,
}


def parse_consume(body: bytes) -> ConsumeRequest | InvalidRequest:
    """Parse the body of a request to count a use, as `parse_verify` does."""
    fields = parse_fields(_FIELDS, read_object(body))
    return fields if isinstance(fields, InvalidRequest) else ConsumeRequest(**fields)


def consumed_response(name: str, used: int, limit: int, resets_at: datetime) -> ApiResponse:
    """Format the response to a use that was counted, now or before."""
    return json_response(200, {"name": name, **_describe(used, limit, resets_at)})


def quota_exceeded_response(message: str, used: int, limit: int, resets_at: datetime) -> ApiResponse:
    """Format the refusal of a use that does not fit into the rest of the period."""
    body = {"error": "quota_exceeded", "message": message, **_describe(used, limit, resets_at)}
    return json_response(403, body)


def not_metered_response() -> ApiResponse:
    """Format the refusal of a use that the license has no quota for."""
    return error_response(403, "not_entitled", "The license has no quota of this name.")


def not_activated_response() -> ApiResponse:
    """Format the refusal of an environment that has no slot."""
    return error_response(403, "not_activated", "The license is not activated here; verify it first.")


def license_expired_response() -> ApiResponse:
    """Format the refusal of an expired license."""
    return error_response(401, "license_expired", "The license has expired.")


def _describe(used: int, limit: int, resets_at: datetime) -> dict[str, Any]:
    return {
        "used": used,
        "limit": limit,
        "remaining": max(0, limit - used),
        "resets_at": format_instant(resets_at),
    }
