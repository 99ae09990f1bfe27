"""The real client, with pinned release keys, against the real server and its command line."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import OKPKey

from harness.shop import SLUG, Open
from harness.world import World
from licclient import Trust, Update
from licclient.errors import UntrustedResponseError
from licserver.domain.records import AfterSupport, SecurityNotice
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.release_manifests import ManifestSigner, sign_with_keys

ALICE = PrivateKey(bytes([1]) * 32)
ALICES = ALICE.public.text

Publish = Callable[..., bytes]


@pytest.fixture
def publish(shop: World, tmp_path: Path) -> Publish:
    """Publish a version as the vendor does; returns the file's bytes."""

    def run(
        version: str, seal: ManifestSigner | None, content: bytes = b"new" * 1000, **options: Any
    ) -> bytes:
        file = tmp_path / f"photo-lab-{version}.zip"
        file.write_bytes(content)
        shop.services.releases.publish(SLUG, version, file, "<p>New.</p>", seal, **options)
        return content

    return run


def check(client: Any, key: str) -> Update | None:
    """Look for an update, now."""
    found: Update | None = client.check_for_update(key, force=True).update
    return found


def test_a_signed_update_arrives(shop: World, open_client: Open, publish: Publish, tmp_path: Path) -> None:
    """From the vendor's key to the customer's disk; and an independent library reads what came along."""
    content = publish("2.0", sign_with_keys([ALICE]))
    client = open_client(trust=Trust(release_keys=[ALICES]))
    update = check(client, shop.new_key(SLUG))
    assert update is not None
    assert (update.version, update.is_authenticated, update.size) == ("2.0", True, len(content))
    assert (update.changelog_html, update.changelog_text) == ("New.", "New.")
    assert client.download(update, tmp_path / "downloads").path.read_bytes() == content
    assert update.manifest is not None
    document = urlsafe_b64decode(update.manifest + "=" * (-len(update.manifest) % 4))
    with pytest.warns(match="RFC 9864"):  # it would rather read Ed25519 than EdDSA
        found = jws.deserialize_json(
            json.loads(document), OKPKey.import_key(ALICE.to_pem()), algorithms=["EdDSA"]
        )
    assert b'"version":"2.0"' in found.payload


@pytest.mark.slow
def test_an_app_goes_back_from_a_withdrawn_version_to_one_that_was_signed_again(
    shop: World, open_client: Open, publish: Publish
) -> None:
    """It has seen a higher signed version: without a new signature the older one could be an attack."""
    publish("2.0", sign_with_keys([ALICE]))
    shop.clock.forward(days=1)
    publish("3.0", sign_with_keys([ALICE]))
    client, key = open_client(trust=Trust(release_keys=[ALICES])), shop.new_key(SLUG)
    assert (seen := check(client, key)) is not None
    assert seen.version == "3.0"
    shop.clock.forward(days=1)
    shop.services.releases.withdraw(SLUG, "3.0")
    assert isinstance(client.check_for_update(key, force=True).error, UntrustedResponseError)
    shop.services.releases.renew_manifest(SLUG, "2.0", sign_with_keys([ALICE]))
    assert (found := check(client, key)) is not None
    assert (found.version, found.is_authenticated) == ("2.0", True)


def test_a_license_that_covers_less_than_the_one_before_it(
    shop: World, open_client: Open, publish: Publish, tmp_path: Path
) -> None:
    """A higher signed version was offered here; what is covered is, and then a fix (D-322)."""
    shop.services.products.change(SLUG, after_support=AfterSupport.COVERED)
    content = publish("2.0", sign_with_keys([ALICE]))
    paid_until = shop.clock().date()
    shop.clock.forward(days=2)
    publish("3.0", sign_with_keys([ALICE]))
    client = open_client(trust=Trust(release_keys=[ALICES]))
    newest = check(client, shop.new_key(SLUG))
    assert newest is not None
    assert newest.version == "3.0"

    key = shop.new_key(SLUG, support_until=f"{paid_until}")
    update = check(client, key)
    assert update is not None
    assert (update.version, update.latest_version, update.is_authenticated) == ("2.0", "3.0", True)
    assert client.download(update, tmp_path, key=key).path.read_bytes() == content

    fix = publish("1.0.1", sign_with_keys([ALICE]), b"fix", security=SecurityNotice())
    shop.services.licenses.change(key, expires_on=paid_until)
    update = check(client, key)
    assert update is not None
    assert (update.version, update.is_security, update.is_authenticated) == ("1.0.1", True, True)
    assert client.download(update, tmp_path, key=key).path.read_bytes() == fix
