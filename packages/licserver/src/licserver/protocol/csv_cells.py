"""Lines of CSV that a spreadsheet shows and does not run. Pure (D-98)."""

import csv
import io
import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, Final

_BLANKS: Final = r"""(?:[^\S\t\r\n]|["'])*"""
_FORMULA: Final = rf"{_BLANKS}[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]"  # the last four are their full-width forms

# A spreadsheet that splits at another character than we do begins cells in the midst of ours: quotes protect
# the first cell of a line only. None of the characters that separate cells is among the blanks, so each guard
# stands by itself, and `unguard` finds all of them.
_SEPARATOR: Final = r"(?<=[,;|\t\r\n])"
_UNGUARDED: Final = re.compile(rf"\A(?={_FORMULA}|{_BLANKS}[\t\r\n])|{_SEPARATOR}(?={_FORMULA})")
_GUARD: Final = re.compile(rf"\A'(?={_FORMULA}|{_BLANKS}[\t\r\n])|{_SEPARATOR}'(?={_FORMULA})")


def to_line(values: Sequence[Any]) -> str:
    """Write one line (RFC 4180), with all cells in quotes.

    Args:
        values: Of its cells; None is an empty one.

    Returns:
        The line with its end. Text is guarded.
    """
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL).writerow([to_cell(value) for value in values])
    return line.getvalue()


def to_cell(value: Any) -> str:
    """Write one cell, without its quotes."""
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
    """Put an apostrophe in front of each formula in a text, as OWASP recommends.

    A formula stands at the beginning, or after a character at which a spreadsheet may split a line.
    """
    return _UNGUARDED.sub("'", text)


def unguard(cell: str) -> str:
    """Return the text that `guard` was given."""
    return _GUARD.sub("", cell)
