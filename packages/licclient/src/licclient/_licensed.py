"""`@client.licensed`: run a function only while a license holds."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar, overload

from licclient._entitlements import is_entitlement_name
from licclient._model import License
from licclient.errors import LicclientError, NotEntitledError

P = ParamSpec("P")
R = TypeVar("R")
S_co = TypeVar("S_co", covariant=True)

Otherwise = Callable[[LicclientError], License | S_co]
AsyncOtherwise = Callable[[LicclientError], Awaitable[License | S_co]]


def check_function(function: object) -> None:
    """Raise `TypeError` unless `function` is one: a mistake here must not open a feature."""
    if not callable(function):
        # Without the value: it may be a license key.
        raise TypeError(
            f"licensed decorates functions, not {type(function).__name__}: it takes no key;"
            " use verify(key), or activate(key) once"
        )
    if isinstance(function, type):
        raise TypeError("licensed decorates functions, not classes: decorate the methods that need a license")


def check_entitlement(name: object) -> None:
    """Raise `TypeError` unless `name` can be that of an entitlement, or is None."""
    if name is not None and not is_entitlement_name(name):
        # Without the value: it may be a license key.
        raise TypeError(
            f"an entitlement is named by up to 40 lower-case letters, digits and _ . -, not by this"
            f" {type(name).__name__}; a license key goes to verify(key), or activate(key) once"
        )


def split_entitlement(given: Any) -> tuple[str | None, Any]:
    """Return the name of a feature and the function to decorate, of which one was given."""
    return (given, None) if is_entitlement_name(given) else (None, given)


def check_entitled(license_: License, entitlement: str | None) -> License:
    """Return a license that includes a feature, or raise `NotEntitledError`; without a name, any license."""
    if entitlement is not None and not license_.entitlements.grants(entitlement):
        raise NotEntitledError(entitlement)
    return license_


class _Licensed:
    """What both decorators are made with: `check` returns the license or raises.

    `otherwise` is called with that error; a license that it returns must include `entitlement`.
    """

    def __init__(
        self, check: Callable[[], Any], otherwise: Callable[..., Any] | None, entitlement: str | None = None
    ) -> None:
        if otherwise is not None and not callable(otherwise):  # here, and not when a customer clicks
            raise TypeError(f"otherwise must be callable, not {type(otherwise).__name__}")
        self._check = check
        self._otherwise = otherwise
        self._entitlement = entitlement


class Licensed(_Licensed, Generic[S_co]):
    """Decorate functions of the synchronous client."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | S_co]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | S_co]: ...

    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        check_function(function)
        if inspect.iscoroutinefunction(function):

            async def check() -> License:
                import asyncio  # noqa: PLC0415 - most applications decorate none

                return await asyncio.to_thread(self._check)

            return AsyncLicensed[Any](check, self._otherwise, self._entitlement)(function)

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                self._check()
            except LicclientError as problem:
                if self._otherwise is None:
                    raise
                result = self._otherwise(problem)
                if not isinstance(result, License):
                    return result
                check_entitled(result, self._entitlement)
            return function(*args, **kwargs)

        return checked


class AsyncLicensed(_Licensed, Generic[S_co]):
    """Decorate functions of the asynchronous client; arguments as for `Licensed`."""

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | S_co]]:
        check_function(function)
        if not inspect.iscoroutinefunction(function):
            # It would wait for the license in the event loop, or run without one.
            raise TypeError("AsyncLicenseClient.licensed decorates only `async def` functions")

        @wraps(function)
        async def checked(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                await self._check()
            except LicclientError as problem:
                if self._otherwise is None:
                    raise
                result = self._otherwise(problem)
                if inspect.isawaitable(result):
                    result = await result
                if not isinstance(result, License):
                    return result
                check_entitled(result, self._entitlement)
            return await function(*args, **kwargs)

        return checked
