"""What a license is found by: the beginnings of the words of an e-mail address and a note.

Words and not any piece of text, because a database finds the beginning of a word by an index, on both engines
and with a million licenses, and any piece only by an index of all its pieces (D-90).
"""

import re
import unicodedata
from typing import Final

MAX_WORD: Final = 64
"""Characters of a word that are looked at."""

_MAX_WORDS: Final = 100
_PIECES: Final = re.compile(r"[^\W_]+")
_EDGES: Final = "\"'()[]{}<>,;:!?."


def words_of(email: str | None, note: str | None) -> list[str]:
    """Take the words out of what is known of a license's customer.

    Args:
        email: An address, or None.
        note: Any text, or None.

    Returns:
        At most a hundred, none of which begins another. Of an address also what follows the ``@``, and of
        everything the pieces between its dots and hyphens.
    """
    words: dict[str, None] = {}
    for chunk in f"{email or ''} {note or ''}".split():
        whole = fold(chunk).strip(_EDGES)
        for word in (whole, whole.partition("@")[2], *_PIECES.findall(whole)):
            if word:
                words[word[:MAX_WORD]] = None
        if len(words) >= _MAX_WORDS:
            break
    ordered = sorted(list(words)[:_MAX_WORDS])
    # What begins another word stands right before one that it begins.
    return [
        word for word, later in zip(ordered, [*ordered[1:], ""], strict=False) if not later.startswith(word)
    ]


def terms_of(query: str) -> list[str]:
    """Read what somebody typed: beginnings of words, all of which must be there; the rarest first."""
    terms = {fold(term).strip(_EDGES)[:MAX_WORD] for term in query.split()}
    return sorted(terms - {""}, key=lambda term: (term.isalpha(), -len(term), term))


def fold(text: str) -> str:
    """Make alike what people hold for the same: letters of either case, and of either width."""
    return unicodedata.normalize("NFKC", text).casefold()


def has_all(words: list[str], terms: list[str]) -> bool:
    """Tell whether each term begins one of the words."""
    return all(any(word.startswith(term) for word in words) for term in terms)
