"""Pure: what people read, a module for each language; and how amounts, times and dates are written.

To add a language: a module, a line in `TABLES`, and how its numbers and dates are written.
"""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Final

from licclient._core.texts import de, en, es, fr, ja, zh

TABLES: Final = {
    "en": en.TEXTS,
    "de": de.TEXTS,
    "fr": fr.TEXTS,
    "es": es.TEXTS,
    "ja": ja.TEXTS,
    "zh": zh.TEXTS,
}

LANGUAGES: Final = tuple(TABLES)
"""English, German, French, Spanish, Japanese, Simplified Chinese."""

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_LONGEST: Final = 100 * 3600
"""Seconds; a longer time is not shown."""


def text_of(code: str, language: str, *details: str) -> str:
    """Return a text, with details in its places.

    For an unknown code it is the text for an unknown reason. `language` is `de`, `de-AT` or `zh_CN.UTF-8`;
    English stands in for what is not there.
    """
    table = TABLES[pick_language([language])]
    return table.get(code, table["reason.other"]).format(*details)


def join_sentences(first: str, second: str, language: str) -> str:
    """Put one sentence after another; Japanese and Chinese have no space between them."""
    return first + ("" if pick_language([language]) in {"ja", "zh"} else " ") + second


def amount(count: float, language: str = "en") -> str:
    """Format a number of bytes, as disks and networks are sold: a kilobyte has 1000 of them."""
    tongue = pick_language([language])
    byte = "o" if tongue == "fr" else "B"
    text = f"{count / 1000**3:.2f} G{byte}"
    for unit, limit in ((byte, 1000), (f"k{byte}", 1000**2), (f"M{byte}", 1000**3)):
        if count < limit:
            text = f"{count:.0f} {unit}" if unit == byte else f"{count / limit * 1000:.1f} {unit}"
            break
    return text.replace(".", ",") if tongue in {"de", "fr", "es"} else text


def span(seconds: float) -> str | None:
    """Format a duration, as `1:05` or `2:01:05`; None if it is too long to wait for."""
    whole = round(min(max(seconds, 0), _LONGEST))
    if whole >= _LONGEST:
        return None
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def to_local(at: datetime) -> datetime:
    """Return an instant in this computer's zone; as it is where that zone has no such date.

    A server can send the last day of all, which is a day later in Tokyo.
    """
    try:
        return at.astimezone()
    except OverflowError:
        return at


def format_date(day: date, language: str) -> str:
    """Format a date as people write it: `21.11.2026`, `Nov 21, 2026`.

    English with the region US, or without one, has the month first.
    """
    tag = pick_tag([language])
    match tag.partition("-")[0]:
        case "de":
            return f"{day.day}.{day.month}.{day.year}"
        case "fr" | "es":
            return f"{day:%d/%m/%Y}"
        case "ja" | "zh":
            return f"{day.year}年{day.month}月{day.day}日"
        case _:
            month = _MONTHS[day.month - 1]
            month_first = tag in {"en", "en-us"}
            return f"{month} {day.day}, {day.year}" if month_first else f"{day.day} {month} {day.year}"


def pick_tag(tags: Sequence[str]) -> str:
    """Return the first of these languages that is there, with its region, as `de-at`; `en` when none is."""
    for tag in tags:
        plain = tag.lower().replace("_", "-").partition(".")[0].partition("@")[0]
        first, *more = plain.split("-")
        # English serves a reader of Traditional Chinese better than the wrong script.
        if first == "zh" and {"tw", "hk", "mo", "hant"} & set(more):
            continue
        if first in LANGUAGES:
            return plain
    return "en"


def pick_language(tags: Sequence[str]) -> str:
    """Return the language of `pick_tag`, one of `LANGUAGES`."""
    return pick_tag(tags).partition("-")[0]
