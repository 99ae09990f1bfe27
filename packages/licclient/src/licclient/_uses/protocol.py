"""Pure: the request to count a use, and its response."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from licclient._core.model import Reason, Settings
from licclient._core.requests import Call, post_call, read_instant
from licclient._core.responses import LICENSE_REFUSALS, Reply, read_failure, read_json_object, unusable_reply
from licclient.errors import LicclientError, NotEntitledError, QuotaExceededError

CONSUME_PATH: Final = "/api/v1/licenses/consume"
_CONSUME_REFUSALS: Final = {**LICENSE_REFUSALS, "not_activated": Reason.ENVIRONMENT}
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
            return _read_usage(body) or unusable_reply(reply)
        case 403, {"error": "quota_exceeded"}:
            usage = _read_usage(body)
            return QuotaExceededError(name, usage.resets_at) if usage else unusable_reply(reply)
        case 403, {"error": "not_entitled"}:
            return NotEntitledError(name)
        case _:
            return read_failure(reply, key, _CONSUME_REFUSALS)


def _read_usage(body: object) -> Usage | None:
    match body:
        case {"used": int(used), "limit": int(limit), "remaining": int(remaining), "resets_at": str(at)} if (
            0 <= remaining <= limit and used >= 0
        ):
            resets_at = read_instant(at)
            return None if resets_at is None else Usage(used, limit, remaining, resets_at)
        case _:
            return None
