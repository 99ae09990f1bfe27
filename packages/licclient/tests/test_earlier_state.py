"""What the version of commit a6d9f35 wrote is read: no activation, slot, use or choice is lost.

`stage/state_a6d9f35.json` has its files, with and without pinned keys, but for paths of a computer.
"""

import json
from pathlib import Path

import pytest
import stage

from licclient import ClientSettings, LicenseState, Quota, Source, Trust
from licclient.testing import LicenseService

EARLIER = json.loads((Path(stage.__file__).parent / "state_a6d9f35.json").read_text(encoding="utf-8"))


@pytest.fixture(params=EARLIER)
def earlier(request, tmp_path):
    """The service, the app's settings, and the id that its installation had; its files are in place."""
    for name, lines in EARLIER[request.param].items():
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_bytes("\n".join([*lines, ""]).encode())
    [installation] = tmp_path.glob("installation-*.state")
    pins = () if request.param == "signed" else None
    settings = ClientSettings(
        "https://licenses.example.com",
        product="Notes",
        slug="notes",
        version="1.0",
        trust=Trust(public_keys=pins, release_keys=pins),
        storage=tmp_path,
    )
    with LicenseService() as service:
        service.issue("Notes", slug="notes", slots=1, entitlements={"exports": Quota(100, "month")})
        service.publish("2.0", slug="notes")
        yield service, settings, json.loads(installation.read_bytes().splitlines()[1])["id"]


def test_everything_is_where_it_was(earlier):
    """Offline: license, offer, skipped version and uses; online: the same slot, and each use counted once."""
    service, settings, installation = earlier
    client = service.client(settings, storage=settings.storage)
    with service.offline():
        status = client.status()
        assert (status.state, status.key_hint) == (LicenseState.VALID, "CP-TE…0001")
        assert client.require().source in (Source.CACHE, Source.FILE)
        update = client.check_for_update().update
        assert update.version == "2.0"
        assert client.is_skipped(update)
        assert client.uses.consume("exports") == 97
    service.requests.clear()
    assert client.verify(force=True).source is Source.SERVER
    assert {request.fields["domain"] for request in service.requests} == {installation}
    assert client.uses.consume("exports") == 97  # 1 was counted by the service of that time, 2 were not yet


def test_the_id_is_kept_twice_from_now_on(earlier):
    """The first answer writes the copy, which later survives the loss of the file of that time."""
    service, settings, installation = earlier
    with service.client(settings, storage=settings.storage) as client:
        client.verify(force=True)
    [path] = settings.storage.glob("installation-*.state")
    path.unlink()
    service.requests.clear()
    with service.client(settings, storage=settings.storage) as client:
        client.verify(force=True)
    assert {request.fields["domain"] for request in service.requests} == {installation}
