"""Pure: check the type and size of what an app passes; errors name the argument, and never its value.

A value may be a license key, or of any length. What is wrong is found here, and not where it is used.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import wraps
from typing import Any, Final, NoReturn, TypeVar

_C = TypeVar("_C")

MAX_TYPED: Final = 20_000
"""Letters of a typed or pasted text that are looked at: more than a mail with a key has."""


def wrong_type(name: str, expected: str, value: object) -> TypeError:
    """Return the error for a value of another type."""
    return TypeError(f"{name} must be {expected}, not {type(value).__name__}")


def is_text(value: str) -> bool:
    """Return whether this can be written anywhere: JSON lets NUL and halves of surrogate pairs through."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def check_flag(name: str, value: object) -> bool:
    """Return a boolean; None or "no" would switch off what was meant to be on, or the reverse."""
    if not isinstance(value, bool):
        raise wrong_type(name, "True or False", value)
    return value


def check_text(name: str, value: object, expected: str = "a string or None") -> None:
    """Raise `TypeError` for anything but text or None."""
    if value is not None and not isinstance(value, str):
        raise wrong_type(name, expected, value)


def check_count(name: str, value: object) -> None:
    """Raise `TypeError` for no whole number, and `ValueError` for one below 1 or of more than 18 digits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, "a whole number", value)
    if not 1 <= value < 10**18:
        raise ValueError(f"{name} must be at least 1, and have at most 18 digits")


def read_items(name: str, value: object, expected: str, limit: int) -> tuple[Any, ...]:
    """Return the items of an iterable, but not of a text; raise `ValueError` beyond `limit`."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise wrong_type(name, expected, value)
    items: list[Any] = []
    for item in value:
        if len(items) == limit:
            raise ValueError(f"{name} must have at most {limit} items")
        items.append(item)
    return tuple(items)


def read_seconds(name: str, value: object, limit: float, *, is_zero_allowed: bool = False) -> float:
    """Return a span in seconds: of a number of them, or of a timedelta."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise wrong_type(name, "seconds or a timedelta", value)
    # Compared before it is converted: an integer may be too large for a float.
    if not (0 <= seconds <= limit and (seconds or is_zero_allowed)) or math.isnan(seconds):
        least = "from 0" if is_zero_allowed else "more than 0"
        raise ValueError(f"{name} must be {least} and at most {limit:.0f} seconds")
    return float(seconds)


def takes_own_arguments(advise: Callable[[str], str]) -> Callable[[type[_C]], type[_C]]:
    """Decorate a class: calling it with other arguments than its own is an error that `advise` ends.

    Python's own error would name `__init__` and whichever class defines it, and no argument to use instead.
    """

    def decorate(kind: type[_C]) -> type[_C]:
        owner: Any = kind
        create = owner.__init__
        code = create.__code__
        placed = code.co_varnames[1 : code.co_argcount]
        named = frozenset(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
        needed = placed[: len(placed) - len(create.__defaults__ or ())]

        @wraps(create)
        def checked(self: object, /, *args: Any, **options: Any) -> None:
            called = type(self).__name__
            for name in options:
                if name not in named:
                    raise TypeError(f"{called} has no argument {name!r}{advise(name)}")
            if len(args) > len(placed):
                first = f"all arguments but {placed[0]}" if placed else "all arguments"
                raise TypeError(f"{called}: {first} are passed by name, such as {min(named - {*placed})}=…")
            missing = [name for name in needed[len(args) :] if name not in options]
            if missing:
                raise TypeError(f"{called} needs {missing[0]}")
            create(self, *args, **options)

        owner.__init__ = checked
        return kind

    return decorate


def refuse_copies(owner: object, advice: str) -> NoReturn:
    """Raise `TypeError` for `copy`, `deepcopy` and `pickle` of what has locks and connections."""
    raise TypeError(f"{type(owner).__name__} cannot be copied or pickled: {advice}")


def check_call(name: str, value: object) -> None:
    """Raise `TypeError` for what cannot be called back."""
    if value is None:
        return
    if not callable(value):
        raise TypeError(f"{name} must be callable")
    if inspect.iscoroutinefunction(value):
        raise TypeError(f"{name} must be a plain function: its result is never awaited")
