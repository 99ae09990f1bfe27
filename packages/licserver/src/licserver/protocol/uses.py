"""Requests and responses of metered uses, which the specification does not have. Pure."""

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
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
    read_matching,
    read_object,
    read_text,
)

CONSUME_PATH: Final = "/api/v1/licenses/consume"


_USE_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")


class ConsumeRefusal(enum.Enum):
    """Reasons why a use is refused, besides the quota."""

    EXPIRED = enum.auto()
    NOT_ACTIVATED = enum.auto()
    NOT_METERED = enum.auto()


_USE_REFUSALS: Final = {
    ConsumeRefusal.EXPIRED: (401, "license_expired", "The license has expired."),
    ConsumeRefusal.NOT_ACTIVATED: (
        403,
        "not_activated",
        "The license is not activated here; verify it first.",
    ),
    ConsumeRefusal.NOT_METERED: (403, "not_entitled", "The license has no quota of this name."),
}


def use_refusal_response(refusal: ConsumeRefusal) -> ApiResponse:
    """Format the refusal of a use."""
    return error_response(*_USE_REFUSALS[refusal])


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


_CONSUME_FIELDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "license_key": read_text,
    "domain": read_domain,
    "name": _name,
    "amount": _amount,
    "use_id": partial(read_matching, _USE_ID, "must have 8 to 64 letters, digits, - and _."),
}


def parse_consume(body: bytes) -> ConsumeRequest | InvalidRequest:
    """Parse the body of a request to count a use, as `parse_verify` does."""
    fields = parse_fields(_CONSUME_FIELDS, read_object(body))
    return fields if isinstance(fields, InvalidRequest) else ConsumeRequest(**fields)


def consumed_response(name: str, used: int, limit: int, resets_at: datetime) -> ApiResponse:
    """Format the response to a counted use, also if it was counted before."""
    return json_response(200, {"name": name, **_describe_quota(used, limit, resets_at)})


def quota_exceeded_response(message: str, used: int, limit: int, resets_at: datetime) -> ApiResponse:
    """Format the refusal of a use that exceeds the rest of the quota."""
    body = {"error": "quota_exceeded", "message": message, **_describe_quota(used, limit, resets_at)}
    return json_response(403, body)


def use_conflict_response(message: str) -> ApiResponse:
    """Format the refusal of an id that already counts another name or amount."""
    return error_response(409, "use_id_conflict", message)


def _describe_quota(used: int, limit: int, resets_at: datetime) -> dict[str, Any]:
    remaining = max(0, limit - used)
    return {"used": used, "limit": limit, "remaining": remaining, "resets_at": format_instant(resets_at)}
