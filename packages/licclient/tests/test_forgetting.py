"""Whose key `forget_key` forgets (D-122)."""

import pytest
from stage.keyrings import Keyring
from stage.signing import SIGNER, grants_signed

from licclient import LicenseState, Trust


@pytest.fixture(params=[False, True], ids=["unsigned", "pinned"])
def keys(request, service, http_answer, clock):
    """Grants every key for Notes; what a client needs to believe it."""
    if not request.param:
        service.grants("Notes")
        return {}
    grants_signed(service, http_answer, clock)
    return {"trust": Trust(public_keys=[SIGNER.text])}


@pytest.mark.parametrize(
    "named", [{"slug": "paint"}, {"slug": None, "product": "Paint"}, {"product": "Paint"}]
)
async def test_another_apps_key_is_left_alone(make_client, keys, key, use_keyring, named):
    """An app that names something finds the key of one that names nothing, and may not take it away."""
    backend = use_keyring(Keyring())
    await make_client(slug=None, **keys).activate(key)
    ours = make_client(**named, **keys)
    await ours.forget_key()
    await ours.forget_key()
    assert (await ours.status()).state is LicenseState.NOT_ACTIVATED
    assert (await make_client(slug=None, **keys).status()).state is LicenseState.VALID
    assert backend.licenses == [key]


async def test_what_an_older_version_entered_is_ours(make_client, keys, key, tmp_path):
    """Its license is for the product that we name by now, so it goes."""
    await make_client(slug=None, **keys).activate(key)
    newer = make_client(product="Notes", **keys)
    assert (await newer.verify()).product == "Notes"
    await newer.forget_key()
    assert not list((tmp_path / "state").glob("activation-*"))


async def test_a_key_can_be_entered_again_where_one_was_hidden(make_client, keys, key):
    """What stands for a forgotten key gives way to the next."""
    await make_client(slug=None, **keys).activate(key)
    ours = make_client(**keys)
    await ours.forget_key()
    await ours.activate(key)
    assert (await make_client(**keys).status()).state is LicenseState.VALID


@pytest.mark.parametrize(
    "body", [None, {"body": "e30="}, {"body": "W10="}, {"body": "!"}, {"body": "eyJwcm9kdWN0IjoxfQ=="}]
)
async def test_a_license_that_says_no_product_is_not_ours(make_client, keys, key, body, tmp_path):
    """Where nobody can tell whose key it is, it stays."""
    before = make_client(slug=None, **keys)
    await before.activate(key)
    activations = before.client._session.activations
    before.client._session.storage.change(activations.find().license, lambda _: body)
    await make_client(product="Notes", **keys).forget_key()
    assert activations.find() is not None
