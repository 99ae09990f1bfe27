"""Both clients behind one face, so that a story is told once and played twice."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from licclient import AsyncLicenseClient, Downloaded, License, LicenseClient, Update

both_flavours = pytest.mark.parametrize("flavour", ["sync", "async"], indirect=True)


class Client(Protocol):
    """What the stories do with a client."""

    def verify(self, key: str, recheck: bool = False) -> License:
        """As `LicenseClient.verify`."""
        ...

    def check_for_update(self, key: str, force: bool = False) -> Update | None:
        """As `LicenseClient.check_for_update`."""
        ...

    def download(self, update: Update, to: Path, progress: Any = None) -> Downloaded:
        """As `LicenseClient.download`."""
        ...


class Awaited:
    """The asynchronous client, each call run to its end on one event loop that lives on."""

    def __init__(self, runner: asyncio.Runner, client: AsyncLicenseClient) -> None:
        self._runner = runner
        self._client = client

    def verify(self, key: str, recheck: bool = False) -> License:
        """Await the twin."""
        return self._runner.run(self._client.verify(key, recheck))

    def check_for_update(self, key: str, force: bool = False) -> Update | None:
        """Await the twin."""
        return self._runner.run(self._client.check_for_update(key, force))

    def download(self, update: Update, to: Path, progress: Any = None) -> Downloaded:
        """Await the twin."""
        return self._runner.run(self._client.download(update, to, progress))


@contextmanager
def opened(flavour: str, base_url: str, **settings: Any) -> Iterator[Client]:
    """Open a client of a flavour, ``sync`` or ``async``, for a block."""
    if flavour == "sync":
        with LicenseClient(base_url, **settings) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        twin = AsyncLicenseClient(base_url, **settings)
        try:
            yield Awaited(runner, twin)
        finally:
            runner.run(twin.aclose())
