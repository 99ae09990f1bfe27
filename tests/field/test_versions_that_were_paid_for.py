"""What was paid for stays to be had: complaints about other systems, with both packages."""

from datetime import date
from pathlib import Path

import pytest

from harness.shop import SLUG, Open
from harness.world import World
from licclient import LicenseState, explain
from licserver.domain.records import AfterSupport

FIX = {"advisory": None, "cves": ["CVE-2026-1234"]}


@pytest.fixture
def key(shop: World) -> str:
    """Sell a license whose updates ended between 1.1.0 and 2.0.0, of a product with covered versions."""
    shop.services.products.change(SLUG, after_support=AfterSupport.COVERED)
    shop.publish(SLUG, "2.0.0", "2026-11-15T08:30:00Z")
    return shop.new_key(SLUG, support_until="2026-11-10", slots=3)


def test_particular_servicecontrol_2037(shop: World, open_client: Open, key: str, tmp_path: Path) -> None:
    """A customer installs anew after the end: the last version of the period comes by itself."""
    client = open_client(version="0.0.1")
    update = client.check_for_update(key).update
    assert update is not None
    assert client.download(update, tmp_path).path.read_bytes() == shop.files["1.1.0"]


def test_sublimehq_sublime_merge_1524_and_1902(open_client: Open, key: str) -> None:
    """No update beyond the license is offered, and the sentence names both versions."""
    client = open_client(version="1.1.0")
    client.activate(key)
    check = client.check_for_update()
    assert check.update is None
    assert check.latest_version == "2.0.0"
    assert "2.0.0" in explain(check, "en")


def test_craftcms_cms_6311(open_client: Open, key: str) -> None:
    """A version of the period is to be had after its end as well."""
    update = open_client(version="1.0.0").check_for_update(key).update
    assert update is not None
    assert (update.version, update.is_covered) == ("1.1.0", True)


def test_waydabber_betterdisplay_5559_and_openaudible_904(open_client: Open, key: str) -> None:
    """The end of updates ends no license, in whatever version the app is, and on a new computer."""
    for version in ("1.0.0", "1.1.0", "2.0.0"):
        client = open_client(version=version)
        assert client.activate(key).updates_until == date(2026, 11, 10)
        assert client.status().state is LicenseState.VALID


def test_beingpax_voiceink_478(open_client: Open, key: str, tmp_path: Path) -> None:
    """After the app went back to an older version, the license is there, without a request."""
    client = open_client(version="1.1.0", storage=tmp_path / "app")
    client.activate(key)
    client.close()
    assert open_client(version="1.0.0", storage=tmp_path / "app").require(wait=0).product


def test_keygen_sh_keygen_api_569_and_canonical_ubuntu_pro_client_1475(
    shop: World, open_client: Open, tmp_path: Path
) -> None:
    """An expired license gets the patch of its version, and nothing else."""
    expired = shop.new_key(SLUG, expires_on="2026-11-10")
    shop.publish(SLUG, "1.1.1", "2026-11-16T08:30:00Z", security=FIX)
    shop.publish(SLUG, "2.0.0", "2026-11-17T08:30:00Z")
    client = open_client(version="1.1.0")
    update = client.check_for_update(expired).update
    assert update is not None
    assert (update.version, update.is_security) == ("1.1.1", True)
    assert client.download(update, tmp_path).path.read_bytes() == shop.files["1.1.1"]
    assert open_client(version="1.1.1").check_for_update(expired).update is None
