"""Output of the command line: results, errors, a progress bar."""

import errno
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, Self, TextIO

from licclient._core.model import Entitlements, EntitlementValue, License, Quota, Source
from licclient._core.texts import amount, span
from licclient._core.update_model import Update

_BAR_CELLS: Final = 24


_OPTIONS: Final = {
    "base_url": "--server",
    "storage": "--state-dir",
    "public_keys": "--public-key",
    "release_keys": "--release-key",
}
"""Argument of `LicenseClient`, which its messages name → the option that takes its place."""


class Output(logging.Handler):
    """Prints the result, and each complaint once; used as a context manager, it prints our log as well."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._as_json = as_json
        self._complaints: dict[str, None] = {}  # a set that keeps the order
        self._printed: set[str] = set()

    def __enter__(self) -> Self:
        logging.getLogger("licclient").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("licclient").removeHandler(self)
        for message in self._complaints:
            if message not in self._printed:
                self.complain(message)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message of the log until the end: the result often repeats it."""
        self._complaints[record.getMessage()] = None

    def result(self, document: dict[str, Any], *lines: str) -> None:
        """Print the result: the document with `--json`, else the lines."""
        self._printed.update(lines)
        for line in [json.dumps(document)] if self._as_json else map(_printable, lines):
            write(line, sys.stdout)

    def error(self, status: int, kind: str, message: str) -> int:
        """Print an error, and return the exit status."""
        self._printed.add(message)
        try:
            if self._as_json:
                write(json.dumps({"error": kind, "message": _name_options(message)}), sys.stdout)
                return status
        except OSError:  # perhaps the error that is to be printed: a full disk
            pass
        self.complain(message)
        if sys.stdout is not None:
            try:
                sys.stdout.flush()
            except OSError:
                _drop(sys.stdout)  # or the status would be 120
        return status

    def complain(self, message: str) -> None:
        """Print a message to the standard error."""
        write(f"licclient: {_printable(_name_options(message))}", sys.stderr)


def write(line: str, stream: TextIO | None) -> None:
    """Print a line at once. A reader that is gone, as in `licclient … | true`, changes no exit status.

    Raises:
        OSError: if the line cannot be written, as on a full disk.
    """
    if stream is None:  # a program without a console
        return
    try:
        print(line, file=stream, flush=True)
    except OSError as problem:
        if not _has_no_reader(problem):
            raise
        _drop(stream)


def flush_output() -> None:
    """Print what the parser of arguments has left in memory; Python itself reports what else goes wrong."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError as problem:
            if _has_no_reader(problem):
                _drop(stream)


def _has_no_reader(problem: OSError) -> bool:
    return problem.errno == (errno.EINVAL if os.name == "nt" else errno.EPIPE)


def _drop(stream: TextIO) -> None:
    """Lead a stream to nowhere: Python would report unwritten output at its end, and exit with 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _name_options(message: str) -> str:
    return re.sub("|".join(_OPTIONS), lambda match: _OPTIONS[match[0]], message)


def update_document(update: Update) -> dict[str, Any]:
    return {
        "name": update.name,
        "slug": update.slug,
        "version": update.version,
        "changelog": update.changelog,
        "last_updated": f"{update.last_updated:%Y-%m-%d %H:%M:%S}",
        "required": update.is_required,
        "critical": update.is_critical,
        "covered": update.is_covered,
        "latest_version": update.latest_version,
        "updates_until": update.updates_until and update.updates_until.isoformat(),
        "security": update.is_security,
        "advisory": update.advisory,
        "cves": list(update.cves),
        "kind": update.kind,
    }


def format_entitlements(granted: Entitlements) -> str:
    """Format what a license grants in one line, as `licserver plan` takes it."""
    return ", ".join(f"{name}{_format_value(value)}" for name, value in granted.items())


def _format_value(value: EntitlementValue) -> str:
    match value:
        case bool():
            return "" if value else "=false"
        case Quota(limit, per):
            return f"={limit}/{per}"
        case _:
            return f"={value}"


def format_term(license_: License) -> str:
    if license_.expiry is not None:
        return f"valid through {license_.expiry.isoformat()} UTC"
    return "lifetime license" if license_.is_lifetime else "no expiry"


def format_origin(license_: License, now: datetime) -> str:
    match license_.source:
        case Source.SERVER:
            return "confirmed by the server just now"
        case Source.CACHE:
            return f"from the cache, checked {_format_age(now - license_.checked_at)}"
        case Source.GRACE:
            return f"in the grace period: last checked {_format_age(now - license_.checked_at)}"
        case Source.FILE:
            return f"from the license file, issued {_format_age(now - license_.checked_at)}"


def _format_age(age: timedelta) -> str:
    minutes = max(0, int(age.total_seconds() // 60))
    for size, unit in ((24 * 60, "day"), (60, "hour"), (1, "minute")):
        if minutes >= size:
            count = minutes // size
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "less than a minute ago"


def _printable(text: str) -> str:
    """Replace what would control a terminal, and what its encoding does not have."""
    shown = "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return shown.encode(encoding, errors="replace").decode(encoding)


@contextmanager
def progress_bar(stream: TextIO, *, shown: bool) -> Generator[Callable[[int, int, float], None] | None]:
    """Yield a function for `progress=` that draws a bar; None where it cannot be drawn."""
    if not (shown and stream.isatty() and os.environ.get("TERM") != "dumb"):
        yield None
        return

    def draw(done: int, total: int, speed: float) -> None:
        line = bar_line(done, total, speed)[: shutil.get_terminal_size().columns - 1]
        stream.write(f"\r{line}\x1b[K")
        stream.flush()

    try:
        yield draw
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def bar_line(done: int, total: int, speed: float) -> str:
    """Format the line of a bar; speed in bytes a second."""
    part = done / total if total else 1.0
    full = int(part * _BAR_CELLS)
    line = f"{part:4.0%} [{'#' * full:.<{_BAR_CELLS}}] {amount(done)} of {amount(total)}"
    if speed <= 0:
        return line
    return f"{line}, {amount(speed)}/s, {span((total - done) / speed) or 'days'} left"
