"""The scripted service: it answers as a case wants, and records the requests."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

from licconform.cases import expect

KEY: Final = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
OTHER_KEY: Final = "CP-ZZZZZZ-YYYYYY-XXXXXX-WWWWWW-VVVVVV"
PRODUCT, SLUG = "Conformance Product", "conform"
INSTALLED, LATEST = "1.0.0", "2.0.0"
FILE: Final = bytes(range(256)) * 40
LINK_QUERY: Final = "id=a%2Fb&until=1&signature=x-_y"


@dataclass(frozen=True, slots=True)
class Reply:
    """A response; `cut` closes the connection after the first half of the body, `drop` before anything."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    drop: bool = False

    def content(self) -> bytes:
        """Return the bytes of the body: bytes and texts as they are, all else as JSON."""
        match self.body:
            case bytes():
                return self.body
            case str():
                return self.body.encode()
            case _:
                return json.dumps(self.body).encode()

    def media_type(self) -> str:
        """Return the Content-Type."""
        match self.body:
            case bytes():
                return "application/octet-stream"
            case str():
                return "text/html; charset=utf-8"
            case _:
                return "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the client under test; `path` is the part below the base URL."""

    method: str
    path: str
    raw_query: str
    headers: dict[str, str]
    body: bytes

    @property
    def query(self) -> dict[str, str]:
        """The parameters, each once."""
        return {name: values[0] for name, values in parse_qs(self.raw_query, keep_blank_values=True).items()}

    def json(self) -> Any:
        """Return the body as JSON, or None."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Requests(list[Request]):
    """Requests in their order; reading one that was not sent is a deviation of the client."""

    def __init__(self, requests: Iterable[Request] = (), *, path: str = "") -> None:
        super().__init__(requests)
        self._path = path

    def _at(self, position: int) -> Request:
        self.expect_any()
        return self[position]

    def expect_any(self) -> None:
        """Compare their number with zero."""
        expect(bool(self), f"expected a request of {{base_url}}{self._path}, but the client sent none")

    @property
    def first(self) -> Request:
        """The first request."""
        return self._at(0)

    @property
    def last(self) -> Request:
        """The last request."""
        return self._at(-1)


Script: TypeAlias = Reply | list[Reply]
"""One reply, or several: the last one is repeated."""


class Service:
    """The script of a case, below a base URL of its own."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.verify: Script = success()
        self.update: Script = self.offer()
        self.file: Script = file_reply()
        self.elsewhere: Script = Reply(404, "Not found.")
        self.requests = Requests()
        self._lock = threading.Lock()

    def offer(self, **changes: Any) -> Reply:
        """Return a success of the update check; a value of `...` leaves a field out."""
        body = {
            "name": PRODUCT,
            "slug": SLUG,
            "version": LATEST,
            "download_url": self.link(),
            "sections": {"changelog": "Better than before."},
            "last_updated": "2026-11-05 06:07:08",
            "requires": None,
            "tested": None,
        }
        return Reply(body={name: value for name, value in {**body, **changes}.items() if value is not ...})

    def link(self) -> str:
        """Return the download link."""
        return f"{self.base_url}/api/v1/update-download?{LINK_QUERY}"

    def answer(self, request: Request) -> Reply:
        """Record a request, and return the reply that is its turn."""
        name = {
            "/api/v1/licenses/verify": "verify",
            "/api/v1/update-check": "update",
            "/api/v1/update-download": "file",
        }.get(request.path, "elsewhere")
        with self._lock:
            self.requests.append(request)
            script: Script = getattr(self, name)
            if isinstance(script, Reply):
                return script
            return script.pop(0) if len(script) > 1 else script[0]

    def requests_for(self, path: str) -> Requests:
        """Return the requests for a path, such as `/api/v1/update-check`."""
        return Requests((request for request in self.requests if request.path == path), path=path)


def success(**changes: Any) -> Reply:
    """Return a success of verify; a value of `...` leaves a field out."""
    body = {"valid": True, "product": PRODUCT, "expiry": "2099-12-31", "lifetime": False, **changes}
    return Reply(body={name: value for name, value in body.items() if value is not ...})


def refusal(status: int, reason: str) -> Reply:
    """Return a refusal of verify."""
    return Reply(status, {"valid": False, "reason": reason})


def error(status: int, code: str) -> Reply:
    """Return an error of update check or download."""
    return Reply(status, {"error": code, "message": "No."})


def file_reply(content: bytes = FILE, **changes: Any) -> Reply:
    """Return the file, with its digest; `headers` replace these headers."""
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    headers = {
        "ETag": '"1"',
        "Accept-Ranges": "bytes",
        "Content-Disposition": 'attachment; filename="conform-2.0.0.zip"',
        "Repr-Digest": f"sha-256=:{digest}:",
    }
    return Reply(**{"body": content, "headers": headers, **changes})


class Services:
    """All services of a run, on one port of loopback."""

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.answer))
        self._http.daemon_threads = True

    @contextmanager
    def serving(self) -> Iterator["Services"]:
        """Serve for a block."""
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def open(self, name: str) -> Service:
        """Return a new service, whose base URL ends in its name."""
        self._services[name] = Service(f"http://127.0.0.1:{self._http.server_port}/{name}")
        return self._services[name]

    def answer(self, name: str, request: Request) -> Reply:
        """Answer a request of the service of that name."""
        service = self._services.get(name)
        return service.answer(request) if service else Reply(404, "Not found.")


def _read_body(headers: Message, stream: BufferedIOBase) -> bytes:
    """Read a body of some length or in chunks, which http.server leaves to its handlers."""
    if headers.get("Transfer-Encoding", "").lower() != "chunked":
        return stream.read(int(headers.get("Content-Length") or 0))
    chunks = []
    while size := int(stream.readline().partition(b";")[0], 16):
        chunks.append(stream.read(size))
        stream.readline()
    while stream.readline().strip():
        pass  # trailers
    return b"".join(chunks)


def _handler(answer: Callable[[str, Request], Reply]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            body = _read_body(self.headers, self.rfile)
            parts = urlsplit(self.path)
            name, _, rest = parts.path.removeprefix("/").partition("/")
            headers = {key.lower(): value for key, value in self.headers.items()}
            request = Request(self.command, f"/{rest}", parts.query, headers, body)
            self.send(answer(name, request), headers.get("range", ""))

        do_GET = do_POST = do_HEAD = do_PUT = handle_any  # noqa: N815 - names of http.server

        def send(self, reply: Reply, span: str) -> None:
            self.close_connection = self.close_connection or reply.cut or reply.drop
            if reply.drop:
                return
            content, status, headers = reply.content(), reply.status, dict(reply.headers)
            start = re.fullmatch(r"bytes=(\d+)-", span)
            if start and "Accept-Ranges" in headers and status == 200 and not reply.cut:  # noqa: PLR2004
                headers["Content-Range"] = f"bytes {start[1]}-{len(content) - 1}/{len(content)}"
                content, status = content[int(start[1]) :], 206
            self.send_response(status)
            headers = {"Content-Type": reply.media_type(), "Content-Length": str(len(content)), **headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[: len(content) // 2] if reply.cut else content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    return Handler
