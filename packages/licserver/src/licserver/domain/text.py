"""Changelogs, search words, parts of license keys, and messages: text in, text out. Pure."""

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from licserver.domain.decisions import KEY_PREFIX, is_license_key
from licserver.domain.entitlements import format_grants
from licserver.domain.records import Machine

if TYPE_CHECKING:
    import nh3

# --- changelogs -------------------------------------------------------------------------------

_TAG: Final = re.compile(r"<[A-Za-z/!?]")
"""What a browser takes for the start of a tag or comment, even if it never ends."""

_TAGS: Final = {
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "div", "blockquote", "pre", "br", "hr"),
    *("ul", "ol", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td"),
    *("a", "b", "strong", "i", "em", "u", "s", "ins", "del", "small", "sub", "sup", "span", "code", "kbd"),
}


def is_html(changelog: str) -> bool:
    """Return whether a changelog is HTML; text without the start of a tag is plain text."""
    return _TAG.search(changelog) is not None


def sanitize(changelog: str) -> str:
    """Return plain text unchanged, and HTML with harmless elements only (spec 2, D-65).

    Sanitized HTML contains a tag, so that clients do not take it for plain text.
    """
    if not is_html(changelog):
        return changelog
    sanitized = _cleaner().clean(changelog).strip()
    return sanitized if not sanitized or is_html(sanitized) else f"<p>{sanitized}</p>"


@cache
def _cleaner() -> "nh3.Cleaner":
    import nh3  # noqa: PLC0415 - needed only to publish

    return nh3.Cleaner(
        tags=_TAGS,
        attributes={"a": {"href", "title"}},
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",  # an app has no base address
    )


# --- what an app reports about its machine ----------------------------------------------------

MAX_LABEL: Final = 80  # characters of a machine's label
MAX_APP_VERSION: Final = 64
_UNSEEN: Final = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Control and format characters, halves of surrogate pairs, line breaks; spaces of any width may stay."""


def read_machine(label: Any, app_version: Any) -> Machine | None:
    """Return what an app reports about its machine; what cannot be used is ignored (D-195)."""
    machine = Machine(_clean(label, MAX_LABEL), _clean(app_version, MAX_APP_VERSION))
    return machine if any(machine) else None


def _clean(value: Any, longest: int) -> str | None:
    """Return a text without control characters; None for what is no text, empty or too long."""
    if not isinstance(value, str):
        return None
    if not value.isprintable():
        value = "".join(one for one in value if unicodedata.category(one) not in _UNSEEN)
    value = value.strip()
    return value if 0 < len(value) <= longest else None


# --- search words -----------------------------------------------------------------------------

MAX_WORD: Final = 64  # characters of a word; the rest is ignored
_MAX_WORDS: Final = 100
_PIECES: Final = re.compile(r"[^\W_]+")
_EDGES: Final = "\"'()[]{}<>,;:!?."


def extract_words(*texts: str | None) -> list[str]:
    """Return at most a hundred words, by whose beginnings licenses are found; none begins another (D-90)."""
    words: dict[str, None] = {}
    for chunk in " ".join(filter(None, texts)).split():
        whole = _normalise(chunk).strip(_EDGES)
        for word in (whole, whole.partition("@")[2], *_PIECES.findall(whole)):
            if word:
                words[word[:MAX_WORD]] = None
        if len(words) >= _MAX_WORDS:
            break
    ordered = sorted(list(words)[:_MAX_WORDS])
    # A word sorts directly before the words that it begins.
    return [
        word for word, later in zip(ordered, [*ordered[1:], ""], strict=False) if not later.startswith(word)
    ]


def parse_terms(query: str) -> list[str]:
    """Split a query into beginnings of words, the most selective first; a license must match all of them."""
    terms = {_normalise(term).strip(_EDGES)[:MAX_WORD] for term in query.split()}
    return sorted(terms - {""}, key=lambda term: (term.isalpha(), -len(term), term))


def _normalise(text: str) -> str:
    """Ignore case, and full-width forms of letters."""
    return unicodedata.normalize("NFKC", text).casefold()


# --- what somebody copied, typed or mailed of a license key -----------------------------------

_ELLIPSIS: Final = re.compile(r"\s*(?:…|\.{2,}|\*{2,})\s*")
_AROUND: Final = " \t'\"`()[]<>{}.,;:!?"
_LAST_GROUPS: Final = re.compile(r"-?[A-Z0-9]{4,6}|(?:[A-Z0-9]{1,6})?(?:-[A-Z0-9]{6}){1,4}")
_HEAD, _TAIL = 5, 4  # characters that a masked key shows of both ends
_KNOWN: Final = 4  # characters after the prefix that narrow a search down to a few keys
_KEY_IN_TEXT: Final = re.compile(r"(?<![A-Z0-9])CP(?:-[A-Z0-9]{6}){5}(?![A-Z0-9-])", re.IGNORECASE)
_LINK: Final = re.compile(r"/console/licenses/([0-9a-f]{32})\b")


class KeyPart(NamedTuple):
    """The start and the end of a key, as far as they are known; one of them may be empty."""

    start: str
    end: str

    @property
    def is_masked(self) -> bool:
        """Whether nothing is known but what a masked key shows."""
        return len(self.start) <= _HEAD and len(self.end) <= _TAIL

    @property
    def masked(self) -> str:
        """What may be in an address: no more than a masked key shows."""
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
        """Return whether a key may be the one that is meant; case may differ."""
        key, start, end = key.upper(), self.start.upper(), self.end.upper()
        return key.startswith(start) and key.endswith(end)


def parse_key_part(text: str) -> KeyPart | None:
    """Return what of a key a text is, or None: masked, with another mistake, or only its start or its end."""
    start, ellipsis, end = _ELLIPSIS.sub("…", text.strip(), count=1).partition("…")
    if ellipsis:
        part = KeyPart(start.strip(_AROUND), end.strip(_AROUND))
        if not part.start or part.start[:3].upper() == KEY_PREFIX:  # else it was sold elsewhere, as it is
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
"""Details that say nothing: one is what everybody takes for granted."""

_LISTS: Final = frozenset({"narrowed_by", "overrides"})
"""Details that are a list; two values are otherwise what was and what is."""


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return the word for one or for many things; without `many`, that is `one` with an ``s``."""
    return one if number == 1 else many or f"{one}s"


def say_details(details: Mapping[str, Any]) -> str:
    """Put the details of a line of the audit log into words: ``slots: 1 → 3; reason: refund``."""
    return "; ".join(
        f"{name.replace('_', ' ')}: {_say(value, is_list=name in _LISTS)}"
        for name, value in details.items()
        if value not in (None, "") and (name, value) not in _PLAIN
    )


def _say(value: Any, *, is_list: bool = True) -> str:
    match value:
        case [before, after] if not is_list:
            return f"{_say(before)} → {_say(after)}"
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
