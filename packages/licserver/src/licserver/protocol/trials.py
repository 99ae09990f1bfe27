"""Requests and responses of trials, which the specification does not have. Pure."""

import re
from dataclasses import dataclass
from typing import Any, Final

from licserver.domain.records import IssuedLicense
from licserver.domain.trials import TrialRefusal
from licserver.protocol.public_api import (
    ApiResponse,
    InvalidRequest,
    error_response,
    json_response,
    parse_fields,
    printable_text,
    read_domain,
    read_matching,
    read_object,
)

TRIAL_PATH: Final = "/api/v1/licenses/trial"


_MACHINE: Final = re.compile(r"[0-9a-f]{64}")


_TRIAL_REFUSALS: Final = {
    TrialRefusal.PRODUCT_NOT_FOUND: (404, "product_not_found", "There is no product with this slug."),
    TrialRefusal.NOT_OFFERED: (403, "trials_not_offered", "There are no trials of this product."),
    TrialRefusal.ENDED: (403, "trial_ended", "This machine has had its trial of this product."),
    TrialRefusal.TOO_MANY: (
        403,
        "too_many_trials",
        "No more trials can be started today, or not from this network.",
    ),
}


def trial_refusal_response(refusal: TrialRefusal) -> ApiResponse:
    """Format the refusal of a trial."""
    return error_response(*_TRIAL_REFUSALS[refusal])


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A valid request for the trial of a product on a machine; `domain` names the installation."""

    slug: str
    machine: str
    domain: str | None = None


def _machine(value: Any) -> str:
    problem = "must be a SHA-256 digest, in 64 hexadecimal digits."
    return read_matching(_MACHINE, problem, printable_text(value))


def parse_trial(body: bytes) -> TrialRequest | InvalidRequest:
    """Parse the body of a request for a trial, as `parse_verify` does; ignore an unusable domain."""
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
