"""What every answer carries, and what none does (D-73)."""

import pytest

from harness.engines import sqlite_only

pytestmark = sqlite_only

ADDRESSES = [
    ("POST", "/api/v1/licenses/verify"),
    ("PUT", "/api/v1/licenses/verify"),
    ("GET", "/api/v1/update-check"),
    ("HEAD", "/api/v1/update-check"),
    ("GET", "/api/v1/update-download"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/nothing"),
]


@pytest.mark.sampled(1, "base_url")
@pytest.mark.parametrize("base_url", [None, "http://l.example", "https://l.example/sub"])
async def test_no_answer_is_kept_guessed_at_or_led_elsewhere(make_world, open_site, base_url):
    """`no-store` and `nosniff` on all, HSTS where customers come by https, and no redirect to https."""
    world = make_world(base_url=base_url)
    world.publish("1.0", b"content")
    site, key = await open_site(world), world.key()
    answers = [await site.call(*address) for address in ADDRESSES]
    body = {"license_key": key, "domain": "a.example", "ip": "::1"}
    answers.append(await site.call("POST", "/api/v1/licenses/verify", json=body))
    query = {"license_key": key, "slug": "app", "current_version": "1", "domain": "x"}
    answers.append(await site.call("GET", "/api/v1/update-check", params=query))
    link = answers[-1][2]["download_url"]
    file = [
        await site.call(method, link[link.index("/api/") :], headers=headers)
        for method, headers in (
            ("GET", {}),
            ("HEAD", {}),
            ("GET", {"Range": "bytes=1-"}),
            ("GET", {"Range": "bytes=9-"}),
        )
    ]
    hsts = "max-age=31536000" if base_url and base_url.startswith("https") else None
    broken = await site.raw(b"no HTTP\r\n\r\n")
    assert broken.startswith(b"HTTP/1.1 400 ")
    assert (b"\r\nStrict-Transport-Security: max-age=31536000\r\n" in broken) is bool(hsts)
    assert [status for status, _, _ in file] == [200, 200, 206, 416]
    assert {status for status, _, _ in answers} == {200, 403, 404, 405, 422}
    vendor = [await site.call("GET", path) for path in ("/admin/api/v1/products", "/console/sign-in")]
    for _, headers, _ in answers + file + vendor:
        assert "Server" not in headers  # it would name versions
        assert headers.get("Strict-Transport-Security") == hsts
    for _, headers, _ in answers + file:
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert {headers["Cache-Control"] for _, headers, _ in answers} == {"no-store"}
    assert {headers["Cache-Control"] for _, headers, _ in file} == {"private"}
