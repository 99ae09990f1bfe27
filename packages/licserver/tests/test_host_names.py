"""The name under which a request addresses the server, where that has a base URL."""

import pytest

from licserver.web.host_names import HostNames

BASE = "https://licenses.example.com"
RIGHT = [
    *("licenses.example.com", "LICENSES.example.com:443", "licenses.example.com.", "localhost:8080"),
    *("127.0.0.1", "192.0.2.7:8080", "[::1]:8080", "[2001:db8::1]", "backend"),
]
WRONG = [
    *("evil.example", "licenses.example.com.evil.example", "evil.example#licenses.example.com", "a@b"),
    *("licenses.example.com:80:80", "x" * 400, "[::1", "evil.example:licenses.example.com", " "),
]
VERIFY = {"license_key": "CP-AAAAAA-BBBBBB-CCCCCC-DDDDDD-EEEEEE", "domain": "a.example", "ip": "192.0.2.1"}


class FakeRequest:
    """What is looked at of a request."""

    def __init__(self, host: str, path: str = "/") -> None:
        self.headers, self.host, self.raw_path = {"Host": host}, host, path
        self.rel_url = type("Url", (), {"raw_path": path})


@pytest.mark.parametrize(
    ("host", "expected"), [*((name, True) for name in RIGHT), *((name, False) for name in WRONG)]
)
def test_a_name_is_that_of_the_base_url_or_an_address(host, expected):
    """Nobody can lead an address elsewhere; the settings may have further names."""
    names = HostNames(BASE, ["Backend"])
    assert names.allow(FakeRequest(host)) is expected
    assert HostNames(None, ()).allow(FakeRequest(host))
    dotted = HostNames(f"{BASE}.", ["Backend."])  # a full name's dot
    assert dotted.allow(FakeRequest(host)) is expected
    if not expected and len(host) < 300:
        assert names.allow(FakeRequest(host, "/readyz"))


def test_the_host_of_a_whole_address_counts():
    """`GET http://evil.example/console` with the right Host passed (found by an attack)."""
    request = FakeRequest("licenses.example.com")
    request.host, request.raw_path = "evil.example", "http://evil.example/"
    assert not HostNames(BASE, ()).allow(request)


async def test_a_request_for_another_name_is_refused(make_world, open_site):
    """On every endpoint, before anything is done; probes may use any name."""
    world = make_world(base_url=BASE, account=True)
    site = await open_site(world)
    for method, path in (
        ("POST", "/api/v1/licenses/verify"),
        ("GET", "/api/v1/update-check"),
        ("GET", "/console"),
        ("GET", "/account"),
        ("GET", "/admin/api/v1/products"),
        ("GET", "/"),
    ):
        status, _, _ = await site.call(method, path, headers={"Host": "evil.example"})
        assert status == 421, path
    status, _, answer = await site.call("GET", "/healthz", headers={"Host": "evil.example"})
    assert (status, answer) == (200, {"status": "ok"})
    status, _, answer = await site.call(
        "POST", "/api/v1/licenses/verify", json=VERIFY, headers={"Host": "licenses.example.com"}
    )
    assert (status, answer["reason"]) == (404, "License not found.")
