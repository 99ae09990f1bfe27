"""`verify` over a real socket and a real disk, as an app calls it; the rules are in `test_policy`."""

from datetime import UTC, date, datetime
from functools import partial

import pytest

from harness.threads import call_at_once
from licclient import License, LicenseClient, LicenseState, Reason, Source
from licclient.errors import InvalidRequestError, LicenseRefusedError, ServiceUnavailableError


async def test_a_good_key_gives_a_license(client, service, clock, key):
    """What the server grants arrives as a License, with the instant and the source."""
    service.grants("Notes", "2027-01-31")
    expected = License(
        "Notes", date(2027, 1, 31), is_lifetime=False, checked_at=clock.now, source=Source.SERVER
    )
    assert await client.verify(key) == expected


async def test_the_request_is_the_specified_one(make_client, service, key):
    """The wire carries the three fields and the specified headers, and asks for no encoding (spec 4.1)."""
    service.grants()
    await make_client(service.url + "/shop/", domain="app.example.org").verify(key)
    [request] = service.requests
    assert (request.method, request.path) == ("POST", "/shop/api/v1/licenses/verify")
    assert request.json == {"license_key": key, "domain": "app.example.org", "ip": "127.0.0.1"}
    assert request.headers["content-type"] == request.headers["accept"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["user-agent"].startswith("licclient/")


@pytest.mark.parametrize("typed", ["", "  \t\n", "\ud800"])
async def test_no_key_means_no_call(client, service, typed):
    """An empty or unreadable key is an invalid request, without asking anybody."""
    with pytest.raises(InvalidRequestError) as caught:
        await client.verify(typed)
    assert list(caught.value.errors) == ["license_key"]
    assert service.requests == []


async def test_a_settings_page_says_that_the_key_is_for_another_product(make_client, service, key):
    """It used to report an outage, and sent the person online."""
    service.grants("Notes")
    client = make_client(product="Notes")
    await client.activate(key)
    service.grants("Paint")
    with pytest.raises(LicenseRefusedError):
        await client.verify(force=True)
    status = await client.status()
    assert (status.state, status.reason) == (LicenseState.REFUSED, Reason.OTHER_PRODUCT)
    assert status.message == "This license is for Paint, not for Notes."


async def test_a_product_that_is_nearly_right_is_a_slip_of_the_app(make_client, service, key, clock, caplog):
    """The service has given a slot by then; the key is not sent again at once, and both names are shown."""
    service.grants("Notes Pro")
    client = make_client(product="Notes")
    words = "This license is for Notes Pro, not for Notes. If these are the same product, the app passes"
    for _ in range(3):
        with pytest.raises(LicenseRefusedError, match=words):
            await client.activate(key)
    assert service.count() == 1
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert (
        "'Notes Pro' was refused, because this client was created with product='Notes'" in record.getMessage()
    )
    mended = make_client(product="Notes Pro")
    assert (await mended.activate(key)).product == "Notes Pro", "the mended app need not wait"
    clock.move(minutes=1)
    for force in (True, False):
        with pytest.raises(LicenseRefusedError):
            await client.verify(key, force=force)
    assert service.count() == 3


async def test_recheck_asks_although_the_cache_is_fresh(client, service, key):
    """`recheck` goes to the server, and its answer is the new cache."""
    service.grants("Old")
    await client.verify(key)
    service.grants("New")
    assert (await client.verify(key)).product == "Old"
    assert (await client.verify(key, force=True)).product == "New"
    assert (await client.verify(key)).product == "New"


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
    with pytest.raises(ServiceUnavailableError):
        await client.verify(key)
    service.grants()
    assert (await client.verify(key)).source is Source.SERVER


async def test_nobody_listens(make_client, dead_url, key):
    """A closed port is an outage, and the error names neither key nor address."""
    with pytest.raises(ServiceUnavailableError) as caught:
        await make_client(dead_url).verify(key)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


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
    assert not await client.check_for_update()
    assert not await client.check_for_update()


# --- the installation's id ----------------------------------------------------------------------


async def test_an_installation_keeps_its_id_and_shows_another_to_each_server(make_client, service, key):
    """The id outlives restarts; two vendors cannot recognise the same installation by it."""
    service.grants()
    await make_client().verify(key)
    await make_client().verify(key, force=True)
    await make_client(service.url + "/other").verify(key)
    first, again, other = (request.json["domain"] for request in service.requests)
    assert first == again != other
    assert len(first) == 32
    assert int(first, 16)


async def test_threads_that_race_for_the_first_id_agree(service, clock, key, tmp_path):
    """Sixteen clients that start at once, with a key each, tell the server one and the same id."""
    service.grants()

    def start(number):
        with LicenseClient(service.url, storage=tmp_path, clock=clock) as client:
            client.verify(f"{key[:-1]}{number:X}")

    assert call_at_once([partial(start, number) for number in range(16)]) == [None] * 16
    assert len({request.json["domain"] for request in service.requests}) == 1
    assert service.count() == 16
