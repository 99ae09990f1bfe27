"""The life of an app with its key, when the app pins keys (D-57 to D-62)."""

import pytest
from stage.signing import GOOD, SIGNER, Vendor, grants_signed

from licclient import LicenseClient, LicenseRefused, LicenseState, NotActivated, Source, UntrustedAnswer


@pytest.fixture
def pins():
    """What an app gives that pins the vendor's key."""
    return {"public_keys": [SIGNER.text]}


async def test_a_pinned_app_is_activated_once(make_client, service, http_answer, clock, key, pins):
    """The next start answers from the disk, authenticated; `require` and `status` know it too."""
    grants_signed(service, http_answer, clock)
    assert (await make_client(**pins).activate(key)).authenticated
    client = make_client(**pins)
    for ask in (client.verify, client.require):
        found = await ask()
        assert (found.source, found.authenticated) == (Source.CACHE, True)
    assert (await client.status()).state is LicenseState.VALID
    assert service.count() == 1


@pytest.mark.parametrize("first", ["unpinned", "pinned"])
async def test_pins_come_and_go_with_versions_of_the_app(
    make_client, service, http_answer, clock, key, pins, first
):
    """The activation stays, each kind asks once for a success of its own, and forgetting forgets both."""
    grants_signed(service, http_answer, clock)
    kinds = [{}, pins] if first == "unpinned" else [pins, {}]
    await make_client(**kinds[0]).activate(key)
    assert (await make_client(**kinds[1]).verify()).source is Source.SERVER
    for kind in kinds:
        found = await make_client(**kind).verify()
        assert (found.source, found.authenticated) == (Source.CACHE, bool(kind))
    await make_client(**kinds[1]).deactivate_locally()
    for kind in kinds:
        with pytest.raises(NotActivated):
            await make_client(**kind).verify()
    await make_client(**kinds[0]).activate(key)
    assert service.count() == 3


async def test_what_cannot_be_trusted_is_not_remembered(make_client, service, http_answer, clock, key, pins):
    """A forged refusal leaves the settings page as it was."""
    vendor = Vendor(service, http_answer, clock, SIGNER)
    vendor.says()
    client = make_client(**pins)
    await client.activate(key)
    before = await client.status()
    service.refuses(403, "License has been revoked.")
    with pytest.raises(UntrustedAnswer):
        await client.verify(recheck=True)
    assert await client.status() == before
    vendor.says(body=GOOD)
    assert (await client.verify(recheck=True)).source is Source.SERVER


def test_what_others_were_told_without_a_signature_counts_for_nothing(
    service, http_answer, clock, key, pins, tmp_path
):
    """An app with pins does not take the refusal that one without pins was told meanwhile (D-58)."""
    grants_signed(service, http_answer, clock)
    pinned = LicenseClient(service.url, state_dir=tmp_path, clock=clock, **pins)
    plain = LicenseClient(service.url, state_dir=tmp_path, clock=clock)
    pinned.activate(key)
    asking = pinned._steps.begin_verify(None, recheck=True)
    script = service.script
    service.refuses(403, "License has been revoked.")
    with pytest.raises(LicenseRefused):
        plain.verify(key)
    service.script = script
    assert pinned._steps.told_meanwhile(asking) is None
    assert pinned.verify(recheck=True).authenticated
