"""Both clients behind one interface, so that one test runs with both."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from licclient import AsyncLicenseClient, LicenseClient

both_flavours = pytest.mark.parametrize("flavour", ["sync", "async"], indirect=True)


class Awaited:
    """The asynchronous client; each call runs to its end on one event loop."""

    def __init__(self, runner: asyncio.Runner, client: Any) -> None:
        self._runner, self._client = runner, client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name in {"uses", "license_file"}:
            return Awaited(self._runner, method)
        return lambda *args, **named: self._runner.run(method(*args, **named))


@contextmanager
def opened(flavour: str, base_url: str, **settings: Any) -> Iterator[LicenseClient]:
    """Open a client of a flavour, ``sync`` or ``async``, for a block; both have the synchronous methods."""
    if flavour == "sync":
        with LicenseClient(base_url, **settings) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        twin = AsyncLicenseClient(base_url, **settings)
        try:
            yield cast("LicenseClient", Awaited(runner, twin))
        finally:
            runner.run(twin.aclose())
