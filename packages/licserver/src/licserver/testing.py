"""A license server for the tests of other projects, on a free port, with its own data folder.

Installing licserver adds the pytest fixture `license_server`::

    def test_my_app_starts(license_server):
        license_server.add_product("my-app", "My App")
        key = license_server.issue("my-app", slots=2)
        start_my_app(server=license_server.url, key=key)
        license_server.clock.forward(days=2)
        license_server.services.licenses.revoke(key)

Without pytest, use the context manager `serve_licenses`.
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
from licserver.domain.records import DEFAULT_POLICY, EnvironmentPolicy, LicenseTerms, Product, Release
from licserver.services.installation import Services, open_services
from licserver.services.releases import PublishOptions
from licserver.serving.connections import Runner
from licserver.serving.server import create_app_with_jobs
from licserver.settings import StandaloneSettings

__all__ = ["LicenseServer", "MovedClock", "serve_licenses"]

_TIMEOUT = 30.0


class MovedClock:
    """A clock with an offset that a test changes."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock, self._by = clock, timedelta()

    def __call__(self) -> datetime:
        """Return the server's time."""
        return self._clock() + self._by

    def forward(self, **by: float) -> None:
        """Move the clock by the arguments of `datetime.timedelta`; negative values move it back."""
        self._by += timedelta(**by)


class LicenseServer:
    """A running server, with the vendor's services; both use `clock`."""

    def __init__(self, services: Services, clock: MovedClock) -> None:
        self.services = services
        self.clock = clock
        self.url = ""
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="license-server", daemon=True)

    def add_product(
        self, slug: str, name: str | None = None, environment: str = DEFAULT_POLICY, **more: Any
    ) -> Product:
        """Add a product, by default for desktop apps; see `services.products.add`."""
        return self.services.products.add(slug, name or slug, EnvironmentPolicy(environment), **more)

    def issue(self, slug: str, **terms: Any) -> str:
        """Issue a license with the fields of `domain.records.LicenseTerms`; return its key."""
        ((key,),) = self.services.licenses.issue_batches(slug, LicenseTerms(**terms))
        return key

    def publish(
        self,
        slug: str,
        version: str,
        content: bytes = b"a file",
        changelog: str = "",
        *,
        platform: str = "",
        channel: str = "",
        kind: str = "",
    ) -> Release:
        """Publish a file ``slug-version.zip`` of these bytes, for a platform or for all.

        `kind` is guessed from the bytes if it is empty, and must fit them otherwise.
        """
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{slug}-{version}.zip"
            file.write_bytes(content)
            releases = self.services.releases
            which = PublishOptions(platform=platform, channel=channel, kind=kind)
            return releases.publish(slug, version, file, changelog, **which)

    def start(self) -> None:
        """Start the server and wait until it listens.

        Raises:
            RuntimeError: if it does not.
        """
        self._thread.start()
        if not self._ready.wait(_TIMEOUT) or self._failed is not None:
            raise RuntimeError("the license server did not start") from self._failed

    def stop(self) -> None:
        """Stop the server and wait until its port is closed."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(_TIMEOUT)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as problem:  # noqa: BLE001 - raised by `start`
            self._failed = problem
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        app = create_app_with_jobs(self.services, self.clock)
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
    """Run a license server without products on a free port of this machine.

    Args:
        folder: The data folder.
        clock: The time before a test moves it.
        **settings: Of `licserver.settings.Settings`; the environment is ignored.
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
