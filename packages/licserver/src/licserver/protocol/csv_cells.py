"""Cells of CSV files, without formulas that a spreadsheet would run (D-98). Pure."""

import csv
import io
import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, Final

_BLANKS: Final = r"""(?:[^\S\t\r\n]|["'])*"""
_FORMULA: Final = rf"{_BLANKS}[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]"  # the last four are full-width forms

# A spreadsheet with another delimiter starts cells inside ours: quotes protect the first cell of a line only
# (D-171). Delimiters are not among the blanks, so that `unguard` finds each apostrophe.
_DELIMITER: Final = r"(?<=[,;|\t\r\n])"
_UNGUARDED: Final = re.compile(rf"\A(?={_FORMULA}|{_BLANKS}[\t\r\n])|{_DELIMITER}(?={_FORMULA})")
_GUARD: Final = re.compile(rf"\A'(?={_FORMULA}|{_BLANKS}[\t\r\n])|{_DELIMITER}'(?={_FORMULA})")


def to_line(values: Sequence[Any]) -> str:
    """Format a line including its end (RFC 4180)."""
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL).writerow([_format_cell(value) for value in values])
    return line.getvalue()


def _format_cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value)
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S")
        case date():
            return value.isoformat()
        case _:
            return guard(str(value))


def guard(text: str) -> str:
    """Insert an apostrophe before each formula: at the start, and wherever a cell may start."""
    return _UNGUARDED.sub("'", text)


def unguard(cell: str) -> str:
    """Undo `guard`."""
    return _GUARD.sub("", cell)
