"""What a request costs a server: the processor time of all threads of its process."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

MAX_BODY: Final = 15_000
"""Bytes of a field: with the others they stay within the 16 KiB of a body."""

MAX_LINE: Final = 7_900
"""Bytes of a query, path or header field: aiohttp reads 8,190."""

_SOURCE: Final = "127.9.0.1"


class Request(NamedTuple):
    """A request as honest clients send it; `path` has its parameters in braces."""

    method: str
    path: str
    params: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    json: Mapping[str, Any] | None = None
    form: Mapping[str, str] | None = None

    def target(self) -> str:
        """Write the path."""
        path = self.path
        for name, value in self.params.items():
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        return path

    def write(self, *more: tuple[str, bytes], target: str | None = None, body: bytes | None = None) -> bytes:
        """Write the request; `more` are further header fields."""
        if target is None:
            target = self.target() + (f"?{urlencode(self.query)}" if self.query else "")
        if body is None:
            body = b"" if self.json is None else json.dumps(self.json, ensure_ascii=False).encode()
            body = urlencode(self.form).encode() if self.form is not None else body
        headers = {"Host": "127.0.0.1", **self.headers}
        if self.form is not None:
            headers |= {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
        if self.method != "GET":
            headers["Content-Length"] = str(len(body))
        overridden = {name.lower() for name, _ in more}
        lines = [
            f"{name}: {value}".encode() for name, value in headers.items() if name.lower() not in overridden
        ]
        lines += [name.encode() + b": " + value for name, value in more]
        return b"\r\n".join([f"{self.method} {target} HTTP/1.1".encode(), *lines, b"", body])


class Meter:
    """Measures requests to the server of a process."""

    def __init__(self, pid: int, port: int) -> None:
        self._tasks, self._port = Path(f"/proc/{pid}/task"), port
        self._connection: socket.socket | None = None

    def _spent(self) -> int:
        """Return the nanoseconds that all threads have run."""
        spent = 0
        for task in self._tasks.iterdir():
            try:
                spent += int((task / "schedstat").read_text().split()[0])
            except FileNotFoundError:  # it has ended
                continue
        return spent

    def measure(self, request: bytes, times: int, batches: int) -> float:
        """Return the nanoseconds of a request in the cheapest of some batches: others saw more than it."""
        least = float("inf")
        for _ in range(batches):
            before = self._spent()
            for _ in range(times):
                self._exchange(request)
            least = min(least, (self._spent() - before) / times)
        return least

    def _exchange(self, data: bytes) -> None:
        """Send a request and receive the response. One connection serves many, while the server keeps it."""
        if self._connection is None:
            self._connection = socket.create_connection(
                ("127.0.0.1", self._port), source_address=(_SOURCE, 0), timeout=30
            )
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._connection.sendall(data)
            is_kept = _receive(self._connection)
        except ConnectionError:
            is_kept = False
        if not is_kept:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _receive(connection: socket.socket) -> bool:
    """Receive a response; return whether the connection is kept."""
    received = b""
    while b"\r\n\r\n" not in received:
        if not (piece := connection.recv(65536)):
            return False
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    missing = int(length or 0) - len(body)
    while missing > 0 and (piece := connection.recv(65536)):
        missing -= len(piece)
    return b"connection: close" not in head.lower() and (bool(length) or b" 204 " in head[:20])


@contextmanager
def metering(pid: int, port: int) -> Iterator[Meter]:
    """Measure requests to a server's process for a block."""
    meter = Meter(pid, port)
    try:
        yield meter
    finally:
        meter.close()


# --- shapes: what a text of some length may cost ----------------------------------------------


def _repeat(*pieces: str) -> Callable[[int], str]:
    """Return a shape that repeats a piece up to a number of UTF-8 bytes; of several, in turn."""
    cycle = "".join(pieces)

    def make(size: int) -> str:
        width = len(cycle.encode())
        return (cycle * (size // width + 1)).encode()[:size].decode(errors="ignore")

    return make


def _cut(text: str, length: int) -> Callable[[int], str]:
    return lambda size: _repeat(text)(min(size, length))


_HAN: Final = "".join(map(chr, range(0x4E00, 0x9000, 7)))
_ARABIC: Final = "".join(map(chr, range(0x660, 0x66A)))
_PUNYCODE: Final = "xn--" + "fiqs8s" * 9 + "."

SHAPES: Final[Mapping[str, Callable[[int], str]]] = {
    "letters": _repeat("a"),
    "capitals": _repeat("A"),
    "digits": _repeat("9"),
    "arabic digits": _repeat(_ARABIC),
    "arabic digits, a name": _cut(_ARABIC, 506),
    "arabic digits, short labels": _cut("".join(f"{digit}." for digit in _ARABIC), 500),
    "arabic digits, as a host may have": _cut(_ARABIC[:8] + ".", 68),
    "han": _repeat(_HAN),
    "han, a name": _cut(_HAN, 759),
    "han, as a host may have": _cut(_HAN[:32], 96),
    "han in a URL": lambda size: "https://" + _HAN[:32] + "/" + _repeat("x")(max(0, size - 110)),
    "ligatures": _repeat("\ufdfa"),
    "ligatures, as a host may have": _cut("\ufdfa\u2100.", 84),
    "combining": _repeat("a\u0301\u0323"),
    "combining, as a host may have": _cut("a\u0301\u0323", 75),
    "joiners": _repeat("\u0915\u094d\u200d"),
    "joiners, as a host may have": _cut("\u0915\u094d\u200d", 90),
    "right to left": _repeat("\u05d0\u05f3"),
    "middle dots": _cut("l\u00b7", 90),
    "katakana dots": _cut("\u30fb", 93),
    "ideographic dots": _repeat("\u3002"),
    "dotted capitals": _repeat("\u0130"),
    "emoji": _repeat("\U0001f469\u200d\U0001f4bb"),
    "a-labels": _cut(_PUNYCODE, 253),
    "many a-labels": _repeat(_PUNYCODE),
    "dots": _repeat("."),
    "segments": _repeat("a/"),
    "labels": _repeat("a."),
    "hyphens": _repeat("-"),
    "hyphened": _repeat("a-"),
    "underscores": _repeat("_a"),
    "spaces": _repeat(" "),
    "tabs": _repeat("\t"),
    "line breaks": _repeat("\n"),
    "nul": _repeat("\x00"),
    "slashes": _repeat("/"),
    "a URL of slashes": lambda size: "//" + _repeat("/")(size - 2),
    "at signs": _repeat("@"),
    "a URL of at signs": lambda size: "http://" + _repeat("@")(size - 7),
    "addresses": _repeat("a@b.c,"),
    "one address": lambda size: _repeat("a")(min(size, 200) - 10) + "@b.example",
    "colons": _repeat(":"),
    "ports": _repeat(":1"),
    "IPv6": _repeat("ffff:"),
    "brackets": _repeat("["),
    "a URL of brackets": lambda size: "http://[" + _repeat("[]")(size - 8),
    "braces": _repeat("{"),
    "quotes": _repeat('"'),
    "backslashes": _repeat("\\"),
    "commas": _repeat(","),
    "list": _repeat("a,"),
    "quoted list": _repeat('"a",'),
    "semicolons": _repeat(";"),
    "pairs": _repeat("a=1;"),
    "pairs of commas": _repeat("a=1,"),
    "equals": _repeat("="),
    "ampersands": _repeat("&"),
    "query": _repeat("a=b&"),
    "percents": _repeat("%"),
    "percent-encoded": _repeat("%41"),
    "plus": _repeat("+"),
    "ranges": lambda size: "bytes=" + _repeat("0-0,")(size - 6),
    "tags": _repeat('"a", '),
    "languages": _repeat("de;q=0.1,"),
    "signatures": _repeat('a=("@status" "content-digest";req);created;tag="a",'),
    "parameters": lambda size: "a=(" + _repeat('"b";c ')(size - 4) + ")",
    "digests": _repeat("sha-256=:AAAA:,"),
    "hops": _repeat("192.0.2.1,"),
    "unix hops": _repeat("unix:,"),
    "keys": _repeat("CP-AAAAAA-AAAAAA-AAAAAA-AAAAAA-AAAAAA "),
    "beginnings of keys": _repeat("CP-"),
    "versions": _repeat("1."),
    "a long version": _cut("1.", 250),
    "pre-releases": _repeat("1a1.dev1+"),
    "channels": _repeat("beta1,"),
    "hex": _repeat("deadbeef"),
    "base64": _repeat("AAAA"),
    "bearer": lambda size: "Bearer " + _repeat("lsv_a")(size - 7),
    "basic": lambda size: "Basic " + _repeat("AAAA")(size - 6),
    "markup": _repeat("<a>"),
    "template": _repeat("{{a}}"),
    "paths": _repeat("../"),
    "nested lists": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "nested objects": lambda size: '{"a":' * (size // 6) + "1" + "}" * (size // 6),
    "numbers": lambda size: "[" + _repeat("1,")(size - 4) + "1]",
    "a number": lambda size: _repeat("7")(min(size, 4_300)),
    "a long float": lambda size: "1." + _repeat("7")(size - 2),
    "floats": lambda size: "[" + _repeat("1e308,")(size - 8) + "1]",
    "strings": lambda size: "[" + _repeat('"",')(size - 4) + "1]",
    "escapes": lambda size: '"' + _repeat("\\u0661")(size - 8) + '"',
    "surrogates": lambda size: '"' + _repeat("\\ud83d\\ude00")(size - 14) + '"',
    "names": lambda size: "{" + "".join(f'"{n}":1,' for n in range(size // 10)) + '"x":1}',
    "replacement": _repeat("\ufffd"),
}
