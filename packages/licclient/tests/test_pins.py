"""Pinned keys: what is not signed by one of them, for this very call, is never a license (D-62)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from stage.signing import GOOD, Vendor

from harness.oracle import COVERED, Answered, Asked, Signer, digest
from licclient import InvalidRequest, LicenseRefused, ServiceUnavailable, Source, UntrustedAnswer

DAY = timedelta(days=1)


@pytest.fixture
def vendor(service, http_answer, clock):
    """A service that signs."""
    vendor = Vendor(service, http_answer, clock)
    vendor.says()
    return vendor


@pytest.fixture
def pinned(make_client, vendor):
    """A client of the flavour under test that pins the vendor's key."""
    return make_client(public_keys=[vendor.signer.text])


async def test_a_signed_success_is_authenticated_live_and_remembered(pinned, vendor, key, clock):
    """From the server, from the cache and in grace, the license says that a pinned key vouches for it."""
    for source in (Source.SERVER, Source.CACHE):
        found = await pinned.verify(key)
        assert (found.source, found.authenticated, found.checked_at) == (source, True, clock())
    vendor.service.goes_down()
    clock.move(hours=30)
    found = await pinned.verify(key)
    assert (found.source, found.authenticated) == (Source.GRACE, True)


async def test_without_a_pin_nothing_is_asked_for_and_nothing_is_authenticated(client, service, key):
    """The protocol as ever: no header more, and the license says that nobody vouches for it."""
    service.grants()
    for _ in range(2):
        assert (await client.verify(key)).authenticated is False
    assert not {"accept-signature", "content-digest"} & set(service.requests[0].headers)


async def test_signed_refusals_count_like_others(pinned, vendor, key):
    """A signed no is a no, and forgets the success; a signed 422 is our own mistake."""
    await pinned.verify(key)
    vendor.says(403, {"valid": False, "reason": "License expired."})
    with pytest.raises(LicenseRefused, match=r"License expired\."):
        await pinned.verify(key, recheck=True)
    vendor.service.goes_down()
    with pytest.raises(ServiceUnavailable):
        await pinned.verify(key)
    vendor.says(422, {"message": "no", "errors": {"domain": ["no"]}})
    with pytest.raises(InvalidRequest):
        await pinned.verify(key)


async def test_every_call_has_a_nonce_of_its_own(pinned, vendor, key):
    """128 random bits that no other call has."""
    for _ in range(3):
        await pinned.verify(key, recheck=True)
    nonces = {vendor.signer.wish(request.headers)[1] for request in vendor.service.requests}
    assert [len(nonce) for nonce in nonces] == [22] * 3


# --- hostile answers --------------------------------------------------------------------------

Row = Callable[[Vendor, Answered], Answered]


def unsigned(_: Vendor, answered: Answered) -> Answered:
    """Leave it as it is."""
    return answered


def bent(**bent: Any) -> Row:
    """Sign it, but not as demanded."""
    return lambda vendor, answered: vendor.sign(answered, **bent)


def about(**changes: Any) -> Row:
    """Sign the answer to another request, or another answer, and send this one with that signature."""

    def row(vendor: Vendor, answered: Answered) -> Answered:
        request = {name: changes[name] for name in ("method", "url") if name in changes}
        headers = dict(answered.request.headers)
        if "body" in changes:
            headers["content-digest"] = digest(changes["body"])
        asked = Asked(**{"method": "POST", "url": answered.request.url, "headers": headers, **request})
        other = Answered(
            asked,
            changes.get("status", answered.status_code),
            {"Content-Type": changes.get("content_type", "application/json")},
            changes.get("content", answered.body),
        )
        vendor.sign(other)
        for name in ("Signature", "Signature-Input", "Content-Digest"):
            answered.headers[name] = other.headers[name]
        return answered

    return row


def then(*, without: str = "", **headers: Callable[[str], str]) -> Row:
    """Sign it well, and change headers afterwards."""

    def row(vendor: Vendor, answered: Answered) -> Answered:
        vendor.sign(answered)
        answered.headers |= {without: ""} if without else {}  # an empty one is not sent
        for name, change in headers.items():
            at = name.replace("_", "-")
            answered.headers[at] = change(answered.headers[at])
        return answered

    return row


def new_body(vendor: Vendor, answered: Answered) -> Answered:
    """Sign a refusal's bytes, and send a success with its own, right digest."""
    about(content=b"{}")(vendor, answered)
    answered.headers["Content-Digest"] = digest(answered.body)
    return answered


def by_a_stranger_in_the_keys_name(vendor: Vendor, answered: Answered) -> Answered:
    """Another key that says it is the pinned one."""
    return vendor.sign(answered, Signer(), key_id=vendor.signer.id)


def without(component: str) -> tuple[str, ...]:
    """Everything but one component."""
    return tuple(one for one in COVERED if one != component)


ROWS: dict[str, Row] = {
    "unsigned": unsigned,
    "no Signature": then(without="Signature"),
    "no Signature-Input": then(without="Signature-Input"),
    "no Content-Digest": then(without="Content-Digest"),
    "another key": lambda vendor, answered: vendor.sign(answered, Signer()),
    "another key in the pinned one's name": by_a_stranger_in_the_keys_name,
    "another nonce": bent(nonce="bm9uY2U"),
    "no nonce": bent(nonce=None),
    "another request's body": about(body=b"{}"),
    "another address": about(url="https://elsewhere.example/api/v1/licenses/verify"),
    "another path": about(url="http://127.0.0.1/api/v1/update-check"),
    "another method": about(method="GET"),
    "another status": about(status=404),
    "another body": about(content=b'{"valid": false, "reason": "License expired."}'),
    "another body, its digest mended": new_body,
    "another content type": about(content_type="text/plain"),
    "no content type": then(without="Content-Type"),
    "another purpose": bent(tag="link"),
    "no purpose": bent(tag=None),
    "no algorithm": bent(include_alg=False),
    "one component more": bent(covered=(*COVERED, '"@query";req')),
    **{f"{one} not covered": bent(covered=without(one)) for one in COVERED},
    "from the day before yesterday": lambda vendor, answered: vendor.sign(
        answered, created=vendor.clock() - 2 * DAY
    ),
    "from the day after tomorrow": lambda vendor, answered: vendor.sign(
        answered, created=vendor.clock() + 2 * DAY
    ),
    "ends before it begins": bent(lifetime=timedelta(seconds=-1)),
    "an unreadable input": then(Signature_Input=lambda told: f"{told},"),
    "an input without its list": then(Signature_Input=lambda told: told.replace("(", "").replace(")", "")),
    "no word on its end": then(Signature_Input=lambda told: told.replace("expires", "expired")),
    "no word on its beginning": then(Signature_Input=lambda told: told.replace("created", "crated")),
    "a changed parameter": then(Signature_Input=lambda told: told.replace("expires=1", "expires=2")),
    "an unreadable signature": then(Signature=lambda told: told.replace("=:", "=:!")),
    "no base64": then(Signature=lambda told: told.replace("=:", "=:A")),
    "a cut signature": then(Signature=lambda told: told[:20] + told[24:]),
    "an empty signature": then(Signature=lambda told: told[: told.index(":")] + "::"),
    "a changed signature": then(Signature=lambda told: told.replace("=:", "=:AAAA", 1)[:-5] + ":"),
    "no ASCII": then(Signature_Input=lambda told: told + ';x="\x80"'),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_what_is_not_signed_for_this_call_is_no_license(pinned, vendor, key, clock, row):
    """Each row is a success word for word, and `UntrustedAnswer`; what was remembered stays as it was."""
    first = await pinned.verify(key)
    vendor.service.script = lambda request: vendor.write(row(vendor, vendor.answered(request)))
    with pytest.raises(UntrustedAnswer) as raised:
        await pinned.verify(key, recheck=True)
    assert key not in str(raised.value)
    cached = await pinned.verify(key)
    assert (cached.source, cached.checked_at) == (Source.CACHE, first.checked_at)
    clock.move(hours=30)
    with pytest.raises(UntrustedAnswer):  # not even in grace: this is no outage
        await pinned.verify(key)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (403, {"valid": False, "reason": "License has been revoked."}),
        (404, {"valid": False, "reason": "License not found."}),
        (422, {"message": "no", "errors": {}}),
    ],
)
async def test_a_forged_refusal_takes_nothing_away(pinned, vendor, key, status, body):
    """What no pinned key says is not a no either."""
    await pinned.verify(key)
    vendor.service.says(status, body)
    with pytest.raises(UntrustedAnswer):
        await pinned.verify(key, recheck=True)
    assert (await pinned.verify(key)).source is Source.CACHE


async def test_an_answer_cannot_be_played_again(pinned, vendor, key):
    """Yesterday's good answer, byte for byte, is not today's."""
    kept = []

    def keep(request):
        kept.append(vendor.write(vendor.sign(vendor.answered(request))))
        return kept[-1]

    vendor.service.script = keep
    await pinned.verify(key)
    vendor.service.script = lambda _: kept[0]
    with pytest.raises(UntrustedAnswer, match="for another call"):
        await pinned.verify(key, recheck=True)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>Log in</html>"),
        (403, b"<html>Forbidden</html>"),
        (404, b""),
        (500, GOOD),
        (503, {"error": "unavailable", "message": "no"}),
        (429, b""),
        (302, b""),
        (400, {"error": "bad_digest"}),
        (403, {"message": "Forbidden"}),  # gateways of AWS and Kong
        (401, {"message": "Unauthorized"}),
        (404, {"detail": "Not Found"}),  # a framework's, behind a proxy that lost its way
        (401, {"error": "invalid_license", "message": "no"}),  # an update check's word, not a verify's
        (200, {"something": "else"}),
    ],
)
async def test_what_claims_nothing_is_an_outage_and_no_attack(pinned, vendor, key, clock, status, body):
    """A hotel's page or a failing proxy is no answer, pinned or not: grace holds (D-40)."""
    await pinned.verify(key)
    vendor.service.says(status, body)
    clock.move(hours=30)
    assert (await pinned.verify(key)).source is Source.GRACE
    clock.move(hours=72)
    with pytest.raises(ServiceUnavailable):
        await pinned.verify(key)


async def test_an_html_page_with_a_signature_is_an_attack(pinned, vendor, key):
    """Who goes to the trouble of signing claims to be the service."""
    vendor.service.script = lambda request: vendor.write(
        vendor.sign(vendor.answered(request, 200, b"<html>"), Signer())
    )
    with pytest.raises(UntrustedAnswer):
        await pinned.verify(key)


async def test_a_signed_body_that_is_none_of_the_protocol_is_no_answer(pinned, vendor, key):
    """The service itself, talking nonsense: an outage."""
    vendor.says(200, {"valid": "yes"})
    with pytest.raises(ServiceUnavailable):
        await pinned.verify(key)


# --- updates ----------------------------------------------------------------------------------


async def test_signed_offers_are_offered(pinned, vendor, key):
    """An update check is signed with its whole address, key and version included."""
    vendor.says(200, vendor.service.listing())
    assert (await pinned.check_for_update(key)).version == "2.0"


@pytest.mark.parametrize(
    "row", ["unsigned", "another key", "another nonce", "another status", "another body"]
)
async def test_offers_that_nobody_signed_are_not_offered(pinned, vendor, key, clock, row):
    """No update, nothing raised, and what was offered before is still there for the next time."""
    vendor.says(200, vendor.service.listing())
    await pinned.check_for_update(key)
    good = vendor.service.listing("3.0")
    vendor.service.script = lambda request: vendor.write(
        ROWS[row](vendor, vendor.answered(request, 200, good))
    )
    assert await pinned.check_for_update(key, force=True) is None
    assert (await pinned.check_for_update(key)).version == "2.0"
    clock.move(hours=14)
    assert await pinned.check_for_update(key) is None


async def test_a_signed_no_to_an_update_check_forgets_the_offer(pinned, vendor, key):
    """As without pins (D-50); words in which the key stands do no harm."""
    vendor.says(200, vendor.service.listing())
    assert await pinned.check_for_update(key)
    vendor.says(401, {"error": "license_expired", "message": f"{key} has expired."})
    assert await pinned.check_for_update(key, force=True) is None
    assert await pinned.check_for_update(key) is None


async def test_a_download_asks_for_a_link_that_is_signed(pinned, vendor, key, clock, tmp_path):
    """An old offer needs a fresh link, and an unsigned one is an attack: nothing is fetched."""
    vendor.says(200, vendor.service.listing())
    offer = await pinned.check_for_update(key)
    clock.move(hours=2)
    vendor.service.offers()
    with pytest.raises(UntrustedAnswer):
        await pinned.download(offer, tmp_path / "to")
    assert vendor.service.count("update-download") == 0
