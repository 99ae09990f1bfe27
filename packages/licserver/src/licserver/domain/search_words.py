"""Split e-mail addresses and notes into words, by whose beginnings licenses are found (D-90). Pure."""

import re
import unicodedata
from typing import Final

MAX_WORD: Final = 64
"""Characters of a word; the rest is ignored."""

_MAX_WORDS: Final = 100
_PIECES: Final = re.compile(r"[^\W_]+")
_EDGES: Final = "\"'()[]{}<>,;:!?."


def extract_words(email: str | None, note: str | None) -> list[str]:
    """Return at most a hundred words, none of which begins another.

    Includes what follows the ``@`` of an address, and the pieces between punctuation marks.
    """
    words: dict[str, None] = {}
    for chunk in f"{email or ''} {note or ''}".split():
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


def matches_terms(words: list[str], terms: list[str]) -> bool:
    """Return whether each term begins one of the words."""
    return all(any(word.startswith(term) for word in words) for term in terms)


def _normalise(text: str) -> str:
    """Ignore case, and full-width forms of letters."""
    return unicodedata.normalize("NFKC", text).casefold()
