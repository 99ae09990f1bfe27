"""A scripted service on a real socket, a clock that tests move, one interface for both clients."""

import asyncio
import contextlib
import inspect
import json
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from stage.archives import app, downloaded
from stage.scripts import play
from stage.store import Store
from stage.tls import authority, tls, verdicts  # noqa: F401 - fixtures

import licclient

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@dataclass
class Request:
    """What arrived. A test that fails shows of it nothing that may hold a key."""

    method: str
    path: str
    query: dict[str, str] = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    target: str = field(default="", repr=False)

    @property
    def json(self) -> Any:
        """Return the body, read."""
        return json.loads(self.body)


def answer(status: int, body: Any = b"", **headers: str) -> bytes:
    """Write an HTTP answer that closes the connection; a body that is not bytes goes out as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {
        "Content_Type": "application/json",
        "Content_Length": str(len(raw)),
        "Connection": "close",
        **headers,
    }
    lines = [
        f"HTTP/1.1 {status} X",
        *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items() if value),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + raw


Script = Callable[[Request], bytes | Iterable[bytes]]


@dataclass
class Service:
    """A license service that sends prepared responses, and records the requests."""

    script: Script = lambda _: answer(500)
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def responds(self, status: int, body: Any = b"", **headers: str) -> None:
        """Answer everything the same way from now on."""
        self.script = lambda _: answer(status, body, **headers)

    def grants(self, product: str = "Notes", expiry: str | None = None, *, lifetime: bool = False) -> None:
        """Answer every verify with a success."""
        self.responds(200, {"valid": True, "product": product, "expiry": expiry, "lifetime": lifetime})

    def refuses(self, status: int, reason: str) -> None:
        """Answer every verify with a refusal."""
        self.responds(status, {"valid": False, "reason": reason})

    def offers(self, version: str = "2.0", **changes: Any) -> None:
        """Answer every update check with this version."""
        self.responds(200, self.listing(version, **changes))

    def listing(self, version: str = "2.0", **changes: Any) -> dict[str, Any]:
        """Return the body of a successful update check; a change to None takes the field away."""
        body = {
            "name": "Notes",
            "slug": "notes",
            "version": version,
            "download_url": f"{self.url}/api/v1/update-download?id=7&sig=SECRETSIG",
            "sections": {"changelog": "Faster."},
            "last_updated": "2026-11-20 10:11:12",
            "requires": None,
            "tested": None,
        }
        return {
            name: value for name, value in (body | changes).items() if value is not None or name == "requires"
        }

    def goes_down(self) -> None:
        """Hang up on everybody from now on."""
        self.script = lambda _: b""

    def count(self, path: str = "") -> int:
        """Return how many requests there were, at addresses with this ending."""
        return sum(request.path.endswith(path) for request in self.requests)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Read one request, play the script, hang up."""
        with contextlib.suppress(OSError):
            line = self.rfile.readline().decode().split()
            if not line:
                return  # hung up before it asked
            headers: dict[str, str] = {}
            while (header := self.rfile.readline().decode().strip()) != "":
                name, _, value = header.partition(":")
                headers[name.lower()] = value.strip()
            length = int(headers.get("content-length", 0))
            body = self.rfile.read(length)
            if len(body) < length:
                return  # hung up in the middle of asking
            target = urlsplit(line[1])
            query = {name: values[0] for name, values in parse_qs(target.query).items()}
            request = Request(line[0], target.path, query, headers, body, line[1])
            service: Service = self.server.service  # type: ignore[attr-defined]
            service.requests.append(request)
            play(self.connection, service.script, request)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


@pytest.fixture(autouse=True, scope="session")
def _no_keyring():
    """No test may touch the keyring of the user that runs it, nor may a fixture of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
        yield


@pytest.fixture
def use_keyring():
    """Put a keyring of our making into the place of the system's, until nobody asks it any more."""
    import keyring  # noqa: PLC0415 - few tests need it

    before = keyring.get_keyring()

    def use(backend):
        keyring.set_keyring(backend)
        return backend

    yield use
    # A thread that was not waited for would ask the next test's keyring.
    for thread in threading.enumerate():
        if thread.name in {"licclient-call", "licclient-keyring"}:
            thread.join(30)
    keyring.set_keyring(before)


@pytest.fixture
def service():
    """A running service; `.url` is its base URL."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        served = Service(url=f"http://127.0.0.1:{server.server_address[1]}")
        server.service = served  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield served
        server.shutdown()
        thread.join()


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        """Return what it shows."""
        return self.now

    def move(self, **span: float) -> None:
        """Let time pass, or turn back."""
        self.now += timedelta(**span)


@pytest.fixture
def clock():
    """A clock that stands at NOW."""
    return Clock()


class Driver:
    """Either flavour of client, driven the same way: every method is awaited."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        if name in {"uses", "seats", "license_file"}:
            return Driver(method)

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return call

    async def close(self) -> None:
        """Close it by whatever name."""
        if isinstance(self.client, licclient.LicenseClient):
            self.client.close()
        else:
            await self.client.aclose()


@pytest.fixture
def drive():
    """Puts a client of either flavour behind one face."""
    return Driver


@pytest.fixture
def flavour(request):
    """The client class: the synchronous one, unless marked `both` or `asynchronous`."""
    return getattr(request, "param", licclient.LicenseClient)


@pytest.fixture
async def make_client(flavour, service, clock, tmp_path):
    """Make a client of the flavour under test, for this test's service, folder and clock."""
    made: list[Driver] = []

    def make(base_url: str | None = None, **options: Any) -> Driver:
        options = {
            "storage": tmp_path / "state",
            "clock": clock,
            "slug": "notes",
            "version": "1.0",
        } | options
        driver = Driver(flavour(base_url or service.url, **options))
        made.append(driver)
        return driver

    yield make
    for driver in made:
        await driver.close()
    await asyncio.sleep(0)


@pytest.fixture
def client(make_client):
    """A client of the flavour under test."""
    return make_client()


@pytest.fixture
def key():
    """A license key as it is issued."""
    return KEY


@pytest.fixture
def http_answer():
    """The function that writes raw HTTP answers, for scripts."""
    return answer


@pytest.fixture
def dead_url():
    """A base URL where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """Tries follow each other at once."""
    monkeypatch.setattr("licclient._core.pace.RETRY_SECONDS", 0.001)


@pytest.fixture
def store(service, http_answer):
    """A store that sells Notes 2.0."""
    return Store(service, http_answer)


@pytest.fixture
def folder(tmp_path):
    """Where downloads go; afterwards, nothing but whole files may be left by a success."""
    return tmp_path / "downloads"


@pytest.fixture
def fetch(folder, key):
    """Check for an update and download it."""

    async def fetch(client, **check: Any):
        update = (await client.check_for_update(key, **check)).update
        return await client.download(update, folder, key=key)

    return fetch


@pytest.fixture
def break_off(store, folder, key):
    """Begin a download that ends after some bytes; returns the update and the part."""

    async def begin(client, size):
        update = (await client.check_for_update(key)).update
        store.cuts = [size, 0, 0, 0]
        with pytest.raises(licclient.errors.ServiceUnavailableError):
            await client.download(update, folder, key=key)
        store.cuts = []
        [part] = folder.glob(".*.part")
        return update, part

    return begin


@pytest.fixture
def eventually():
    """Wait until something holds that happens behind the answer; fails when it never does."""

    async def wait(condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(20):
            while True:
                found = condition()
                if await found if inspect.isawaitable(found) else found:
                    return
                await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def crashes():
    """How many processes a test kills: a few; 300 in `nox -s crash`."""
    return int(os.environ.get("LICCLIENT_CRASHES", "12"))


@pytest.fixture
def root(tmp_path):
    """The app's own folder; not there yet."""
    return tmp_path / "Photo Lab"


@pytest.fixture
def lay(tmp_path):
    """Lay down the zip of a version, as `download` leaves it."""
    return lambda version, content=None: downloaded(tmp_path, content or app(version), version)
