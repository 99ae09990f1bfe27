"""Pure: the report of a version that was rolled back on this computer (D-232)."""

from typing import Final

from licclient._core.model import Settings
from licclient._core.requests import Call, post_call
from licclient._core.responses import Reply

ROLLED_BACK_PATH: Final = "/api/v1/updates/rolled-back"


_REFUSED: Final = frozenset({401, 403, 404, 405, 422, 501})
"""By a service that takes no report of this license, or none at all; nothing is repeated."""


def report_call(
    settings: Settings,
    key: str,
    slug: str,
    version: str,
    domain: str,
    platform: str | None,
    exit_code: int | None = None,
) -> Call:
    """Return the report; `exit_code` is of a set-up that was in vain (D-393)."""
    fields: dict[str, str | int] = {"license_key": key, "slug": slug, "version": version, "domain": domain}
    if platform:
        fields["platform"] = platform
    if exit_code is not None:
        fields["exit_code"] = exit_code
    return post_call(settings, ROLLED_BACK_PATH, fields)


def is_settled(reply: Reply) -> bool:
    """Return whether a report needs no repetition: it arrived, or this service does not want it."""
    return reply.status in _REFUSED or (reply.status == 200 and b'"counted"' in reply.body)  # noqa: PLR2004
