"""Pure: requests and responses of what not every service has: metered uses, seats, trials, rollbacks."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from licclient._model import Reason, Settings
from licclient._protocol.requests import Call, is_text, post_call, read_instant, tidy_key
from licclient._protocol.responses import (
    Reply,
    masked,
    read_failure,
    read_json_object,
    read_refusal,
    unusable_response,
)
from licclient.errors import (
    LicclientError,
    LicenseRefusedError,
    NoSeatError,
    NotEntitledError,
    QuotaExceededError,
)

CONSUME_PATH: Final = "/api/v1/licenses/consume"
_SHARE: Final = 10  # one part in so many of a limit may be used offline


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of an entitlement the service has counted in a period, which ends at `resets_at`."""

    used: int
    limit: int
    remaining: int
    resets_at: datetime

    @property
    def allowance(self) -> int:
        """How much may be used without an answer, until the next one (D-225)."""
        return min(max(1, self.limit // _SHARE), self.remaining)


def consume_call(settings: Settings, key: str, domain: str, name: str, amount: int, use_id: str) -> Call:
    """Return a request to count a use; `use_id` is random, and the same whenever this use is sent again."""
    fields = {"license_key": key, "domain": domain, "name": name, "amount": amount, "use_id": use_id}
    return post_call(settings, CONSUME_PATH, fields)


def read_consume(reply: Reply, key: str, name: str) -> Usage | LicclientError:
    """Parse the response to a request to count a use of the entitlement `name`."""
    body = read_json_object(reply.body)
    match reply.status, body:
        case 200, {"name": received} if received == name:
            return _read_usage(body) or unusable_response(200)
        case 403, {"error": "quota_exceeded"}:
            usage = _read_usage(body)
            return QuotaExceededError(name, usage.resets_at) if usage else unusable_response(403)
        case 403, {"error": "not_entitled"}:
            return NotEntitledError(name)
        case 403, {"error": "not_activated"} if refusal := read_refusal(reply, key):
            return LicenseRefusedError(Reason.ENVIRONMENT, refusal.message)
        case _:
            return read_failure(reply, key, refused=(401,))


def _read_usage(body: object) -> Usage | None:
    match body:
        case {"used": int(used), "limit": int(limit), "remaining": int(remaining), "resets_at": str(at)} if (
            0 <= remaining <= limit and used >= 0
        ):
            resets_at = read_instant(at)
            return None if resets_at is None else Usage(used, limit, remaining, resets_at)
        case _:
            return None


# --- seats --------------------------------------------------------------------------------------


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


# --- trials -------------------------------------------------------------------------------------


TRIAL_PATH: Final = "/api/v1/licenses/trial"

_REASONS: Final = {
    "product_not_found": Reason.TRIAL_NOT_OFFERED,
    "trials_not_offered": Reason.TRIAL_NOT_OFFERED,
    "trial_ended": Reason.TRIAL_ENDED,
    "too_many_trials": Reason.TRIAL_LIMIT,
}


def trial_call(settings: Settings, slug: str, machine: str, domain: str) -> Call:
    """Return the request for a trial; `machine` is from `_computer.hash_machine`."""
    return post_call(settings, TRIAL_PATH, {"slug": slug, "machine": machine, "domain": domain})


def read_trial(reply: Reply) -> str | LicclientError:
    """Parse the response to a request for a trial: the key, or why there is none."""
    match reply.status, read_json_object(reply.body):
        case 200, {"license_key": str(key)} if tidy_key(key) == key:
            return key
        case 403 | 404, {"error": str(code)} if code in _REASONS:
            refusal = read_refusal(reply, "")
            return LicenseRefusedError(_REASONS[code], refusal.message if refusal else "")
        case _:
            return read_failure(reply, "", refused=())


# --- rollbacks ----------------------------------------------------------------------------------


ROLLED_BACK_PATH: Final = "/api/v1/updates/rolled-back"

_REFUSED: Final = frozenset({401, 403, 404, 405, 422, 501})
"""By a service that takes no report of this license, or none at all; nothing is repeated."""


def report_call(
    settings: Settings, key: str, slug: str, version: str, domain: str, platform: str | None
) -> Call:
    """Return the report."""
    fields = {"license_key": key, "slug": slug, "version": version, "domain": domain}
    if platform:
        fields["platform"] = platform
    return post_call(settings, ROLLED_BACK_PATH, fields)


def is_settled(reply: Reply) -> bool:
    """Return whether a report needs no repetition: it arrived, or this service does not want it."""
    return reply.status in _REFUSED or (reply.status == 200 and b'"counted"' in reply.body)  # noqa: PLR2004
