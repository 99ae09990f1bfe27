"""Pinned keys: what is not signed by one of them, for this very call, is never a license (D-62)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from stage.signing import GOOD, SIGNER, Vendor, grants_signed

from harness.oracle import HttpResponse, Signer
from licclient import LicenseClient, Source, Trust
from licclient._core.runners import OwnAddress, Wait
from licclient._core.session import call_name
from licclient._verification.flow import verify
from licclient.errors import (
    InvalidRequestError,
    LicenseRefusedError,
    NotActivatedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)

DAY = timedelta(days=1)


@pytest.fixture
def vendor(service, http_answer, clock):
    """A service that signs."""
    vendor = Vendor(service, http_answer, clock)
    vendor.responds()
    return vendor


@pytest.fixture
def pinned(make_client, vendor):
    """A client of the flavour under test that pins the vendor's key."""
    return make_client(trust=Trust(public_keys=[vendor.signer.text]))


async def test_a_signed_success_is_authenticated_live_and_remembered(pinned, vendor, key, clock):
    """From the server, from the cache and in grace, the license says that a pinned key vouches for it."""
    for source in (Source.SERVER, Source.CACHE):
        found = await pinned.verify(key)
        assert (found.source, found.is_authenticated, found.checked_at) == (source, True, clock())
    vendor.service.goes_down()
    clock.move(hours=30)
    found = await pinned.verify(key)
    assert (found.source, found.is_authenticated) == (Source.GRACE, True)


async def test_without_a_pin_nothing_is_asked_for_and_nothing_is_authenticated(client, service, key):
    """The protocol as ever: no header more, and the license says that nobody vouches for it."""
    service.grants()
    for _ in range(2):
        assert (await client.verify(key)).is_authenticated is False
    assert not {"accept-signature", "content-digest"} & set(service.requests[0].headers)


async def test_signed_refusals_count_like_others(pinned, vendor, key):
    """A signed no is a no, and forgets the success; a signed 422 is our own mistake."""
    await pinned.verify(key)
    vendor.responds(403, {"valid": False, "reason": "License expired."})
    with pytest.raises(LicenseRefusedError, match=r"License expired\."):
        await pinned.verify(key, force=True)
    vendor.service.goes_down()
    with pytest.raises(ServiceUnavailableError):
        await pinned.verify(key)
    vendor.responds(422, {"message": "no", "errors": {"domain": ["no"]}})
    with pytest.raises(InvalidRequestError):
        await pinned.verify(key)


async def test_every_call_has_a_nonce_of_its_own(pinned, vendor, key):
    """128 random bits that no other call has."""
    for _ in range(3):
        await pinned.verify(key, force=True)
    nonces = {vendor.signer.find_requested(request.headers)[1] for request in vendor.service.requests}
    assert [len(nonce) for nonce in nonces] == [22] * 3


# --- hostile answers --------------------------------------------------------------------------

Row = Callable[[Vendor, HttpResponse], HttpResponse]


def bent(**bent: Any) -> Row:
    """Sign it, but not as demanded."""
    return lambda vendor, answered: vendor.sign(answered, **bent)


def of_another(**changes: Any) -> Row:
    """Send it with the signature of another answer."""

    def row(vendor: Vendor, answered: HttpResponse) -> HttpResponse:
        other = vendor.sign(replace(answered, headers=dict(answered.headers), **changes))
        return replace(answered, headers=answered.headers | other.headers)

    return row


ROWS: dict[str, Row] = {
    "unsigned": lambda _, answered: answered,
    "another key": lambda vendor, answered: vendor.sign(answered, Signer()),
    "another nonce": bent(nonce="bm9uY2U"),
    "another status": of_another(status_code=404),
    "another body": of_another(body=b'{"valid": false, "reason": "License expired."}'),
    "another purpose": bent(tag="link"),
    "from the day before yesterday": lambda vendor, answered: vendor.sign(
        answered, created=vendor.clock() - 2 * DAY
    ),
}
"""A few of each kind; every clause of a signature is broken alone in `test_signature`."""


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_what_is_not_signed_for_this_call_is_no_license(pinned, vendor, key, clock, row):
    """Each row is a perfect success, and an `UntrustedResponseError`; what was remembered stays as it was."""
    first = await pinned.verify(key)
    vendor.service.script = lambda request: vendor.write(row(vendor, vendor.answered(request)))
    with pytest.raises(UntrustedResponseError) as raised:
        await pinned.verify(key, force=True)
    assert key not in str(raised.value)
    cached = await pinned.verify(key)
    assert (cached.source, cached.checked_at) == (Source.CACHE, first.checked_at)
    clock.move(hours=30)
    with pytest.raises(UntrustedResponseError):  # not even in grace: this is no outage
        await pinned.verify(key)


async def test_a_forged_refusal_takes_nothing_away(pinned, vendor, key):
    """What no pinned key signed is not a refusal either."""
    await pinned.verify(key)
    vendor.service.refuses(403, "License has been revoked.")
    with pytest.raises(UntrustedResponseError):
        await pinned.verify(key, force=True)
    assert (await pinned.verify(key)).source is Source.CACHE


@pytest.mark.parametrize(("status", "body"), [(403, b"<html>Forbidden</html>"), (500, GOOD)])
async def test_what_claims_nothing_is_an_outage_and_no_attack(pinned, vendor, key, clock, status, body):
    """A hotel's page or a failing proxy is no answer, pinned or not: grace holds (D-40)."""
    await pinned.verify(key)
    vendor.service.responds(status, body)
    clock.move(hours=30)
    assert (await pinned.verify(key)).source is Source.GRACE
    clock.move(hours=72)
    with pytest.raises(ServiceUnavailableError):
        await pinned.verify(key)


async def test_an_html_page_with_a_signature_is_an_attack(pinned, vendor, key):
    """Who goes to the trouble of signing claims to be the service."""
    vendor.service.script = lambda request: vendor.write(
        vendor.sign(vendor.answered(request, 200, b"<html>"), Signer())
    )
    with pytest.raises(UntrustedResponseError):
        await pinned.verify(key)


async def test_a_signed_body_that_is_none_of_the_protocol_is_no_answer(pinned, vendor, key):
    """The service itself, talking nonsense: an outage."""
    vendor.responds(200, {"valid": "yes"})
    with pytest.raises(ServiceUnavailableError):
        await pinned.verify(key)


# --- updates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["unsigned", "another body"])
async def test_offers_that_nobody_signed_are_not_offered(pinned, vendor, key, clock, row):
    """No update, nothing raised, and what was offered before is still there for the next time."""
    vendor.responds(200, vendor.service.listing())
    await pinned.check_for_update(key)
    good = vendor.service.listing("3.0")
    vendor.service.script = lambda request: vendor.write(
        ROWS[row](vendor, vendor.answered(request, 200, good))
    )
    assert not await pinned.check_for_update(key, force=True)
    assert (await pinned.check_for_update(key)).update.version == "2.0"
    clock.move(hours=14)
    assert not await pinned.check_for_update(key)


async def test_a_signed_no_to_an_update_check_forgets_the_offer(pinned, vendor, key):
    """As without pins (D-50); words in which the key stands do no harm."""
    vendor.responds(200, vendor.service.listing())
    assert await pinned.check_for_update(key)
    vendor.responds(401, {"error": "license_expired", "message": f"{key} has expired."})
    assert not await pinned.check_for_update(key, force=True)
    assert not await pinned.check_for_update(key)


async def test_a_download_asks_for_a_link_that_is_signed(pinned, vendor, key, clock, tmp_path):
    """An old offer needs a fresh link, and an unsigned one is an attack: nothing is fetched."""
    vendor.responds(200, vendor.service.listing())
    offer = (await pinned.check_for_update(key)).update
    clock.move(hours=2)
    vendor.service.offers()
    with pytest.raises(UntrustedResponseError):
        await pinned.download(offer, tmp_path / "to", key=key)
    assert vendor.service.count("update-download") == 0


# --- what is remembered with pins and without (D-57 to D-62) ------------------------------------

PINS = {"trust": Trust(public_keys=[SIGNER.text])}


@pytest.mark.parametrize("first", ["unpinned", "pinned"])
async def test_pins_come_and_go_with_versions_of_the_app(
    make_client, service, http_answer, clock, key, first
):
    """The activation stays, each kind asks once for a success of its own, and forgetting forgets both."""
    grants_signed(service, http_answer, clock)
    kinds = [{}, PINS] if first == "unpinned" else [PINS, {}]
    await make_client(**kinds[0]).activate(key)
    assert (await make_client(**kinds[1]).verify()).source is Source.SERVER
    for kind in kinds:
        found = await make_client(**kind).verify()
        assert (found.source, found.is_authenticated) == (Source.CACHE, bool(kind))
    await make_client(**kinds[1]).forget_key()
    for kind in kinds:
        with pytest.raises(NotActivatedError):
            await make_client(**kind).verify()
    await make_client(**kinds[0]).activate(key)
    assert service.count() == 3


def test_an_unsigned_result_of_another_call_counts_for_nothing(service, http_answer, clock, key, tmp_path):
    """An app with pins ignores a refusal that an app without pins received meanwhile (D-58)."""
    grants_signed(service, http_answer, clock)
    pinned = LicenseClient(service.url, storage=tmp_path, clock=clock, **PINS)
    plain = LicenseClient(service.url, storage=tmp_path, clock=clock)
    pinned.activate(key)
    context = pinned._session
    flow = verify(context, None, force=True)
    with context.lock(call_name(context.successes.subject(key, context.domain()))) as lock:
        assert lock.is_ours()
        assert isinstance(next(flow), Wait)
        script = service.script
        service.refuses(403, "License has been revoked.")
        with pytest.raises(LicenseRefusedError):
            plain.verify(key)
        service.script = script
    assert isinstance(next(flow), OwnAddress)
    flow.close()
    assert pinned.verify(force=True).is_authenticated
