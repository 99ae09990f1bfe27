"""Find and erase a customer's mail address in text of any kind. Pure."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, unquote

import idna

from licserver.domain.environments import MAX_FOREIGN, is_printable
from licserver.domain.mail_addresses import MAX_EMAIL

ERASED: Final = "[erased]"
"""The replacement of an erased address."""

_BEFORE: Final = r"(?:(?<![\w.+-])(?<!\w')|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrtbf])|(?<=\\u00[0-7][0-9A-Fa-f]))"
"""The address does not begin earlier: not `jo@…` in `bojo@…`, but after an escape of JSON or of a URL."""

_AFTER: Final = r"(?![\w-])(?!\.\w)"
_CANDIDATE: Final = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,128}(?:@|%40)[\w.-]{1,253}")
_ESCAPE: Final = re.compile(r"\\u([0-9A-Fa-f]{4})|\\[nrtbf]")


class AddressPattern:
    """A mail address in the forms in which it may be stored.

    Only in ASCII a letter's case does not matter; the domain may be written with or without A-labels. Accents
    may be letters' own or follow them (NFC, NFD): people see no difference, and macOS pastes the latter.
    """

    def __init__(self, email: str) -> None:
        local, _, domain = email.rpartition("@")
        spellings = {
            f"{part}@{spelling}"
            for part in _compose(local)
            for written in _compose(domain)
            for spelling in _spell(written)
        }
        self.forms: Final = sorted(
            {
                form
                for address in spellings
                for form in (address, json.dumps(address)[1:-1], quote(address), quote(address, "@"))
            }
        )
        forms = "|".join(map(_ignore_case, sorted(self.forms, key=len, reverse=True)))
        self._pattern = re.compile(f"{_BEFORE}(?:{forms}){_AFTER}")

    def is_in(self, text: object) -> bool:
        """Return whether a text contains the address, not only a longer address around it."""
        return isinstance(text, str) and self._pattern.search(text) is not None

    def erase(self, text: str, name: Callable[[str], str] = lambda _: ERASED) -> str:
        """Replace the address in a text by `name` of its spelling, without escapes; JSON stays valid."""
        return self._pattern.sub(lambda match: name(unquote(_unescape(match[0]))), text)


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
    spelled = min(_spell(domain), key=lambda spelling: (not spelling.isascii(), spelling))
    lower = str.maketrans({letter: letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"})
    return f"{local}@{spelled}".translate(lower)


def _unescape(text: str) -> str:
    """Return a text of JSON without its escapes."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text)


def list_addresses(text: str) -> Iterator[str]:
    """Yield the possible mail addresses in a text, also in JSON and in URLs."""
    for candidate in _CANDIDATE.findall(unicodedata.normalize("NFC", _unescape(text))):
        whole = candidate.replace("%40", "@").rstrip(".-")
        local, _, domain = whole.rpartition("@")
        # `mailto=jo@…` may be an address or a parameter, and 'jo@… a quoted one.
        starts = [0, *(at + 1 for at, letter in enumerate(local) if letter in "=&?/'`{|}!$*^#")]
        starts += [at + 3 for at, letter in enumerate(local) if letter == "%"]  # after a percent escape
        for start in starts:
            if domain and local[start:]:
                yield f"{local[start:]}@{domain}"
