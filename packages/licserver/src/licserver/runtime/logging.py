"""Logs on standard error with secrets masked, request ids, and the report of failed logins."""

import asyncio
import contextlib
import logging
import os
import re
import secrets
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from aiohttp import web

from licserver.domain.characters import dump_json, escape_controls
from licserver.domain.environments import parse_ip
from licserver.domain.text import plural
from licserver.errors import LicserverError
from licserver.runtime.worker_threads import WorkerThreads
from licserver.security.redaction import mask
from licserver.services.installation import Services
from licserver.settings import LogFormat, Settings

HEADER: Final = "X-Request-ID"

_REQUEST_ID: Final = web.RequestKey("request_id", str)
_SANE: Final = re.compile(r"[A-Za-z0-9_.:=+/-]{1,64}")
_LOOKS_SECRET: Final = re.compile(r"CP-", re.IGNORECASE)


class RequestIds:
    """Identifies requests by the header of a trusted proxy, or by a random id (D-100)."""

    def __init__(self, settings: Settings) -> None:
        self._trusted = settings.trusted_proxies

    def of(self, request: web.BaseRequest) -> str:
        """Return the request's id.

        A proxy's id counts only if it is short and plain: it is logged, and a misconfigured proxy forwards
        the header of its client.
        """
        request_id = request.get(_REQUEST_ID)
        if request_id is None:
            request_id = request[_REQUEST_ID] = self._from_proxy(request) or secrets.token_hex(8)
        return request_id

    def log_error(
        self,
        log: logging.Logger,
        request: web.BaseRequest,
        response: web.StreamResponse,
        suffix: str,
        exc_info: Exception | None = None,
    ) -> None:
        """Log a failed request, and put its id into the response: a report can name it."""
        method, path, request_id = request.method, request.rel_url.raw_path, self.of(request)
        extra = {"request_id": request_id, "method": method, "path": path, "status": response.status}
        log.error("%s %s%s (%s)", method, path, suffix, request_id, extra=extra, exc_info=exc_info)
        response.headers[HEADER] = request_id

    def _from_proxy(self, request: web.BaseRequest) -> str | None:
        sent = request.headers.get(HEADER)
        if sent is None or _SANE.fullmatch(sent) is None or _LOOKS_SECRET.search(sent):
            return None
        peername = request.protocol.peername
        address = parse_ip(str(peername[0]).partition("%")[0]) if peername else None
        return sent if address is not None and any(address in network for network in self._trusted) else None


REQUEST_IDS = web.AppKey("request_ids", RequestIds)


class ThrottledLog:
    """Logger of events that clients can cause at any rate: a line a second, with the number of events."""

    def __init__(self) -> None:
        self._quiet_until = 0.0
        self._count = 0

    def add(self, logger: logging.Logger, event: str) -> None:
        """Log an event, or count it for the next line."""
        self._count += 1
        if (now := time.monotonic()) < self._quiet_until:
            return
        repeats = f", and {self._count - 1} more since the last such line" if self._count > 1 else ""
        logger.info("unreadable request: %s%s", event, repeats)
        self._quiet_until, self._count = now + 1, 0


TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

FIELDS: Final = ("request_id", "remote", "method", "path", "status", "seconds")
"""Fields of a JSON line besides its message; in text they are part of the message."""

_log = logging.getLogger("licserver")


class MaskingFormatter(logging.Formatter):
    """Formatter that masks the finished line, tracebacks included. Times are in UTC."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        return escape_controls(mask(super().format(record)))


class JsonFormatter(logging.Formatter):
    """Formatter of a JSON object a line, with each text masked."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Mask each text by itself: masking the whole line could remove a bracket.
        masked = {name: mask(value) if isinstance(value, str) else value for name, value in line.items()}
        return dump_json(masked, default=str)


def make_formatter(log_format: LogFormat, text: str = TEXT, dates: str | None = None) -> logging.Formatter:
    """Make a formatter; `text` and `dates` are the layout of text lines, as `logging` takes it."""
    return JsonFormatter() if log_format is LogFormat.JSON else MaskingFormatter(text, dates)


LOG_WINDOW: Final = 60.0  # seconds in which equal lines are counted
_MOST_COUNTED: Final = 1000  # different lines counted at a time
_NUMBER: Final = re.compile(r"\d+")


class _Repeated:
    """A line of the last minute, with the numbers of logged and omitted repetitions."""

    def __init__(self, record: logging.LogRecord) -> None:
        self.record, self.ends_at = record, time.monotonic() + LOG_WINDOW
        self.count = self.left_out = 0


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Handler that writes at most `limit` equal warnings or errors a minute, then the number omitted (D-256).

    During a fault, each request logs such a line. Lines are equal if only request id and numbers differ.
    """

    def __init__(self, stream: TextIO, limit: int) -> None:
        super().__init__(stream)
        self._limit = limit
        self._lines: dict[tuple[str, int, str], _Repeated] = {}
        if hasattr(os, "register_at_fork"):  # a new process has not the timers
            os.register_at_fork(after_in_child=self._lines.clear)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or count it."""
        if not self._limit or record.levelno < logging.WARNING or self._is_within_limit(record):
            super().emit(record)

    def _is_within_limit(self, record: logging.LogRecord) -> bool:
        text = record.getMessage().replace(getattr(record, "request_id", None) or "\0", "")
        key = (record.name, record.levelno, _NUMBER.sub("0", text))
        line = self._lines.get(key)
        if line is None or time.monotonic() >= line.ends_at:
            self._report(key)
            if len(self._lines) >= _MOST_COUNTED:
                self._report(next(iter(self._lines)))
            line = self._lines[key] = _Repeated(record)
        line.count += 1
        if line.count <= self._limit:
            return True
        if not line.left_out:
            timer = threading.Timer(line.ends_at - time.monotonic(), self._report_in_time, (key, line))
            timer.daemon = True
            timer.start()
        line.left_out += 1
        return False

    def _report_in_time(self, key: tuple[str, int, str], line: _Repeated) -> None:
        with self.lock or contextlib.nullcontext():
            if self._lines.get(key) is line:
                self._report(key)

    def _report(self, key: tuple[str, int, str]) -> None:
        """Forget a line; log the number of omitted repetitions."""
        line = self._lines.pop(key, None)
        if line is not None and line.left_out:
            text = "left out %d more lines in %d s like: %s"
            values = (line.left_out, LOG_WINDOW, line.record.getMessage())
            super().emit(logging.LogRecord(key[0], key[1], "", 0, text, values, None))

    def close(self) -> None:
        """Log the numbers of omitted lines."""
        with self.lock or contextlib.nullcontext():
            for key in list(self._lines):
                self._report(key)
        super().close()


def set_up_logging(log_format: LogFormat = LogFormat.TEXT, limit: int = 0) -> None:
    """Log to standard error, also warnings and uncaught exceptions of threads and destructors.

    An error of logging itself is not printed: its report would quote the unmasked arguments of the line.
    """
    handler = LimitedHandler(sys.stderr, limit)
    handler.setFormatter(make_formatter(log_format))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    logging.raiseExceptions = False

    def log_uncaught(uncaught: Any) -> None:
        _log.error("uncaught exception", exc_info=uncaught.exc_value)

    threading.excepthook = sys.unraisablehook = log_uncaught


_login_log = logging.getLogger("licserver.logins")

PAUSE: Final = 60.0  # seconds between two lines about the same failure of the same user or token
_LABELS: Final = {
    "user.sign_in_failed": "wrong password",
    "user.sign_in_throttled": "refused sign-in after too many attempts",
    "user.code_failed": "wrong code of a second factor",
    "token.refused": "refused token",
    "token.forbidden": "insufficient token",
}


class FailureReport:
    """Reporter of failures: logs the first at once, and later failures once a minute (D-168).

    Subjects are existing users and tokens only: their number bounds memory and log.
    """

    def __init__(self, services: Services, threads: WorkerThreads) -> None:
        self._services, self._threads = services, threads
        self._counts: dict[tuple[str, str | None], tuple[int, str]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def add(self, action: str, subject: str | None, address: str) -> None:
        """Count a failure, by its name in the audit log and the client's address.

        `subject` is an existing user or token. Never text that a client typed: it may be a password.
        """
        count, _ = self._counts.get((action, subject), (0, ""))
        self._counts[action, subject] = (count + 1, address)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_every_minute())

    async def close(self, _app: object = None) -> None:
        """Log the remaining failures."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        await self._write()

    async def _write_every_minute(self) -> None:
        while self._counts:
            await self._write()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), PAUSE)

    async def _write(self) -> None:
        for action, subject in list(self._counts):
            count, address = self._counts.pop((action, subject))
            of = f" of {subject}" if subject else ""
            times = f"{count} {plural(count, 'time')}"
            _login_log.warning("%s%s, %s, the last from %s", _LABELS[action], of, times, address)
            try:
                await self._threads.run(
                    self._services.logins.record_failures, action, subject, count, address
                )
            except LicserverError as problem:
                _login_log.warning("this failure is not in the audit log: %s", problem)


FAILURES = web.AppKey("failures", FailureReport)
