"""Requests of other updaters, as update checks; a license comes in a header, or in the query. Pure."""

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Final

from licserver.domain.channels import parse_channels
from licserver.domain.decisions import Offer, is_platform, parse_version
from licserver.domain.environments import InvalidDomainError, normalise_domain
from licserver.protocol.public_api import ApiResponse, UpdateRequest, error_response, parse_query

PREFIX: Final = "/feeds/"
ROOT: Final = PREFIX + "{slug:[a-z0-9-]{1,100}}"
_AUTHORIZATION: Final = re.compile(r"(bearer|basic) +([!-~]{1,2048}) *", re.IGNORECASE)
_SYSTEMS: Final = {"darwin": "macos", "osx": "macos", "win": "windows"}
_MACHINES: Final = {"aarch64": "arm64", "x64": "x86_64", "i686": "x86"}


def name_platform(system: str, machine: str) -> str:
    """Return our name of a platform, such as macos-arm64 for `darwin` and `aarch64`."""
    return f"{_SYSTEMS.get(system, system)}-{_MACHINES.get(machine, machine)}"


def read_license(authorization: str, query: Mapping[str, str]) -> str:
    """Return the license key of a request; empty if there is none.

    A bearer token, the password of Basic, or the parameter `license_key`: in a query it is more likely to
    be logged by the app.
    """
    found = _AUTHORIZATION.fullmatch(authorization)
    if found is None:
        return query.get("license_key", "")
    if found[1].lower() == "bearer":
        return found[2]
    try:
        return b64decode(found[2], validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def parse_call(
    slug: str,
    authorization: str,
    query: str,
    platform: str,
    *,
    version: str = "",
    domain: str = "",
    channel: str = "",
) -> UpdateRequest:
    """Parse a request as an update check, in which all but the slug may be missing.

    What the query says goes before the defaults given here; what cannot be used counts as not sent.
    """
    values = parse_query(query)
    wanted = values.get("platform", platform)
    version = values.get("current_version", version)
    return UpdateRequest(
        license_key=read_license(authorization, values),
        slug=slug,
        current_version=version if parse_version(version) else "",
        domain=_read_domain(values.get("domain", domain)),
        platform=wanted if is_platform(wanted) else "",
        channels=parse_channels(",".join(filter(None, (values.get("channels"), channel)))),
        is_manual=values.get("manual") == "1",
    )


def _read_domain(text: str) -> str:
    try:
        return normalise_domain(text) if text.strip() else ""
    except InvalidDomainError:
        return ""


def is_newer(offer: Offer, installed: str) -> bool:
    """Return whether an offered version is above the installed one; True if that is not known."""
    found, other = parse_version(offer.release.version), parse_version(installed)
    return found is None or other is None or found > other


def license_required_response() -> ApiResponse:
    """Format the response to a request without a license; it does not say whether there is such a product."""
    return error_response(
        401, "license_required", "Send a license key: this product has no public feed, or does not exist."
    )
