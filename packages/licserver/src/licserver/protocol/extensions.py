"""Requests and responses of trials, floating seats, metered uses and reports of rollbacks. Pure.

The specification does not have these endpoints.
"""

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from math import ceil
from typing import Any, Final

from licserver.domain.decisions import is_platform
from licserver.domain.entitlements import MAX_NUMBER, is_name
from licserver.domain.extensions import NoSeat, SeatRefusal, SeatRequest, SeatVerdict, TrialRefusal
from licserver.domain.records import IssuedLicense
from licserver.domain.text import read_machine
from licserver.protocol.public_api import (
    ApiResponse,
    InvalidFieldError,
    InvalidRequest,
    error_response,
    format_instant,
    json_response,
    parse_fields,
    printable_text,
    read_domain,
    read_object,
    read_text,
)

TRIAL_PATH: Final = "/api/v1/licenses/trial"
SEAT_PATH: Final = "/api/v1/licenses/seat"
CONSUME_PATH: Final = "/api/v1/licenses/consume"
ROLLED_BACK_PATH: Final = "/api/v1/updates/rolled-back"

_MACHINE: Final = re.compile(r"[0-9a-f]{64}")
_SEAT_ID: Final = re.compile("[0-9a-f]{32}")
_USE_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")


class ConsumeRefusal(enum.Enum):
    """Why a use is refused for another reason than the quota."""

    EXPIRED = enum.auto()
    NOT_ACTIVATED = enum.auto()
    NOT_METERED = enum.auto()


_REFUSALS: Final[dict[enum.Enum, tuple[int, str, str]]] = {
    TrialRefusal.PRODUCT_NOT_FOUND: (404, "product_not_found", "There is no product with this slug."),
    TrialRefusal.NOT_OFFERED: (403, "trials_not_offered", "There are no trials of this product."),
    TrialRefusal.ENDED: (403, "trial_ended", "This machine has had its trial of this product."),
    TrialRefusal.TOO_MANY: (
        403,
        "too_many_trials",
        "No more trials can be started today, or not from this network.",
    ),
    SeatRefusal.INVALID_LICENSE: (401, "invalid_license", "The license key is not valid."),
    SeatRefusal.REVOKED: (403, "license_revoked", "The license has been revoked."),
    SeatRefusal.EXPIRED: (401, "license_expired", "The license has expired."),
    SeatRefusal.PRODUCT_MISMATCH: (403, "product_mismatch", "The license was issued for another product."),
    SeatRefusal.NOT_FLOATING: (403, "not_floating", "This license has no floating seats."),
    SeatRefusal.LOST: (403, "seat_lost", "This seat was released or taken back; take another one."),
    ConsumeRefusal.EXPIRED: (401, "license_expired", "The license has expired."),
    ConsumeRefusal.NOT_ACTIVATED: (
        403,
        "not_activated",
        "The license is not activated here; verify it first.",
    ),
    ConsumeRefusal.NOT_METERED: (403, "not_entitled", "The license has no quota of this name."),
}


def refusal_response(refusal: TrialRefusal | SeatRefusal | ConsumeRefusal) -> ApiResponse:
    """Format a refusal."""
    return error_response(*_REFUSALS[refusal])


def _matching(pattern: re.Pattern[str], problem: str, value: Any) -> str:
    if not (isinstance(value, str) and pattern.fullmatch(value)):
        raise InvalidFieldError(problem)
    return value


# --- trials -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A valid request for the trial of a product on a machine; `domain` names the installation."""

    slug: str
    machine: str
    domain: str | None = None


def _machine(value: Any) -> str:
    problem = "must be a SHA-256 digest, in 64 hexadecimal digits."
    return _matching(_MACHINE, problem, printable_text(value))


def parse_trial(body: bytes) -> TrialRequest | InvalidRequest:
    """Parse the body of a request for a trial, as `parse_verify` does; an unusable domain counts as none."""
    values = read_object(body)
    fields = parse_fields({"slug": printable_text, "machine": _machine}, values)
    if isinstance(fields, InvalidRequest):
        return fields
    domain = parse_fields({"domain": read_domain}, values)
    return TrialRequest(**fields, **({} if isinstance(domain, InvalidRequest) else domain))


def trial_response(license_: IssuedLicense, key: str) -> ApiResponse:
    """Format the response with the key of a trial; the key is verified like any other."""
    last = None if license_.lifetime or license_.expires_on is None else license_.expires_on.isoformat()
    body = {"license_key": key, "product": license_.product_name, "expiry": last}
    return json_response(200, {**body, "lifetime": license_.lifetime, "trial": True})


# --- floating seats ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class SeatCall:
    """A valid request to take, renew or release a seat; without a repr, because it holds a license key."""

    license_key: str
    request: SeatRequest
    is_release: bool


def _seat_id(value: Any) -> str:
    return _matching(_SEAT_ID, "must be 32 lower-case hexadecimal digits.", read_text(value))


def parse_seat(body: bytes) -> SeatCall | InvalidRequest:
    """Parse the body of a request; an unusable slug or label counts as none, as in a verify (D-195)."""
    values = read_object(body)
    fields = parse_fields({"license_key": read_text, "domain": read_domain, "seat": _seat_id}, values)
    if isinstance(fields, InvalidRequest):
        return fields
    slug, machine = values.get("slug"), read_machine(values.get("label"), None)
    request = SeatRequest(
        bytes.fromhex(fields["seat"]),
        fields["domain"],
        slug if isinstance(slug, str) and slug else None,
        machine and machine.label,
    )
    return SeatCall(fields["license_key"], request, values.get("release") is True)


def seat_response(verdict: SeatVerdict, now: datetime, lease: timedelta) -> ApiResponse:
    """Format the response to a request for a seat; times are also given in seconds, for any clock."""
    if isinstance(verdict, SeatRefusal):
        return refusal_response(verdict)
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
        return refusal_response(released)
    return json_response(200, {"released": released})


# --- uses of metered entitlements -------------------------------------------------------------


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
    "use_id": partial(_matching, _USE_ID, "must have 8 to 64 letters, digits, - and _."),
}


def parse_consume(body: bytes) -> ConsumeRequest | InvalidRequest:
    """Parse the body of a request to count a use, as `parse_verify` does."""
    fields = parse_fields(_CONSUME_FIELDS, read_object(body))
    return fields if isinstance(fields, InvalidRequest) else ConsumeRequest(**fields)


def consumed_response(name: str, used: int, limit: int, resets_at: datetime) -> ApiResponse:
    """Format the response to a use that was counted, now or before."""
    return json_response(200, {"name": name, **_describe_quota(used, limit, resets_at)})


def quota_exceeded_response(message: str, used: int, limit: int, resets_at: datetime) -> ApiResponse:
    """Format the refusal of a use that does not fit into the rest of the period."""
    body = {"error": "quota_exceeded", "message": message, **_describe_quota(used, limit, resets_at)}
    return json_response(403, body)


def _describe_quota(used: int, limit: int, resets_at: datetime) -> dict[str, Any]:
    remaining = max(0, limit - used)
    return {"used": used, "limit": limit, "remaining": remaining, "resets_at": format_instant(resets_at)}


# --- reports of a version that an app went back from (D-232) ----------------------------------

_REPORT_FIELDS: Final = {
    "license_key": read_text,
    "slug": printable_text,
    "version": printable_text,
    "domain": read_domain,
}


@dataclass(frozen=True, slots=True, repr=False)
class RollbackReport:
    """A valid report; without a repr, because it holds a license key."""

    license_key: str
    slug: str
    version: str
    domain: str
    platform: str  # empty: none was sent, or no valid name


def parse_report(body: bytes) -> RollbackReport | InvalidRequest:
    """Parse the body of a report."""
    values = read_object(body)
    fields = parse_fields(_REPORT_FIELDS, values)
    if isinstance(fields, InvalidRequest):
        return fields
    platform = values.get("platform")
    return RollbackReport(
        **fields, platform=platform if isinstance(platform, str) and is_platform(platform) else ""
    )


def report_response(counted: bool) -> ApiResponse:
    """Format the response to a report, which may not count: nobody finds out by it which versions exist."""
    return json_response(200, {"counted": counted})
