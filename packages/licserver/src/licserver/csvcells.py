"""Lines of CSV that a spreadsheet shows and does not run. Pure (D-98)."""

import csv
import io
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, Final

_STARTS: Final = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
    "\N{FULLWIDTH EQUALS SIGN}",
    "\N{FULLWIDTH PLUS SIGN}",
)
_MORE_STARTS: Final = ("\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}")


def to_line(values: Sequence[Any]) -> str:
    """Write one line (RFC 4180).

    Args:
        values: Of its cells; None is an empty one.

    Returns:
        The line with its end. Text that a spreadsheet would take for a formula has an apostrophe in front, as
        OWASP recommends.
    """
    line = io.StringIO()
    csv.writer(line).writerow([to_cell(value) for value in values])
    return line.getvalue()


def to_cell(value: Any) -> str:
    """Write one cell, without the quotes that its line may need."""
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
            text = str(value)
            # A blank in front does not keep a spreadsheet from it.
            return f"'{text}" if text.lstrip(" ").startswith(_STARTS + _MORE_STARTS) else text
