"""A client confirms the running version, and knows what the launcher went back from (D-360)."""

import asyncio
import os
from importlib import import_module

import pytest
from stage.flavours import both

from licclient import AsyncLicenseClient, LicenseClient, Updates
from licclient._updates.rollbacks import ROLLED_BACK_PATH
from licclient.install import Installation


@pytest.fixture
def installation(root, lay):
    """An installation with a version that was confirmed, and one that was not."""
    installation = Installation(root)
    first = installation.apply(lay("1.0"))
    (first.folder / ".licclient-confirmed").touch()
    installation.apply(lay("2.0"))
    return installation


@pytest.fixture
def runs(monkeypatch):
    """Let this program be one of a version's folder."""
    return lambda installed: monkeypatch.setattr("sys.argv", [str(installed.folder / "photo-lab")])


@pytest.fixture
def goes_back(monkeypatch):
    """Start a version by its launcher until the one before runs."""

    def go_back(installation):
        launch = import_module("licclient.install._launch")
        monkeypatch.setattr(launch, "run_watched", lambda *_: (3, False))
        monkeypatch.setattr(launch, "run", lambda *_: 0)
        monkeypatch.setattr(os, "execve", lambda *_: None)
        for _ in range(3):
            installation.start("photo-lab")
        assert installation.current.version == "1.0"

    return go_back


def is_confirmed(installed):
    """Return whether a version was confirmed."""
    return (installed.folder / ".licclient-confirmed").exists()


@both
async def test_the_running_version_is_confirmed(installation, client, runs):
    """By the place that the program runs from, without a folder as argument and without a request."""
    current, previous = installation.current, installation.previous
    await client.confirm_version()  # this test runs from elsewhere
    assert not is_confirmed(current)
    runs(current)
    await client.confirm_version()
    assert is_confirmed(current)
    assert installation.previous == previous
    await client.confirm_version(no_way_back=True)
    assert installation.previous is None


@both
async def test_what_cannot_be_stored(installation, client, runs, monkeypatch, caplog):
    """It is logged, and raised only where the app must not go on."""
    runs(installation.current)

    def full(*_: object):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("licclient.install.write_file", full)
    monkeypatch.setattr(Installation, "_mark_confirmed", full)
    await client.confirm_version()
    assert "The version cannot be confirmed (No space left on device)" in caplog.text
    with pytest.raises(OSError, match="No space"):
        await client.confirm_version(no_way_back=True)


@both
async def test_arguments_and_closed_clients(client):
    """They are refused as everywhere."""
    with pytest.raises(TypeError, match="no_way_back"):
        await client.confirm_version(no_way_back=1)
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await client.confirm_version()


async def test_a_version_that_the_launcher_left_is_offered_only_on_request(
    installation, service, client, key, runs, goes_back
):
    """As one that a person left: not by itself, but on request, and a newer one as ever."""
    goes_back(installation)
    runs(installation.current)
    service.offers("2.0")
    check = await client.check_for_update(key)
    assert not check
    assert "rolled back" in check.message
    assert (await client.check_for_update(key, force=True)).update.version == "2.0"
    service.offers("2.1")
    assert (await client.check_for_update(key, force=True)).update.version == "2.1"


async def test_a_version_that_the_launcher_left_is_reported(
    installation, service, make_client, key, runs, goes_back, http_answer
):
    """To a vendor whose app has opted in, once."""
    goes_back(installation)
    runs(installation.current)
    listing, report = http_answer(200, service.listing("2.0")), http_answer(200, b'{"counted": true}')
    service.script = lambda request: report if request.path == ROLLED_BACK_PATH else listing
    for updates in (Updates(), Updates(report_rollbacks=True), Updates(report_rollbacks=True)):
        await make_client(updates=updates).check_for_update(key, force=True)
    reports = [request.json for request in service.requests if request.path == ROLLED_BACK_PATH]
    assert [report["version"] for report in reports] == ["2.0"]


def test_a_report_names_what_was_rolled_back(installation, license_service, runs, goes_back):
    """So that support knows why a customer still has the older version."""
    license_service.issue("Notes", activated=True)
    client = license_service.client(slug="notes", version="1.0")
    assert "rolled back" not in client.diagnose()
    goes_back(installation)
    runs(installation.current)
    assert "   rolled back:   2.0; a newer version is offered as usual" in client.diagnose()


def test_help_names_it():
    """Where an app's developer looks for updates."""
    assert "confirm_version" in (LicenseClient.__doc__ or "")
    assert asyncio.iscoroutinefunction(AsyncLicenseClient.confirm_version)
