"""Logging: to standard error, as text or as JSON lines, with everything secret masked on its way out."""

import json
import logging
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from licserver.security.redaction import mask
from licserver.settings import LogFormat
from licserver.web.client_addresses import ClientAddresses
from licserver.web.request_ids import RequestIds

TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

FIELDS: Final = ("request_id", "remote", "method", "path", "status", "seconds")
"""What a record can hold besides its message; in text they stand in the message itself."""

_log = logging.getLogger("licserver")


class MaskingFormatter(logging.Formatter):
    """Masks the finished line, tracebacks included: whoever logs need not think of it. Times are in UTC."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        return mask(super().format(record))


class JsonFormatter(logging.Formatter):
    """Writes a JSON object a line, each text in it masked."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Each by itself: what is cut out of the whole line could take a bracket along.
        masked = {name: mask(value) if isinstance(value, str) else value for name, value in line.items()}
        return json.dumps(masked, ensure_ascii=False, default=str)


class AccessLogger(AbstractAccessLogger):
    """Logs method, path and status; never the query, in which a license key stands."""

    callers: ClientAddresses | None = None
    request_ids: RequestIds | None = None

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Write one line."""
        path = request.rel_url.raw_path  # as sent: a decoded one could bring line breaks along
        remote = request.remote
        if self.callers is not None and isinstance(request, web.Request):
            remote = self.callers.find(request).ip
        name = "-" if self.request_ids is None else self.request_ids.of(request)
        values = (name, remote, request.method, path, response.status, round(time, 4))
        self.logger.info(
            "%s %s %s %d %.4f %s", *values[1:], name, extra=dict(zip(FIELDS, values, strict=True))
        )


def access_logger(callers: ClientAddresses, request_ids: RequestIds) -> type[AccessLogger]:
    """Make an access log that knows who is behind a proxy, and how requests are named.

    Args:
        callers: Finds out who calls (D-05).
        request_ids: Names requests.

    Returns:
        A class: aiohttp makes one for each connection.
    """
    return type("AccessLogger", (AccessLogger,), {"callers": callers, "request_ids": request_ids})


def make_formatter(log_format: LogFormat, text: str = TEXT, dates: str | None = None) -> logging.Formatter:
    """Make what writes the lines.

    Args:
        log_format: Text for people or JSON for programs.
        text: The layout of text, in logging's own notation.
        dates: The layout of instants in it.
    """
    return JsonFormatter() if log_format is LogFormat.JSON else MaskingFormatter(text, dates)


class _Told(Protocol):
    """What Python hands to its hooks for exceptions that nobody caught."""

    @property
    def exc_value(self) -> BaseException | None:
        """The exception."""


def set_up_logging(log_format: LogFormat = LogFormat.TEXT) -> None:
    """Send all loggers of this process to standard error, and what Python would print there past them.

    Warnings, and exceptions that end a thread or that Python itself ignores, are logged. Of a line that
    cannot be written nothing is said: the library's report would quote what the line was made of.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(make_formatter(log_format))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    logging.raiseExceptions = False
    threading.excepthook = sys.unraisablehook = _log_uncaught


def _log_uncaught(told: _Told) -> None:
    _log.error("an exception that nobody caught", exc_info=told.exc_value)
