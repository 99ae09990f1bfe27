"""Requests and responses of the endpoint that counts uses of metered entitlements. Pure."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from licserver.domain.entitlements import MAX_NUMBER, is_name
from licserver.protocol.public_api import (
    ApiResponse,
    InvalidRequest,
    error_response,
    json_response,
    parse_deactivate,
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


def parse_consume(body: bytes) -> ConsumeRequest | InvalidRequest:
    """Parse the body of a request to count a use."""
    of_license = parse_deactivate(body)
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    name, amount, use_id = (
        (values if isinstance(values, dict) else {}).get(field) for field in ("name", "amount", "use_id")
    )
    errors = dict(of_license.errors) if isinstance(of_license, InvalidRequest) else {}
    if not (isinstance(name, str) and is_name(name)):
        errors["name"] = ["The name field must be the name of an entitlement."]
    if not (isinstance(amount, int) and not isinstance(amount, bool) and 1 <= amount <= MAX_NUMBER):
        errors["amount"] = ["The amount field must be a whole number from 1."]
    if not (isinstance(use_id, str) and _USE_ID.fullmatch(use_id)):
        errors["use_id"] = ["The use id field must have 8 to 64 letters, digits, - and _."]
    if errors or isinstance(of_license, InvalidRequest):
        return InvalidRequest(errors)
    return ConsumeRequest(of_license.license_key, of_license.domain, str(name), int(amount or 0), str(use_id))


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
        "resets_at": f"{resets_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
