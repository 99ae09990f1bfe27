"""The table of hostile answers to a verify or an update check. A new row is a line: a name and what is sent.

No row may grant, refuse, offer or be remembered. Rows of one endpoint alone stand in tables of their own.
"""

import gzip
import itertools
import json
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from stage.scripts import RESET, Script, chunked, drip, endless, http, silence

GOOD = {"valid": True, "product": "Notes", "expiry": None, "lifetime": False}
GOOD_RAW = http(200, GOOD)
DEEP = b'{"valid":' + b"[" * 20_000 + b"]" * 20_000 + b"}"

_JSON = json.dumps(GOOD).encode()


@cache
def _bomb() -> bytes:
    """Sixty megabytes of spaces and a license, as sixty kilobytes."""
    packer = zlib.compressobj(wbits=31)
    packed = [packer.compress(b" " * 1_000_000) for _ in range(60)]
    return b"".join([*packed, packer.compress(_JSON), packer.flush()])


def _interim(_: Any) -> Iterator[bytes]:
    return endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n")


ANSWERS: dict[str, Script] = {
    # --- not the protocol's words
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
    "NUL in a name": http(200, GOOD | {"product": "Notes\0"}),
    "NUL in the text": http(200, _JSON.replace(b"Notes", b"No\0tes")),
    "no expiry": http(200, {"valid": True, "product": "Notes", "lifetime": False}),
    "a day that is none": http(200, GOOD | {"expiry": "2026-02-30"}),
    "an instant for a day": http(200, GOOD | {"expiry": "2026-12-01T00:00:00Z"}),
    "another calendar notation": http(200, GOOD | {"expiry": "20261201"}),
    "Arabic digits in a day": http(200, GOOD | {"expiry": "٢٠٢٦-١٢-٠١"}),
    "expiry as a number": http(200, GOOD | {"expiry": 20261201}),
    "lifetime as a number": http(200, GOOD | {"lifetime": 0}),
    "lifetime with an end": http(200, GOOD | {"lifetime": True, "expiry": "2026-12-01"}),
    # --- not JSON as it should be
    "a list": http(200, [GOOD]),
    "null": http(200, None),
    "two objects": http(200, _JSON * 2),
    "a name twice": http(200, _JSON.replace(b"{", b'{"valid": false, ', 1)),
    "a name twice, well hidden": http(200, _JSON.replace(b"{", b'{"v\\u0061lid": false, ', 1)),
    "NaN": http(200, b'{"valid": NaN}'),
    "deep nesting": http(200, DEEP),
    "a number without end": http(200, b'{"valid": ' + b"9" * 20_000 + b"}"),
    "a number beyond all numbers": http(200, _JSON.replace(b"null", b"1e999999999")),
    "invalid UTF-8": http(200, _JSON.replace(b"Notes", b"N\xfftes")),
    "UTF-16": http(200, json.dumps(GOOD).encode("utf-16")),
    "a byte order mark": http(200, b"\xef\xbb\xbf" + _JSON),
    "a script that calls back": http(200, b"callback(" + _JSON + b")", Content_Type="text/javascript"),
    # --- other statuses
    "status 201": http(201, GOOD),
    "status 206": http(206, GOOD, Content_Range="bytes 0-9/10"),
    "status 304": http(304),
    "a redirect": http(302, GOOD, Location="/elsewhere"),
    "a permanent redirect": http(308, GOOD, Location="https://example.org/"),
    "a redirect to a file": http(302, GOOD, Location="file:///etc/passwd"),
    "status 401": http(401, {"valid": False, "reason": "License not found."}),
    "status 407": http(407, {"valid": False, "reason": "License not found."}, Proxy_Authenticate="Basic"),
    "status 429": http(429, {"valid": False, "reason": "License not found."}, Retry_After="1"),
    "status 429 for years": http(429, b"", Retry_After="99999999"),
    "status 500": http(500, {"valid": False, "reason": "License not found."}),
    "status 503": http(503, b"upstream connect error"),
    "status 503 at a strange time": http(503, b"", Retry_After="Thu, 99 Foo 9999 99:99:99 GMT"),
    "403 of a firewall": http(403, b"<html>Forbidden</html>", Content_Type="text/html"),
    "403 that says valid": http(403, {"valid": True, "reason": "License expired."}),
    "403 without a reason": http(403, {"valid": False}),
    "404 of a web server": http(404, b"404 page not found"),
    "404 with a number as reason": http(404, {"valid": False, "reason": 404}),
    "422 without fields": http(422, {"message": "No."}),
    "422 with crooked fields": http(422, {"message": "No.", "errors": {"ip": "bad"}}),
    # --- packed, and too much
    "gzip": http(200, gzip.compress(_JSON), Content_Encoding="gzip"),
    "a gzip bomb": lambda _: http(200, _bomb(), Content_Encoding="gzip"),
    "a gzip bomb in chunks": lambda _: http(
        200, chunked(_bomb()), Content_Encoding="gzip", Transfer_Encoding="chunked"
    ),
    "an unknown encoding": http(200, GOOD, Content_Encoding="zstd"),
    "two encodings": http(200, GOOD, Content_Encoding="identity, gzip"),
    "too long": http(200, _JSON + b" " * 2_000_000),
    "an endless head": lambda _: endless(b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n"),
    "one huge header": lambda _: endless(b"HTTP/1.1 200 OK\r\nX-More: ", b"x" * 65536),
    "an endless status line": lambda _: endless(b"HTTP/1.1 200 ", b"O" * 65536),
    "endless interim answers": _interim,
    "an endless body": lambda _: endless(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536),
    "endless chunks": lambda _: endless(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n"
    ),
    "an endless chunk size": lambda _: endless(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0" * 65536
    ),
    # --- broken framing
    "cut in the body": GOOD_RAW[:-5],
    "cut in the head": GOOD_RAW[:30],
    "a length that is too long": http(200, GOOD, Content_Length="100000"),
    "a length beyond all lengths": http(200, GOOD, Content_Length="9" * 40),
    "a length that is no number": http(200, GOOD, Content_Length="many"),
    "a length below zero": http(200, GOOD, Content_Length="-1"),
    "two lengths": GOOD_RAW.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n", 1),
    "a broken chunk": http(200, b"zz\r\nfoo\r\n", Transfer_Encoding="chunked"),
    "a chunk below zero": http(200, b"-5\r\nfoo\r\n", Transfer_Encoding="chunked"),
    "a chunk cut off": http(200, b"ff\r\nfoo", Transfer_Encoding="chunked"),
    "a framing that nobody knows": http(200, GOOD, Transfer_Encoding="gzip"),
    "a header folded over lines": b"HTTP/1.1 200 OK\r\nX: a\r\n\tb\0\r\n\r\n",
    "HTTP 0.9": _JSON,
    "HTTP 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "not HTTP": b"220 mail.example.org ESMTP\r\n",
    "a TLS alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "noise": bytes(range(256)) * 10,
    "nothing": b"",
    "a reset at once": lambda _: [RESET],
    "a reset in the head": lambda _: [GOOD_RAW[:20], RESET],
    "a reset in the body": lambda _: [GOOD_RAW[:-20], RESET],
    # --- too slow
    "a head that drips": lambda _: drip(GOOD_RAW),
    "a body that drips": lambda _: itertools.chain([GOOD_RAW[:-40]], drip(GOOD_RAW[-40:])),
    "chunks that drip": lambda _: itertools.chain(
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"], drip(chunked(_JSON))
    ),
    "silence": lambda _: silence(),
    "silence in the head": lambda _: silence(GOOD_RAW[:20]),
    "silence in the body": lambda _: silence(GOOD_RAW[:-5]),
}

OFFER: dict[str, Any] = {
    "name": "Notes",
    "slug": "notes",
    "version": "2.0",
    "download_url": "https://files.example/notes.zip",
    "sections": {"changelog": "Faster."},
    "last_updated": "2026-11-20 10:11:12",
    "requires": None,
    "tested": None,
}

UPDATES: dict[str, Script] = {
    "another slug": http(200, OFFER | {"slug": "paint"}),
    "no slug": http(200, {name: value for name, value in OFFER.items() if name != "slug"}),
    "a slug in another case": http(200, OFFER | {"slug": "Notes"}),
    "a lower version": http(200, OFFER | {"version": "0.9"}),
    "the same version": http(200, OFFER | {"version": "1.0"}),
    "a version that nobody can read": http(200, OFFER | {"version": "latest"}),
    "a version of one huge number": http(200, OFFER | {"version": "9" * 5000}),
    "a version of a megabyte": http(200, OFFER | {"version": "9." * 300_000 + "9"}),
    "a version as a number": http(200, OFFER | {"version": 2.0}),
    "a pre-release": http(200, OFFER | {"version": "2.0rc1"}),
    "no sections": http(200, OFFER | {"sections": None}),
    "a changelog as a list": http(200, OFFER | {"sections": {"changelog": ["Faster."]}}),
    "a changelog without end": http(200, OFFER | {"sections": {"changelog": "x" * 2_000_000}}),
    "an instant that is none": http(200, OFFER | {"last_updated": "2026-11-31 10:11:12"}),
    "an empty link": http(200, OFFER | {"download_url": ""}),
    "null for a link": http(200, OFFER | {"download_url": None}),
    "a link to a file": http(200, OFFER | {"download_url": "file:///etc/passwd"}),
    "a link to a script": http(200, OFFER | {"download_url": "javascript:alert(1)"}),
    "a link without encryption": http(200, OFFER | {"download_url": "http://files.example/x"}),
    "a link that only looks like here": http(200, OFFER | {"download_url": "http://127.0.0.1.example/x"}),
    "a link with a password": http(200, OFFER | {"download_url": "https://a:b@files.example/x"}),
    "a link with a line end": http(200, OFFER | {"download_url": "https://files.example/x\r\nHost: y"}),
    "a link to no port": http(200, OFFER | {"download_url": "https://files.example:99999/"}),
    "a license": http(200, GOOD),
    "an error with status 200": http(200, {"error": "invalid_license", "message": "No."}),
}
