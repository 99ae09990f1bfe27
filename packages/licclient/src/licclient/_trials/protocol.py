"""Pure: the request for a trial, and its response."""

from typing import Final

from licclient._core.model import Reason, Settings
from licclient._core.requests import Call, post_call, tidy_key
from licclient._core.responses import Reply, read_failure, read_json_object
from licclient.errors import LicclientError

TRIAL_PATH: Final = "/api/v1/licenses/trial"

_TRIAL_REFUSALS: Final = {
    "product_not_found": Reason.TRIAL_NOT_OFFERED,
    "trials_not_offered": Reason.TRIAL_NOT_OFFERED,
    "trial_ended": Reason.TRIAL_ENDED,
    "too_many_trials": Reason.TRIAL_LIMIT,
}


def trial_call(settings: Settings, slug: str, machine: str, domain: str) -> Call:
    """Return the request for a trial; `machine` is from `computer.hash_machine`."""
    return post_call(settings, TRIAL_PATH, {"slug": slug, "machine": machine, "domain": domain})


def read_trial(reply: Reply) -> str | LicclientError:
    """Parse the response to a request for a trial: the key, or the reason of a refusal."""
    match reply.status, read_json_object(reply.body):
        case 200, {"license_key": str(key)} if tidy_key(key) == key:
            return key
        case _:
            return read_failure(reply, "", _TRIAL_REFUSALS)
