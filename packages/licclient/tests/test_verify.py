from datetime import date

import pytest

from licclient import (
    InvalidRequest,
    License,
    LicenseRefused,
    LicenseState,
    Reason,
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


async def test_another_product_is_refused_and_not_remembered(make_client, service, key, tmp_path):
    """A good key of another product is a refusal of its own kind."""
    service.grants("Paint")
    with pytest.raises(LicenseRefused) as caught:
        await make_client(product="Notes").verify(key)
    assert caught.value.reason is Reason.OTHER_PRODUCT
    assert not list((tmp_path / "state").glob("license-*"))


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
