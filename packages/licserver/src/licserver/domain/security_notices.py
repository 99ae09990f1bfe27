"""The report of a security release about the vulnerabilities that it fixes. Pure."""

import json
import re
from collections.abc import Sequence
from typing import Final

from licserver.domain.records import SecurityNotice
from licserver.domain.text import MAX_URL, is_https
from licserver.errors import InvalidInputError

MAX_CVES: Final = 50
_CVE: Final = re.compile(r"CVE-[0-9]{4}-[0-9]{4,19}")


def read_notice(advisory: str = "", cves: Sequence[str] = (), *, is_security: bool) -> SecurityNotice | None:
    """Validate a notice; return None for a release that is no security release.

    Raises:
        InvalidInputError: The advisory is not an https address, a name is not a CVE id, or either was given
            without `is_security`.
    """
    advisory, names = advisory.strip(), list(dict.fromkeys(name.strip().upper() for name in cves))
    if not is_security:
        if advisory or names:
            raise InvalidInputError("an advisory and CVEs are for security releases only")
        return None
    if advisory and not is_https(advisory):
        raise InvalidInputError(
            "the advisory must be an address like https://example.com/advisories/1, "
            f"of at most {MAX_URL} characters"
        )
    for name in names:
        if _CVE.fullmatch(name) is None:
            raise InvalidInputError(f"{name[:40]!r} is not a CVE id; write it like CVE-2026-1234")
    if len(names) > MAX_CVES:
        raise InvalidInputError(f"a release has at most {MAX_CVES} CVEs")
    return SecurityNotice(advisory or None, tuple(names))


def dump_notice(notice: SecurityNotice | None) -> str | None:
    """Return a notice as it is stored."""
    return None if notice is None else json.dumps(notice._asdict())


def load_notice(stored: str | None) -> SecurityNotice | None:
    """Return a stored notice."""
    if stored is None:
        return None
    fields = json.loads(stored)
    return SecurityNotice(fields["advisory"], tuple(fields["cves"]))
