"""What the tests share: a clock that is moved by hand, a stocked vendor, servers.

What only some of them need is in those modules of `tests/harness` that the root's `conftest.py` names:
databases (`engines`), the command line (`commands`), the console's visitors (`console`), users of the
admin API (`admin`), S3 (`bucket`) and Redis.
"""

import asyncio
import io
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from argon2 import PasswordHasher

from harness.engines import Meddler, create_sqlite, write_private
from licserver.cli.signing import file_signer
from licserver.database.hot_path.activations import ActivationRequest
from licserver.database.hot_path.lookups import Lookup
from licserver.database.hot_path.store import BatchStore
from licserver.database.repositories import Repositories
from licserver.domain.decisions import evaluate_verify, generate_license_key
from licserver.domain.environments import parse_ip
from licserver.domain.offers import RolloutOptions
from licserver.domain.records import Environment, EnvironmentPolicy, LicenseTerms, Release
from licserver.domain.versions import version_key
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.release_manifests import sign_with_keys
from licserver.security.secrets_file import SECRETS_FILE
from licserver.services.installation import open_services
from licserver.serving.access_log import AccessLogger
from licserver.serving.connections import Runner
from licserver.serving.server import create_app_with_jobs
from licserver.settings import StandaloneSettings

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
_QUICK_HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no LICSERVER_* or AWS_* variable of the machine reach a test."""
    for name in os.environ:
        if name.upper().startswith(("LICSERVER_", "AWS_")):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash passwords with the cheapest parameters: the defaults take 0.1 s and 64 MiB each."""
    monkeypatch.setattr("licserver.security.passwords._hasher", lambda: _QUICK_HASHER)


class MovableClock:
    """Stands still until it is moved."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Tell the time."""
        return self.now

    def forward(self, **by: float) -> None:
        """Move on."""
        self.now += timedelta(**by)


@pytest.fixture
def clock() -> MovableClock:
    """The world's clock: noon of 2026-06-15 until a test moves it."""
    return MovableClock()


class World:
    """A vendor with one product `app`, and short words for what tests do with it."""

    def __init__(
        self, folder: Path, clock: MovableClock, *, is_stocked: bool = False, **settings: Any
    ) -> None:
        self.clock = clock
        self.folder = folder
        # A process that makes patches takes a second to start: only tests of patches have some.
        settings.setdefault("patch_limit", 0)
        self.settings = StandaloneSettings(data_dir=folder / "data", **settings)
        if is_stocked:
            self.settings.data_dir.mkdir(mode=0o700, parents=True)
            for name, content in _stocked_files().items():
                write_private(self.settings.data_dir / name, content)
        elif settings.get("database_url") is None:
            create_sqlite(self.settings.data_dir)
        # Secrets that come from elsewhere create no database by themselves (D-158).
        self.services = open_services(self.settings, clock, new_database="secrets" in settings)
        self.repositories = Repositories(self.services.database)

    def product(self, slug: str = "app", policy: str = "strict", **more: Any) -> str:
        """Add a product."""
        self.services.products.add(slug, slug.title(), EnvironmentPolicy(policy), **more)
        return slug

    def key(self, slug: str = "app", **terms: Any) -> str:
        """Sell one key."""
        ((key,),) = self.services.licenses.issue_batches(slug, LicenseTerms(**terms))
        return key

    def publish(self, version: str, content: bytes = b"zip", slug: str = "app", **more: Any) -> Release:
        """Publish a file whose bytes the test knows."""
        product, name = self.services.products.get(slug), more.pop("name", f"{slug}-{version}.zip")
        artifact = self.services.artifacts.store(io.BytesIO(content), name)
        changelog, platform = more.get("changelog", ""), more.get("platform", "")
        key = version_key(version)
        assert self.repositories.releases.add(
            product.id, version, key, changelog, artifact, self.clock(), platform=platform
        )
        return self.services.releases.get(slug, version, platform)

    def request_slot(self, key: str, domain: str = "a.example", ip: str = "192.0.2.1") -> ActivationRequest:
        """Return what a verify call asks for; the rules decide about it."""
        here = Environment(domain, ip)
        lookup = Lookup(self.services.vault.license_id(key), here)
        now = self.clock()
        return ActivationRequest(lookup, lambda found: evaluate_verify(key, found, here, now), now)

    def held(self, key: str) -> list[tuple[str, str]]:
        """The activations of a key, as (domain, ip), sorted."""
        found = self.repositories.licenses.list_activations(self.services.vault.license_id(key))
        return sorted((activation.environment.domain, activation.environment.ip) for activation in found)


@cache
def _stocked_files() -> dict[str, bytes]:
    """Return the files of a world whose product was added at noon: quicker than setting each up."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), MovableClock())
        world.product()
        world.services.close()
        return {
            name: (world.settings.data_dir / name).read_bytes()
            for name in ("licserver.sqlite3", SECRETS_FILE)
        }


@pytest.fixture
def engine_name(request: pytest.FixtureRequest) -> str:
    """SQLite; `both_engines` and `postgresql_only` choose otherwise."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
def make_world(
    tmp_path: Path, clock: MovableClock, make_database_url: Callable[..., str | None]
) -> Iterator[Callable[..., World]]:
    """Make a world whose settings differ from the defaults, on either engine."""
    made: list[World] = []

    def make(**settings: Any) -> World:
        settings.setdefault("database_url", make_database_url())
        # Two worlds of a test have secrets of their own.
        is_stocked = (
            not made and settings["database_url"] is None and "secrets" not in settings and clock() == NOON
        )
        made.append(World(tmp_path / f"world{len(made)}", clock, is_stocked=is_stocked, **settings))
        if not is_stocked:
            made[-1].product()
        return made[-1]

    yield make
    for world in made:
        world.services.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A world with default settings."""
    return make_world()


@pytest.fixture
def activate(world: World) -> Iterator[Callable[[str, str, str], Any]]:
    """Take a slot of a key, as a verify call does."""

    def take(key: str, domain: str, ip: str) -> Any:
        return store.activate([world.request_slot(key, domain, str(parse_ip(ip)))])[0]

    store = BatchStore(world.services.database)
    yield take
    store.close()


@pytest.fixture
def meddler(world: World) -> Iterator[Meddler]:
    """Another program that has the default world's database open."""
    url = world.settings.database_url
    meddler = Meddler(url and url.get_secret_value(), world.settings.data_dir / "licserver.sqlite3")
    yield meddler
    meddler.close()


@pytest.fixture
def publish(world: World, tmp_path: Path) -> Callable[..., Any]:
    """Publish a file, signed with the key of 32 ones as on the command line unless a test wants otherwise."""
    key = PrivateKey(b"1" * 32)

    def publish(
        version: str,
        *,
        name: str | None = None,
        content: bytes = b"an installer\n" * 100,
        is_signed: bool = True,
        changelog: str = "",
        rollout: str | None = None,
        critical_below: str | None = None,
        **more: Any,
    ) -> Release:
        file = tmp_path / (name or f"app-{version}.AppImage")
        file.write_bytes(content)
        sign = sign_with_keys([key], sign_file=file_signer(file, key)) if is_signed else None
        reach = RolloutOptions(rollout, critical_below)
        return world.services.releases.publish("app", version, file, changelog, sign, reach=reach, **more)

    return publish


class Site:
    """A running server, and a customer who calls it from any loopback address."""

    def __init__(self, world: World, runner: Runner, stack: AsyncExitStack) -> None:
        self.world, self.app, self.stop = world, runner.app, runner.cleanup
        self.port: int = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._stack, self._sessions = stack, dict[str, aiohttp.ClientSession]()

    async def session(self, source: str = "127.0.0.1") -> aiohttp.ClientSession:
        """The customer's HTTP session that calls from `source`."""
        if source not in self._sessions:
            connector = aiohttp.TCPConnector(local_addr=(source, 0), limit=0)
            session = aiohttp.ClientSession(self.url, connector=connector, auto_decompress=False)
            self._sessions[source] = await self._stack.enter_async_context(session)
        return self._sessions[source]

    async def call(
        self, method: str, path: str, source: str = "127.0.0.1", **more: Any
    ) -> tuple[int, Any, Any]:
        """Send a request; returns the status, the headers and the body: read JSON, or raw bytes."""
        session = await self.session(source)
        async with session.request(method, path, **more) as answer:
            body: Any = await answer.read()
            if answer.content_type == "application/json" and body:
                body = await answer.json()
            return answer.status, answer.headers, body

    async def verify(
        self, key: Any, domain: Any = "a.example", source: str = "127.0.0.1", **more: Any
    ) -> tuple[int, Any]:
        """Verify a key; returns the status and the body."""
        body = {"license_key": key, "domain": domain, "ip": "192.0.2.1"}
        status, _, answer = await self.call(
            "POST", "/api/v1/licenses/verify", source, **{"json": body, **more}
        )
        return status, answer

    async def check(
        self, key: str, slug: str = "app", *, current_version: str = "1.0", **more: Any
    ) -> tuple[int, Any]:
        """Check for an update; returns the status and the body."""
        query = {"license_key": key, "slug": slug, "current_version": current_version, "domain": "a.example"}
        status, _, answer = await self.call("GET", "/api/v1/update-check", params=query, **more)
        return status, answer

    async def link(self, key: str) -> str:
        """The path and query of a fresh download link."""
        status, answer = await self.check(key)
        assert status == 200, answer
        link: str = answer["download_url"]
        return link[link.index("/api/") :]

    async def raw(self, data: bytes, *, end: bool = False) -> bytes:
        """Send bytes as they are, and then perhaps the end; returns what comes until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            await writer.drain()
            if end:
                writer.write_eof()
            return await asyncio.wait_for(reader.read(), 20)
        except ConnectionError:
            return b""
        finally:
            writer.close()


@pytest.fixture
async def open_site(make_world: Callable[..., World]) -> AsyncIterator[Callable[[World], Any]]:
    """Start a server for a world, on a real socket; it ends before the world does, as with `serve`."""
    async with AsyncExitStack() as stack:

        async def start(world: World) -> Site:
            app = create_app_with_jobs(world.services, world.clock)
            runner = Runner(app, world.settings, access_log_class=AccessLogger, shutdown_timeout=2)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            return Site(world, runner, stack)

        yield start


@pytest.fixture
async def site(open_site: Callable[[World], Any], world: World) -> Site:
    """A running server of the default world."""
    found: Site = await open_site(world)
    return found


@pytest.fixture
def new_key() -> Callable[[], str]:
    """Draw a key that nobody was sold."""
    return generate_license_key


@pytest.fixture
def environment() -> Callable[..., Environment]:
    """Name an environment briefly."""

    def make(domain: str = "a.example", ip: str = "192.0.2.1") -> Environment:
        return Environment(domain, ip)

    return make
