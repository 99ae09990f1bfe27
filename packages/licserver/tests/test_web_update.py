"""GET /api/v1/update-check over a real socket (spec 4.2)."""

from urllib.parse import urlencode

import pytest

PATH = "/api/v1/update-check"


async def test_the_set_base_url_wins_over_the_host(open_site, make_world):
    """Once it is set, no Host header gets into a link (D-30), neither an address nor another allowed name."""
    world = make_world(base_url="https://l.example/sub/", allowed_hosts="other.example")
    world.publish("1.0")
    site = await open_site(world)
    for host in ("192.0.2.1", "other.example"):
        _, answer = await site.check(world.key(), headers={"Host": host})
        assert answer["download_url"].startswith("https://l.example/sub/api/v1/update-download?")


HOSTS = [b"", b" ", b"\xff", b"a b", b"a/b", b"a?b", b"a#b", b"me:you@a", b'a"b', b"a<b>", b"x" * 300]
GOOD_HOSTS = [b"a.example", b"localhost:8080", b"[::1]:80", b"192.0.2.1"]


async def test_only_a_valid_host_gets_into_a_link(site, world):
    """Without a base URL the link names the Host header; a value that is no host is refused with 400."""
    world.publish("1.0")
    query = urlencode({"license_key": world.key(), "slug": "app", "current_version": "1", "domain": "a"})
    for host in HOSTS + GOOD_HOSTS:
        head = f"GET {PATH}?{query} HTTP/1.1\r\nConnection: close\r\nHost: ".encode()
        answer = await site.raw(head + host + b"\r\n\r\n")
        if host in GOOD_HOSTS:
            assert b'"download_url":"http://' + host + b"/api/v1/update-download?" in answer, host
        else:
            assert answer.startswith(b"HTTP/1.1 400 "), host


ODD = [
    "license_key=%00&slug=%00&current_version=%00&domain=%00",
    "license_key=%ff&slug=%ff&current_version=%ff&domain=%ff",
    "license_key=%ed%a0%80&slug=a&current_version=1&domain=a",
    "license_key=a&slug=%27%20OR%201%3D1--&current_version=1&domain=a",
    "license_key=a&slug=a&current_version=" + "9" * 5000 + "&domain=a",
    "license_key=" + "A" * 6000 + "&slug=a&current_version=1&domain=a",
    "&".join(f"a{n}=1" for n in range(900)),
    "=&=&=&;;;%%%&%zz=%",
    "license_key[]=a&slug[x]=b",
]


async def test_no_query_makes_the_server_fail(site, world):
    """Malformed queries are refused in one of the specified formats."""
    for query in ODD:
        request = f"GET {PATH}?{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert (await site.raw(request.encode())).split(b" ")[1] in {b"401", b"422"}, query[:50]


LONG = {"/healthz": b"414", "/nothing": b"414", PATH: b"422", "/admin/api/v1/products": b"414"}


@pytest.mark.sampled(2, "path", "status")
@pytest.mark.parametrize(("path", "status"), LONG.items(), ids=LONG)
async def test_a_long_address_is_not_decoded(site, path, status):
    """More than 4,096 characters are a 414; an update check refuses them as it does other queries (D-299)."""
    for length, expected in ((5000, status), (4096 - len("/healthz?a="), b"200")):
        target = path if length == 5000 else "/healthz"
        request = f"GET {target}?a={'%' * length} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert (await site.raw(request.encode())).split(b" ")[1] == expected
