"""`licserver.testing`: what other projects get for their tests."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

import pytest

from licserver.testing import serve_licenses


def verify(url: str, key: str, domain: str = "home.example") -> dict[str, Any]:
    """Verify a key, whatever the verdict."""
    body = json.dumps({"license_key": key, "domain": domain, "ip": "192.0.2.1"}).encode()
    request = urllib.request.Request(  # noqa: S310 - ours
        f"{url}/api/v1/licenses/verify", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return dict(json.load(answer))
    except urllib.error.HTTPError as refused:
        with refused:
            return dict(json.load(refused))


def test_another_projects_story(license_server):
    """A key is issued, works, runs out when time passes, and a release is published: all on a real port."""
    license_server.add_product("my-app", "My App")
    license_server.publish("my-app", "1.0", b"x" * 1000)
    tomorrow = license_server.clock().date() + timedelta(days=1)
    key = license_server.issue("my-app", slots=1, expires_on=tomorrow)
    assert verify(license_server.url, key)["product"] == "My App"
    assert "activations" in verify(license_server.url, key, "second.example")["reason"]
    license_server.clock.forward(days=3)
    assert verify(license_server.url, key)["reason"] == "License expired."


def test_two_servers_beside_each_other(tmp_path):
    """Each has a folder, a port and books of its own; what the environment says does not reach them."""
    with serve_licenses(tmp_path / "a") as one, serve_licenses(tmp_path / "b", miss_limit=0) as other:
        assert one.url != other.url
        one.add_product("app")
        key = one.issue("app")
        assert verify(one.url, key)["valid"] is True
        assert verify(other.url, key)["reason"] == "License not found."
    with pytest.raises(urllib.error.URLError):
        verify(one.url, key)


def test_a_project_that_does_not_use_it_pays_nothing():
    """The plugin that every pytest run loads imports neither aiohttp nor SQLAlchemy."""
    code = "import sys, licserver.pytest_plugin as p; print({'aiohttp', 'sqlalchemy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
