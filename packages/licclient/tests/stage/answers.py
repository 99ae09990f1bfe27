"""The tables of hostile answers to a verify or an update check. A new row is a line: a name and what is sent.

No row may grant, refuse, offer or be remembered. What can be read as status and body is in `REPLIES` and
`LISTINGS`, for the reading functions (`test_protocol`); framing and timing are in `ANSWERS`, over sockets
(`test_hostile`).
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
REFUSAL = {"valid": False, "reason": "License not found."}
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


REPLIES: dict[str, tuple[int, Any]] = {
    # --- not the protocol's words
    "HTML": (200, b"<html>Please log in to the wireless network</html>"),
    "an empty body": (200, b""),
    **{f"no {name}": (200, {other: GOOD[other] for other in GOOD if other != name}) for name in GOOD},
    "valid as a string": (200, GOOD | {"valid": "true"}),
    "valid as a number": (200, GOOD | {"valid": 1}),
    "valid false with status 200": (200, GOOD | {"valid": False}),
    "product as a number": (200, GOOD | {"product": 7}),
    "half a surrogate pair": (200, GOOD | {"product": "\ud800"}),
    "NUL in a name": (200, GOOD | {"product": "Notes\0"}),
    "NUL in the text": (200, _JSON.replace(b"Notes", b"No\0tes")),
    "a day that is none": (200, GOOD | {"expiry": "2026-02-30"}),
    "an instant for a day": (200, GOOD | {"expiry": "2026-12-01T00:00:00Z"}),
    "another calendar notation": (200, GOOD | {"expiry": "20261201"}),
    "Arabic digits in a day": (200, GOOD | {"expiry": "٢٠٢٦-١٢-٠١"}),
    "expiry as a number": (200, GOOD | {"expiry": 20261201}),
    "lifetime as a number": (200, GOOD | {"lifetime": 0}),
    "lifetime with an end": (200, GOOD | {"lifetime": True, "expiry": "2026-12-01"}),
    # --- not JSON as it should be
    "a list": (200, [GOOD]),
    "null": (200, None),
    "two objects": (200, _JSON * 2),
    "a name twice": (200, _JSON.replace(b"{", b'{"valid": false, ', 1)),
    "a name twice, well hidden": (200, _JSON.replace(b"{", b'{"v\\u0061lid": false, ', 1)),
    "NaN": (200, b'{"valid": NaN}'),
    "deep nesting": (200, DEEP),
    "a number without end": (200, b'{"valid": ' + b"9" * 20_000 + b"}"),
    "a number beyond all numbers": (200, _JSON.replace(b"null", b"1e999999999")),
    "invalid UTF-8": (200, _JSON.replace(b"Notes", b"N\xfftes")),
    "UTF-16": (200, json.dumps(GOOD).encode("utf-16")),
    "two byte order marks": (200, b"\xef\xbb\xbf" * 2 + _JSON),
    "a script that calls back": (200, b"callback(" + _JSON + b")"),
    # --- other statuses
    "status 201": (201, GOOD),
    "status 206": (206, GOOD),
    "status 304": (304, b""),
    "a redirect": (302, GOOD),
    **{f"status {status}": (status, REFUSAL) for status in (401, 407, 429, 500)},
    "status 503": (503, b"upstream connect error"),
    "403 of a firewall": (403, b"<html>Forbidden</html>"),
    "403 that says valid": (403, {"valid": True, "reason": "License expired."}),
    "403 without a reason": (403, {"valid": False}),
    "404 of a web server": (404, b"404 page not found"),
    "404 with a number as reason": (404, {"valid": False, "reason": 404}),
    "422 without fields": (422, {"message": "No."}),
    "422 with crooked fields": (422, {"message": "No.", "errors": {"ip": "bad"}}),
}
"""What the reading functions are given: a status, and a body as bytes or as JSON."""

ANSWERS: dict[str, Script] = {
    # --- statuses that the transport, and not the reading function, has to stop at
    "a login page": http(200, b"<html>Please log in</html>", Content_Type="text/html"),
    "a redirect": http(302, GOOD, Location="/elsewhere"),
    "a redirect to a file": http(302, GOOD, Location="file:///etc/passwd"),
    "status 304": http(304),
    "status 500": http(500, REFUSAL),
    "status 407": http(407, REFUSAL, Proxy_Authenticate="Basic"),
    "status 429 for years": http(429, b"", Retry_After="99999999"),
    "status 503 at a strange time": http(503, b"", Retry_After="Thu, 99 Foo 9999 99:99:99 GMT"),
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

LISTINGS: dict[str, dict[str, Any]] = {
    "another slug": {"slug": "paint"},
    "a slug in another case": {"slug": "Notes"},
    "a slug that is none": {"slug": None},
    "a name with half a surrogate pair": {"name": "\ud800"},
    "a version as a number": {"version": 2.0},
    "no sections": {"sections": None},
    "sections as a list": {"sections": []},
    "no changelog": {"sections": {"changelog": None}},
    "a changelog as a list": {"sections": {"changelog": ["Faster."]}},
    "no instant": {"last_updated": "yesterday"},
    "an instant that is none": {"last_updated": "2026-11-31 10:11:12"},
    "an empty link": {"download_url": ""},
    "a link as a number": {"download_url": 5},
    "a link to a file": {"download_url": "file:///etc/passwd"},
    "a link to a script": {"download_url": "javascript:alert(1)"},
    "a link without encryption": {"download_url": "http://files.example/x"},
    "a link that only looks like here": {"download_url": "http://127.0.0.1.example/x"},
    "a link with a password": {"download_url": "https://a:b@files.example/x"},
    "a link with a line end": {"download_url": "https://files.example/x\r\nHost: y"},
    "a link to no port": {"download_url": "https://files.example:99999/"},
}
"""What is wrong with an otherwise good answer to an update check."""
