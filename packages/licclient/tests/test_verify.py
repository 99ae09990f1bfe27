"""`verify` over a real socket and a real disk, as an app calls it; the rules are in `test_policy`."""

from datetime import UTC, date, datetime, timedelta

import pytest

from licclient import (
    InvalidRequest,
    License,
    LicenseRefused,
    LicenseState,
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


# --- the product (D-44) -----------------------------------------------------------------------


async def test_a_settings_page_says_that_the_key_is_for_another_product(make_client, service, key):
    """It said that nobody could be asked, and sent the person online."""
    service.grants("Notes")
    client = make_client(product="Notes")
    await client.activate(key)
    service.grants("Paint")
    with pytest.raises(LicenseRefused):
        await client.verify(recheck=True)
    status = await client.status()
    assert (status.state, status.reason) == (LicenseState.REFUSED, Reason.OTHER_PRODUCT)
    assert status.message == "This license is for Paint, not for Notes."


# --- the cache (D-41) -------------------------------------------------------------------------


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


async def test_recheck_asks_although_the_cache_is_fresh(client, service, key):
    """`recheck` goes to the server, and its answer is the new cache."""
    service.grants("Old")
    await client.verify(key)
    service.grants("New")
    assert (await client.verify(key)).product == "Old"
    assert (await client.verify(key, recheck=True)).product == "New"
    assert (await client.verify(key)).product == "New"


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


# --- outages (D-40, D-42) ---------------------------------------------------------------------


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


async def test_nobody_listens(make_client, dead_url, key):
    """A closed port is an outage, and the error names neither key nor address."""
    with pytest.raises(ServiceUnavailable) as caught:
        await make_client(dead_url).verify(key)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


# --- clocks (D-43) ----------------------------------------------------------------------------


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


@pytest.mark.parametrize("now", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
async def test_in_the_first_and_in_the_last_year_nothing_breaks(make_client, service, clock, key, now):
    """A clock without a battery, or a record that somebody forged: answers and our own errors, as ever."""
    service.grants()
    clock.now = now
    client = make_client()
    await client.activate(key)
    assert (await client.verify()).source is Source.CACHE
    assert (await client.require()).source is Source.CACHE
    assert (await client.status()).source is Source.CACHE
    assert await client.check_for_update() is None
    assert await client.check_for_update() is None
