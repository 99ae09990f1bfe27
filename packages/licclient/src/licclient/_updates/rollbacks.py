"""Pure: the report of a version that was rolled back on this computer (D-232)."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from licclient._core.model import Settings
from licclient._core.records import Document, reader, require_type
from licclient._core.requests import Call, post_call
from licclient._core.responses import Reply

ROLLED_BACK_PATH: Final = "/api/v1/updates/rolled-back"

MAX_REPORTS: Final = 20
"""How often a report is sent that is not settled: ten days of update checks (D-419)."""

_KEPT: Final = 50
"""Versions that are remembered as reported, beside all that are listed."""

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


class SentReports(NamedTuple):
    """The record of the reports of this computer.

    Attributes:
        versions: Those that are not reported any more: settled, or given up.
        tries: How often each other one was sent.
    """

    versions: tuple[str, ...] = ()
    tries: Mapping[str, int] = {}


@reader
def _read_reports(document: Document) -> SentReports:
    tries = require_type(document.get("tries", {}), dict)  # earlier versions wrote none
    counts = {version: require_type(count, int) for version, count in tries.items()}
    return SentReports(tuple(require_type(document["versions"], list)), counts)


def read_reports(document: Document | None) -> SentReports:
    """Read the record of the reports; an empty one without one, or for a damaged one."""
    return _read_reports(document) or SentReports()


def note_report(
    document: Document | None, version: str, listed: Collection[str], *, is_settled: bool
) -> Document:
    """Return the record after a report; `listed` are the versions that are to be reported here."""
    versions, tries = read_reports(document)
    counts = {**tries, version: tries.get(version, 0) + 1}
    done = [*versions, *[version] * (is_settled or counts[version] >= MAX_REPORTS)]
    others = [other for other in done if other not in listed][-_KEPT:]
    return {
        "versions": [*others, *(other for other in done if other in listed)],
        "tries": {other: count for other, count in counts.items() if other in listed and other not in done},
    }
