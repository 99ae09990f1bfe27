"""A vendor with records of our making, a clock that the test moves, and a real server on a real socket."""

import asyncio
import io
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from harness.engines import create_sqlite
from harness.vectors import instant
from licserver.database.hot_path.activations import ActivationRequest
from licserver.database.hot_path.lookups import Lookup
from licserver.database.hot_path.store import BatchStore
from licserver.database.repositories import Repositories
from licserver.database.repositories.trials import TrialClient
from licserver.database.tables.licenses import activations
from licserver.domain.decisions import Valid, generate_license_key
from licserver.domain.moves import Move, MoveRecord
from licserver.domain.records import (
    CUSTOMER_MOVES,
    AfterSupport,
    Environment,
    EnvironmentPolicy,
    FileKind,
    IssuedLicense,
    Product,
    Rollout,
    WordPressFields,
)
from licserver.domain.seats import Seat
from licserver.domain.versions import parse_version, version_key
from licserver.protocol import public_api
from licserver.services.installation import open_services
from licserver.serving.connections import Runner
from licserver.serving.server import create_app_with_jobs
from licserver.settings import StandaloneSettings
from licserver.web.middlewares import HOT_ROUTES, RequestHandler

_NOTED = web.ResponseKey("noted", bool)


class MovableClock:
    """A clock that stands still until it is moved; both packages take it."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Read it."""
        return self.now

    def forward(self, **by: float) -> None:
        """Move on (or back, by a negative span)."""
        self.now += timedelta(**by)


class World:
    """One vendor's data folder, stocked with what a test needs.

    Args:
        folder: An empty folder.
        clock: The server's.
        **settings: What differs from the defaults.
    """

    def __init__(self, folder: Path, clock: MovableClock, **settings: Any) -> None:
        self.clock = clock
        self.folder = folder
        if settings.get("database_url") is None:
            create_sqlite(folder / "data")
        # Secrets that come from elsewhere create no database by themselves (D-158).
        new = "secrets" in settings
        # A process that makes patches takes a second to start: only tests of patches have some.
        settings.setdefault("patch_limit", 0)
        # Of the environment nothing: looking for 90 variables takes 2 ms.
        chosen = StandaloneSettings(data_dir=folder / "data", **settings)
        self.services = open_services(chosen, clock, new_database=new)
        self.repositories = Repositories(self.services.database)
        self.files: dict[str, bytes] = {}

    def close(self) -> None:
        """Close the vendor's database."""
        self.services.close()

    # --- stocking -----------------------------------------------------------------------------

    def stock(self, given: dict[str, Any]) -> None:
        """Write a vector's records into the database."""
        for product in given["products"]:
            self.repositories.products.add(
                Product(
                    0,
                    product["slug"],
                    product["name"],
                    EnvironmentPolicy(product["environment"]),
                    product["support_policy"],
                    accepts_imported_keys=product.get("accept_imported_keys", False),
                    trial_days=product.get("trial_days", 0),
                    after_support=AfterSupport(product.get("after_support", "none")),
                    customer_moves=product.get("customer_moves", CUSTOMER_MOVES),
                ),
                self.clock(),
            )
            if "minimum_version" in product:
                self.services.products.change(product["slug"], minimum_version=product["minimum_version"])
            for release in product["releases"]:
                self.publish(product["slug"], **release)
            for name, entitlements in product.get("plans", {}).items():
                self.services.plans.add(product["slug"], name, entitlements)
        for license_ in given["licenses"]:
            self.sell(**license_)
        for trial in given.get("trials", ()):
            vault, of = self.services.vault, self.services.products.get(trial["slug"]).id
            machine = vault.pseudonym("trial machine", trial["machine"])
            unknown = TrialClient(b"", b"")
            self.repositories.trials.add(
                of, machine, vault.license_id(trial["license"]), unknown, self.clock()
            )

    def publish(
        self,
        slug: str,
        version: str,
        published_at: str,
        changelog: str = "",
        *,
        withdrawn: bool = False,
        size: int = 0,
        manifest: dict[str, Any] | None = None,
        platform: str = "",
        kind: str = "folder",
        channel: str = "stable",
        rollout: str | None = None,
        critical_below: str | None = None,
        security: dict[str, Any] | None = None,
        **wordpress: str,
    ) -> bytes:
        """Publish a file of our making, with what somebody signed about it; returns its bytes."""
        product = self.services.products.get(slug)
        file = f"{version} {platform}".strip()
        content = f"{slug} {file}\n".encode() * max(1, size // 16)
        self.files[file] = content
        artifact = self.services.artifacts.store(io.BytesIO(content), f"{slug}-{file.replace(' ', '-')}.zip")
        parsed = parse_version(version)
        assert parsed is not None
        key = version_key(parsed)
        document = None if manifest is None else json.dumps(manifest, separators=(",", ":"))
        at = instant(published_at)
        plan = None if rollout is None else Rollout(rollout, at)
        assert self.repositories.releases.add(
            product.id,
            version,
            key,
            changelog,
            artifact,
            at,
            document,
            platform,
            plan,
            WordPressFields(**wordpress),
            FileKind(kind),
            channel=channel,
            critical_below=critical_below,
            security=None if security is None else json.dumps(security),
        )
        if withdrawn:
            self.services.releases.withdraw(slug, version)
        return content

    def sell(
        self,
        key: str,
        product: str,
        *,
        product_name: str | None = None,
        expires_on: str | None = None,
        support_until: str | None = None,
        subscription_ended_at: str | None = None,
        revoked: bool = False,
        activations: list[list[str]] | None = None,
        slots: int | None = 1,
        lifetime: bool = False,
        allowed: list[str] | None = None,
        subscription_id: str | None = None,
        customer_email: str | None = None,
        note: str | None = None,
        plan: str | None = None,
        overrides: dict[str, Any] | None = None,
        trial: bool = False,
        floating_seats: int | None = None,
        seats: list[dict[str, Any]] | None = None,
        uses: dict[str, int] | None = None,
        channels: list[str] | None = None,
        computers: dict[str, dict[str, str]] | None = None,
        moves: list[dict[str, str]] | None = None,
    ) -> str:
        """Write one license into the database; returns its key."""
        sold = self.services.products.get(product)
        license_id = self.services.vault.license_id(key)
        new = IssuedLicense(
            id=license_id,
            encrypted_key=self.services.vault.encrypt_key(key),
            product_id=sold.id,
            product_slug=sold.slug,
            product_name=product_name or sold.name,
            issued_at=self.clock(),
            expires_on=date.fromisoformat(expires_on) if expires_on else None,
            lifetime=lifetime,
            slots=slots,
            allowed=tuple(allowed or ()),
            channels=tuple(channels or ()),
            subscription_id=subscription_id,
            subscription_ended_at=instant(subscription_ended_at) if subscription_ended_at else None,
            support_until=date.fromisoformat(support_until) if support_until else None,
            customer_email=customer_email,
            note=note,
            plan=plan,
            overrides=overrides,
            trial=trial,
            floating_seats=floating_seats,
        )
        self.repositories.licenses.add_all([new])
        for seat in seats or ():
            end = self.clock() + timedelta(seconds=seat["seconds_left"])
            about = bytes.fromhex(seat["seat"]), "home.example", None, self.clock()
            self.repositories.seats.put(license_id, Seat(*about, end, seat.get("ended", False)))
        for name, amount in (uses or {}).items():
            quota = self.services.plans.resolve(new)[name]
            self.services.uses.consume(license_id, name, quota, amount, "before-this")
        for domain, ip in activations or ():
            self.activate(license_id, Environment(domain, ip))
        self._describe_computers(license_id, computers or {}, moves or [])
        if revoked:
            self.services.licenses.revoke(key)
        return key

    def _describe_computers(
        self, license_id: bytes, computers: dict[str, dict[str, str]], moves: list[dict[str, str]]
    ) -> None:
        """Write what is known of a license's computers, and which one got the slot of which."""
        with self.services.database.writing() as connection:
            for domain, known in computers.items():
                until = known.get("file_until")
                of_it = (activations.c.license_id == license_id) & (activations.c.domain == domain)
                values = {
                    "label": known.get("label"),
                    "last_seen_at": instant(known["seen"]),
                    "offline_until": until and instant(until),
                }
                connection.execute(activations.update().where(of_it).values(values))
        for move in moves:
            at, source = instant(move["at"]), Environment(move["from"], "198.51.100.7")
            record = MoveRecord(at, source.domain, None, move["to"], move.get("to_label"))
            self.repositories.moves.replace(license_id, [], Move(at, frozenset({source})))
            self.repositories.moves.add_record(license_id, record, [])

    def activate(self, license_id: bytes, environment: Environment) -> None:
        """Let a license be used somewhere."""
        claim = ActivationRequest(
            Lookup(license_id, environment),
            lambda license_: Valid(license_, takes_slot=True) if license_ else _missing(),
            self.clock(),
        )
        store = BatchStore(self.services.database)
        (verdict,) = store.activate([claim])
        store.close()
        assert isinstance(verdict, Valid), verdict

    def activations(self, key: str) -> list[list[str]]:
        """What a license holds, as `[domain, ip]`, sorted."""
        held = self.repositories.licenses.list_activations(self.services.vault.license_id(key))
        return sorted([*activation.environment] for activation in held)

    def machines(self, key: str) -> list[list[str | None]]:
        """What is known of a license's machines, as `[domain, label, version of the app]`, sorted."""
        held = self.repositories.licenses.list_activations(self.services.vault.license_id(key))
        return sorted(
            [activation.environment.domain, activation.label, activation.app_version] for activation in held
        )

    def new_key(self, product: str, **terms: Any) -> str:
        """Sell a fresh key."""
        return self.sell(generate_license_key(), product, **terms)

    # --- serving ------------------------------------------------------------------------------

    @contextmanager
    def serving(self, port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator["Server"]:
        """Serve this vendor on a real socket, in a thread with an event loop of its own."""
        server = Server(self, port, tls)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _missing() -> Valid:
    raise LookupError("the license to activate is not in the database")


class _Seen(NamedTuple):
    """A request that a server has answered."""

    path: str
    status: int
    range: str | None
    agent: str | None
    version: str | None


class Server:
    """A running `licserver` application; can be stopped and started again on the same port."""

    def __init__(self, world: World, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._world = world
        self._tls = tls
        self.port = port
        self._seen: list[_Seen] = []

    @property
    def verifies(self) -> int:
        """How many verify calls it has answered."""
        return sum(seen.path == public_api.VERIFY_PATH for seen in self._seen)

    @property
    def checks(self) -> int:
        """How many update checks it has answered."""
        return sum(seen.path == public_api.UPDATE_CHECK_PATH for seen in self._seen)

    @property
    def downloads(self) -> list[int]:
        """The statuses with which it has answered downloads."""
        return [seen.status for seen in self._seen if seen.path == public_api.DOWNLOAD_PATH]

    @property
    def ranges(self) -> list[str | None]:
        """The ``Range`` headers of the downloads it has answered."""
        return [seen.range for seen in self._seen if seen.path == public_api.DOWNLOAD_PATH]

    @property
    def agents(self) -> set[str | None]:
        """The ``User-Agent`` headers that it has seen."""
        return {seen.agent for seen in self._seen}

    @property
    def versions(self) -> set[str | None]:
        """The versions for which it has been asked for updates."""
        return {seen.version for seen in self._seen if seen.path == public_api.UPDATE_CHECK_PATH}

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen; returns once it answers."""
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), name="licserver")
        self._thread.start()
        assert ready.wait(10)

    def stop(self) -> None:
        """End it; returns once the port is closed."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

    async def _run(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = create_app_with_jobs(self._world.services, self._world.clock)
        app.on_response_prepare.append(self._note)
        # On a connection that has been used these are called past `request_handler`.
        app[HOT_ROUTES] = {route: self._noting(handler) for route, handler in app[HOT_ROUTES].items()}
        runner = Runner(app, self._world.services.settings, access_log=None, shutdown_timeout=1)
        await runner.setup()
        assert runner.server is not None
        runner.server.request_handler = self._noting(runner.server.request_handler)
        site = web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=self._tls)
        await site.start()
        self.port = runner.addresses[0][1]
        ready.set()
        await self._stop.wait()
        await runner.cleanup()

    def _noting(self, handler: Callable[[Any], Awaitable[web.StreamResponse]]) -> RequestHandler:
        """Note answers that leave whole, past the application's signal, before they leave."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            response = await handler(request)
            if not response.prepared:
                await self._note(request, response)
            return response

        return handle

    async def _note(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        if _NOTED in response:
            return
        response[_NOTED] = True
        headers, version = request.headers, request.query.get("current_version")
        details = headers.get("Range"), headers.get("User-Agent"), version
        self._seen.append(_Seen(request.path, response.status, *details))


def utc(*parts: int) -> datetime:
    """Write an instant in UTC."""
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc] # year, month, day, hour …
