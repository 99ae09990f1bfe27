"""The contract, first way: the server produces every answer of the vectors, over a real socket.

Each vector is played once: answer, stored activations, OpenAPI document and signature are asserted together.
One server runs for all; each vector has its own records.
"""

import http.client
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from harness.oracle import HttpRequest, HttpResponse, accept_signature, digest, verify
from harness.vectors import LINK, Case, instant, load, parameters
from harness.world import MovableClock, Server, World, utc
from licserver.protocol import public_api
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.protocol.moves import COMPUTERS_PATH, MOVE_PATH
from licserver.protocol.rollbacks import ROLLED_BACK_PATH
from licserver.protocol.seats import SEAT_PATH
from licserver.protocol.trials import TRIAL_PATH
from licserver.protocol.uses import CONSUME_PATH
from licserver.security.secrets_file import format_signing_key, new_secrets

ELSEWHERE = ("/events/", public_api.DEACTIVATE_PATH, ROLLED_BACK_PATH)
"""Shown in packages/licserver/tests: test_sales, test_moves_service, test_rollouts."""

BASE = "https://licenses.example/store"
DEFAULT_PEER = "198.51.100.7"
SIGNED = {("POST", public_api.VERIFY_PATH), ("GET", public_api.UPDATE_CHECK_PATH), ("POST", TRIAL_PATH)} | {
    ("POST", SEAT_PATH),
    ("POST", CONSUME_PATH),
    ("POST", COMPUTERS_PATH),
    ("POST", MOVE_PATH),
}
UNSIGNED_STATUSES = {400, 408, 413, 503}
NOW = utc(2026, 1, 1)
KEY = SigningKey(PrivateKey.generate(), NOW)
DOCUMENT: dict[str, Any] = json.loads(
    Path(__file__)
    .parents[1]
    .joinpath("packages/licserver/src/licserver/protocol/openapi.json")
    .read_text(encoding="utf-8")
)

# The server keeps releases in memory by their ids, so products keep their rows, and lose their slugs.
SET_ASIDE = """DELETE FROM trials; DELETE FROM seats; DELETE FROM slot_moves;
    DELETE FROM move_records; DELETE FROM activations; DELETE FROM license_words;
    DELETE FROM uses; DELETE FROM use_ids; DELETE FROM licenses;
    UPDATE products SET slug = 'former-' || id"""


class Running(NamedTuple):
    """A running server, and whose it is."""

    world: World
    server: Server


@contextmanager
def serving(folder: Path, ipv6_prefix: int = 128, trusted_proxies: tuple[str, ...] = ()) -> Iterator[Running]:
    """Run a server that signs. Our connection comes from a trusted proxy, so it can name any address."""
    world = World(
        folder,
        MovableClock(NOW),
        base_url=BASE,
        ipv6_prefix=ipv6_prefix,
        trusted_proxies=["127.0.0.0/8", *trusted_proxies],
        secrets=json.dumps({**new_secrets(), "signing_keys": [format_signing_key(KEY)]}),
        miss_limit=0,
        flood_limit=0,
    )
    with closing(world), world.serving() as server:
        yield Running(world, server)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The server of all vectors that need no setting of their own."""
    with serving(tmp_path_factory.mktemp("vectors")) as running:
        yield running


@pytest.fixture
def running(case: Case, shared: Running, tmp_path: Path) -> Iterator[Running]:
    """A server with the case's settings and records, at the case's time."""
    settings = {name: case.raw[name] for name in ("ipv6_prefix", "trusted_proxies") if name in case.raw}
    if settings:
        with serving(tmp_path, **settings) as own:
            _stock(own.world, case)
            yield own
        return
    with closing(sqlite3.connect(shared.world.services.settings.data_dir / "licserver.sqlite3")) as database:
        database.executescript(SET_ASIDE)
    _stock(shared.world, case)
    yield shared


@pytest.fixture(scope="module")
def openapi() -> Any:
    """The document, itself checked against the OpenAPI 3.1 schema when it is loaded."""
    from openapi_core import Config, OpenAPI  # noqa: PLC0415 - a quarter of a second, in each worker

    media_types: dict[str, Callable[[bytes], Any]] = {"application/jose+json": json.loads}
    return OpenAPI.from_dict(DOCUMENT, config=Config(extra_media_type_deserializers=media_types))


@pytest.mark.sampled(60)
@pytest.mark.parametrize("case", parameters(load()))
def test_the_server_answers_exactly_this(case: Case, running: Running, openapi: Any) -> None:
    """The case gives its status, body and activations; the answer is documented, and signed."""
    world, server = running
    case = case.naming_computers(lambda key, domain: world.services.moves.computer_id(key, domain).hex())
    method, path = case.request["method"], case.request["path"]
    query = _query(server, world, case)
    asking = {}
    if (method, path) in SIGNED:
        asking = {
            "Accept-Signature": accept_signature("bm9uY2U", keyid=KEY.id),
            "Content-Digest": digest(case.body() or b""),
        }
    status, headers, body = _send(server, case, path, query, asking)
    assert status == case.answer["status"], body
    for name, value in case.answer.get("headers", {}).items():
        assert headers[name] == value
    if "file" in case.answer:
        assert body == world.files[case.answer["file"]]
    else:
        _assert_same_json(body, case.answer["json"])
    given = {license_["key"]: license_.get("activations", []) for license_ in case.given["licenses"]}
    for key, activations in (given | case.raw.get("after", {})).items():
        assert world.activations(key) == sorted(activations)
    for key, machines in case.raw.get("machines", {}).items():
        assert world.machines(key) == machines

    if status not in {404, 405} or "routes" not in case.file:
        from openapi_core.testing import MockRequest, MockResponse  # noqa: PLC0415 - as above

        request = MockRequest("http://localhost", method.lower(), path, args=query)
        header_fields = dict(headers.items())
        response = MockResponse(body, status, header_fields, content_type=str(headers["Content-Type"]))
        openapi.validate_response(request, response)
    if not asking or status in UNSIGNED_STATUSES:
        assert "Signature" not in headers
        return
    target = BASE + path + (f"?{urlencode(query)}" if query else "")
    signed_request = HttpRequest(method, target, asking, case.body() or b"")
    answered = HttpResponse(signed_request, status, dict(headers.items()), body)
    result = verify(answered, {KEY.id: KEY.private.public.raw}, case.now.replace(microsecond=0))
    assert result.nonce == "bm9uY2U"
    assert list(result.parameters) == ["created", "expires", "keyid", "nonce", "alg", "tag"]


def test_every_described_status_is_answered_in_a_vector_or_is_about_trouble() -> None:
    """The document promises nothing but what vectors show; parts, buckets and trouble are elsewhere."""
    shown = {(case.request["path"], str(case.answer["status"])) for case in load()}
    described = {
        (path, status)
        for path, operations in DOCUMENT["paths"].items()
        if not path.startswith(ELSEWHERE)
        for operation in operations.values()
        for status in operation["responses"]
    }
    elsewhere = {status for _, status in described - shown}
    assert elsewhere == {"206", "307", "400", "408", "415", "416", "429", "503"}


def test_the_document_names_no_server() -> None:
    """A vendor serves under an address of its own: the document is the same for all."""
    assert DOCUMENT["servers"] == [{"url": "/"}]
    assert BASE not in json.dumps(DOCUMENT)


def _stock(world: World, case: Case) -> None:
    world.clock.now = case.now
    world.stock(case.given)


def _send(
    server: Server, case: Case, path: str, query: dict[str, str], asking: Mapping[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Send one request as a proxy would that the case's caller is connected to."""
    headers = {**case.raw.get("headers", {}), **(asking or {})}
    hops = [headers[name] for name in headers if name == "X-Forwarded-For"]
    headers["X-Forwarded-For"] = ", ".join([*hops, case.raw.get("from", DEFAULT_PEER)])
    target = f"{path}?{urlencode(query)}" if query else path
    method, body = (case.request["method"], case.body()) if path == case.request["path"] else ("GET", None)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, target, body=body, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def _query(server: Server, world: World, case: Case) -> dict[str, str]:
    """The request's query; for a download, the query of a link that is handed out first."""
    if case.request.get("query") != LINK:
        return dict(case.request.get("query", {}))
    link = case.raw["link"]
    world.clock.now = instant(link["signed_at"])
    query = {
        "license_key": link["license"],
        "slug": link["slug"],
        "current_version": "0",
        "domain": "home.example",
        "platform": link.get("platform", ""),
    }
    _, _, body = _send(server, case, "/api/v1/update-check", query)
    parts = dict(parse_qsl(urlsplit(json.loads(body)["download_url"]).query)) | link.get("change", {})
    meanwhile = case.raw.get("meanwhile", {})
    if "revoke" in meanwhile:
        world.services.licenses.revoke(meanwhile["revoke"])
    if "withdraw" in meanwhile:
        world.services.releases.withdraw(link["slug"], meanwhile["withdraw"])
    world.clock.now = case.now
    return {name: value for name, value in parts.items() if value is not None}


def _assert_same_json(body: bytes, expected: Any) -> None:
    """Compare a body with the vector's: same fields, in the same order, with the same values."""
    got = json.loads(body)
    if isinstance(expected, dict) and expected.get("download_url") == LINK:
        assert got["download_url"].startswith(f"{BASE}/api/v1/update-download?")
        got = {**got, "download_url": LINK}
    assert json.dumps(got) == json.dumps(expected)
