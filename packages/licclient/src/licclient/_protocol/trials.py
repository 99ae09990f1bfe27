"""Pure: the request for a trial, and its response."""

import json
from typing import Final

from licclient._model import Reason, Settings
from licclient._protocol.requests import MAX_VERIFY_BYTES, Call, tidy_key
from licclient._protocol.responses import (
    Reply,
    read_invalid,
    read_json_object,
    read_refusal,
    unusable_response,
)
from licclient.errors import LicclientError, LicenseRefusedError, ServiceUnavailableError

TRIAL_PATH: Final = "/api/v1/licenses/trial"

_REASONS: Final = {
    "product_not_found": Reason.TRIAL_NOT_OFFERED,
    "trials_not_offered": Reason.TRIAL_NOT_OFFERED,
    "trial_ended": Reason.TRIAL_ENDED,
    "too_many_trials": Reason.TRIAL_LIMIT,
}


def trial_call(settings: Settings, slug: str, machine: str) -> Call:
    """Return the request for a trial; `machine` is from `_machine.hash_machine`."""
    body = json.dumps({"slug": slug, "machine": machine})
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    return Call("POST", settings.server + TRIAL_PATH, headers, body.encode(), MAX_VERIFY_BYTES)


def read_trial(reply: Reply) -> str | LicclientError:
    """Parse the response to a request for a trial: the key, or why there is none."""
    match reply.status, read_json_object(reply.body):
        case 200, {"license_key": str(key)} if tidy_key(key) == key:
            return key
        case 403 | 404, {"error": str(code)} if code in _REASONS:
            refusal = read_refusal(reply, "")
            return LicenseRefusedError(_REASONS[code], refusal.message if refusal else "")
        case 422, {"message": str(), "errors": dict(errors)}:
            return read_invalid(errors, "")
        case _:
            return unusable_response(reply.status, reply.retry_after)


def replace_unsupported(reply: Reply, read: str | LicclientError) -> str | LicclientError:
    """Return what was read; if the service does not know this request, that it has no trials."""
    if reply.status in {404, 405, 501} and isinstance(read, ServiceUnavailableError):
        return LicenseRefusedError(Reason.TRIAL_NOT_OFFERED, "This license service has no trials.")
    return read
