"""Check arguments against their annotations: a slip in a test is named where it is made."""

import inspect
import types
import typing
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from licclient._core.arguments import wrong_type

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose arguments must have the types of its annotations; else raise `TypeError`."""
    signature = inspect.signature(function)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = {name for name, parameter in signature.parameters.items() if parameter.kind not in kinds}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        hints = typing.get_type_hints(function)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in names & hints.keys() and not _fits(value, hints[name]):
                hint = signature.parameters[name].annotation
                raise wrong_type(name, hint.__name__ if isinstance(hint, type) else str(hint), value)
        return function(*args, **kwargs)

    return call


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value is of a type; what its items are is left to the code that reads them."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, alternative) for alternative in typing.get_args(hint))
    kind = origin or hint
    if kind is Any:
        return True
    if kind is float:
        kind = (int, float)
    is_flag = isinstance(value, bool) and kind is not bool  # a bool is an int for Python alone
    return isinstance(value, kind) and not is_flag
