"""One HTTP request on a connection of its own, without a client library."""

import http.client
import json
from contextlib import closing
from urllib.parse import urlsplit


def fetch(url: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """Get an address, or post a body as JSON; returns status and body, whatever the status."""
    parts = urlsplit(url)
    content = None if body is None else json.dumps(body)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    with closing(http.client.HTTPConnection(parts.netloc, timeout=30)) as connection:
        connection.request("GET" if body is None else "POST", target, content, headers or {})
        response = connection.getresponse()
        return response.status, response.read()


def verify(url: str, key: str, domain: str = "a.example") -> tuple[int, dict[str, object]]:
    """Verify a key; returns status and answer, whatever the verdict."""
    call = {"license_key": key, "domain": domain, "ip": "::1"}
    status, answer = fetch(f"{url}/api/v1/licenses/verify", call)
    return status, json.loads(answer)
