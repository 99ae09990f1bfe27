"""Find and erase a customer's mail address in text of any kind. Pure."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from urllib.parse import quote, unquote

import idna

from licserver.domain.environments import MAX_FOREIGN, is_printable
from licserver.domain.mail_addresses import MAX_EMAIL

ERASED: Final = "[erased]"
"""The replacement of an erased address."""

_BEFORE: Final = (
    r"(?:(?<![\w.+&-])(?<!\w')|(?<=%[0-9A-Fa-f]{2})(?<!%26)|(?<=\\[nrtbf])|"
    r"(?<=\\u00[0-7][0-9A-Fa-f])(?<!\\u0026))"
)
"""The address does not begin earlier: not `jo@…` in `bojo@…` or `r&jo@…`, but after an escape in JSON."""

_AFTER: Final = r"(?![\w-])(?!\.\w)"
_CANDIDATE: Final = re.compile(r"[^\s@\"<>,;:()\\]{1,254}(?:@|%40)[^\s@\"<>,;:()\\/?&'`{|}%]{1,253}")
_BETWEEN: Final = re.compile(r"[\s,;<>]+")
_JOINERS: Final = "\u200c\u200d"
_ESCAPE: Final = re.compile(r"\\u([0-9A-Fa-f]{4})|\\[nrtbf]")


class AddressPattern:
    """A mail address in the forms in which it may be stored.

    Only in ASCII a letter's case does not matter; the domain may be written with or without A-labels. Accents
    may be letters' own or follow them (NFC, NFD): people see no difference, and macOS pastes the latter.

    A column of an address is compared whole, as `fold_address` has it; in other text it is searched for.

    Args:
        email: The address.
        spellings: Other spellings of it that are stored, such as with a domain in capitals.
    """

    def __init__(self, email: str, spellings: Iterable[str] = ()) -> None:
        self._folded: Final = fold_address(email)
        self.forms: Final = sorted(
            {
                form
                for written in {email, *spellings}
                for address in _list_spellings(written)
                for form in (address, json.dumps(address)[1:-1], quote(address), quote(address, "@"))
            }
        )
        forms = "|".join(map(_ignore_case, sorted(self.forms, key=len, reverse=True)))
        self._pattern = re.compile(f"{_BEFORE}(?:{forms}){_AFTER}")

    def is_it(self, text: object) -> bool:
        """Return whether a text is the address, in any spelling."""
        return isinstance(text, str) and fold_address(text.strip()) == self._folded

    def is_listed(self, text: object) -> bool:
        """Return whether a text is the address, or a list of addresses with it."""
        return isinstance(text, str) and any(map(self.is_it, split_addresses(text)))

    def is_in(self, text: object) -> bool:
        """Return whether a text contains the address, not only a longer address around it."""
        return isinstance(text, str) and any(map(_is_whole, self._pattern.finditer(text)))

    def erase(self, text: str, name: Callable[[str], str] = lambda _: ERASED) -> str:
        """Replace the address in a text by `name` of its spelling, without escapes; JSON stays valid."""
        return self._pattern.sub(
            lambda match: name(unquote(_unescape(match[0]))) if _is_whole(match) else match[0], text
        )


def _is_whole(match: re.Match[str]) -> bool:
    """Return whether no letter is cut: a mark, or a joiner, belongs to the letter before it."""
    before = match.string[: match.start()][-1:]
    return not (before and (unicodedata.category(before)[0] == "M" or before in _JOINERS))


def split_addresses(text: str) -> list[str]:
    """Return the text of a field that is to hold an address, and the parts of a list in it."""
    return [text.strip(), *filter(None, _BETWEEN.split(text))]


def _list_spellings(email: str) -> set[str]:
    local, _, domain = email.rpartition("@")
    return {
        f"{part}@{spelling}"
        for part in _compose(local)
        for written in _compose(domain)
        for spelling in _spell(written)
    }


def _compose(text: str) -> set[str]:
    return {text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)}


def _spell(domain: str) -> set[str]:
    spellings = {domain}
    if sum(not letter.isascii() for letter in domain) > MAX_FOREIGN:  # `idna` is quadratic
        return spellings
    for convert in (lambda text: idna.encode(text, uts46=True).decode(), idna.decode):
        try:
            spellings.add(convert(domain))
        except (idna.IDNAError, UnicodeError):
            continue
    return spellings


def _ignore_case(form: str) -> str:
    return "".join(
        f"[{letter.lower()}{letter.upper()}]" if letter.isascii() and letter.isalpha() else re.escape(letter)
        for letter in form
    )


def is_address(text: str) -> bool:
    """Return whether a text may be a customer's address, even if mail cannot be sent to it."""
    local, _, domain = text.rpartition("@")
    return bool(local and domain) and len(text) <= MAX_EMAIL and is_printable(text) and " " not in text


def fold_address(email: str) -> str:
    """Return the canonical form of all spellings of an address."""
    local, _, domain = unicodedata.normalize("NFC", email).rpartition("@")
    spelled = domain
    if not domain.isascii():
        spelled = min(_spell(domain), key=lambda spelling: (not spelling.isascii(), spelling))
    lower = str.maketrans({letter: letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"})
    return f"{local}@{spelled}".translate(lower)


def _unescape(text: str) -> str:
    """Return a text of JSON without its escapes."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text)


def find_addresses(text: str) -> Iterator[str]:
    """Yield the possible mail addresses in a text, also in JSON and in URLs."""
    for candidate in _CANDIDATE.findall(unicodedata.normalize("NFC", _unescape(text))):
        whole = candidate.replace("%40", "@").rstrip(".-")
        local, _, domain = whole.rpartition("@")
        # `mailto=jo@…` may be an address or a parameter, and 'jo@… a quoted one.
        starts = [0, *(index + 1 for index, letter in enumerate(local) if letter in "=&?/'`{|}!$*^#")]
        starts += [index + 3 for index, letter in enumerate(local) if letter == "%"]  # after a percent escape
        for start in starts:
            if domain and local[start:]:
                yield f"{local[start:]}@{domain}"
