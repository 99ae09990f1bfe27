"""Parse the Range header of a download (RFC 9110 section 14). Pure."""

import re
from dataclasses import dataclass

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes; a length of 0 cannot be satisfied (416)."""

    start: int
    length: int


def parse_range(value: str | None, if_range: str | None, etag: str, size: int) -> Span | None:
    """Return the requested bytes of a file, or None for the whole file (D-32).

    Args:
        value: The ``Range`` header; ignored if it is malformed or has several ranges.
        if_range: The ``If-Range`` header; a value other than `etag` requests the whole file.
        etag: The file's ETag.
        size: The file's size in bytes.
    """
    found = _RANGE.fullmatch((value or "").strip())
    if found is None or (if_range is not None and if_range.strip() != etag):
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
