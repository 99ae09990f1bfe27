"""The contract, first way: the server produces every answer of the vectors, over a real socket."""

import http.client
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from harness.vectors import LINK, Case, instant, load, parameters
from harness.world import MovableClock, Server, World

BASE = "https://licenses.example/store"
DEFAULT_PEER = "198.51.100.7"


@dataclass(frozen=True, slots=True)
class Played:
    """What a case came to: the answer, and the query that was really sent."""

    world: World
    query: dict[str, str]
    status: int
    headers: http.client.HTTPMessage
    body: bytes


def play(
    case: Case,
    clock: MovableClock,
    make_world: Callable[..., World],
    asking: Mapping[str, str] | None = None,
    **settings: Any,
) -> Played:
    """Set the case's records, clock and settings up, and send its request over a real socket.

    Args:
        case: The case.
        clock: The world's.
        make_world: The fixture.
        asking: Headers to send beside the case's own.
        **settings: Settings of the server beside the case's own.
    """
    clock.now = case.now
    # Our own connection comes from loopback; as a trusted proxy it can speak for any address.
    proxies = ["127.0.0.0/8", *case.raw.get("trusted_proxies", [])]
    settings |= {"base_url": BASE, "trusted_proxies": proxies}
    world = make_world(ipv6_prefix=case.raw.get("ipv6_prefix", 128), **settings)
    world.stock(case.given)
    with world.serving() as server:
        query = _query(server, world, case)
        return Played(world, query, *_send(server, case, case.request["path"], query, asking))


@pytest.mark.parametrize("case", parameters(load()))
def test_the_server_answers_exactly_this(
    case: Case, clock: MovableClock, make_world: Callable[..., World]
) -> None:
    """Records, clock and request of the case give its status, its body and what is stored afterwards."""
    played = play(case, clock, make_world)
    assert played.status == case.answer["status"], played.body
    for name, value in case.answer.get("headers", {}).items():
        assert played.headers[name] == value
    if "file" in case.answer:
        assert played.body == played.world.files[case.answer["file"]]
    else:
        _assert_same_json(played.body, case.answer["json"])
    given = {license_["key"]: license_.get("activations", []) for license_ in case.given["licenses"]}
    for key, activations in (given | case.raw.get("after", {})).items():
        assert played.world.activations(key) == sorted(activations)


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
    asked = {
        "license_key": link["license"],
        "slug": link["slug"],
        "current_version": "0",
        "domain": "home.example",
    }
    _, _, body = _send(server, case, "/api/v1/update-check", asked)
    parts = dict(parse_qsl(urlsplit(json.loads(body)["download_url"]).query)) | link.get("change", {})
    meanwhile = case.raw.get("meanwhile", {})
    if "revoke" in meanwhile:
        world.vendor.revoke(meanwhile["revoke"])
    if "withdraw" in meanwhile:
        world.vendor.withdraw(link["slug"], meanwhile["withdraw"])
    world.clock.now = case.now
    return {name: value for name, value in parts.items() if value is not None}


def _assert_same_json(body: bytes, expected: Any) -> None:
    """Compare a body with the vector's: same fields, in the same order, with the same values."""
    got = json.loads(body)
    if isinstance(expected, dict) and expected.get("download_url") == LINK:
        assert got["download_url"].startswith(f"{BASE}/api/v1/update-download?")
        got = {**got, "download_url": LINK}
    assert json.dumps(got) == json.dumps(expected)
