"""Lists a page at a time, and the words that say where the next page begins."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

from licserver.domain.environments import is_printable
from licserver.errors import WrongUse

MAX_PAGE: Final = 200
"""Things on a page."""

_MAX_CURSOR: Final = 2_000

Item = TypeVar("Item")


class Page(NamedTuple, Generic[Item]):
    """A page of a list; `cursor` says where the next one begins, and is None at the end.

    A page may hold fewer than were asked for and not be the last: only the cursor tells.
    """

    items: list[Item]
    cursor: str | None


def page_of(items: Sequence[Item], name: Callable[[Item], str], cursor: str | None, limit: int) -> Page[Item]:
    """Cut a page out of a short list that is there as a whole.

    Args:
        items: In their order.
        name: Tells them apart.
        cursor: From the page before.
        limit: How many at most.

    Raises:
        WrongUse: for a cursor that is none of this list's.
    """
    check_limit(limit)
    first = 0
    if cursor is not None:
        place, names = read_cursor(cursor), [name(one) for one in items]
        if len(place) != 1 or place[0] not in names:
            raise wrong_cursor()
        first = names.index(place[0]) + 1
    found = list(items[first : first + limit])
    more = first + limit < len(items)
    return Page(found, write_cursor([name(found[-1])]) if more else None)


def check_limit(limit: int) -> None:
    """Refuse a page that is too large.

    Raises:
        WrongUse: saying what can be.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise WrongUse(f"limit must be between 1 and {MAX_PAGE}")


def write_cursor(place: Sequence[Any]) -> str:
    """Put a place into a word that can stand in an address; it holds nothing that is secret.

    Args:
        place: Whole numbers, text, bytes, days and instants.
    """
    text = json.dumps([_write(value) for value in place], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[Any, ...]:
    """Read a place again; who uses it checks that it is one of this list.

    Raises:
        WrongUse: when it is none of ours.
    """
    if len(cursor) > _MAX_CURSOR:
        raise wrong_cursor()
    try:
        place = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return tuple(map(_read, place))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        raise wrong_cursor() from None


def wrong_cursor() -> WrongUse:
    """Make the complaint about a cursor that was not given for this list."""
    return WrongUse("this cursor was not given for this list; begin without one")


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
