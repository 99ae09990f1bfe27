"""Which bytes of a file a request asks for (D-32, RFC 9110 section 14). Pure."""

import re
from dataclasses import dataclass

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Span:
    """A run of bytes: where it begins, and how many there are."""

    start: int
    length: int


def parse_range(value: str | None, if_range: str | None, etag_: str, size: int) -> Span | None:
    """Decide which bytes of a file a request asks for (D-32, RFC 9110 section 14).

    Args:
        value: The ``Range`` header.
        if_range: The ``If-Range`` header; anything but our ETag asks for the whole file.
        etag_: The file's ETag.
        size: The file's size in bytes.

    Returns:
        The span; None for the whole file, which is also the answer to what is malformed or asks
        for several ranges at once. A span of length 0 cannot be satisfied.
    """
    found = _RANGE.fullmatch((value or "").strip())
    if found is None or (if_range is not None and if_range.strip() != etag_):
        return None
    first, last = found.groups()
    if first:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
        if last and int(last) < int(first):
            return None
        return Span(start, end - start + 1) if start < size else Span(size, 0)
    if not last:
        return None
    length = min(int(last), size)
    return Span(size - length, length)
