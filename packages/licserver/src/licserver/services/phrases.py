"""Words that the command line and the console have in common. Pure."""

from collections.abc import Mapping
from typing import Any, Final

_PLAIN: Final = (("count", 1), ("freed", 1))
"""Details that say nothing: one is what everybody takes for granted."""

_LISTS: Final = frozenset({"narrowed_by"})
"""Details that are a list; two values are otherwise what was and what is."""


def plural(number: int, one: str, many: str | None = None) -> str:
    """Give the word for so many things.

    Args:
        number: How many there are.
        one: The word for one of them.
        many: The word for any other number; `one` with an ``s``, unless given.
    """
    return one if number == 1 else many or f"{one}s"


def say_details(details: Mapping[str, Any]) -> str:
    """Put the details of a line of the audit log into words: ``slots: 1 → 3; reason: refund``."""
    return "; ".join(
        f"{name.replace('_', ' ')}: {_one(value) if name in _LISTS else _one_or_change(value)}"
        for name, value in details.items()
        if value not in (None, "") and (name, value) not in _PLAIN
    )


def _one_or_change(value: Any) -> str:
    match value:
        case [before, after]:
            return f"{_one(before)} → {_one(after)}"
        case _:
            return _one(value)


def _one(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(str, value)) or "nothing"
        case _:
            return str(value)
