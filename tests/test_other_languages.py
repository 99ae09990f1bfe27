"""The clients of docs/other-languages.md, as they stand there, in node and sh against a server that signs."""

import base64
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import pytest

from harness.programs import environment
from harness.shop import NAME, PRODUCT, SLUG
from harness.world import MovableClock, Server, World
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.security.secrets_file import format_signing_key, new_secrets

PAGE = (Path(__file__).parents[1] / "docs" / "other-languages.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^<!-- (\S+) -->\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
NODE, TSC = shutil.which("node"), shutil.which("tsc")


def has_openssl() -> bool:
    """Return whether there is an openssl of the page; that of macOS is another program."""
    try:
        done = subprocess.run(["openssl", "version"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return re.match(r"OpenSSL [3-9]", done.stdout) is not None


NEEDED = {"node": NODE, "sh": os.name != "nt" and shutil.which("curl") and has_openssl()}
YES, NO, NO_ANSWER = 0, 1, 3
COMPONENTS = '"@status" "content-type" "content-digest" "@method";req "@target-uri";req "content-digest";req'
VALID = {"valid": True, "product": NAME, "expiry": None, "lifetime": True}


@dataclass
class Exchange:
    """A request, and the answer to it that can be changed on the way."""

    method: str
    url: str
    request_headers: Mapping[str, str]
    sent: bytes = field(repr=False)
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


Change = Callable[[Exchange], Exchange]


class Between:
    """Somebody on the way to the server, who may change what it answers."""

    def __init__(self, server: Server) -> None:
        self.change: Change = lambda exchange: exchange
        self.seen: list[Exchange] = []
        between = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._pass_on()

            def do_POST(self) -> None:
                self._pass_on()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                pass  # it would name the key

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
                connection.request(self.command, self.path, body, dict(self.headers))
                response = connection.getresponse()
                url = f"http://{self.headers['Host']}{self.path}"
                request_headers = {name.lower(): value for name, value in self.headers.items()}
                headers = {name: value for name, value in response.getheaders() if name != "Server"}
                exchange = Exchange(
                    self.command, url, request_headers, body, response.status, headers, response.read()
                )
                connection.close()
                between.seen.append(exchange)
                changed = between.change(exchange)
                self.send_response(changed.status)
                for name, value in changed.headers.items():
                    if name not in ("Content-Length", "Date", "Connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(changed.body)))
                self.end_headers()
                self.wfile.write(changed.body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def clock() -> MovableClock:
    """The server's clock, which stands at the real time: the clients have no other."""
    return MovableClock(datetime.now(UTC))


@pytest.fixture
def signing_key(clock: MovableClock) -> SigningKey:
    """The service's key."""
    return SigningKey(PrivateKey.generate(), clock())


@pytest.fixture
def vendor(make_world: Callable[..., World], signing_key: SigningKey) -> World:
    """A shop that signs."""
    secrets = new_secrets() | {"signing_keys": [format_signing_key(signing_key)]}
    world = make_world(secrets=json.dumps(secrets))
    world.stock({"products": [PRODUCT], "licenses": []})
    return world


@pytest.fixture
def running(vendor: World) -> Iterator[Server]:
    """Its server."""
    with vendor.serving() as server:
        yield server


@pytest.fixture
def between(running: Server) -> Iterator[Between]:
    """The way to it."""
    with Between(running) as way:
        yield way


class Client:
    """A client of the page, in its folder."""

    def __init__(self, language: str, folder: Path, url: str, public_key: str) -> None:
        self._language, self._folder = language, folder
        self._environ = {
            **environment(folder / "home"),
            "LICENSE_SERVER": url,
            "LICENSE_PUBLIC_KEY": public_key,
            "LICENSE_PRODUCT": NAME,
        }
        for name, content in FILES.items():
            (folder / name).write_text(content, encoding="utf-8")

    def verify(self, key: str) -> tuple[int, str]:
        """Return exit status and output; what the node client remembers is forgotten first."""
        self.state.unlink(missing_ok=True)
        return self.verify_again(key)

    def verify_again(self, key: str) -> tuple[int, str]:
        """Return exit status and output."""
        return self._run(
            {"node": ["app.mjs", "verify", key], "sh": ["licensing.sh", "verify", key, "a.example"]}
        )

    def update(self, key: str, version: str) -> tuple[int, str]:
        """Return exit status and output."""
        order = ["licensing.sh", "update", key, "a.example", SLUG, version]
        return self._run({"node": ["app.mjs", "update", key, version], "sh": order})

    @property
    def state(self) -> Path:
        """What the node client remembers."""
        return self._folder / "licensing.json"

    def _run(self, orders: dict[str, list[str]]) -> tuple[int, str]:
        program = str(NODE) if self._language == "node" else "sh"
        done = subprocess.run(
            [program, *orders[self._language]],
            cwd=self._folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode != NO_ANSWER or done.stderr, "it says why"
        return done.returncode, done.stdout.strip()


@pytest.fixture(params=list(NEEDED))
def client(
    request: pytest.FixtureRequest, tmp_path: Path, between: Between, signing_key: SigningKey
) -> Client:
    """Either client, pinned to the service's key."""
    if not NEEDED[request.param]:
        pytest.skip("needs node (apt install nodejs), or a POSIX shell with curl and openssl 3")
    (tmp_path / "client").mkdir()
    return Client(request.param, tmp_path / "client", between.url, signing_key.private.public.text)


# --- what the page promises -----------------------------------------------------------------------


@pytest.mark.slow
def test_verify(client: Client, vendor: World) -> None:
    """A key that holds, one that nobody was sold, one of another product, and one that was revoked."""
    key = vendor.new_key(SLUG)
    assert client.verify(key)[0] == YES
    assert client.verify("CP-AAAAAA-AAAAAA-AAAAAA-AAAAAA-AAAAAA") == (NO, "License not found.")
    vendor.stock({"products": [{**PRODUCT, "slug": "other", "name": "Other"}], "licenses": []})
    assert client.verify(vendor.new_key("other")) == (NO, "The license is for another product.")
    vendor.services.licenses.revoke(key)
    assert client.verify(key) == (NO, "License has been revoked.")


@pytest.mark.slow
def test_update_check(client: Client, vendor: World) -> None:
    """A newer version has an address, from which its file comes; a revoked key gets none."""
    key = vendor.new_key(SLUG)
    status, printed = client.update(key, "1.0.0")
    version, _, url = printed.partition(" ")
    assert (status, version) == (YES, "1.1.0")
    with urlopen(url) as response:  # noqa: S310 - the test's own server
        assert response.read() == vendor.files["1.1.0"]
    assert client.update(key, "1.1.0") == client.update(key, "1.10.0") == (NO, "No update.")
    vendor.services.licenses.revoke(key)
    assert client.update(key, "1.0.0")[0] == NO


@pytest.mark.slow
def test_what_is_no_answer_of_the_service(client: Client, vendor: World, between: Between) -> None:
    """A login page, a redirect and an error of a gateway are outages, and no refusals."""
    key = vendor.new_key(SLUG)
    for status, headers, body in [
        (200, {"Content-Type": "text/html"}, b"<html>Please log in</html>"),
        (302, {"Location": "http://127.0.0.1:9/"}, b""),
        (503, {"Content-Type": "application/json"}, b'{"valid": true}'),
        (403, {"Content-Type": "application/json"}, b'{"message": "Forbidden"}'),
    ]:
        between.change = partial(replace, status=status, headers=headers, body=body)
        assert client.verify(key) == (NO_ANSWER, "")
        assert client.update(key, "1.0.0") == (NO_ANSWER, "")


@pytest.mark.sampled(2, "client", "days")
@pytest.mark.parametrize("days", [-3, 3])
def test_an_answer_of_another_time_is_not_believed(
    client: Client, vendor: World, clock: MovableClock, days: int
) -> None:
    """Signed by the service for this very request, days ago or days ahead."""
    key = vendor.new_key(SLUG)
    clock.forward(days=days)
    assert client.verify(key) == client.update(key, "1.0.0") == (NO_ANSWER, "")


# --- forgeries: a revoked key, and somebody on the way who would like it to be valid ----------------


def digest(content: bytes) -> str:
    """Write a `Content-Digest`."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def granted(exchange: Exchange) -> Exchange:
    """Make a success of the answer, with a digest that fits."""
    body = json.dumps(VALID).encode()
    headers = {**exchange.headers, "Content-Digest": digest(body)}
    return replace(exchange, status=200, body=body, headers=headers)


def signed(
    exchange: Exchange, key: SigningKey, components: str = COMPONENTS, listed: str = "", **changed: str
) -> Exchange:
    """Sign an answer anew, as the service does, or with other parameters."""
    instant = int(datetime.now(UTC).timestamp())
    request_headers = exchange.request_headers["accept-signature"]
    wanted = dict(re.findall(r';(nonce|keyid)="([^"]*)"', request_headers))
    signature_parameters = {
        "nonce": wanted["nonce"],
        "alg": "ed25519",
        "tag": "licensing-answer",
        "keyid": wanted["keyid"],
    }
    parameters = "".join(
        f';{name}="{value}"' for name, value in (signature_parameters | changed).items() if name != "url"
    )
    params = f"({listed or components});created={instant};expires={instant + 300}{parameters}"
    values = {
        '"@status"': str(exchange.status),
        '"content-type"': exchange.headers["Content-Type"],
        '"content-digest"': digest(exchange.body),
        '"@method";req': exchange.method,
        '"@target-uri";req': changed.get("url", exchange.url),
        '"content-digest";req': digest(exchange.sent),
    }
    lines = [*(f"{name}: {values[name]}" for name in components.split()), f'"@signature-params": {params}']
    signature = base64.b64encode(key.private.sign("\n".join(lines).encode())).decode()
    headers = {
        **exchange.headers,
        "Content-Digest": digest(exchange.body),
        "Signature-Input": f"sig0={params}",
        "Signature": f"sig0=:{signature}:",
    }
    return replace(exchange, headers=headers)


def unsigned(exchange: Exchange) -> Exchange:
    """Remove the signature."""
    headers = {name: value for name, value in exchange.headers.items() if "Signature" not in name}
    return replace(exchange, headers=headers)


def repeated(before: Exchange, exchange: Exchange, **nonces: str) -> Exchange:
    """Answer with an earlier answer; with its nonce replaced by the one that is asked for, if wanted."""
    headers = dict(before.headers)
    for old in nonces.values():
        new = re.findall(r'nonce="([^"]*)"', exchange.request_headers["accept-signature"])[0]
        headers["Signature-Input"] = headers["Signature-Input"].replace(old, new)
    return replace(before, request_headers=exchange.request_headers, headers=headers)


FORGERIES: dict[str, Callable[[Exchange, SigningKey], Exchange]] = {
    "another body": lambda exchange, _: replace(granted(exchange), headers=exchange.headers),
    "another body and digest": lambda exchange, _: granted(exchange),
    "another status": lambda exchange, _: replace(exchange, status=200),
    "no signature": lambda exchange, _: unsigned(granted(exchange)),
    "another key": lambda exchange, own: signed(
        granted(exchange), SigningKey(PrivateKey.generate(), own.added_at)
    ),
    "another key, by its name": lambda exchange, own: signed(
        granted(exchange), SigningKey(PrivateKey.generate(), own.added_at), keyid="x" * 43
    ),
    "half a signature": lambda exchange, _: replace(
        granted(exchange), headers={**exchange.headers, "Signature": "sig0=:AAAA:"}
    ),
    # The service's own key would not sign these, unless another service of the vendor has it.
    "without the status": lambda exchange, own: signed(
        granted(exchange), own, COMPONENTS.replace('"@status" ', "")
    ),
    "over more than it lists": lambda exchange, own: signed(
        granted(exchange), own, listed=COMPONENTS.replace('"@status" ', "")
    ),
    "for another purpose": lambda exchange, own: signed(granted(exchange), own, tag="another"),
    "for another request": lambda exchange, own: signed(granted(exchange), own, nonce="another"),
    "for another address": lambda exchange, own: signed(
        granted(exchange), own, url="https://licenses.example.com/api/v1/licenses/verify"
    ),
}


@pytest.mark.sampled(2, "client")
@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_success_is_not_believed(
    client: Client, vendor: World, between: Between, signing_key: SigningKey, forge: Any
) -> None:
    """A revoked key stays without a license, whatever is changed on the way."""
    key = vendor.new_key(SLUG)
    vendor.services.licenses.revoke(key)
    between.change = lambda exchange: forge(exchange, signing_key)
    assert client.verify(key) == (NO_ANSWER, "")


def test_only_what_is_wrong_with_them_makes_them_forgeries(
    client: Client, vendor: World, between: Between, signing_key: SigningKey
) -> None:
    """Signed with the service's key and nothing changed, the same answer would be believed."""
    key = vendor.new_key(SLUG)
    vendor.services.licenses.revoke(key)
    between.change = lambda exchange: signed(granted(exchange), signing_key)
    assert client.verify(key)[0] == YES


@pytest.mark.slow
def test_an_earlier_answer_is_not_believed_again(client: Client, vendor: World, between: Between) -> None:
    """From before the key was revoked, as it was, or with the nonce of today's request."""
    key = vendor.new_key(SLUG)
    assert client.verify(key)[0] == YES
    before = between.seen[-1]
    nonce = re.findall(r'nonce="([^"]*)"', before.request_headers["accept-signature"])[0]
    vendor.services.licenses.revoke(key)
    for nonces in ({}, {"old": nonce}):
        between.change = partial(repeated, before, **nonces)
        assert client.verify(key) == (NO_ANSWER, "")


def test_an_offer_with_another_address_is_not_believed(
    client: Client, vendor: World, between: Between
) -> None:
    """Nobody on the way can lead the app to a file of its own."""
    key = vendor.new_key(SLUG)
    body: list[bytes] = []

    def lead_astray(exchange: Exchange) -> Exchange:
        body.append(re.sub(rb"http://[^/]*/", b"https://evil.example/", exchange.body))
        return replace(
            exchange, body=body[-1], headers={**exchange.headers, "Content-Digest": digest(body[-1])}
        )

    between.change = lead_astray
    assert client.update(key, "1.0.0") == (NO_ANSWER, "")
    assert b"evil.example" in body[-1]


# --- what the node client remembers -----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("client", ["node"], indirect=True)
def test_what_is_remembered(client: Client, vendor: World, between: Between, running: Server) -> None:
    """A day without a request, three more in an outage, none after a refusal."""
    key = vendor.new_key(SLUG)
    assert client.verify(key)[0] == client.verify_again(key)[0] == YES
    assert len(between.seen) == 1
    assert key not in client.state.read_text()

    def age(hours: int) -> None:
        state = json.loads(client.state.read_text())
        (name,) = (name for name in state if name.startswith("license-"))
        state[name]["at"] -= hours * 3_600_000
        client.state.write_text(json.dumps(state))

    age(30)
    between.change = lambda exchange: replace(exchange, status=503)
    assert client.verify_again(key)[0] == YES
    between.change = unsigned
    assert client.verify_again(key)[0] == NO_ANSWER  # no outage: somebody is on the way
    between.change = lambda exchange: replace(exchange, status=503)
    age(70)
    assert client.verify_again(key)[0] == NO_ANSWER
    age(-90)
    vendor.services.licenses.revoke(key)
    age(20)
    between.change = lambda exchange: exchange
    assert client.verify_again(key)[0] == NO
    between.change = lambda exchange: replace(exchange, status=503)
    assert client.verify_again(key)[0] == NO_ANSWER


@pytest.mark.slow
@pytest.mark.parametrize("client", ["node"], indirect=True)
def test_what_is_remembered_ends_with_the_license(client: Client, vendor: World, between: Between) -> None:
    """After its last day a success counts no longer, however long the outage is (D-41)."""
    key = vendor.new_key(SLUG, expires_on="2099-12-31")
    assert client.verify(key) == (YES, "Licensed until 2099-12-31.")
    between.change = lambda exchange: replace(exchange, status=503)
    assert client.verify_again(key)[0] == YES
    client.state.write_text(client.state.read_text().replace("2099-12-31", "2020-12-31"))
    assert client.verify_again(key)[0] == NO_ANSWER


def has_typescript() -> bool:
    """Return whether there is a compiler that knows what browsers have had since 2022."""
    version_text = (
        ""
        if TSC is None
        else subprocess.run([TSC, "--version"], capture_output=True, text=True, check=False).stdout
    )
    return re.match(r"Version ([5-9]|\d\d)\.", version_text) is not None


@pytest.mark.skipif(not has_typescript(), reason="TypeScript 5 is not installed (npm install -g typescript)")
def test_it_is_typescript(tmp_path: Path) -> None:
    """The compiler has nothing to say to the two modules, in its strict mode."""
    for name in ("signed.mjs", "licensing.mjs"):
        (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    options = ["--noEmit", "--strict", "--allowJs", "--checkJs", "--module", "nodenext"]
    options += ["--target", "es2022", "--lib", "es2022,dom,dom.iterable"]
    command = [str(TSC), *options, "signed.mjs", "licensing.mjs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
