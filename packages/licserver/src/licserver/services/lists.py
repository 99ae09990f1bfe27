"""Pages of lists, and their cursors (keyset pagination)."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

from licserver.domain.environments import is_printable
from licserver.errors import InvalidInputError

MAX_PAGE: Final = 200  # items on a page


_MAX_CURSOR: Final = 2_000


Item = TypeVar("Item")


class Page(NamedTuple, Generic[Item]):
    """A page of a list; `cursor` is the start of the next page, and None at the end."""

    items: list[Item]
    cursor: str | None


def page_of(items: Sequence[Item], name: Callable[[Item], str], cursor: str | None, limit: int) -> Page[Item]:
    """Return a page of a list that is in memory; `name` returns the unique name of an item."""
    check_limit(limit)
    place, first = read_place(cursor, str), 0
    if place is not None:
        names = [name(item) for item in items]
        if place[0] not in names:
            raise wrong_cursor()
        first = names.index(place[0]) + 1
    return cut_page(items[first : first + limit + 1], limit, lambda last: [name(last)])


def cut_page(loaded: Sequence[Item], limit: int, place: Callable[[Item], Sequence[Any]]) -> Page[Item]:
    """Return a page of items that were loaded with `limit + 1`; `place` returns an item's sort key."""
    items = list(loaded[:limit])
    return Page(items, write_cursor(place(items[-1])) if len(loaded) > limit else None)


def page_by_id(load: Callable[[int | None, int], Sequence[Any]], cursor: str | None, limit: int) -> Page[Any]:
    """Return a page of a list that is sorted by id; `load` takes the id before the page, and a limit."""
    check_limit(limit)
    place = read_place(cursor, int)
    return cut_page(load(place[0] if place else None, limit + 1), limit, lambda last: [last.id])


def check_limit(limit: int) -> None:
    """Refuse a page that is too large."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInputError(f"limit must be between 1 and {MAX_PAGE}")


def write_cursor(place: Sequence[Any]) -> str:
    """Encode a sort key for a URL: whole numbers, text, bytes, days and instants; not encrypted."""
    text = json.dumps([_write(value) for value in place], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_place(cursor: str | None, *types: type) -> tuple[Any, ...] | None:
    """Decode a cursor, whose values must have these types; None for the first page."""
    place = read_cursor(cursor)
    if place is not None and [type(value) for value in place] != [*types]:
        raise wrong_cursor()
    return place


def read_cursor(cursor: str | None) -> tuple[Any, ...] | None:
    """Decode a cursor, None for the first page; the caller checks that its values fit the list."""
    if cursor is None:
        return None
    if len(cursor) > _MAX_CURSOR:
        raise wrong_cursor()
    try:
        place = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return tuple(map(_read, place))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        raise wrong_cursor() from None


def wrong_cursor() -> InvalidInputError:
    """Return the error for a cursor of another list."""
    return InvalidInputError("this cursor is not of this list; begin without a cursor")


def _write(value: Any) -> Any:
    match value:
        case datetime():
            return {"at": value.astimezone(UTC).isoformat()}
        case date():
            return {"on": value.isoformat()}
        case bytes():
            return {"id": value.hex()}
        case _:
            return value


def _read(value: Any) -> Any:
    match value:
        case {"at": text}:
            instant = datetime.fromisoformat(text)
            if instant.tzinfo is None:
                raise ValueError
            return instant.astimezone(UTC)
        case {"on": text}:
            return date.fromisoformat(text)
        case {"id": text}:
            return bytes.fromhex(text)
        case bool():
            raise ValueError
        case str() if is_printable(value):
            return value
        case int() if -(2**63) <= value < 2**63:
            return value
        case _:
            raise ValueError
