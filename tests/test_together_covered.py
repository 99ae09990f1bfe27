"""The real client against the real server: what a license covers for good, and security fixes."""

from datetime import date
from pathlib import Path

from harness.flavours import both_flavours
from harness.shop import SLUG, Open
from harness.world import World
from licserver.domain.records import AfterSupport, SecurityNotice


@both_flavours
def test_support_ends_and_a_fix_comes(shop: World, open_client: Open, tmp_path: Path) -> None:
    """A new disk gets the version that was paid for, then the fix of it, and after a renewal the newest."""
    shop.services.products.change(SLUG, after_support=AfterSupport.COVERED)
    key = shop.new_key(SLUG, support_until="2026-11-10")
    shop.publish(SLUG, "2.0.0", "2026-11-15T08:30:00Z")

    client = open_client(version="1.0.0")
    license_ = client.verify(key)
    update = client.check_for_update(key).update
    assert license_.updates_until == date(2026, 11, 10)
    assert update is not None
    assert (update.version, update.latest_version, update.is_covered) == ("1.1.0", "2.0.0", True)
    assert client.download(update, tmp_path).path.read_bytes() == shop.files["1.1.0"]

    client = open_client(version="1.1.0")
    assert client.check_for_update(key).update is None, "nothing newer is covered"
    security = SecurityNotice("https://example.com/advisories/7", ("CVE-2026-1234",))._asdict()
    shop.publish(SLUG, "1.1.1", "2026-11-18T08:30:00Z", security=security)
    update = client.check_for_update(key, force=True).update
    assert update is not None
    assert (update.version, update.is_security, update.cves) == ("1.1.1", True, ("CVE-2026-1234",))
    assert update.advisory == "https://example.com/advisories/7"
    assert client.download(update, tmp_path).path.read_bytes() == shop.files["1.1.1"]

    shop.services.licenses.change(key, support_until=date(2027, 11, 10))
    update = open_client(version="1.1.1").check_for_update(key).update
    assert update is not None
    assert (update.version, update.latest_version, update.is_covered) == ("2.0.0", None, False)


def test_an_expired_license_gets_the_fix_alone(shop: World, open_client: Open, tmp_path: Path) -> None:
    """It is refused by verify as ever."""
    key = shop.new_key(SLUG, expires_on="2026-11-10")
    client = open_client(version="1.0.0")
    assert client.check_for_update(key).update is None
    shop.publish(SLUG, "1.1.1", "2026-11-18T08:30:00Z", security={"advisory": None, "cves": []})
    update = client.check_for_update(key, force=True).update
    assert update is not None
    assert (update.version, update.is_security) == ("1.1.1", True)
    assert client.download(update, tmp_path).path.read_bytes() == shop.files["1.1.1"]
