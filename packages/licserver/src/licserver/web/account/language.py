"""The page's language: its texts, one file a language, and its dates. Pure, but for reading the files."""

import json
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Final

LANGUAGES: Final = ("en", "de", "fr", "es", "ja", "zh")
"""The languages of `licclient`'s dialogs; the first one stands in for all others."""


class Texts:
    """The texts of a language."""

    def __init__(self, language: str) -> None:
        self.language = language
        file = files("licserver.web.account") / "texts" / f"{language}.json"
        self._texts: dict[str, str] = json.loads(file.read_text("utf-8"))

    def __call__(self, name: str, /, **values: object) -> str:
        """Return a text, with its places filled."""
        return self._texts[name].format(**values)

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def date(self, value: date | None) -> str:
        """Format a date."""
        if value is None:
            return "–"
        return self("date", day=value.day, month=value.month, year=value.year, name=f"{value:%b}")


@cache
def load_texts(language: str) -> Texts:
    """Return the texts of one of `LANGUAGES`."""
    return Texts(language)


def choose_language(chosen: str, accepted: str) -> str:
    """Return the language that the customer chose before, or else the best of ``Accept-Language``."""
    if chosen in LANGUAGES:
        return chosen
    wanted = []
    for entry in accepted.split(","):
        name, _, quality = entry.strip().lower().partition(";q=")
        try:
            wanted.append((-float(quality or 1), name.partition("-")[0]))
        except ValueError:
            continue
    names = (name for weight, name in sorted(wanted, key=lambda one: one[0]) if weight < 0)
    return next((name for name in names if name in LANGUAGES), LANGUAGES[0])
