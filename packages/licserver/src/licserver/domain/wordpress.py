"""What WordPress shows of a version, and whether PHP orders versions as we do. Pure."""

import re
from typing import Final
from urllib.parse import urlsplit

from licserver.domain.records import WordPressFields
from licserver.errors import InvalidInputError

MAX_URL: Final = 500  # characters
_VERSION: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")
_EXAMPLES: Final = {"requires": "6.4", "tested": "6.7.1", "requires_php": "7.4"}
_NOT_IN_URLS: Final = set(' "#<>@[\\]^`{|}')


def read_fields(fields: WordPressFields) -> WordPressFields:
    """Return fields as they are stored: without white space around them, None for an empty one.

    Raises:
        InvalidInputError: One of them has not its form.
    """
    clean = WordPressFields(*((text or "").strip() or None for text in fields))
    for name, example in _EXAMPLES.items():
        text = getattr(clean, name)
        if text is not None and not _VERSION.fullmatch(text):
            raise InvalidInputError(
                f"{text[:40]!r} is no version for {name}: "
                f"write up to four numbers with dots, such as {example}"
            )
    if clean.details_url is not None and not _is_https(clean.details_url):
        raise InvalidInputError(
            "the details_url must be an address like https://example.com/photo-lab, "
            f"with at most {MAX_URL} characters"
        )
    return clean


def _is_https(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    printable = url.isascii() and url.isprintable() and not _NOT_IN_URLS & {*url}
    return is_complete and printable and len(url) <= MAX_URL
