import json
import os
import stat
import sys
import threading
from datetime import date, timedelta

import pytest

from licclient import (
    InvalidRequest,
    License,
    LicenseClient,
    LicenseRefused,
    Reason,
    ServiceUnavailable,
    Source,
)


async def test_a_good_key_gives_a_license(client, service, clock, key):
    """What the server grants arrives as a License, with the instant and the source."""
    service.grants("Notes", "2027-01-31")
    expected = License("Notes", date(2027, 1, 31), lifetime=False, checked_at=clock.now, source=Source.SERVER)
    assert await client.verify(key) == expected


async def test_the_request_is_the_specified_one(make_client, service, key):
    """The wire carries the three fields and the specified headers, and asks for no encoding (spec 4.1)."""
    service.grants()
    await make_client(service.url + "/shop/", domain="app.example.org").verify(key)
    [asked] = service.requests
    assert (asked.method, asked.path) == ("POST", "/shop/api/v1/licenses/verify")
    assert asked.json == {"license_key": key, "domain": "app.example.org", "ip": "127.0.0.1"}
    assert asked.headers["content-type"] == asked.headers["accept"] == "application/json"
    assert asked.headers["accept-encoding"] == "identity"
    assert asked.headers["user-agent"].startswith("licclient/")


async def test_what_a_person_typed_is_repaired(client, service, key):
    """White space and lower case never reach the server (D-02)."""
    service.grants()
    await client.verify(f"  {key[:9].lower()} {key[9:]}\r\n")
    assert service.requests[0].json["license_key"] == key


@pytest.mark.parametrize("typed", ["", "  \t\n", "\ud800"])
async def test_no_key_means_no_call(client, service, typed):
    """An empty or unreadable key is an invalid request, without asking anybody."""
    with pytest.raises(InvalidRequest) as caught:
        await client.verify(typed)
    assert list(caught.value.errors) == ["license_key"]
    assert service.requests == []


@pytest.mark.parametrize(
    ("status", "words", "reason"),
    [
        (403, "Invalid license format.", Reason.INVALID_FORMAT),
        (404, "License not found.", Reason.NOT_FOUND),
        (403, "License has been revoked.", Reason.REVOKED),
        (403, "License expired.", Reason.EXPIRED),
        (403, "Max activations exceeded or unrecognized environment.", Reason.ENVIRONMENT),
        (403, "Something new.", Reason.OTHER),
    ],
)
async def test_every_refusal_has_its_reason(client, service, key, status, words, reason):
    """Each sentence of the specification becomes a reason to branch on; unknown ones are `other` (spec 7)."""
    service.refuses(status, words)
    with pytest.raises(LicenseRefused) as caught:
        await client.verify(key)
    assert (caught.value.reason, caught.value.message, str(caught.value)) == (reason, words, words)


async def test_a_malformed_request_names_the_fields(client, service, key):
    """A 422 says what is wrong with which field (spec 4.1)."""
    service.says(422, {"message": "No.", "errors": {"ip": ["Bad.", "Very bad."]}})
    with pytest.raises(InvalidRequest) as caught:
        await client.verify(key)
    assert caught.value.errors == {"ip": ["Bad.", "Very bad."]}


# --- cache (D-41) -----------------------------------------------------------------------------


async def test_a_success_is_asked_for_once_a_day(make_client, service, clock, key):
    """Within 24 hours a restarted app answers from the cache; then the server is asked again."""
    service.grants()
    first = await make_client().verify(key)
    clock.move(hours=23, minutes=59)
    again = await make_client().verify(key)
    assert (again.source, again.checked_at) == (Source.CACHE, first.checked_at)
    clock.move(minutes=1)
    assert (await make_client().verify(key)).source is Source.SERVER
    assert service.count() == 2


async def test_a_longer_cache_is_the_apps_choice(make_client, service, clock, key):
    """`cache_for` can be set upwards."""
    service.grants()
    client = make_client(cache_for=timedelta(days=7))
    await client.verify(key)
    clock.move(days=6)
    assert (await client.verify(key)).source is Source.CACHE


async def test_recheck_asks_although_the_cache_is_fresh(client, service, key):
    """`recheck` goes to the server, and its answer is the new cache."""
    service.grants("Old")
    await client.verify(key)
    service.grants("New")
    assert (await client.verify(key)).product == "Old"
    assert (await client.verify(key, recheck=True)).product == "New"
    assert (await client.verify(key)).product == "New"


async def test_the_cache_never_outlives_the_expiry_day(client, service, clock, key):
    """At 00:00 UTC after the expiry day nothing remembered counts, however fresh, and there is no grace."""
    service.grants(expiry="2026-11-21")
    await client.verify(key)
    clock.move(hours=11, minutes=59)
    assert (await client.verify(key)).source is Source.CACHE
    clock.move(minutes=1)
    service.goes_down()
    with pytest.raises(ServiceUnavailable):
        await client.verify(key)


async def test_a_refusal_removes_the_success(client, service, key):
    """After a no, an outage does not bring the old yes back."""
    service.grants()
    await client.verify(key)
    service.refuses(403, "License has been revoked.")
    with pytest.raises(LicenseRefused):
        await client.verify(key, recheck=True)
    service.goes_down()
    with pytest.raises(ServiceUnavailable):
        await client.verify(key)


async def test_refusals_are_not_cached(client, service, key):
    """A key that was refused is asked for again: the vendor may have put it right."""
    service.refuses(403, "License expired.")
    with pytest.raises(LicenseRefused):
        await client.verify(key)
    service.grants()
    assert (await client.verify(key)).source is Source.SERVER


async def test_a_malformed_request_neither_grants_nor_removes(client, service, clock, key):
    """A 422 says nothing about the key: the cache stays, and it does not open the grace period either."""
    service.grants()
    await client.verify(key)
    service.says(422, {"message": "No.", "errors": {"domain": ["Bad."]}})
    with pytest.raises(InvalidRequest):
        await client.verify(key, recheck=True)
    assert (await client.verify(key)).source is Source.CACHE
    clock.move(hours=25)
    with pytest.raises(InvalidRequest):
        await client.verify(key)


async def test_each_key_and_domain_and_server_has_its_own_cache(make_client, service, key):
    """What was granted to one key, domain or server says nothing about another."""
    service.grants()
    await make_client(domain="a.example").verify(key)
    await make_client(domain="b.example").verify(key)
    await make_client(domain="a.example").verify(key[:-1] + "9")
    await make_client(service.url + "/other", domain="a.example").verify(key)
    assert service.count() == 4


# --- outages (D-40, D-42) ---------------------------------------------------------------------


async def test_an_outage_within_the_cache_goes_unnoticed(client, service, key):
    """A recheck without an answer returns what is still in time, and says that it is the cache's."""
    service.grants()
    await client.verify(key)
    service.goes_down()
    assert (await client.verify(key, recheck=True)).source is Source.CACHE


async def test_the_grace_period_begins_when_the_cache_has_run_out(client, service, clock, key):
    """24 hours of cache, then 72 of grace that the result names; then unavailable; then back again."""
    service.grants()
    await client.verify(key)
    service.goes_down()
    clock.move(hours=24)
    assert (await client.verify(key)).source is Source.GRACE
    clock.move(hours=71, minutes=59)
    assert (await client.verify(key)).source is Source.GRACE
    clock.move(minutes=1)
    with pytest.raises(ServiceUnavailable):
        await client.verify(key)
    service.grants()
    assert (await client.verify(key)).source is Source.SERVER


async def test_no_grace_when_the_app_wants_none(make_client, service, clock, key):
    """`grace` may be zero."""
    service.grants()
    client = make_client(grace=timedelta(0))
    await client.verify(key)
    service.goes_down()
    clock.move(hours=24)
    with pytest.raises(ServiceUnavailable):
        await client.verify(key)


async def test_nobody_listens(make_client, dead_url, key):
    """A closed port is an outage, and the error names neither key nor address."""
    with pytest.raises(ServiceUnavailable) as caught:
        await make_client(dead_url).verify(key)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


# --- the clock (D-43) -------------------------------------------------------------------------


async def test_a_clock_set_back_asks_again_and_grants_nothing_offline(client, service, clock, key):
    """Behind the latest instant seen the cache is a miss; without a server there is no license."""
    service.grants()
    await client.verify(key)
    clock.move(hours=10)
    await client.verify(key)
    clock.move(hours=-9)
    service.goes_down()
    with pytest.raises(ServiceUnavailable, match="clock"):
        await client.verify(key)
    service.grants()
    assert (await client.verify(key)).source is Source.SERVER


async def test_small_steps_back_are_forgiven(client, service, clock, key):
    """A time server that nudges the clock by minutes locks nobody out."""
    service.grants()
    await client.verify(key)
    service.goes_down()
    clock.move(minutes=-5)
    assert (await client.verify(key)).source is Source.CACHE


async def test_an_end_that_was_seen_does_not_come_back(make_client, service, clock, key):
    """Once the end was crossed, no step within the tolerance, in a new process, goes back over it."""
    service.grants()
    await make_client(grace=timedelta(0)).verify(key)
    clock.move(hours=23, minutes=58)
    await make_client(grace=timedelta(0)).verify(key)
    service.goes_down()
    clock.move(minutes=2, seconds=1)
    with pytest.raises(ServiceUnavailable):
        await make_client(grace=timedelta(0)).verify(key)
    clock.move(seconds=-2)
    with pytest.raises(ServiceUnavailable):
        await make_client(grace=timedelta(0)).verify(key)


async def test_a_clock_that_jumped_ahead_heals_with_the_next_answer(client, service, clock, key):
    """One jump ahead and back costs one more call, and never locks out who can reach the server."""
    service.grants()
    await client.verify(key)
    clock.move(days=365)
    await client.verify(key)
    clock.move(days=-365)
    assert (await client.verify(key)).source is Source.SERVER
    service.goes_down()
    assert (await client.verify(key)).source is Source.CACHE


async def test_reading_the_cache_does_not_write_the_disk(client, service, clock, key, tmp_path):
    """The latest instant seen is written only when it has moved by minutes."""
    service.grants()
    await client.verify(key)
    [record] = (tmp_path / "state").glob("license-*")
    before = record.read_bytes()
    clock.move(minutes=4)
    await client.verify(key)
    assert record.read_bytes() == before
    clock.move(minutes=2)
    await client.verify(key)
    assert record.read_bytes() != before


# --- the product (D-44) -----------------------------------------------------------------------


async def test_another_product_is_refused_and_not_remembered(make_client, service, key, tmp_path):
    """A good key of another product is a refusal of its own kind."""
    service.grants("Paint")
    with pytest.raises(LicenseRefused) as caught:
        await make_client(product="Notes").verify(key)
    assert caught.value.reason is Reason.OTHER_PRODUCT
    assert not list((tmp_path / "state").glob("license-*"))


async def test_another_products_success_is_neither_used_nor_lost(make_client, service, key):
    """An app that expects Notes does not live on what Paint was granted, and does not throw it away."""
    service.grants("Paint")
    await make_client(product="Paint").verify(key)
    with pytest.raises(LicenseRefused):
        await make_client(product="Notes").verify(key)
    service.goes_down()
    with pytest.raises(ServiceUnavailable):
        await make_client(product="Notes").verify(key)
    assert (await make_client(product="Paint").verify(key)).source is Source.CACHE


# --- the installation (D-45) ------------------------------------------------------------------


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
    clients = [LicenseClient(service.url, state_dir=tmp_path, clock=clock) for _ in range(16)]
    keys = [f"{key[:-1]}{number:X}" for number in range(16)]
    threads = [
        threading.Thread(target=client.verify, args=(one, True))
        for client, one in zip(clients, keys, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
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


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no file modes; the profile folder is private"
)
async def test_the_state_is_for_the_user_alone(client, service, key, tmp_path):
    """The folder has mode 0700 and every file in it 0600, whatever the umask says."""
    before = os.umask(0)
    try:
        service.grants()
        await client.verify(key)
        await client.check_for_update(key)
    finally:
        os.umask(before)
    folder = tmp_path / "state"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert len(modes) >= 3
    assert set(modes.values()) == {0o600}


async def test_a_closed_client_opens_again(make_client, service, key):
    """Closing twice, and calling after closing, are both fine."""
    service.grants()
    client = make_client()
    await client.verify(key)
    await client.close()
    await client.close()
    assert (await client.verify(key, recheck=True)).source is Source.SERVER


async def test_clients_are_context_managers(flavour, service, tmp_path, key):
    """`with` and `async with` give the client itself."""
    service.grants()
    if flavour is LicenseClient:
        with LicenseClient(service.url, state_dir=tmp_path) as client:
            assert client.verify(key).product == "Notes"
    else:
        async with flavour(service.url, state_dir=tmp_path) as client:
            assert (await client.verify(key)).product == "Notes"


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
