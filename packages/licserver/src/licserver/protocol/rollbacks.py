"""Reports of rollbacks of a version by apps, and of set-ups in vain (D-232, D-393). Pure."""

from dataclasses import dataclass
from typing import Final

from licserver.domain.decisions import is_platform
from licserver.protocol.public_api import (
    ApiResponse,
    InvalidRequest,
    json_response,
    parse_fields,
    printable_text,
    read_domain,
    read_object,
    read_text,
)

ROLLED_BACK_PATH: Final = "/api/v1/updates/rolled-back"


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
    platform: str  # empty if the request has no valid name
    exit_code: int | None  # of a set-up; None if the request has no valid one


def parse_report(body: bytes) -> RollbackReport | InvalidRequest:
    """Parse the body of a report."""
    values = read_object(body)
    fields = parse_fields(_REPORT_FIELDS, values)
    if isinstance(fields, InvalidRequest):
        return fields
    platform, code = values.get("platform"), values.get("exit_code")
    is_code = isinstance(code, int) and not isinstance(code, bool) and 0 <= code < 2**32
    return RollbackReport(
        **fields,
        platform=platform if isinstance(platform, str) and is_platform(platform) else "",
        exit_code=code if is_code else None,
    )


def report_response(counted: bool) -> ApiResponse:
    """Format the response to a report; it does not reveal which versions exist."""
    return json_response(200, {"counted": counted})
