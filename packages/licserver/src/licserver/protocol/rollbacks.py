"""Reports of apps that went back to the version before: parse bytes, format a response. Pure (D-232)."""

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
_FIELDS: Final = {
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
    fields = parse_fields(_FIELDS, values)
    if isinstance(fields, InvalidRequest):
        return fields
    platform = values.get("platform")
    return RollbackReport(
        **fields, platform=platform if isinstance(platform, str) and is_platform(platform) else ""
    )


def report_response(counted: bool) -> ApiResponse:
    """Format the response to a report, which may not count: nobody finds out by it which versions exist."""
    return json_response(200, {"counted": counted})
