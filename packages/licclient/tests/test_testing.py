"""`licclient.testing`, used as an app's developer would: the app's own client, not changed for the test."""

import asyncio
import re
import socket
import subprocess
import sys
import unittest
from datetime import date, timedelta
from pathlib import Path

import pytest
from stage.flavours import both

import licclient
from licclient import AsyncLicenseClient, LicenseClient, Source
from licclient.testing import LicenseClock, Misbehaviour, fake_service

# An app's module: its client is made when it is imported, long before any test.
APP = LicenseClient(
    "https://licenses.example.com/shop", product="Notes Pro", slug="notes-pro", version="1.4.0"
)
ASYNC_APP = AsyncLicenseClient(
    "https://licenses.example.com/shop", product="Notes Pro", slug="notes-pro", version="1.4.0"
)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Whoever reaches for the network here has lost."""

    def refuse(*_args: object, **_kwargs: object):
        raise AssertionError("a test of an app reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def app(flavour, drive):
    """The app's client, driven the same way whatever its class."""
    return drive(APP if flavour is LicenseClient else ASYNC_APP)


@both
async def test_an_app_is_activated(app, license_service):
    """The ten-second test: issue, activate, use."""
    key = license_service.issue("Notes Pro")
    with pytest.raises(licclient.NotActivatedError):
        await app.verify()
    assert (await app.activate(key.lower())).product == "Notes Pro"
    assert (await app.verify()).source is Source.CACHE
    assert license_service.count("verify") == 1
    assert license_service.requests[0].license_key == key


async def test_an_app_that_was_activated_earlier(app, license_service):
    """Most tests of a feature begin with a license that is there already."""
    license_service.issue("Notes Pro", activated=True)
    assert (await app.verify()).product == "Notes Pro"
    await app.forget_key()
    with pytest.raises(licclient.NotActivatedError):
        await app.verify()


@pytest.mark.parametrize("round_", [1, 2])
async def test_tests_do_not_see_each_other(app, license_service, license_clock, round_):
    """A computer starts fresh in every test: no activation, no cache, the same time."""
    assert (await app.status()).state is licclient.LicenseState.NOT_ACTIVATED
    license_service.issue("Notes Pro", activated=True)
    assert (await app.verify()).source is Source.SERVER
    license_clock.move(days=9)


async def test_all_refusals_can_be_played(app, license_service, license_clock):
    """Revoked, expired, unknown, for another product, on too many computers."""
    key = license_service.issue("Notes Pro", expires=date(2030, 2, 1), slots=1)
    await app.activate(key)

    async def reason():
        with pytest.raises(licclient.LicenseRefusedError) as caught:
            await app.verify(force=True)
        return caught.value.reason.value

    license_service.revoke(key)
    assert await reason() == "revoked"
    license_service.reinstate(key)
    assert (await app.verify()).expiry == date(2030, 2, 1)
    license_service.expire(key)
    assert await reason() == "expired"
    with pytest.raises(licclient.LicenseRefusedError, match="not found"):
        await app.verify(key[:-1] + "9")
    with pytest.raises(licclient.LicenseRefusedError, match="not for Notes Pro"):
        await app.verify(license_service.issue("Photos"))
    with pytest.raises(licclient.LicenseRefusedError, match="Max activations"):
        await app.verify(license_service.issue("Notes Pro", slots=0))


async def test_an_outage_is_played_to_its_end(app, license_service, license_clock):
    """Cache, grace, over, and back again, without waiting for any of it."""
    license_service.issue("Notes Pro", activated=True)
    await app.verify()
    with license_service.offline():
        license_clock.move(hours=25)
        assert (await app.verify()).source is Source.GRACE
        assert (await app.status()).state is licclient.LicenseState.GRACE
        license_clock.move(timedelta(hours=72))
        with pytest.raises(licclient.ServiceUnavailableError):
            await app.verify()
    assert (await app.verify()).source is Source.SERVER


@pytest.mark.parametrize("how", [Misbehaviour.SLOW, "error", "busy", "login_page", "redirect", "garbage"])
async def test_no_misbehaviour_is_an_answer(app, license_service, how):
    """Whatever stands in the service's place locks nobody out, and lets nobody in."""
    key = license_service.issue("Notes Pro")
    license_service.misbehave(how)
    with pytest.raises(licclient.ServiceUnavailableError):
        await app.activate(key)
    license_service.come_back()
    assert (await app.activate(key)).source is Source.SERVER


async def test_a_report_for_support_looks_at_nothing_real(app, license_service, monkeypatch, tmp_path):
    """An app tests its button "Copy diagnosis" without a network, and without its developer's own state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "licclient").mkdir()
    (tmp_path / "licclient" / "license-1.state").write_text("the developer's own")
    license_service.issue("Notes Pro", activated=True)
    await app.verify()
    report = await app.diagnose()
    assert "ok service:       answers" in report
    assert "ok license:       valid; key CP-…" in report
    for name in ("name", "proxy", "tls", "state folder", "keyring"):
        assert f"   {name + ':':14} not looked at: this is a test" in report
    assert report.endswith("Nothing wrong was found.")


@both
async def test_an_update_is_offered_and_downloaded(app, license_service, license_clock, tmp_path):
    """With changelog and file; the link runs out after an hour, and nobody notices."""
    license_service.issue("Notes Pro", slug="notes-pro", activated=True)
    assert await app.check_for_update() is None
    license_service.publish("1.5.0", changelog="Faster.", content=b"1.5" * 1000, filename="notes.zip")
    update = await app.check_for_update(force=True)
    assert (update.version, update.changelog, update.name) == ("1.5.0", "Faster.", "Notes Pro")
    license_clock.move(hours=2)
    path = (await app.download(update, tmp_path)).path
    assert (path.name, path.read_bytes()) == ("notes.zip", b"1.5" * 1000)


async def test_a_download_is_cut_and_goes_on(app, license_service, tmp_path):
    """Half of it comes each time; and a file with other bytes is refused."""
    license_service.issue("Notes Pro", activated=True)
    license_service.publish("1.5.0", content=b"abcdefgh")
    update = await app.check_for_update(force=True)
    license_service.misbehave("wrong_file")
    with pytest.raises(licclient.UntrustedResponseError):
        await app.download(update, tmp_path)
    license_service.misbehave("cut")
    assert (await app.download(update, tmp_path)).path.read_bytes() == b"abcdefgh"
    ranges = [request.headers.get("range") for request in license_service.requests]
    assert ranges[-3:] == ["bytes=4-", "bytes=6-", "bytes=7-"]


# --- apps that pin keys -----------------------------------------------------------------------

VENDOR, RELEASES = (f"ed25519:{letter * 42}A" for letter in "vr")  # whose private halves nobody here has


@pytest.fixture
def pinned(drive):
    """An app that pins the vendor's keys, as it ships."""
    told = {"slug": "notes-pro", "version": "1.4.0", "public_keys": [VENDOR], "release_keys": [RELEASES]}
    return drive(LicenseClient("https://licenses.example.com/shop", product="Notes Pro", **told))


async def test_an_app_that_pins_keys_is_tested_as_it_is(pinned, license_service, license_clock, tmp_path):
    """License, cache, grace, offer and file are all authenticated, and refusals are believed."""
    key = license_service.issue("Notes Pro", activated=True)
    license_service.publish("1.5.0", content=b"new")
    for source in (Source.SERVER, Source.CACHE):
        found = await pinned.verify()
        assert (found.source, found.authenticated) == (source, True)
    update = await pinned.check_for_update()
    assert update.authenticated
    assert (await pinned.download(update, tmp_path)).path.read_bytes() == b"new"
    license_clock.move(hours=30)
    with license_service.offline():
        assert (await pinned.verify()).source is Source.GRACE
    license_service.revoke(key)
    with pytest.raises(licclient.LicenseRefusedError):
        await pinned.verify()


async def test_an_app_that_pins_keys_sees_through_what_is_not_signed(pinned, license_service):
    """Nothing that is unsigned is a license or an update; an app without pins sees no difference."""
    license_service.issue("Notes Pro", activated=True)
    license_service.publish("1.5.0")
    license_service.misbehave("unsigned")
    with pytest.raises(licclient.UntrustedResponseError):
        await pinned.verify()
    assert await pinned.check_for_update(force=True) is None
    told = {"slug": "notes-pro", "version": "1.4.0", "release_keys": [RELEASES]}
    assert LicenseClient("https://licenses.example.com", **told).check_for_update(force=True) is None
    assert not APP.verify().authenticated
    assert APP.check_for_update(force=True).version == "1.5.0"


async def test_support_can_end(app, license_service):
    """The version is still listed, but not offered."""
    key = license_service.issue("Notes Pro", support_until=date(2030, 1, 15), activated=True)
    license_service.publish("1.5.0")
    assert (await app.check_for_update()).version == "1.5.0"
    license_service.end_support(key)
    assert await app.check_for_update(force=True) is None


def test_a_key_must_look_like_one(license_service):
    """A slip in the test is said at once."""
    with pytest.raises(ValueError, match="five groups"):
        license_service.issue("Notes Pro", key="CP-123")


def test_both_flavours_share_the_computer(license_service):
    """What one remembers the other finds, as in one state folder."""
    APP.activate(license_service.issue("Notes Pro"))
    assert asyncio.run(ASYNC_APP.verify()).source is Source.CACHE


class WithoutPytest(unittest.TestCase):
    """The same without fixtures."""

    def test_a_context_manager_does_as_well(self):
        """`fake_service` leads the clients there and back."""
        clock = LicenseClock()
        with fake_service(clock) as service:
            service.issue("Notes Pro", activated=True)
            assert APP.require().checked_at == clock.now
        assert "fake" not in repr(vars(type(APP)))


def test_the_plugin_costs_nothing_until_it_is_asked_for():
    """A pytest run that uses no fixture of it loads neither httpx nor the fakes."""
    code = (
        "import sys; import licclient._pytest_plugin\n"
        "print(sorted({'httpx', 'licclient.testing._hooks', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_example_runs_as_it_stands(license_service, tmp_path):
    """Nothing has to be added: refused, activated, gated, and no update is an end without words."""
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    app = {}
    exec(compile(example, "README.md", "exec"), app)  # noqa: S102 - ours
    assert "exported" not in app["export"]("A note")
    key = license_service.issue("Notes Pro")
    assert "Notes Pro" not in app["enter_key"]("CP-")
    assert app["enter_key"](key.lower()) == "Licensed for Notes Pro"
    assert app["export"]("A note") == "A note exported"
    app["update"](tmp_path / "downloads", tmp_path / "app")
    assert license_service.count("update-check") == 1
