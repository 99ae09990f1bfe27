"""Types of command-line parameters."""

import os
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import click

from licserver.errors import InvalidInputError


class Folder(click.Path):
    """A folder; an empty name comes from a script's unset variable, and is not the current folder."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Parse the name."""
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


class Slots(click.ParamType[Any]):
    """A whole number from 0, or ``unlimited``."""

    name = "N|unlimited"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the text, into a tuple of one: click takes None for an option that is not given."""
        if isinstance(value, tuple):
            return value
        if value.lower() == "unlimited":  # the help shows it in capitals
            return (None,)
        if not (value.isascii() and value.isdecimal() and len(value) < 10):  # noqa: PLR2004 - fits 32 bits
            self.fail(f"{value!r} is not a whole number or 'unlimited'", param, ctx)
        return (int(value),)


class Day(click.ParamType[Any]):
    """A date such as 2027-01-31."""

    name = "YYYY-MM-DD"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the text."""
        if isinstance(value, date):
            return value
        try:
            return datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC).date()
        except ValueError:
            self.fail(f"{value!r} is not a date; write it like 2027-01-31", param, ctx)


class DayOrNever(Day):
    """A date, or ``never``, in a tuple of one; see `Slots`."""

    name = "YYYY-MM-DD|never"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the text."""
        if isinstance(value, tuple):
            return value
        return (None,) if value.lower() == "never" else (super().convert(value, param, ctx),)


class Instant(click.ParamType[Any]):
    """A date and time such as 2027-01-31T12:00Z; UTC unless it names a zone."""

    name = "INSTANT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the text."""
        try:
            instant = datetime.fromisoformat(value)
            return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a date and time; write it like 2027-01-31T12:00Z", param, ctx)


def read_stdin_line(what: str) -> str:
    """Read a line of standard input.

    Raises:
        InvalidInputError: if there is none, or it is not text.
    """
    if sys.stdin is None:
        raise InvalidInputError(f"there is no standard input to read the {what} from")
    try:
        return sys.stdin.readline().rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidInputError("standard input is not text") from None


def read_file(path: Path) -> bytes:
    """Read a file that the user named.

    Raises:
        InvalidInputError: if it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from None


def read_text(path: Path) -> str:
    """Read a UTF-8 file, with or without a byte order mark.

    Raises:
        InvalidInputError: if it cannot be read.
    """
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not UTF-8 text") from None
