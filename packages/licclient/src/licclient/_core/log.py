"""Debug records of the logger `licclient`, for the developer of an app and its support.

Nothing in them may be or contain a license key, so no addresses with a query and no bodies.
"""

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging

    from licclient.errors import LicclientError

NOT_REFRESHED: Final = "The license was not refreshed in the background: %r"

_found: "list[logging.Logger]" = []
"""The logger; to look it up takes 1 µs, at each answer from the cache."""


def debug(message: str, *details: object) -> None:
    """Log a debug record; loads no `logging`: until it is loaded, no handler exists for such records."""
    if not _found:
        # Another thread may be loading it at this very moment.
        get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
        if get_logger is None:
            return
        _found.append(get_logger("licclient"))
    _found[0].debug(message, *details)


def describe(problem: "LicclientError") -> str:
    """Return what a program would branch on, and the message, which contains no key."""
    fields = {
        name: value
        for name in ("reason", "outage", "flaw", "http_status", "request_id")
        if (value := getattr(problem, name, None)) is not None
    }
    details = "".join(f" {name}={value}" for name, value in fields.items())
    return f"{type(problem).__name__}{details}: {problem}"
