"""Changelogs, search words, parts of license keys, messages, and paths: text in, text out. Pure."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import date, timedelta
from functools import cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from licserver import libraries
from licserver.domain.decisions import KEY_PREFIX, is_license_key
from licserver.domain.entitlements import format_grants
from licserver.domain.records import Machine

# --- dates that people type ------------------------------------------------------------------


def describe_short_year(day: date) -> str | None:
    """Describe a year of less than four digits: a browser makes 0027 of a typed 27 (D-416)."""
    if day.year >= _FIRST_YEAR:
        return None
    return f"{day} is in the year {day.year}; write the year with four digits, like 2027-01-31"


_FIRST_YEAR: Final = 1000

# --- changelogs -------------------------------------------------------------------------------

_TAG: Final = re.compile(r"<[A-Za-z/!?]")
"""Text that a browser parses as the start of a tag or comment, even without an end."""

_TAGS: Final = {
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "div", "blockquote", "pre", "br", "hr"),
    *("ul", "ol", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td"),
    *("a", "b", "strong", "i", "em", "u", "s", "ins", "del", "small", "sub", "sup", "span", "code", "kbd"),
}


def is_html(changelog: str) -> bool:
    """Return whether a changelog is HTML; text without the start of a tag is plain text."""
    return _TAG.search(changelog) is not None


def sanitize(changelog: str) -> str:
    """Return plain text unchanged, and HTML with allowed elements only (spec 2, D-65).

    Sanitized HTML contains a tag, so that clients do not take it for plain text.
    """
    if not is_html(changelog):
        return changelog
    sanitized = _cleaner().clean(changelog).strip()
    return sanitized if not sanitized or is_html(sanitized) else f"<p>{sanitized}</p>"


@cache
def _cleaner() -> "libraries.nh3.Cleaner":
    return libraries.nh3.Cleaner(
        tags=_TAGS,
        attributes={"a": {"href", "title"}},
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",  # an app has no base address
    )


# --- machines, as reported by apps -------------------------------------------------------------

MAX_LABEL: Final = 80  # characters of a machine's label
MAX_APP_VERSION: Final = 64
_UNSEEN: Final = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Control and format characters, halves of surrogate pairs, line breaks; spaces of any width may stay."""


_MAX_SENT: Final = 10
"""The length of a received text as a multiple of its limit: invisible characters are removed later."""


def read_machine(label: Any, app_version: Any) -> Machine | None:
    """Parse an app's report about its machine; ignore unusable values (D-195)."""
    machine = Machine(_clean(label, MAX_LABEL), _clean(app_version, MAX_APP_VERSION))
    return machine if any(machine) else None


def _clean(value: Any, longest: int) -> str | None:
    """Remove invisible characters; None for other values, empty text, and text over `longest`."""
    if not isinstance(value, str) or len(value) > _MAX_SENT * longest:
        return None
    if not value.isprintable():
        value = "".join(character for character in value if unicodedata.category(character) not in _UNSEEN)
    value = value.strip()
    return value if 0 < len(value) <= longest else None


# --- search words -----------------------------------------------------------------------------

MAX_WORD: Final = 64  # characters of a word; the rest is ignored
_MAX_WORDS: Final = 100
_PIECES: Final = re.compile(r"[^\W_]+")
_EDGES: Final = "\"'()[]{}<>,;:!?."


def extract_words(*texts: str | None) -> list[str]:
    """Return at most a hundred words of texts for the license search; none is a prefix of another (D-90)."""
    words: dict[str, None] = {}
    for chunk in " ".join(filter(None, texts)).split():
        whole = to_search_word(chunk)
        for word in (whole, whole.partition("@")[2], *_PIECES.findall(whole)):
            if word:
                words[word[:MAX_WORD]] = None
        if len(words) >= _MAX_WORDS:
            break
    ordered = sorted(list(words)[:_MAX_WORDS])
    # A word sorts directly before the words of which it is a prefix.
    return [
        word for word, later in zip(ordered, [*ordered[1:], ""], strict=False) if not later.startswith(word)
    ]


def to_search_word(text: str) -> str:
    """Return the word that `extract_words` returns for a text without spaces, or a prefix of it."""
    return _normalise(text).strip(_EDGES)[:MAX_WORD]


def parse_terms(query: str) -> list[str]:
    """Split a query into prefixes of words, the most selective first; a license must match all of them."""
    terms = {_normalise(term).strip(_EDGES)[:MAX_WORD] for term in query.split()}
    return sorted(terms - {""}, key=lambda term: (term.isalpha(), -len(term), term))


def _normalise(text: str) -> str:
    """Fold case, and full-width forms of letters."""
    return unicodedata.normalize("NFKC", text).casefold()


# --- license keys as copied, typed or mailed ---------------------------------------------------

_ELLIPSIS: Final = re.compile(r"\s*(?:…|\.{2,}|\*{2,})\s*")
_AROUND: Final = " \t'\"`()[]<>{}.,;:!?"
_LAST_GROUPS: Final = re.compile(r"-?[A-Z0-9]{4,6}|(?:[A-Z0-9]{1,6})?(?:-[A-Z0-9]{6}){1,4}")
_HEAD, _TAIL = 5, 4  # characters that a masked key shows of both ends
_KNOWN: Final = 4  # characters after the prefix that narrow a search down to a few keys
_KEY_IN_TEXT: Final = re.compile(r"(?<![A-Z0-9])CP(?:-[A-Z0-9]{6}){5}(?![A-Z0-9-])", re.IGNORECASE)
_LINK: Final = re.compile(r"/console/licenses/([0-9a-f]{32})\b")


class KeyPart(NamedTuple):
    """The known start and end of a key; either may be empty."""

    start: str
    end: str

    @property
    def is_masked(self) -> bool:
        """Whether a masked key shows as much."""
        return len(self.start) <= _HEAD and len(self.end) <= _TAIL

    @property
    def masked(self) -> str:
        """The masked form, which may be part of a URL."""
        return f"{self.head}…{self.tail}"

    @property
    def head(self) -> str:
        """The start of the masked key; empty if it is not known."""
        return self.start[:_HEAD] if len(self.start) >= _HEAD else ""

    @property
    def tail(self) -> str:
        """The end of the masked key; empty if it is not known."""
        return self.end[-_TAIL:]

    def fits(self, key: str) -> bool:
        """Return whether a key matches this start and end, ignoring case."""
        key, start, end = key.upper(), self.start.upper(), self.end.upper()
        return key.startswith(start) and key.endswith(end)


def parse_key_part(text: str) -> KeyPart | None:
    """Parse a masked, mistyped or partial license key; None for other text."""
    start, ellipsis, end = _ELLIPSIS.sub("…", text.strip(), count=1).partition("…")
    if ellipsis:
        part = KeyPart(start.strip(_AROUND), end.strip(_AROUND))
        if not part.start or part.start[:3].upper() == KEY_PREFIX:  # keys of other systems keep their case
            part = KeyPart(part.start.upper(), part.end.upper())
        is_enough = len(part.start) >= _HEAD or len(part.end) >= _TAIL
        return part if is_enough and " " not in part.start + part.end else None
    plain = text.strip(_AROUND).upper()
    if is_license_key(plain):
        return KeyPart(plain[:_HEAD], plain[-_TAIL:])
    if plain.startswith(KEY_PREFIX):
        return KeyPart(plain, "") if len(plain) >= len(KEY_PREFIX) + _KNOWN and " " not in plain else None
    return KeyPart("", plain.lstrip("-")) if _LAST_GROUPS.fullmatch(plain) else None


def find_reference(text: str) -> str | None:
    """Return the license key in a pasted text, or the license's id in a link to the console; or None."""
    if link := _LINK.search(text):
        return link[1]
    key = _KEY_IN_TEXT.search(text)
    return None if key is None else key[0].upper()


# --- messages ---------------------------------------------------------------------------------

_PLAIN: Final = (("count", 1), ("freed", 1))
"""Details without information: the default 1 is omitted."""

_LISTS: Final = frozenset({"narrowed_by", "overrides"})
"""Details that are a list; otherwise two values are the old and the new value."""


def describe_span(span: timedelta) -> str:
    """Format a span in minutes, hours or days."""
    minutes = abs(span) // timedelta(minutes=1)
    for count, name in ((minutes // (24 * 60), "day"), (minutes // 60, "hour")):
        if count:
            return f"{count} {plural(count, name)}"
    return f"{minutes} {plural(minutes, 'minute')}"


def plural(number: int, singular: str, plural_form: str | None = None) -> str:
    """Return the singular for 1, else the plural; the default plural is `singular` with an ``s``."""
    return singular if number == 1 else plural_form or f"{singular}s"


def format_details(details: Mapping[str, Any]) -> str:
    """Format the details of a line of the audit log: ``slots: 1 → 3; reason: refund``."""
    return "; ".join(
        f"{name.replace('_', ' ')}: {_format_detail(value, is_list=name in _LISTS)}"
        for name, value in details.items()
        if value not in (None, "") and (name, value) not in _PLAIN
    )


def _format_detail(value: Any, *, is_list: bool = True) -> str:
    match value:
        case [before, after] if not is_list:
            return f"{_format_detail(before)} → {_format_detail(after)}"
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(str, value)) or "nothing"
        case Mapping():  # entitlements
            return ", ".join(format_grants(value)) or "nothing"
        case _:
            return str(value)


# --- paths ------------------------------------------------------------------------------------

AMBIGUOUS_PATH: Final = re.compile(r"%2f|%5c|\\|%00|\0|(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
"""Paths that a proxy or a browser may read as another path than aiohttp does (D-155)."""


MAX_URL: Final = 500  # characters
_NOT_IN_URLS: Final = set(' "#<>@[\\]^`{|}')


def is_https(url: str) -> bool:
    """Return whether text is a complete https address that a page can show as it is."""
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    printable = url.isascii() and url.isprintable() and not _NOT_IN_URLS & {*url}
    return is_complete and printable and len(url) <= MAX_URL
