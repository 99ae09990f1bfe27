"""The real client against the real server, with pinned keys: rotation, proxies, restarts, downloads."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.flavours import opened
from harness.shop import NAME, PRODUCT, SLUG
from harness.world import MovableClock, World
from licclient import Reason, Source, Trust
from licclient.errors import LicenseRefusedError, UntrustedResponseError
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.protocol.response_signatures import live_keys
from licserver.security.secrets_file import (
    add_signing_key,
    format_signing_key,
    new_secrets,
    retire_signing_key,
    signing_keys,
)
from licserver.settings import Settings


@pytest.fixture
def signing_key(clock: MovableClock) -> SigningKey:
    """The shop's key."""
    return SigningKey(PrivateKey.generate(), clock())


@pytest.fixture
def make_shop(make_world: Callable[..., World], signing_key: SigningKey) -> Callable[..., World]:
    """Make a shop that holds the key."""

    def make(**settings: str) -> World:
        secrets = new_secrets() | {"signing_keys": [format_signing_key(signing_key)]}
        world = make_world(secrets=json.dumps(secrets), **settings)
        world.stock({"products": [PRODUCT], "licenses": []})
        return world

    return make


@pytest.fixture
def options(tmp_path: Path, clock: MovableClock, signing_key: SigningKey) -> dict[str, Any]:
    """The options that an app passes to its client."""
    app = {"slug": SLUG, "version": "1.0.0", "product": NAME, "domain": "home.example"}
    return {
        **app,
        "storage": tmp_path / "state",
        "clock": clock,
        "trust": Trust(public_keys=[signing_key.private.public.text]),
    }


def test_an_app_that_pins_sees_all_of_a_licenses_life(
    make_shop: Callable[..., World],
    flavour: str,
    options: dict[str, Any],
    clock: MovableClock,
    tmp_path: Path,
) -> None:
    """Verified, remembered, updated, downloaded, kept in grace, refused: all of it vouched for by the key."""
    shop = make_shop()
    key = shop.new_key(SLUG)
    with shop.serving() as server, opened(flavour, server.url, **options) as client:
        found = client.verify(key)
        assert (found.source, found.is_authenticated) == (Source.SERVER, True)
        offer = client.check_for_update(key).update
        assert offer is not None
        assert client.download(offer, tmp_path / "files").path.read_bytes() == shop.files["1.1.0"]
        server.stop()
        assert client.verify(key).source is Source.CACHE
        clock.forward(hours=30)
        found = client.verify(key)
        assert (found.source, found.is_authenticated) == (Source.GRACE, True)
        shop.services.licenses.revoke(key)
        server.start()
        with pytest.raises(LicenseRefusedError) as refused:
            client.verify(key)
        assert refused.value.reason is Reason.REVOKED


def test_a_retired_key_signs_no_more(
    make_world: Callable[..., World],
    flavour: str,
    options: dict[str, Any],
    clock: MovableClock,
    tmp_path: Path,
) -> None:
    """Added and retired by command, taken up at the next start; who pins the retired key alone is warned."""
    settings = Settings(data_dir=tmp_path / "keys")
    old = add_signing_key(settings, PrivateKey.generate(), clock())
    new = add_signing_key(settings, PrivateKey.generate(), clock() + timedelta(seconds=1))
    for retired in (False, True):
        if retired:
            retire_signing_key(settings, old.id, clock())
        assert [key.id for key in live_keys(signing_keys(settings))] == [new.id, old.id][: 2 - retired]
        world = make_world(secrets=(tmp_path / "keys/secrets.json").read_text())
        world.stock({"products": [PRODUCT], "licenses": []})
        key = world.new_key(SLUG)
        with world.serving() as server:
            with opened(
                flavour, server.url, **{**options, "trust": Trust(public_keys=[new.private.public.text])}
            ) as client:
                assert client.verify(key).is_authenticated
            with opened(
                flavour, server.url, **{**options, "trust": Trust(public_keys=[old.private.public.text])}
            ) as client:
                if not retired:
                    assert client.verify(key).is_authenticated
                    continue
                with pytest.raises(UntrustedResponseError, match="no signature of a pinned key"):
                    client.verify(key, force=True)


def test_a_server_that_takes_itself_for_another_address_is_noticed(
    make_shop: Callable[..., World], flavour: str, options: dict[str, Any]
) -> None:
    """With a wrong base URL it signs for an address that the app did not ask at, and the error says so."""
    shop = make_shop(base_url="https://licenses.example.com")
    key = shop.new_key(SLUG)
    with shop.serving() as server, opened(flavour, server.url, **options) as client:
        with pytest.raises(UntrustedResponseError, match="LICSERVER_BASE_URL") as mistaken:
            client.verify(key)
        assert server.url in str(mistaken.value)
        assert not client.check_for_update(key)


def test_an_address_with_odd_letters_still_fits(
    make_shop: Callable[..., World], flavour: str, options: dict[str, Any]
) -> None:
    """What an app puts into the query is signed as it went over the wire, quoting and all."""
    shop = make_shop()
    key = shop.new_key(SLUG)
    odd = {**options, "domain": "ünï cödé & co/+~'()%41", "version": "0.1+local.1"}
    with shop.serving() as server, opened(flavour, server.url, **odd) as client:
        assert client.verify(key).is_authenticated
        assert client.check_for_update(key)
