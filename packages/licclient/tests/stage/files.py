"""The table of hostile answers to a download. A new row is a line: a name and what is sent.

Behind each row stands an honest update check that offers `notes-2.0.zip`. No row may leave a file under its
final name, or anything outside the folder.
"""

import gzip
import itertools
from collections.abc import Iterator
from typing import Any

from stage.scripts import RESET, Script, chunked, digest, drip, endless, http, silence

CONTENT = bytes(range(256)) * 400
SIZE = len(CONTENT)
HEADERS = {"ETag": '"v2"', "Repr_Digest": digest(CONTENT), "Content_Disposition": 'filename="notes-2.0.zip"'}
GOOD_FILE = http(200, CONTENT, **HEADERS)
HEAD = GOOD_FILE[:-SIZE]
PACKED = gzip.compress(CONTENT)


def _page(text: bytes, **headers: str) -> bytes:
    return http(200, text, Content_Type="text/html", **headers)


def _cut(at: int) -> Script:
    """The same part of the file again and again, never its rest."""
    return lambda _: http(200, CONTENT, **HEADERS)[: len(HEAD) + at]


def _cut_rests(at: int) -> Script:
    """Each try brings the file a little further, until there is nothing more."""

    def script(request: Any) -> bytes:
        first = int((request.headers.get("range") or "bytes=0-")[6:-1])
        span = f"bytes {first}-{SIZE - 1}/{SIZE}"
        whole = http(206, CONTENT[first:], Content_Range=span, **HEADERS) if first else GOOD_FILE
        return whole[: len(whole) - (SIZE - first)] + CONTENT[first : min(first + 1, at)]

    return script


def _part(span: str, body: bytes = CONTENT[1000:], **changes: str) -> Script:
    """A beginning that is cut off, and then always this part."""
    return lambda request: (
        http(206, body, Content_Range=span, **HEADERS | changes)
        if "range" in request.headers
        else GOOD_FILE[: len(HEAD) + 1000]
    )


def _another_each_time() -> Script:
    """Every try gets another file, cut short."""
    numbers = itertools.count()
    return lambda _: http(200, CONTENT, **HEADERS | {"ETag": f'"v{next(numbers)}"'})[: len(HEAD) + 50_000]


def _to(location: str) -> Script:
    return http(302, b"", Location=location)


def _deeper(request: Any) -> bytes:
    """A redirect to another address each time."""
    return http(302, b"", Location=f"{request.path}x")


def _interim(_: Any) -> Iterator[bytes]:
    return endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n")


FILES: dict[str, Script] = {
    # --- not the file
    "a login page": _page(b"<html>Please log in</html>"),
    "a login page with an empty digest": _page(b"<html>Please log in</html>", Repr_Digest=""),
    "a login page that promises the file": _page(b"<html>Please log in</html>", **HEADERS),
    "a wrong digest": http(200, CONTENT, **HEADERS | {"Repr_Digest": digest(b"another file")}),
    "one other byte": http(200, b"!" + CONTENT[1:], **HEADERS),
    "two bytes exchanged": http(200, CONTENT[1::-1] + CONTENT[2:], **HEADERS),
    # --- too short, too long
    "an empty file": http(200, b"", **HEADERS),
    "short": http(200, CONTENT, **HEADERS)[:-1],
    "long, by its own words": http(200, CONTENT + b"more", **HEADERS),
    "longer than it says": http(200, chunked(CONTENT, b"more"), **HEADERS)
    .replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n", 1)
    .replace(b"Content-Length: %d" % len(chunked(CONTENT, b"more")), b"Content-Length: %d" % SIZE),
    "no length and no digest": http(
        200, chunked(CONTENT), Transfer_Encoding="chunked", **HEADERS | {"Repr_Digest": ""}
    ),
    "no framing at all": HEAD.replace(b"Content-Length", b"X-Length") + CONTENT[:-1],
    "no end": lambda _: endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
    "no end in chunks": lambda _: endless(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"
    ),
    "more than any disk holds": http(200, b"x" * 70_000, **HEADERS | {"Content_Length": "9" * 17}),
    "a length beyond all lengths": http(200, CONTENT, **HEADERS | {"Content_Length": "9" * 40}),
    "a length below zero": http(200, CONTENT, **HEADERS | {"Content_Length": "-5"}),
    "a length that is no number": http(200, CONTENT, **HEADERS | {"Content_Length": "many"}),
    "two lengths": GOOD_FILE.replace(b"ETag", b"Content-Length: 5\r\nETag", 1),
    **{f"cut at {tenth} tenths, always": _cut(SIZE * tenth // 10) for tenth in (0, 5, 9)},
    "a byte each time": _cut_rests(SIZE),
    "another file each time": _another_each_time(),
    # --- packed
    "gzip": http(200, PACKED, Content_Encoding="gzip", **HEADERS),
    "gzip without a digest": http(200, PACKED, Content_Encoding="gzip", **HEADERS | {"Repr_Digest": ""}),
    "an unknown encoding": http(200, CONTENT[::-1], Content_Encoding="br", **HEADERS),
    "a patch that nobody asked for": http(
        200, PACKED, Unencoded_Digest=digest(CONTENT), **HEADERS | {"Repr_Digest": digest(PACKED)}
    ),
    # --- parts
    "a part that nobody asked for": http(206, CONTENT, Content_Range=f"bytes 0-{SIZE - 1}/{SIZE}", **HEADERS),
    "a part from elsewhere": _part(f"bytes 5-{SIZE - 1}/{SIZE}"),
    "a part without end": _part("bytes 1000-99999999999/*"),
    "a part of a larger file": _part(f"bytes 1000-{SIZE}/{SIZE + 1}"),
    "a part of another file": _part(f"bytes 1000-{SIZE - 1}/{SIZE}", ETag='"v3"'),
    "a part with other bytes": _part(f"bytes 1000-{SIZE - 1}/{SIZE}", bytes(SIZE - 1000)),
    "parts in many parts": _part("", b"--x\r\n\r\n--x--", Content_Type="multipart/byteranges; boundary=x"),
    # --- other statuses
    "status 204": http(204),
    "status 304": http(304),
    "status 416": http(416, b"", Content_Range="bytes */5"),
    "status 500": http(500, b"oops"),
    "status 503 for years": http(503, b"", Retry_After="99999999"),
    "a refusal in a foreign form": http(403, b"<Error>AccessDenied</Error>"),
    "a refusal without end": lambda _: endless(b"HTTP/1.1 403 No\r\n\r\n", b"x" * 65536),
    "a refusal in deep nesting": http(403, b"[" * 60_000),
    # --- elsewhere
    "a redirect to itself": _to("/api/v1/update-download"),
    "a redirect without end": _deeper,
    "a redirect to a file": _to("file:///etc/passwd"),
    "a redirect without encryption": _to("http://files.example/notes.zip"),
    "a redirect to what only looks like here": _to("http://127.0.0.1.example/notes.zip"),
    "a redirect to nowhere": _to("http://["),
    "a redirect with a line end": http(302, b"", Location="/x\r\n\r\nHTTP/1.1 200 OK"),
    "a redirect without an address": http(302),
    # --- broken, and too slow
    "not HTTP": b"220 mail.example.org ESMTP\r\n",
    "nothing": b"",
    "a reset at once": lambda _: [RESET],
    "a reset in the head": lambda _: [GOOD_FILE[:40], RESET],
    "a reset in the middle": lambda _: [GOOD_FILE[: len(HEAD) + SIZE // 2], RESET],
    "endless interim answers": _interim,
    "an endless head": lambda _: endless(b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n"),
    "one huge header": lambda _: endless(b"HTTP/1.1 200 OK\r\nX-More: ", b"x" * 65536),
    "silence": lambda _: silence(),
    "silence after the head": lambda _: silence(HEAD),
    "silence in the middle": lambda _: silence(GOOD_FILE[: len(HEAD) + SIZE // 2]),
    "a head that drips": lambda _: drip(GOOD_FILE),
    "a file that drips": lambda _: itertools.chain([HEAD], drip(CONTENT, pause=0.1)),
    "a file that drips to its end": lambda _: itertools.chain(
        [GOOD_FILE[:-100]], drip(CONTENT[-100:], pause=0.1)
    ),
}

_CHUNKED = {"Transfer_Encoding": "chunked", **HEADERS}

PROVEN: dict[str, Script] = {
    **{
        f"Content-Encoding: {encoding}": http(200, CONTENT, Content_Encoding=encoding, **HEADERS)
        for encoding in (
            "aws-chunked",
            "aws-chunked,gzip",
            "gzip",
            "br",
            "utf-8",
            "binary",
            "none",
            "x",
            "dcz",
        )
    },
    "chunks": http(200, chunked(CONTENT), **_CHUNKED),
    "many chunks": http(200, chunked(*(CONTENT[at : at + 7] for at in range(0, SIZE, 7))), **_CHUNKED),
    "until the end of the connection": HEAD.replace(b"Content-Length", b"X-Length") + CONTENT,
    "chunks beside a wrong length": http(200, chunked(CONTENT), Content_Length="5", **_CHUNKED),
    "a page": http(200, CONTENT, Content_Type="text/html", **HEADERS),
    "text": http(200, CONTENT, Content_Type="text/plain; charset=utf-16", **HEADERS),
    "another legacy digest": http(200, CONTENT, Content_MD5="1B2M2Y8AsgTpgAmY7PhCfg==", **HEADERS),
    "a strange disposition": http(200, CONTENT, **HEADERS | {"Content_Disposition": "form-data; =;"}),
    "no entity tag": http(200, CONTENT, **HEADERS | {"ETag": ""}),
    "a weak entity tag": http(200, CONTENT, **HEADERS | {"ETag": 'W/"v2"'}),
}
"""The file with its digest, whatever the other headers say: what the digest proves is the file."""

UNVERIFIED: dict[str, Script] = {
    "no digest": http(200, CONTENT, ETag='"v2"', Content_Disposition=HEADERS["Content_Disposition"]),
    "a digest of another kind": http(
        200, CONTENT, **HEADERS | {"Repr_Digest": "md5=:1B2M2Y8AsgTpgAmY7PhCfg==:"}
    ),
    "a digest that is too short": http(200, CONTENT, **HEADERS | {"Repr_Digest": "sha-256=:AAAA:"}),
    "a digest in hex": http(200, CONTENT, **HEADERS | {"Repr_Digest": "sha-256=" + "0" * 64}),
}
"""The file without a digest that can be read: accepted, unless a digest is required."""
