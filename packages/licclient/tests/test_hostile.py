"""Everything that is not the service's word: each row is an outage, quickly, and leaves nothing behind."""

import contextlib
import gzip
import itertools
import json
import threading
import time
from time import monotonic

import pytest

import licclient
from licclient import ServiceUnavailable

GOOD = {"valid": True, "product": "Notes", "expiry": None, "lifetime": False}


def http(status=200, body=b"", **headers: str):
    """Write an answer, with every header as wrong as it is told."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status} X",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    if "Content_Length" not in headers and "Transfer_Encoding" not in headers:
        lines.append(f"Content-Length: {len(raw)}")
    return "\r\n".join([*lines, "", ""]).encode() + raw


def drip(raw, pause=0.2):
    """Hand out byte by byte, each in time for a limit per read."""
    for byte in raw:
        yield bytes([byte])
        time.sleep(pause)


def endless(head, piece):
    """Never stop."""
    return itertools.chain([head], itertools.repeat(piece))


GOOD_RAW = http(200, GOOD)
DEEP = b'{"valid":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
ROWS = {
    "HTML with status 200": http(
        200, b"<html>Please log in to the wireless network</html>", Content_Type="text/html"
    ),
    "an empty body": http(200),
    "no valid": http(200, {"product": "Notes", "expiry": None, "lifetime": False}),
    "valid as a string": http(200, GOOD | {"valid": "true"}),
    "valid as a number": http(200, GOOD | {"valid": 1}),
    "valid false with status 200": http(200, GOOD | {"valid": False}),
    "no product": http(200, {"valid": True, "expiry": None, "lifetime": False}),
    "product as a number": http(200, GOOD | {"product": 7}),
    "half a surrogate pair": http(200, GOOD | {"product": "\ud800"}),
    "no expiry": http(200, {"valid": True, "product": "Notes", "lifetime": False}),
    "a day that is none": http(200, GOOD | {"expiry": "2026-02-30"}),
    "an instant for a day": http(200, GOOD | {"expiry": "2026-12-01T00:00:00Z"}),
    "another calendar notation": http(200, GOOD | {"expiry": "20261201"}),
    "expiry as a number": http(200, GOOD | {"expiry": 20261201}),
    "lifetime as a number": http(200, GOOD | {"lifetime": 0}),
    "lifetime with an end": http(200, GOOD | {"lifetime": True, "expiry": "2026-12-01"}),
    "a list": http(200, [GOOD]),
    "null": http(200, None),
    "two objects": http(200, json.dumps(GOOD).encode() * 2),
    "NaN": http(200, b'{"valid": NaN}'),
    "deep nesting": http(200, DEEP),
    "a number without end": http(200, b'{"valid": ' + b"9" * 20_000 + b"}"),
    "invalid UTF-8": http(200, json.dumps(GOOD).encode().replace(b"Notes", b"N\xfftes")),
    "UTF-16": http(200, json.dumps(GOOD).encode("utf-16")),
    "status 201": http(201, GOOD),
    "a redirect": http(302, GOOD, Location="/elsewhere"),
    "a permanent redirect": http(308, GOOD, Location="https://example.org/"),
    "status 401": http(401, {"valid": False, "reason": "License not found."}),
    "status 429": http(429, {"valid": False, "reason": "License not found."}, Retry_After="1"),
    "status 500": http(500, {"valid": False, "reason": "License not found."}),
    "status 503": http(503, b"upstream connect error"),
    "403 of a firewall": http(403, b"<html>Forbidden</html>", Content_Type="text/html"),
    "403 that says valid": http(403, {"valid": True, "reason": "License expired."}),
    "403 without a reason": http(403, {"valid": False}),
    "404 of a web server": http(404, b"404 page not found"),
    "404 with a number as reason": http(404, {"valid": False, "reason": 404}),
    "422 without fields": http(422, {"message": "No."}),
    "422 with crooked fields": http(422, {"message": "No.", "errors": {"ip": "bad"}}),
    "gzip": http(200, gzip.compress(json.dumps(GOOD).encode()), Content_Encoding="gzip"),
    "an unknown encoding": http(200, GOOD, Content_Encoding="zstd"),
    "too long": http(200, json.dumps(GOOD).encode() + b" " * 2_000_000),
    "cut in the body": GOOD_RAW[:-5],
    "cut in the head": GOOD_RAW[:30],
    "a length that is too long": http(200, GOOD, Content_Length="100000"),
    "a length that is no number": http(200, GOOD, Content_Length="many"),
    "a length below zero": http(200, GOOD, Content_Length="-1"),
    "a broken chunk": http(200, b"zz\r\nfoo\r\n", Transfer_Encoding="chunked"),
    "not HTTP": b"220 mail.example.org ESMTP\r\n",
    "noise": bytes(range(256)) * 10,
    "nothing": b"",
    "an endless head": lambda: endless(b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n"),
    "an endless body": lambda: endless(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536),
    "a head that drips": lambda: drip(GOOD_RAW),
    "a body that drips": lambda: itertools.chain([GOOD_RAW[:-40]], drip(GOOD_RAW[-40:])),
    "silence": lambda: drip(b"x", pause=3),
}


@pytest.fixture(params=ROWS.values(), ids=ROWS.keys())
def hostile(request, service):
    """A service that gives one of the hostile answers, whatever it is asked."""
    row = request.param
    service.script = lambda _: row() if callable(row) else row
    return service


async def test_a_hostile_answer_is_an_outage(make_client, hostile, key, tmp_path):
    """No license, no refusal, no memory of either, and within the time limit (D-40)."""
    client = make_client(timeout=0.7)
    started = monotonic()
    with pytest.raises(ServiceUnavailable) as caught:
        await client.verify(key)
    assert monotonic() - started < 2.5
    assert key not in str(caught.value)
    assert not list((tmp_path / "state").glob("license-*"))


async def test_a_hostile_answer_is_no_update(make_client, hostile, key):
    """Looking for updates raises nothing, whatever comes back."""
    started = monotonic()
    assert await make_client(timeout=0.7).check_for_update(key) is None
    assert monotonic() - started < 2.5


async def test_a_hostile_answer_leaves_the_cache_alone(make_client, hostile, clock, key, tmp_path):
    """A license that still holds is not lost to a captive portal, nor prolonged by it."""
    service, script = hostile, hostile.script
    service.grants()
    client = make_client(timeout=0.7)
    first = await client.verify(key)
    service.script = script
    clock.move(hours=30)
    held = await client.verify(key)
    assert (held.checked_at, held.source.value) == (first.checked_at, "grace")


async def test_endpoints_are_never_redirected(make_client, service, key):
    """Not even to a place that would say yes (D-40)."""
    service.script = lambda request: GOOD_RAW if "yes" in request.path else http(307, b"", Location="/yes")
    with pytest.raises(ServiceUnavailable):
        await make_client().verify(key)
    assert service.count() == 1


async def test_a_deadline_holds_in_the_middle_of_a_redirected_head(make_client, service, key, tmp_path):
    """A download whose head drips ends as well."""
    service.offers()
    client = make_client(timeout=0.5)
    update = await client.check_for_update(key)
    service.script = lambda _: drip(GOOD_RAW)
    started = monotonic()
    with pytest.raises(ServiceUnavailable):
        await client.download(update, tmp_path / "to")
    assert monotonic() - started < 5


def test_nothing_goes_on_behind_our_back(service, key, tmp_path):
    """When time is up the connection is cut, and the thread that waited for it ends."""
    service.script = lambda _: drip(GOOD_RAW)
    with licclient.LicenseClient(service.url, state_dir=tmp_path, timeout=0.3) as client:
        with pytest.raises(ServiceUnavailable):
            client.verify(key)
        deadline = monotonic() + 2
        while any(thread.name == "licclient-call" for thread in threading.enumerate()):
            assert monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "nonsense://x", "http://[", "socks5://127.0.0.1:1"])
async def test_a_bad_proxy_setting_is_an_outage(make_client, monkeypatch, key, proxy):
    """Whatever the environment says, only our own errors get out."""
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "")
    with contextlib.suppress(KeyError):
        monkeypatch.delenv("http_proxy")
    with pytest.raises(ServiceUnavailable) as caught:
        await make_client("http://store.invalid", timeout=2).verify(key)
    assert key not in repr(caught.value)


async def test_a_certificate_that_nobody_trusts_is_an_outage(make_client, service, key):
    """TLS that cannot be set up is no answer."""
    with pytest.raises(ServiceUnavailable):
        await make_client(service.url.replace("http:", "https:")).verify(key)


async def test_the_rows_are_hostile_and_not_the_harness(make_client, service, key):
    """The answer that the rows are made from, left as it is, is a license."""
    service.script = lambda _: GOOD_RAW
    assert (await make_client(timeout=0.7).verify(key)).product == "Notes"
