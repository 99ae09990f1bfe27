"""Logging: to standard error, with everything secret masked on its way out."""

import logging
import sys
import threading
from typing import Protocol

from licserver.masking import mask

_log = logging.getLogger("licserver")


class MaskingFormatter(logging.Formatter):
    """Masks the finished line, tracebacks included: whoever logs need not think of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        return mask(super().format(record))


class _Told(Protocol):
    """What Python hands to its hooks for exceptions that nobody caught."""

    @property
    def exc_value(self) -> BaseException | None:
        """The exception."""


def set_up_logging() -> None:
    """Send all loggers of this process to standard error, and what Python would print there past them.

    Warnings, and exceptions that end a thread or that Python itself ignores, are logged. Of a line that
    cannot be written nothing is said: the library's report would quote what the line was made of.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    logging.raiseExceptions = False
    threading.excepthook = sys.unraisablehook = _log_uncaught


def _log_uncaught(told: _Told) -> None:
    _log.error("an exception that nobody caught", exc_info=told.exc_value)
