"""Functions that run only while the license holds: what `require` makes when it is used as a decorator."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar, overload

from licclient._errors import LicclientError
from licclient._model import License
from licclient._threads import in_thread

P = ParamSpec("P")
R = TypeVar("R")
S_co = TypeVar("S_co", covariant=True)

Otherwise = Callable[[LicclientError], S_co]


def check_gate(feature: object, otherwise: object) -> None:
    """Check what `require` is handed: a slip here must not open a feature.

    Raises:
        TypeError: A key, a class, or anything else that is no function.
    """
    if otherwise is not None and not callable(otherwise):
        raise TypeError(f"otherwise must be callable, not {type(otherwise).__name__}")
    if feature is None:
        return
    if not callable(feature):
        # Never with the value in it: it may be a license key.
        raise TypeError(
            f"require decorates functions, and was handed {type(feature).__name__}: it takes no key;"
            " use verify(key), or activate(key) once"
        )
    if isinstance(feature, type):
        raise TypeError("require decorates functions, not classes: decorate the methods that need a license")


class Gate(Generic[S_co]):
    """Decorates features of the synchronous client.

    Args:
        check: Returns the license or raises.
        otherwise: What to do, and to return, instead of the feature when there is no license; None to raise.
    """

    def __init__(self, check: Callable[[], License], otherwise: Otherwise[S_co] | None) -> None:
        self._check = check
        self._otherwise = otherwise

    @overload
    def __call__(
        self, feature: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | S_co]]: ...

    @overload
    def __call__(self, feature: Callable[P, R], /) -> Callable[P, R | S_co]: ...

    def __call__(self, feature: Callable[..., Any], /) -> Callable[..., Any]:
        check_gate(feature, self._otherwise)
        if inspect.iscoroutinefunction(feature):

            async def check() -> License:
                return await in_thread(self._check)

            return AsyncGate(check, self._otherwise)(feature)

        @wraps(feature)
        def gated(*args: Any, **kwargs: Any) -> Any:
            try:
                self._check()
            except LicclientError as problem:
                if self._otherwise is None:
                    raise
                return self._otherwise(problem)
            return feature(*args, **kwargs)

        return gated


class AsyncGate(Generic[S_co]):
    """Decorates features of the asynchronous client; arguments as for `Gate`."""

    def __init__(self, check: Callable[[], Awaitable[License]], otherwise: Otherwise[S_co] | None) -> None:
        self._check = check
        self._otherwise = otherwise

    def __call__(
        self, feature: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | S_co]]:
        check_gate(feature, self._otherwise)
        if not inspect.iscoroutinefunction(feature):
            # It would have to wait for the license in the event loop, or hand out the feature without.
            raise TypeError("AsyncLicenseClient.require decorates only `async def` functions")

        @wraps(feature)
        async def gated(*args: P.args, **kwargs: P.kwargs) -> R | S_co:
            try:
                await self._check()
            except LicclientError as problem:
                if self._otherwise is None:
                    raise
                told = self._otherwise(problem)
                return await told if inspect.isawaitable(told) else told
            return await feature(*args, **kwargs)

        return gated
