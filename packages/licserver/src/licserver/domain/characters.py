"""Characters that change how the text around them is shown: controls, and marks of the direction. Pure."""

import json
import re
import unicodedata
from typing import Any, Final

_JOINERS: Final = "\u200c\u200d"
"""Invisible, but part of words in Persian and Hindi, and of emoji."""

_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape_controls(text: str) -> str:
    """Escape the characters that move the cursor or reverse text on a terminal; keep tabs and line breaks."""
    if text.isprintable():
        return text
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def dump_json(value: Any, **options: Any) -> str:
    """Format JSON without characters that a terminal would act on."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shows_as_written(name: str) -> bool:
    """Return whether a name has no invisible characters; U+202E would show `exe.gpj` as `jpg.exe`."""
    return all(
        character in _JOINERS or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        for character in name
    )
