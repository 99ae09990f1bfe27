"""What the console says of things, in words. Pure."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

from licserver.services.phrases import plural

DONE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "freed": "The slot is free: the customer can activate another machine right away.",
        "revoked": "The license is revoked. Verify and update check are refused, and links are dead.",
        "reinstated": "The license is reinstated.",
        "changed": "The license is changed. The very next request sees it.",
        "allowed": "The entry is on the allow-list; it takes no slot.",
        "disallowed": "The entry is off the allow-list.",
        "issued": "The license is issued.",
        "product": "The product is there. Upload its first version next.",
        "renamed": "The product is renamed. Licenses keep the name that they were issued with.",
        "rules": "The product is changed. It counts for all its licenses, from the very next request on.",
        "published": "The version is published.",
        "withdrawn": "The version is withdrawn: it is offered no more, and links to its file are dead.",
        "once": "This form was sent before and done once: see below. For another one, open the form anew.",
        "password": "Your password is changed, and you are signed out everywhere else.",
        "second-factor-off": "Your second factor is removed, and you are signed out everywhere else.",
        "signed-out": "You are signed out.",
    }
)
"""What a page says after something was done; the address carries the name, never the words."""


def number(value: int) -> str:
    """Write a number so that a million can be told from ten."""
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def file_size(count: int) -> str:
    """Write a number of bytes for people."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":  # noqa: PLR2004 - as units go
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


def ago(instant: datetime, now: datetime) -> str:
    """Say how long ago something was; roughly, as people do."""
    seconds = (now - instant).total_seconds()
    if seconds < 90:  # noqa: PLR2004 - the ends of the ranges
        return "just now"
    for unit, length, limit in (
        ("minute", 60, 90),
        ("hour", 3600, 36),
        ("day", 86400, 60),
        ("month", 2629800, 24),
        ("year", 31557600, 10**6),
    ):
        count = round(seconds / length)
        if count < limit:
            return f"{count} {plural(count, unit)} ago"
    raise AssertionError
