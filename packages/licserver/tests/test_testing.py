"""`licserver.testing`: what other projects get for their tests."""

import subprocess
import sys
from datetime import timedelta

import pytest

from harness.fetching import verify
from harness.release_files import file_of
from licserver.errors import InvalidInputError
from licserver.testing import serve_licenses


@pytest.mark.slow
def test_another_projects_story(license_server):
    """A key is issued, works, runs out when time passes, and a release is published: all on a real port."""
    license_server.add_product("my-app", "My App")
    license_server.publish("my-app", "1.0", b"x" * 1000)
    installer = license_server.publish("my-app", "1.1", file_of("msi"), platform="windows-x86_64", kind="msi")
    assert (installer.kind, installer.platform) == ("msi", "windows-x86_64")
    with pytest.raises(InvalidInputError, match="not an MSI"):
        license_server.publish("my-app", "1.2", b"no installer", kind="msi")
    tomorrow = license_server.clock().date() + timedelta(days=1)
    key = license_server.issue("my-app", slots=1, expires_on=tomorrow)
    assert verify(license_server.url, key)[1]["product"] == "My App"
    assert "activations" in verify(license_server.url, key, "second.example")[1]["reason"]
    license_server.clock.forward(days=3)
    assert verify(license_server.url, key)[1]["reason"] == "License expired."


def test_two_servers_beside_each_other(tmp_path):
    """Each has a folder, a port and books of its own; what the environment says does not reach them."""
    with serve_licenses(tmp_path / "a") as first, serve_licenses(tmp_path / "b", miss_limit=0) as other:
        assert first.url != other.url
        first.add_product("app")
        key = first.issue("app")
        assert verify(first.url, key)[1]["valid"] is True
        assert verify(other.url, key)[1]["reason"] == "License not found."
    with pytest.raises(ConnectionRefusedError):
        verify(first.url, key)


@pytest.mark.slow
def test_a_project_that_does_not_use_it_pays_nothing():
    """The plugin that every pytest run loads imports neither aiohttp nor SQLAlchemy."""
    code = "import sys, licserver.pytest_plugin as p; print({'aiohttp', 'sqlalchemy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
