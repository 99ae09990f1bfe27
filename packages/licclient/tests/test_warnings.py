"""Mistakes are reported to the developer early: by a warning, in the log, by doctor."""

import re

import pytest

from licclient import AsyncLicenseClient, LicenseClient
from licclient.errors import ServiceUnavailableError


@pytest.mark.parametrize("make", [LicenseClient, AsyncLicenseClient])
@pytest.mark.parametrize("address", ["http://licenses.example.com", "http://10.0.0.5:8000/shop"])
def test_keys_in_the_clear(make, address):
    """The line that makes the client is pointed at."""
    with pytest.warns(UserWarning, match="base_url is http: license keys travel in the clear") as warnings:
        make(address)
    assert warnings[0].filename == __file__


@pytest.mark.parametrize("make", [LicenseClient, AsyncLicenseClient])
@pytest.mark.parametrize(
    "address", ["https://x.example", "http://localhost:1", "http://[::1]:1", "http://127.0.0.1"]
)
def test_nothing_is_in_the_clear(make, address):
    """Neither with https, nor on this machine; warnings are errors here."""
    make(address)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_an_address_that_redirects(client, service, key, status):
    """The error names where to look; the two endpoints are never redirected (D-40)."""
    service.responds(status, b"", Location="https://elsewhere.example/")
    with pytest.raises(ServiceUnavailableError, match=rf"HTTP status {status}; it redirects: set base_url"):
        await client.verify(key)
    assert "it redirects: is the address right?" in await client.diagnose()


async def test_a_version_that_nobody_can_compare(make_client, service, key, caplog):
    """Nothing is ever newer than "2024 Spring": log, result and doctor say so."""
    service.offers()
    client = make_client(version="2024 Spring")
    found = await client.check_for_update(key)
    assert not found
    assert found.error is None
    assert "2024 Spring is not a version of PEP 440" in found.message
    assert caplog.messages.count(found.message) == 1
    assert await client.check_for_update(key) == found
    assert caplog.messages.count(found.message) == 1
    assert re.search(
        "^!! version: +2024 Spring is not a version of PEP 440", await client.diagnose(), re.MULTILINE
    )


async def test_a_version_that_can_be_compared(client, service, key, caplog):
    """Nothing is reported."""
    service.offers("1.0")
    assert (await client.check_for_update(key)).message == "Version 1.0 is up to date."
    assert caplog.messages == []
    assert "version:" not in await client.diagnose()


@pytest.fixture
def nowhere(tmp_path):
    """A folder that cannot be made, whoever one is."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "state"


async def test_a_folder_that_cannot_be_written(make_client, service, key, nowhere, caplog):
    """A slot for each start, and a key that has to be entered again: both are logged, once (D-52)."""
    service.grants()
    client = make_client(storage=nowhere)
    await client.activate(key)
    await client.verify(force=True)
    messages = [message for message in caplog.messages if "cannot be written" in message]
    (message,) = messages
    assert message.endswith(
        "may ask for the license key again and take another slot, unless the app passes a domain."
    )
    assert key not in caplog.text
    report = await client.diagnose()
    assert re.search("^!! state folder: .*cannot be written", report, re.MULTILINE)
    assert "each start takes an activation slot" in report


async def test_a_folder_that_cannot_be_written_takes_no_slots_of_a_domain(
    make_client, service, key, nowhere, caplog
):
    """What a domain prevents is not complained of."""
    service.grants()
    client = make_client(storage=nowhere, domain="app.example")
    await client.verify(key)
    assert "activation slot" not in caplog.text + await client.diagnose()


async def test_no_locks_are_left(client, service, key, tmp_path):
    """Who looks after many keys has no end of files otherwise."""
    service.grants()
    await client.verify(key)
    await client.verify(key, force=True)
    assert not list((tmp_path / "state").glob("call-*.lock"))
