"""Pure: the request that counts a use of a metered entitlement, and its response."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from licclient._model import Reason, Settings
from licclient._protocol.requests import MAX_VERIFY_BYTES, Call
from licclient._protocol.responses import Reply, read_deactivate, read_refusal, unusable_response
from licclient.errors import (
    LicclientError,
    LicenseRefusedError,
    NotEntitledError,
    QuotaExceededError,
    ServiceUnavailableError,
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
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    url = settings.server + CONSUME_PATH
    return Call("POST", url, headers, json.dumps(fields).encode(), MAX_VERIFY_BYTES)


def read_consume(reply: Reply, key: str, name: str) -> Usage | LicclientError:
    """Parse the response to a request to count a use of the entitlement `name`."""
    try:
        body = json.loads(reply.body)
    except (ValueError, RecursionError):
        body = None
    match reply.status, body:
        case 200, {"name": told} if told == name:
            return _read_usage(body) or unusable_response(200)
        case 403, {"error": "quota_exceeded"}:
            usage = _read_usage(body)
            return QuotaExceededError(name, usage.resets_at) if usage else unusable_response(403)
        case 403, {"error": "not_entitled"}:
            return NotEntitledError(name)
        case 403, {"error": "not_activated"} if refusal := read_refusal(reply, key):
            return LicenseRefusedError(Reason.ENVIRONMENT, refusal.message)
        case 401, _:
            return read_refusal(reply, key) or unusable_response(401)
        case 404 | 405 | 501, _:
            return ServiceUnavailableError("This license service does not count uses.")
        case 422, _:  # in the shape of all extensions
            return read_deactivate(reply, key) or unusable_response(422)
        case _:
            return unusable_response(reply.status, reply.retry_after)


def _read_usage(body: object) -> Usage | None:
    match body:
        case {"used": int(used), "limit": int(limit), "remaining": int(remaining), "resets_at": str(at)} if (
            0 <= remaining <= limit and used >= 0
        ):
            try:
                resets_at = datetime.fromisoformat(at)
                return Usage(used, limit, remaining, resets_at.astimezone(UTC)) if resets_at.tzinfo else None
            except (ValueError, OverflowError):
                return None
        case _:
            return None
