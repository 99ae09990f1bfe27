"""A license server for the tests of other projects: the real one, on a free port, in a folder of its own.

With pytest there is a fixture, `license_server`, as soon as licserver is installed::

    def test_my_app_starts(license_server):
        license_server.add_product("my-app", "My App")
        key = license_server.issue("my-app", slots=2)
        start_my_app(server=license_server.url, key=key)
        license_server.clock.forward(days=2)
        license_server.services.licenses.revoke(key)

Elsewhere `serve_licenses` is a context manager.
"""

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from licserver.clock import Clock, system_clock
from licserver.domain.records import EnvironmentPolicy, LicenseTerms, Product, Release
from licserver.services import Services, open_services
from licserver.settings import StandaloneSettings
from licserver.web import create_app
from licserver.web.connections import Runner

__all__ = ["LicenseServer", "MovedClock", "serve_licenses"]

_PATIENCE = 30.0


class MovedClock:
    """The machine's clock, moved by as much as a test likes; it goes on from there.

    Args:
        clock: What it goes by.
    """

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock, self._by = clock, timedelta()

    def __call__(self) -> datetime:
        """Tell the server's time."""
        return self._clock() + self._by

    def forward(self, **by: float) -> None:
        """Move on, or back by a negative span; as `datetime.timedelta` takes it."""
        self._by += timedelta(**by)


class LicenseServer:
    """A running server, and what a vendor does with it.

    Args:
        services: All of the vendor's operations.
        clock: What both go by.
    """

    def __init__(self, services: Services, clock: MovedClock) -> None:
        self.services = services
        self.clock = clock
        self.url = ""
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="license-server", daemon=True)

    def add_product(
        self, slug: str, name: str | None = None, environment: str = "domain", **more: Any
    ) -> Product:
        """Add a product, for desktop apps unless told otherwise; as `services.products.add`."""
        return self.services.products.add(slug, name or slug, EnvironmentPolicy(environment), **more)

    def issue(self, slug: str, **terms: Any) -> str:
        """Issue a key with terms of `domain.records.LicenseTerms`; one slot by default."""
        ((key,),) = self.services.licenses.issue_batches(slug, LicenseTerms(**terms))
        return key

    def publish(self, slug: str, version: str, content: bytes = b"a file", changelog: str = "") -> Release:
        """Publish a file of these bytes, called ``slug-version.zip``."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{slug}-{version}.zip"
            file.write_bytes(content)
            return self.services.releases.publish(slug, version, file, changelog)

    def start(self) -> None:
        """Listen; returns once it answers.

        Raises:
            RuntimeError: when it does not.
        """
        self._thread.start()
        if not self._ready.wait(_PATIENCE) or self._failed is not None:
            raise RuntimeError("the license server did not start") from self._failed

    def stop(self) -> None:
        """End it; returns once the port is closed."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(_PATIENCE)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as problem:  # noqa: BLE001 - told to who waits for it
            self._failed = problem
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        app = create_app(self.services, self.clock)
        runner = Runner(app, self.services.settings, shutdown_timeout=1, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self._ready.set()
            await self._stopping.wait()
        finally:
            await runner.cleanup()


@contextmanager
def serve_licenses(folder: Path, clock: Clock = system_clock, **settings: Any) -> Iterator[LicenseServer]:
    """Run a license server for a block, on a free port of this machine.

    Args:
        folder: For its data; what the environment says of `LICSERVER_*` does not count.
        clock: What it goes by, until it is moved.
        **settings: Of `licserver.settings.Settings`.

    Yields:
        The server, without a product.
    """
    moved = MovedClock(clock)
    own = StandaloneSettings(data_dir=folder, **settings)
    services = open_services(own, moved, new_database=own.secrets is not None)
    server = LicenseServer(services, moved)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        services.close()
