"""What somebody copied, typed or mailed of a license key. Pure."""

import re
from typing import Final, NamedTuple

from licserver.domain.decisions import KEY_PREFIX, is_license_key

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
