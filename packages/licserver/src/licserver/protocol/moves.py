"""Requests and responses about the computers of a license, which the specification does not have. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from licserver.domain.moves import Computer, ComputerList, MoveRefusal, RefusedMove, mask_domain
from licserver.domain.records import Machine
from licserver.domain.text import read_machine
from licserver.protocol.public_api import (
    ApiResponse,
    InvalidRequest,
    error_response,
    format_instant,
    json_response,
    parse_fields,
    read_domain,
    read_ip,
    read_matching,
    read_object,
    read_text,
)

COMPUTERS_PATH: Final = "/api/v1/licenses/computers"
MOVE_PATH: Final = "/api/v1/licenses/move"

_COMPUTER_ID: Final = re.compile("[0-9a-f]{32}")

_REFUSALS: Final = {
    MoveRefusal.INVALID_LICENSE: (401, "invalid_license", "The license key is not valid."),
    MoveRefusal.REVOKED: (403, "license_revoked", "The license has been revoked."),
    MoveRefusal.EXPIRED: (401, "license_expired", "The license has expired."),
    MoveRefusal.COMPUTER_NOT_FOUND: (
        404,
        "computer_not_found",
        "This computer holds no slot of the license any more; list its computers again.",
    ),
}

_TIMED_REFUSALS: Final = {
    MoveRefusal.NOT_ALLOWED: (
        "not_allowed",
        "Computers of this license are changed by support; write to them.",
    ),
    MoveRefusal.FILE_HELD: (
        "file_held",
        "This computer has a license file until {day}; its slot can be moved then, or by support.",
    ),
    MoveRefusal.TOO_MANY: (
        "too_many_moves",
        "This license was moved as often as it may be in 30 days; it can be moved again on {day}.",
    ),
}
"""Refusals with `retry_at`; their status is 403."""


@dataclass(frozen=True, slots=True, repr=False)
class ListRequest:
    """A valid request for a license's computers; without a repr, because it holds a license key."""

    license_key: str
    domain: str


@dataclass(frozen=True, slots=True, repr=False)
class MoveRequest:
    """A valid request to move a slot here; without a repr, because it holds a license key."""

    license_key: str
    domain: str
    computer_id: bytes
    machine: Machine | None


def _computer_id(value: Any) -> str:
    return read_matching(_COMPUTER_ID, "must be 32 lower-case hexadecimal digits.", read_text(value))


_LIST_FIELDS: Final = {"license_key": read_text, "domain": read_domain}
_MOVE_FIELDS: Final = {**_LIST_FIELDS, "ip": read_ip, "from": _computer_id}


def parse_list(body: bytes) -> ListRequest | InvalidRequest:
    """Parse the body of a request for a license's computers."""
    fields = parse_fields(_LIST_FIELDS, read_object(body))
    return fields if isinstance(fields, InvalidRequest) else ListRequest(**fields)


def parse_move(body: bytes) -> MoveRequest | InvalidRequest:
    """Parse the body of a request to move a slot; the address is checked and not used, as in a verify."""
    values = read_object(body)
    fields = parse_fields(_MOVE_FIELDS, values)
    if isinstance(fields, InvalidRequest):
        return fields
    machine = read_machine(values.get("label"), values.get("app_version"))
    return MoveRequest(fields["license_key"], fields["domain"], bytes.fromhex(fields["from"]), machine)


def list_response(result: ComputerList | RefusedMove, domain: str, now: datetime) -> ApiResponse:
    """Format the response to a request for a license's computers, as the domain sees them."""
    if isinstance(result, RefusedMove):
        return _refused(result)
    moved_to = result.moved_to
    body = {
        "slots": result.slots,
        "used": result.used,
        "moves_left": result.moves_left,
        "retry_at": result.retry_at and format_instant(result.retry_at),
        "computers": [
            _describe(id_, computer, is_this=computer.domain == domain, now=now)
            for id_, computer in result.computers
        ],
        "moved_to": moved_to
        and {
            **_name(moved_to.to_label, moved_to.to_domain),
            "on": moved_to.at.date().isoformat(),
        },
    }
    return json_response(200, body)


def _describe(id_: bytes, computer: Computer, *, is_this: bool, now: datetime) -> dict[str, Any]:
    held_until = computer.held_until if computer.is_held(now) else None
    return {
        "id": id_.hex(),
        **_name(computer.label, computer.domain),
        "last_seen": computer.last_seen_at.date().isoformat(),
        "is_this": is_this,
        "can_move": held_until is None,
        "retry_at": held_until and format_instant(held_until),
    }


def _name(label: str | None, domain: str) -> dict[str, str | None]:
    return {"name": label, "masked": mask_domain(domain)}


def move_response(result: Computer | RefusedMove | None) -> ApiResponse:
    """Format the response to a request to move a slot."""
    if isinstance(result, RefusedMove):
        return _refused(result)
    if result is None:
        return json_response(200, {"moved": False})
    return json_response(200, {"moved": True, "from": _name(result.label, result.domain)})


def _refused(refusal: RefusedMove) -> ApiResponse:
    if (fixed := _REFUSALS.get(refusal.reason)) is not None:
        return error_response(*fixed)
    code, message = _TIMED_REFUSALS[refusal.reason]
    at = refusal.retry_at
    body = {
        "error": code,
        "message": message.format(day=at and at.date().isoformat()),
        "retry_at": at and format_instant(at),
    }
    return json_response(403, body)
