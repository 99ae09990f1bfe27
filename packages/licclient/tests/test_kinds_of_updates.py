"""The kind of file that an app requests: the one that replaces its installation, or none (D-371)."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from stage.flavours import both

import licclient.install
from licclient import ClientSettings, LicenseClient, Trust, Updates, _base_client
from licclient._core.kinds import PUBLISHED_KINDS, InstallationKind, read_published_kind
from licclient._core.records import read_update_check, write_update_check
from licclient._core.update_model import Listing, UpdateCheckRecord
from licclient.install import DetectedInstallation
from licclient.testing import _endpoints

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = ClientSettings("https://licenses.example.com", product="Notes", slug="notes", version="1.0")
KINDS = sorted(PUBLISHED_KINDS)


@pytest.fixture(autouse=True)
def install(monkeypatch):
    """Have this program be installed in a way; without a call as it is."""

    def install(kind, *, is_certain=True):
        installation = DetectedInstallation(
            InstallationKind(kind),
            Path("/app"),
            Path("/app/notes"),
            is_writable=True,
            updater=None,
            command=None,
            is_certain=is_certain,
        )
        monkeypatch.setattr(licclient.install, "detect", lambda: installation)
        _base_client.find_kind.cache_clear()

    _base_client.find_kind.cache_clear()
    yield install
    _base_client.find_kind.cache_clear()


@pytest.fixture
def shop(license_service):
    """A service with a file of each kind, and the app's key."""
    for kind in KINDS:
        license_service.publish("1.1", slug="notes", kind=kind, content=kind.encode())
    license_service.publish("1.2", slug="notes", kind="folder", content=b"folder")
    license_service.issue("Notes", slug="notes", activated=True)
    return license_service


@pytest.fixture
def make(shop):
    """Make a client of the app, on one computer."""
    return lambda **options: shop.client(SETTINGS, **options)


@pytest.mark.parametrize("kind", [*KINDS, "pip", "unknown", "sparkle"])
@both
async def test_an_app_requests_the_file_that_replaces_it(flavour, drive, install, shop, kind, tmp_path):
    """Only where that is certain; an app that others update sends nothing."""
    install(kind)
    construct = shop.client if flavour is LicenseClient else shop.async_client
    client = drive(construct(SETTINGS))
    sent = kind if kind in PUBLISHED_KINDS else None
    update = (await client.check_for_update()).update
    assert (shop.requests[-1].fields.get("kind"), update.kind) == (sent, sent)
    assert update.version == ("1.2" if sent in (None, "folder") else "1.1")
    remembered = (await client.check_for_update()).update
    assert (remembered, remembered.kind) == (update, sent)
    downloaded = await client.download(remembered, tmp_path)
    assert downloaded.path.read_bytes().decode() == (sent or "folder")
    assert shop.requests[-2].fields.get("kind") == sent


@pytest.mark.parametrize("kind", KINDS)
def test_an_unsure_installation_requests_no_kind(make, install, shop, kind):
    """A wrong set-up is worse than the file that was offered until now."""
    install(kind, is_certain=False)
    assert make().check_for_update().update.version == "1.2"
    assert "kind" not in shop.requests[-1].fields


@pytest.mark.parametrize("kind", KINDS)
def test_the_app_may_name_its_kind(make, install, shop, kind):
    """It is sent as it is, a folder too, and detection is not asked."""
    install("msi" if kind != "msi" else "nsis")
    update = make(updates=Updates(kind=kind)).check_for_update().update
    assert (shop.requests[-1].fields["kind"], update.kind) == (kind, kind)
    assert update.version == ("1.2" if kind == "folder" else "1.1")


def test_another_kind_makes_a_check_due(make, shop):
    """An app that names one waits for no answer to another."""
    assert make().check_for_update().update.version == "1.2"
    client = make(updates=Updates(kind="msi"))
    assert client.check_for_update().update.version == "1.1"
    assert make(updates=Updates(kind="msi", channels=["beta"])).check_for_update().update.version == "1.1"
    assert shop.count("update-check") == 3


def test_what_another_installation_has_remembered_is_requested_again(make, install, shop, tmp_path):
    """Two copies of an app on one computer share the state; each downloads its own file."""
    install("msi")
    assert make().check_for_update().update.kind == "msi"
    install("appimage")
    client = make()
    update = client.check_for_update().update
    assert update.kind == "msi"
    assert client.download(update, tmp_path).path.read_bytes() == b"appimage"
    assert shop.requests[-2].fields["kind"] == "appimage"


def test_a_remembered_signature_of_another_kind_is_none_of_this_file(make, install, shop, tmp_path):
    """With pinned keys the file is compared with the manifest that comes with the own link."""
    pinned = Trust(release_keys=["ed25519:" + "A" * 43])  # the fake service puts its own in its place
    install("msi")
    assert make(trust=pinned).check_for_update().update.size == len(b"msi")
    install("appimage")
    client = make(trust=pinned)
    downloaded = client.download(client.check_for_update().update, tmp_path)
    assert downloaded.path.read_bytes() == b"appimage"


def test_detection_runs_once(make, monkeypatch):
    """It takes some milliseconds, and an app keeps its kind."""
    calls = []
    real = licclient.install.detect
    monkeypatch.setattr(licclient.install, "detect", lambda: calls.append(1) or real())
    for _ in range(2):
        make().check_for_update(force=True)
    make(updates=Updates(kind="msi")).check_for_update(force=True)
    assert calls == [1]


def test_no_call_asks_how_the_app_was_installed_but_an_update_check(make, monkeypatch):
    """A start that is answered from the cache costs what it did."""
    monkeypatch.setattr(licclient.install, "detect", lambda: pytest.fail("it was asked"))
    client = make()
    client.require()
    client.status()


def test_a_service_without_kinds_offers_what_it_has(make, install, shop, monkeypatch):
    """Its answer has no such field, or one that says nothing here."""
    install("msi")
    for answered, kind in ((None, None), ("msi", "msi"), ("exe", None), (7, None), ("unknown", None)):
        described = {} if answered is None else {"kind": answered}
        monkeypatch.setattr(_endpoints.Release, "describe_kind", lambda *_, found=described: found)
        assert make().check_for_update(force=True).update.kind == kind


def test_a_kind_that_no_version_has_is_named(license_service, install):
    """Also from memory: the vendor would look for the reason elsewhere."""
    install("msi")
    license_service.publish("1.1", slug="notes")
    license_service.issue("Notes", slug="notes", activated=True)
    client = license_service.client(SETTINGS)
    for _ in range(2):
        assert "This app needs a file of the kind 'msi'." in client.check_for_update().message
    install("folder")
    assert "kind" not in license_service.client(SETTINGS).check_for_update(force=True).message


@pytest.mark.parametrize("kind", ["", "exe", "MSI", "pip", "unknown"])
def test_a_kind_that_nothing_is_published_as_is_refused(kind):
    """With those that there are."""
    with pytest.raises(ValueError, match="kind must be one of app, appimage, folder, inno, msi, nsis"):
        LicenseClient(SETTINGS, updates=Updates(kind=kind))


def test_a_kind_is_a_text():
    """Or one of `InstallationKind`, which are texts."""
    with pytest.raises(TypeError, match="kind must be a string"):
        LicenseClient(SETTINGS, updates=Updates(kind=7))
    LicenseClient(SETTINGS, updates=Updates(kind=InstallationKind.MSI)).close()
    assert [read_published_kind(value) for value in ("msi", "pip", None, 7, [])] == [
        "msi",
        *[None] * 4,
    ]


def test_the_service_for_tests_knows_kinds(license_service):
    """Of a version the first kind is offered to apps that name none; a wrong one is refused."""
    for kind in ("msi", "inno"):
        license_service.publish("1.1", slug="notes", kind=kind)
    license_service.publish("1.0", slug="notes")
    license_service.issue("Notes", slug="notes", activated=True)
    client = license_service.client(SETTINGS)
    assert client.check_for_update(force=True).update.version == "1.1"
    for kind in ("exe", "unknown"):
        with pytest.raises(ValueError, match="kind must be one of"):
            license_service.publish("2.0", kind=kind)
    with pytest.raises(TypeError, match="kind must be"):
        license_service.publish("2.0", kind=None)


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_a_record_keeps_the_kind(kind):
    """And one of an earlier version, or with a kind of a later one, has none."""
    listing = Listing("Notes", "notes", "1.1", "", NOON, None, kind=kind)
    record = UpdateCheckRecord(NOON, 0.05, answered=True, listing=listing)
    document = write_update_check(record)
    assert read_update_check(document) == record
    assert ("kind" in document["listing"]) == (kind is not None)
    later = {**document, "listing": {**document["listing"], "kind": "later"}}
    assert read_update_check(later) == replace(record, listing=replace(listing, kind=None))
