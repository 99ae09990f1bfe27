import json
from functools import partial

import pytest
from stage.flavours import both

from harness.threads import call_at_once
from licclient import (
    LicenseClient,
    LicenseRefused,
    ServiceUnavailable,
    Source,
)


async def test_an_installation_keeps_its_id_and_shows_another_to_each_server(make_client, service, key):
    """The id outlives restarts; two vendors cannot recognise the same installation by it."""
    service.grants()
    await make_client().verify(key)
    await make_client().verify(key, recheck=True)
    await make_client(service.url + "/other").verify(key)
    first, again, other = (request.json["domain"] for request in service.requests)
    assert first == again != other
    assert len(first) == 32
    assert int(first, 16)


async def test_threads_that_race_for_the_first_id_agree(service, clock, key, tmp_path):
    """Sixteen clients that start at once, with a key each, tell the server one and the same id."""
    service.grants()

    def start(number):
        with LicenseClient(service.url, state_dir=tmp_path, clock=clock) as client:
            client.verify(f"{key[:-1]}{number:X}")

    assert call_at_once([partial(start, number) for number in range(16)]) == [None] * 16
    assert len({request.json["domain"] for request in service.requests}) == 1
    assert service.count() == 16


async def test_a_state_that_cannot_be_written_stops_nobody(make_client, service, clock, key, tmp_path):
    """With a file where the folder should be, verify works, and remembers while the process lives."""
    (tmp_path / "state").write_text("in the way")
    service.grants()
    client = make_client()
    await client.verify(key)
    assert (await client.verify(key)).source is Source.CACHE
    service.goes_down()
    clock.move(hours=25)
    assert (await client.verify(key)).source is Source.GRACE
    service.refuses(403, "License expired.")
    with pytest.raises(LicenseRefused):
        await client.verify(key)
    service.goes_down()
    with pytest.raises(ServiceUnavailable):
        await client.verify(key)


@both
async def test_a_closed_client_opens_again(make_client, service, key):
    """Closing twice, and calling after closing, are both fine."""
    service.grants()
    client = make_client()
    await client.verify(key)
    await client.close()
    await client.close()
    assert (await client.verify(key, recheck=True)).source is Source.SERVER


async def test_the_state_holds_no_license_key(client, service, key, tmp_path):
    """Neither the names nor the contents of what is kept on disk tell a key, a domain or a signed link."""
    service.grants()
    await client.verify(key)
    service.offers()
    await client.check_for_update(key)
    files = list((tmp_path / "state").iterdir())
    assert len(files) >= 3
    for path in files:
        told = path.name.encode() + path.read_bytes()
        assert key.encode() not in told
        assert b"SECRETSIG" not in told
        assert json.dumps(key).encode() not in told
