"""A program that uses the admin API, and the forms that it uploads files with."""

import json
from typing import Any

import pytest

from licserver.domain.records import Scope

ROOT = "/admin/api/v1"
BOUNDARY = {"Content-Type": "multipart/form-data; boundary=b"}


class Api:
    """A program that has a token."""

    def __init__(self, site: Any, text: str) -> None:
        self._site, self.text = site, text

    async def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """Call; returns the status and the body, read."""
        headers = {"Authorization": f"Bearer {self.text}", **more.pop("headers", {})}
        if body is not None:
            more["data"] = json.dumps(body)
            headers["Content-Type"] = "application/json"
        status, response_headers, content = await self._site.call(
            method, ROOT + path, headers=headers, **more
        )
        if status >= 400:
            assert response_headers["Content-Type"] == "application/problem+json"
            content = json.loads(content)
            assert {"type", "title", "status", "detail"} <= content.keys()
            assert content["status"] == status
        assert response_headers["Cache-Control"] == "no-store"
        return status, content


@pytest.fixture
def api(site: Any) -> Api:
    """A program that may do everything."""
    return Api(site, site.world.services.tokens.create("shop", Scope.WRITE)[1])


@pytest.fixture
def reader(site: Any) -> Api:
    """A program that may only read."""
    return Api(site, site.world.services.tokens.create("reader", Scope.READ)[1])


def form(**parts: Any) -> dict[str, Any]:
    """A form with a file, as browsers and curl write it: what `call` takes."""
    written = []
    for name, value in parts.items():
        file_name, content = value if name == "file" else (None, value.encode())
        more = "" if file_name is None else '; filename="{}"'.format(file_name.replace('"', "%22"))
        head = f'Content-Disposition: form-data; name="{name}"{more}'
        written.append(head.encode() + b"\r\n\r\n" + content)
    return {"data": raw_form(*written), "headers": BOUNDARY}


def raw_form(*parts: bytes) -> bytes:
    """A form as bytes."""
    return b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--\r\n"
