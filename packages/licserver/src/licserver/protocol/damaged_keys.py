"""Detect keys and dates that a spreadsheet or another program has damaged before an import (D-186). Pure."""

import re
import unicodedata
from collections import defaultdict
from datetime import date
from typing import Final

from licserver.domain.text import describe_short_year

_SCIENTIFIC: Final = re.compile(r"\d(?:[.,]\d+)?E\+\d+", re.IGNORECASE)
_FORMULA: Final = re.compile(r'="[^"]*"')
_SHOWN_ERROR: Final = re.compile(r"#{8,}|(?:#(?:REF|VALUE|NAME|DIV/0|NUM|NULL|N/A|BEZUG|WERT)[!?]?)+")
_DAY: Final = r"(?:0?[1-9]|[12]\d|3[01])"
_DATE: Final = re.compile(
    rf"(?:19|20)\d\d-{_DAY}-{_DAY}|{_DAY}([./-])(?:{_DAY}|[A-Za-z]{{3}})\1(?:19|20)?\d\d"
)
_PRECISION: Final = 15  # digits of a number that a spreadsheet keeps; the rest become zeros
_MAX_LINES: Final = 100  # lines remembered for each length of a key
_AGAIN: Final = "Export the keys again, and open the file in a spreadsheet only with its columns as text"


def describe_damage(key: str) -> str | None:
    """Describe certain damage, to complete 'license_key: …'; None for an intact key.

    Of the key, the message contains only the damaged character.
    """
    if _SCIENTIFIC.fullmatch(key):
        return f"is a number as a spreadsheet shortens it, and its last digits are lost. {_AGAIN}"
    if _SHOWN_ERROR.fullmatch(key):
        return f"is what a spreadsheet shows in the key's place. {_AGAIN}"
    for char in key:
        if char.isascii():
            continue
        kind, code = unicodedata.category(char), f"U+{ord(char):04X}"
        if kind == "Pd" or char == "\N{MINUS SIGN}":
            return f"has the dash {char} ({code}) that a program has made of '-'; replace it in the file"
        if kind == "Cf" or char.isspace():
            return f"has the invisible character {code}; remove it from the file"
    return None


def describe_doubt(key: str) -> str | None:
    """Describe probable damage of a key, as a sentence for the vendor; None for an intact key."""
    if _FORMULA.fullmatch(key):
        return 'is a formula (="…"); the key is probably the text between the quotes'
    if key.startswith("="):
        return "begins with =, as a formula of a spreadsheet does"
    if _DATE.fullmatch(key):
        return f"is a date, as a spreadsheet makes of numbers with dashes or slashes. {_AGAIN}"
    if key.startswith("'"):
        return "begins with an apostrophe, which spreadsheets put before text"
    if key.isdecimal() and len(key) > _PRECISION and not key[_PRECISION:].strip("0"):
        return f"ends in zeros after {_PRECISION} digits, as numbers do in a spreadsheet. {_AGAIN}"
    return None


_NO_DATES: Final = {
    date(1970, 1, 1): "write for a date that they could not read",
    date(1899, 12, 30): "write for the number 0",
    date(1899, 12, 31): "write for the number 0",
    date(1900, 1, 1): "write for no date",
    date.min: "write for no date",
}


def describe_doubtful_date(day: date | None) -> str | None:
    """Describe a day that programs write by mistake; None for other days."""
    if day is None:
        return None
    if day not in _NO_DATES:
        return describe_short_year(day)
    return f"is {day}, which programs {_NO_DATES[day]}; if the license had none, leave the field empty"


class DigitKeys:
    """A counter of keys of digits by length: a spreadsheet removes zeros at their beginning."""

    def __init__(self) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._lines: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, line: int, key: str) -> None:
        """Count a key."""
        if key.isdecimal():
            self._counts[len(key)] += 1
            if len(self._lines[len(key)]) < _MAX_LINES:
                self._lines[len(key)].append(line)

    def find_shorter(self) -> tuple[list[int], int, str]:
        """Return example lines of keys shorter than the longest, their number, and a message.

        There are none if less than half of all keys have the length of the longest.
        """
        longest, total = max(self._counts, default=0), sum(self._counts.values())
        doubt = f"has fewer digits than the other keys ({longest}): a spreadsheet may have removed zeros"
        if 2 * self._counts[longest] < total:
            return [], 0, doubt
        lines = sorted(line for size, lines in self._lines.items() if size < longest for line in lines)
        return lines, total - self._counts[longest], doubt
