"""Pure: what a person typed or pasted → the intended license key, or its flaw (D-57).

For `activate`, dialogs and the command line. `verify` sends what the app passes: the server decides (D-02).
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from licclient._core.arguments import MAX_TYPED, wrong_type
from licclient._core.lazy import lazy
from licclient._core.model import KeyFlaw

if TYPE_CHECKING:
    import unicodedata
else:
    unicodedata = lazy("unicodedata")

PREFIX: Final = "CP"
GROUPS: Final = 5
GROUP_LENGTH: Final = 6
_LENGTH: Final = GROUPS * GROUP_LENGTH

# A key that was sold elsewhere is visible ASCII, of at most this length on the server as well (D-185).
_SOLD_ELSEWHERE: Final = r"[!-~]{8,1024}"

_MOST_SHOWN: Final = 8
"""How many wrong characters are listed."""

_KEY_IN_TEXT: Final = rf"(?<![A-Z0-9-]){PREFIX}(?:-[A-Z0-9]{{{GROUP_LENGTH}}}){{{GROUPS}}}(?![A-Z0-9-])"

# The same with spaces around the dashes, or in place of them, as mail programs and people write it.
_SPACED_KEY_IN_TEXT: Final = (
    rf"(?<![A-Z0-9-]){PREFIX}(?:[-\s]+[A-Z0-9]{{{GROUP_LENGTH}}}){{{GROUPS}}}(?![A-Z0-9-])"
)

# Minus, the long-vowel mark of Japanese keyboards, and others that Unicode does not file under dashes.
_MORE_DASHES: Final = frozenset("\u2212\u30fc\uff70\u2500\u00af\u02d7")

_TYPOGRAPHIC: Final = "«»‹›“”„‘’‚「」『』。、"
_AROUND: Final = f"\"'`()[]{{}}<>.,;:! \t\r\n{_TYPOGRAPHIC}"

# Letters that look the same on paper. A key never holds them, so there is no doubt what was meant.
_LOOK_ALIKE: Final = str.maketrans(
    "АВЕЗКМНОРСТУХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "ABE3KMHOPCTYXIJSABEZHIKMNOPTYX",
)


@dataclass(frozen=True, slots=True)
class Mistyped:
    """Why a typed text is not a license key.

    `detail` holds the wrong characters, or by how many it is too short or too long; never a part of a key.
    """

    flaw: KeyFlaw
    detail: str = ""


def repair_key(typed: str) -> str | Mistyped:
    """Return the license key that a person typed or pasted, repaired; or its flaw.

    White space, invisible characters and case do not matter, nor which of the many dashes was used, nor
    whether the dashes were typed at all; full-width letters and letters of other alphabets that look alike
    are taken for what they look like, and digits of other scripts for their value; quotes and a full stop
    around the key fall off. A key within a sentence is found, when there is just one.

    A text that does not begin with CP- may be a key that was sold elsewhere: none of its ASCII characters is
    changed (D-185).
    """
    if not isinstance(typed, str):
        raise wrong_type("key", "a string: a license key", typed)
    if len(typed) > MAX_TYPED:
        return Mistyped(KeyFlaw.TOO_LONG, str(len(typed) - _LENGTH))
    plain = _plain(typed)
    keys = set(re.findall(_KEY_IN_TEXT, plain))
    if not keys:
        keys = {_write_key(spaced) for spaced in re.findall(_SPACED_KEY_IN_TEXT, plain)}
    if len(keys) == 1:
        return str(keys.pop())
    key = _join_groups(plain)
    if isinstance(key, str) or key.flaw is KeyFlaw.EMPTY or plain.strip(_AROUND).startswith(f"{PREFIX}-"):
        return key
    sold = _sold_elsewhere(typed)
    return key if re.fullmatch(_SOLD_ELSEWHERE, sold) is None else sold


def is_license_key(text: str) -> bool:
    """Return whether this is a license key as the service issues them."""
    return re.fullmatch(_KEY_IN_TEXT, text) is not None


def _join_groups(plain: str) -> str | Mistyped:
    letters = "".join(plain.split()).replace("-", "")
    letters = letters.strip(_AROUND)
    if not letters:
        return Mistyped(KeyFlaw.EMPTY)
    if not letters.startswith(PREFIX):
        return Mistyped(KeyFlaw.PREFIX)
    body = letters.removeprefix(PREFIX)
    wrong = [letter for letter in dict.fromkeys(body) if not (letter.isascii() and letter.isalnum())]
    if wrong:
        return Mistyped(KeyFlaw.CHARACTERS, " ".join(map(_shown, wrong[:_MOST_SHOWN])))
    if len(body) < _LENGTH:
        return Mistyped(KeyFlaw.TOO_SHORT, str(_LENGTH - len(body)))
    if len(body) > _LENGTH:
        return Mistyped(KeyFlaw.TOO_LONG, str(len(body) - _LENGTH))
    return _write_key(letters)


def _write_key(letters: str) -> str:
    """Write prefix and groups with one dash between them."""
    body = re.sub(r"[-\s]", "", letters).removeprefix(PREFIX)
    groups = (body[start : start + GROUP_LENGTH] for start in range(0, _LENGTH, GROUP_LENGTH))
    return "-".join((PREFIX, *groups))


def mask_key(key: str) -> str:
    """Return enough of a license key to recognise it, and too little to use it; as the server's console.

    Of a short key that was sold elsewhere, less is shown.
    """
    if len(key) >= 16:  # noqa: PLR2004 - seven characters stay unknown
        return f"{key[:5]}…{key[-4:]}"
    return f"{key[:2]}…{key[-2:]}" if len(key) >= 12 else "…"  # noqa: PLR2004 - eight stay unknown


def _plain(typed: str) -> str:
    plain = _without_typography(typed).replace("_", "-").replace("~", "-")
    return plain.upper().translate(_LOOK_ALIKE)


def _sold_elsewhere(typed: str) -> str:
    """Return the text as it was sold: without what surrounds it, and the line breaks of a mail."""
    lines = _without_typography(typed).strip(_TYPOGRAPHIC + " \t\r\n").splitlines()
    return "".join(line.strip() for line in lines)


def _without_typography(typed: str) -> str:
    """Replace dashes, digits and full-width letters, and remove invisible ones; ASCII stays as it is."""

    def plain_letter(letter: str) -> str:
        kind = unicodedata.category(letter)
        if letter in _MORE_DASHES or kind == "Pd":
            return "-"
        if kind == "Nd":
            return str(unicodedata.digit(letter))  # the digits of Arabic, Persian and Hindi keyboards
        # Cf: zero-width spaces, soft hyphens, marks of direction, that come along when text is copied.
        return "" if kind in ("Cf", "Mn") else letter

    # NFKC makes full-width letters, and those in circles and frames, plain ones.
    return "".join(map(plain_letter, unicodedata.normalize("NFKC", typed)))


def _shown(letter: str) -> str:
    return letter if letter.isprintable() else f"U+{ord(letter):04X}"
