"""Logging: to standard error, with everything secret masked on its way out."""

import logging
import sys

from licserver.masking import mask


class MaskingFormatter(logging.Formatter):
    """Masks the finished line, tracebacks included: whoever logs need not think of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        return mask(super().format(record))


def set_up_logging() -> None:
    """Send all loggers of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
