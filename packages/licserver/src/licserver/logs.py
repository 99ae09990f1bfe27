"""Logging: to standard error, with every license key masked on its way out."""

import logging
import re
import sys

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


def set_up_logging() -> None:
    """Send all loggers of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
