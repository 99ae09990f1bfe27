import pytest

from licclient import (
    InvalidRequest,
    LicenseRefused,
    ServiceUnavailable,
    Source,
)


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


async def test_each_key_and_domain_and_server_has_its_own_cache(make_client, service, key):
    """What was granted to one key, domain or server says nothing about another."""
    service.grants()
    await make_client(domain="a.example").verify(key)
    await make_client(domain="b.example").verify(key)
    await make_client(domain="a.example").verify(key[:-1] + "9")
    await make_client(service.url + "/other", domain="a.example").verify(key)
    assert service.count() == 4


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
