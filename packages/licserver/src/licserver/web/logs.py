"""Logging: to standard error, with every license key masked on its way out."""

import logging
import re
import sys

from aiohttp.http_exceptions import HttpProcessingError

from licserver.rules import mask_key

_KEY = re.compile(r"CP-[A-Z0-9]{6}(?:(?:-|%2D)[A-Z0-9]{6}){1,4}", re.IGNORECASE)


def mask(text: str) -> str:
    """Shorten everything in `text` that looks like a license key."""
    return _KEY.sub(lambda found: mask_key(found[0]), text)


class MaskingFormatter(logging.Formatter):
    """Masks keys in the finished line, tracebacks included: whoever logs need not think of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        return mask(super().format(record))


def _not_what_callers_garble(record: logging.LogRecord) -> bool:
    """Make one quiet line of a request that aiohttp could not read: anybody can send one, and often."""
    problem = record.exc_info[1] if record.exc_info else None
    if isinstance(problem, HttpProcessingError):
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.msg, record.args, record.exc_info = f"unreadable request: {type(problem).__name__}", (), None
    return True


def set_up_logging() -> None:
    """Send all loggers of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_not_what_callers_garble)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
