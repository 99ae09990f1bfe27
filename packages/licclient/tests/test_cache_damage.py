import json
import os
import sys
from datetime import UTC, datetime

import pytest
from stage.damage import STRANGE, edits, never_granted, never_granted_by
from stage.flows import recalled
from stage.signing import SIGNER, grants_signed

from licclient import LicclientError, LicenseClient, Trust
from licclient._core.model import CachedLicense, Verified
from licclient._core.records import record_name, seal, unseal, write_cached_license


@pytest.fixture(params=["license", "signed"])
def kind(request):
    """What an app without pins remembers, and what one with a pinned key does (D-62)."""
    return request.param


@pytest.fixture
def grants(kind, service, http_answer, clock):
    """Makes the service grant every key, signed for an app with pins."""
    if kind == "license":
        return service.grants
    return lambda product="Notes": grants_signed(service, http_answer, clock, product)


@pytest.fixture
def at(kind, service, clock, key, tmp_path):
    """Makes a client of these tests, with this test's service and folder as defaults."""

    def make(url=None, domain="d", **options: object):
        pins = {"trust": Trust(public_keys=[SIGNER.text])} if kind == "signed" else {}
        options = {"storage": tmp_path, "clock": clock} | pins | options
        return LicenseClient(url or service.url, domain=domain, **options)

    return make


@pytest.fixture
def cached(kind, service, grants, at, key, tmp_path):
    """The record of one success, whose service has gone down, and a way to ask like a new process."""
    grants()
    with at() as client:
        assert client.verify(key).is_authenticated is (kind == "signed")
    service.goes_down()
    [record] = tmp_path.glob(f"{kind}-*.state")

    def ask():
        with at() as client:
            return recalled(client, key) is not None

    return record, ask


def test_no_edit_is_believed(cached):
    """A damaged cache is not read, never crashes the app, and never delays it (D-41): every 13th byte."""
    never_granted(*cached, step=13)


def test_no_value_of_any_byte_is_believed():
    """All 255 other values of every byte, at the room that reads them."""
    name = record_name("license", "https://store.example", "key", "domain")
    instant = datetime(2026, 11, 21, 12, tzinfo=UTC)
    good = seal(
        name, write_cached_license(CachedLicense(Verified("Notes", None, lifetime=True), instant, instant))
    )
    assert unseal(name, good)
    believed = [
        what for what, raw in edits(good, flips=tuple(range(1, 256))) if raw != good and unseal(name, raw)
    ]
    assert believed == []


@pytest.mark.sampled(7, "kind")
@pytest.mark.parametrize("name", STRANGE)
def test_what_is_no_plain_file_is_not_believed(cached, grants, at, name, key):
    """Something else in the record's place neither hangs nor crashes; the next success takes its place."""
    record, ask = cached
    good = record.read_bytes()
    never_granted_by(name, record, ask)
    if record.is_dir() or name == "a file that may not be read":  # which is not replaced (D-52)
        return
    grants("New")
    with at() as client:
        client.verify(key)
    assert ask()
    assert record.is_file()
    assert not record.is_symlink()
    if name == "a link to the record":
        assert record.with_name("elsewhere").read_bytes() == good


@pytest.mark.skipif(sys.platform == "win32", reason="no modes on Windows")
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_grants_nothing(cached, tmp_path):
    """Nothing is believed, and nothing crashes."""
    _, ask = cached
    tmp_path.chmod(0)
    try:
        assert not ask()
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("status", ["not json", {"id": 7}, {"id": ""}])
def test_a_broken_installation_id_is_made_anew(service, clock, key, tmp_path, status):
    """An id that cannot be read is replaced by a new one, which is then kept."""
    name = record_name("installation", service.url)
    raw = json.dumps(status).encode() if isinstance(status, str) else seal(name, status)
    (tmp_path / f"{name}.state").write_bytes(raw)
    service.grants()
    for _ in range(2):
        with LicenseClient(service.url, storage=tmp_path, clock=clock) as client:
            client.verify(key, force=True)
    first, second = (request.json["domain"] for request in service.requests)
    assert first == second != ""


def test_only_our_own_errors_escape(service, clock, key, tmp_path):
    """A folder made of every kind of nonsense still ends in our own error tree."""
    for kind in ("license", "installation", "update"):
        (tmp_path / f"{record_name(kind, service.url)}.state").mkdir()
    (tmp_path / "licclient.lock").mkdir()
    service.goes_down()
    with LicenseClient(service.url, storage=tmp_path, clock=clock) as client, pytest.raises(LicclientError):
        client.verify(key)
