"""`reset` and the state folder: a way out for support, which loses neither the slot nor a guard."""

import os
from pathlib import Path

import pytest
from stage.faults import Files

from licclient import AsyncLicenseClient, ClientSettings, LicenseClient, LicenseState, Quota, Trust
from licclient.errors import NotActivatedError, StateUnreadableError
from licclient.testing import LicenseService

SETTINGS = ClientSettings(
    "https://licenses.example.com",
    product="Notes",
    slug="notes",
    version="1.0",
    trust=Trust(public_keys=(), release_keys=()),
)
KEPT = {"installation", "installation_copy", "file", "quota", "release"}
"""The id, which has the slot; guards: the latest time seen, uses to report, the highest signed version."""


@pytest.fixture
def shop():
    """A service with a license of one slot, and a newer version."""
    with LicenseService() as service:
        service.issue("Notes", slug="notes", slots=1, entitlements={"exports": Quota(10, "month")})
        service.publish("2.0", slug="notes")
        yield service


def _use(shop, folder):
    client = shop.client(SETTINGS, storage=folder)
    [key] = shop._endpoints.licenses
    client.activate(key)
    client.license_file.install(shop.issue_file(key, client.license_file.request()))
    client.uses.consume("exports")
    update = client.check_for_update(force=True).update
    client.skip_update(update)
    client.download(update, folder.parent / "downloads")
    return client, key


def _kinds(folder):
    return {path.name.partition("-")[0] for path in Path(folder).glob("*.state")}


def test_nothing_of_the_customer_is_left(shop, tmp_path):
    """Files of each kind that the state has, but for those that are kept; and the slot stays."""
    client, key = _use(shop, tmp_path / "state")
    assert {"signed", "call", "activation", "update", "skipped", "downloaded"} | KEPT == _kinds(
        tmp_path / "state"
    )
    assert client.state_folder == tmp_path / "state"
    request = client.license_file.request()
    client.reset()
    assert _kinds(tmp_path / "state") == KEPT
    for each in (client, shop.client(SETTINGS, storage=tmp_path / "state")):
        assert each.status().state is LicenseState.NOT_ACTIVATED
        with pytest.raises(NotActivatedError):
            each.require()
        assert each.license_file.request() == request
    assert client.activate(key).product == "Notes"
    assert client.check_for_update().update.version == "2.0"
    assert not client.is_skipped(client.check_for_update().update)


@pytest.mark.parametrize("damage", ["unreadable", "zeros"])
def test_it_removes_what_is_broken(shop, tmp_path, monkeypatch, damage):
    """Each file of the state in turn: afterwards the app works, and the customer has the slot."""
    client, _ = _use(shop, tmp_path / "state")
    client.close()
    files = Files(monkeypatch, tmp_path)
    monkeypatch.setattr("licclient._core.storage.sleep", lambda _: None)
    for path in sorted((tmp_path / "state").glob("*.state")):
        if path.name.startswith(("installation", "file")):  # of those nothing is removed
            continue
        if damage == "zeros":
            path.write_bytes(bytes(90))
        else:
            files.fail(lambda _, name, path=path: name == str(path) and _is_there(path), "EACCES")
        client = shop.client(SETTINGS, storage=tmp_path / "state")
        client.reset()
        assert client.status().state is LicenseState.NOT_ACTIVATED
        client.close()
        files.heal()
        client, _ = _use(shop, tmp_path / "state")
        assert client.require().product == "Notes"
        client.close()


def test_what_cannot_be_removed_is_named(shop, tmp_path, monkeypatch):
    """An app must not report success when the key is still there."""
    _use(shop, tmp_path / "state")
    [path] = (tmp_path / "state").glob("activation-*.state")
    files = Files(monkeypatch, tmp_path)
    monkeypatch.setattr("licclient._core.storage.sleep", lambda _: None)
    files.fail(lambda _, name: name == str(path), "EACCES")
    monkeypatch.setattr(Path, "unlink", _deny)
    fresh = shop.client(SETTINGS, storage=tmp_path / "state")
    with pytest.raises(StateUnreadableError) as caught:
        fresh.reset()
    assert caught.value.path == str(path)


def _is_there(path):
    return path.name in os.listdir(path.parent)  # noqa: PTH208 - not by what the test has replaced


def _deny(*_: object, **__: object):
    raise PermissionError(13, "Permission denied")


def test_another_apps_key_stays(shop, tmp_path):
    """Two apps of a vendor in one folder: only the own one is reset."""
    client, key = _use(shop, tmp_path / "state")
    other = shop.client(
        ClientSettings("https://licenses.example.com", product="Notes", slug="other"),
        storage=tmp_path / "state",
    )
    key = shop.issue("Notes")
    other.activate(key)
    client.reset()
    assert other.require().product == "Notes"


async def test_the_asynchronous_client_has_both(shop, tmp_path):
    """As the synchronous one."""
    [key] = shop._endpoints.licenses
    client = shop.async_client(SETTINGS, storage=tmp_path / "state")
    assert isinstance(client, AsyncLicenseClient)
    await client.activate(key)
    await client.reset()
    assert client.state_folder == tmp_path / "state"
    assert (await client.status()).state is LicenseState.NOT_ACTIVATED
    await client.aclose()
    with shop.client(SETTINGS) as in_memory:
        assert in_memory.state_folder is None
    assert isinstance(LicenseClient("https://licenses.example.com").state_folder, Path)
