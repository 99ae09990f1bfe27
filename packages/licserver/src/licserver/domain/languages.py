"""The languages of customers: languages with texts, and the choice of a language. Pure."""

import re
from typing import Final

LANGUAGES: Final = ("en", "de", "fr", "es", "ja", "zh")
"""The languages of `licclient`'s dialogs; the first is the fallback."""

_TAG: Final = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9_-]{1,32})?", re.ASCII | re.IGNORECASE)


def find_language(text: str | None) -> str | None:
    """Return the language of a tag such as ``de``, ``de-AT`` or ``zh_CN``; None for other text."""
    match = _TAG.fullmatch((text or "").strip())
    return None if match is None else match[1].lower()


_MAX_ACCEPTED: Final = 200  # characters of the field; browsers send five languages


def choose_language(chosen: str, accepted: str) -> str:
    """Return the customer's earlier choice, or else the best language of ``Accept-Language``."""
    if chosen in LANGUAGES:
        return chosen
    preferences = []
    for entry in accepted[:_MAX_ACCEPTED].split(","):
        name, _, quality = entry.strip().lower().partition(";q=")
        try:
            preferences.append((-float(quality or 1), name.partition("-")[0]))
        except ValueError:
            continue
    names = (name for weight, name in sorted(preferences, key=lambda preference: preference[0]) if weight < 0)
    return next((name for name in names if name in LANGUAGES), LANGUAGES[0])
