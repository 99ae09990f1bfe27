"""What a license covers, from the end of its updates to its renewal, as a customer sees it in windows."""

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.hands import TkHands
from harness.screen import Screen
from licclient import ClientSettings, LicenseClient, LicenseState, Pages, explain
from licclient.errors import LicenseRefusedError
from licclient.testing import LicenseClock, LicenseService, MemoryStorage

pytestmark = pytest.mark.window

ADVISORY = "https://photo-lab.example/advisories/2026-1"
SETTINGS = ClientSettings(
    "https://licenses.example.com",
    product="Photo Lab",
    slug="photo-lab",
    pages=Pages(buy="https://photo-lab.example/renew"),
)
CHANGES = "<ul><li>Opens files of damaged cameras without running what is in them.</li></ul>"


@pytest.fixture
def shop(license_service: LicenseService) -> LicenseService:
    """A vendor who sells 1.9; its license service is in memory."""
    license_service.publish("1.9", slug="photo-lab", changelog="<ul><li>Film grain.</li></ul>")
    return license_service


@pytest.fixture
def offer(hands: Any, tmp_path: Path) -> Callable[[LicenseClient], None]:
    """Open the dialog with what an app is offered on request."""

    def open_dialog(client: LicenseClient) -> None:
        update = client.check_for_update(force=True).update
        assert update is not None
        hands.open(hands.kit.UpdateDialog(client, update, tmp_path, hands.parent, language="en"))

    return open_dialog


@pytest.fixture
def take(hands: Any, screen: Screen, photograph: Callable[[str, str], None]) -> Callable[[str], None]:
    """Take a picture of Tk's window."""
    return lambda name: (
        photograph(screen.wait_for("Software update"), name) if isinstance(hands, TkHands) else None
    )


def _download(hands: Any) -> None:
    hands.enter()
    hands.until(lambda: hands.message() == "✓\u00a0Downloaded and verified.")
    hands.enter()
    hands.until(lambda: not hands.is_open())


def test_a_covered_version_comes_to_a_new_disk(
    hands: Any,
    shop: LicenseService,
    license_clock: LicenseClock,
    offer: Callable[[LicenseClient], None],
    take: Callable[[str], None],
) -> None:
    """The end of updates is announced, what is beyond it is named, and what was paid for stays."""
    until = license_clock().date() + timedelta(days=20)
    key = shop.issue("Photo Lab", slug="photo-lab", updates_until=until)
    client = shop.client(SETTINGS, version="1.9")
    client.activate(key)
    assert explain(client.status(), "en") == "Licensed. Your updates end on Feb 4, 2030."

    license_clock.move(days=30)
    shop.publish("3.0", slug="photo-lab", changelog="<ul><li>Layers.</li></ul>")
    assert explain(client.check_for_update(force=True), "en") == (
        "Your license does not cover the newest version, 3.0. To get it, please renew the license."
    )
    installed_from_a_disc = shop.client(SETTINGS, version="1.4", storage=MemoryStorage())
    installed_from_a_disc.activate(key)
    offer(installed_from_a_disc)
    assert hands.heading() == "Photo Lab 1.9 is available"
    assert hands.message() == (
        "Your license covers this version. The newest is 3.0; to get it, please renew the license."
    )
    assert hands.links() == ["Renew the license"]
    take("covered-tk-en")
    _download(hands)


def test_a_fix_comes_after_the_end_and_the_newest_version_after_a_renewal(
    hands: Any,
    shop: LicenseService,
    license_clock: LicenseClock,
    offer: Callable[[LicenseClient], None],
    take: Callable[[str], None],
) -> None:
    """The license is refused; the fix can be read about, postponed and installed."""
    key = shop.issue("Photo Lab", slug="photo-lab", updates_until=license_clock().date())
    client = shop.client(SETTINGS, version="1.9")
    client.activate(key)
    license_clock.move(days=30)
    shop.expire(key)
    shop.publish("3.0", slug="photo-lab")
    fix: dict[str, Any] = {
        "security": True,
        "advisory": ADVISORY,
        "cves": ["CVE-2026-1234"],
        "changelog": CHANGES,
    }
    shop.publish("1.9.1", slug="photo-lab", **fix)
    with pytest.raises(LicenseRefusedError):
        client.verify(force=True)
    for _ in range(2):
        offer(client)
        assert hands.heading() == "Photo Lab 1.9.1 is available"
        assert hands.message().startswith("This is a security update. Please install it soon.")
        assert hands.links() == ["Security advisory", "Renew the license"]
        assert sorted(hands.buttons()) == ["Download", "Remind me later"]
        take("security-tk-en")
        hands.alt("r")
        hands.until(lambda: not hands.is_open())
    assert client.status().state is LicenseState.REFUSED
    offer(client)
    _download(hands)

    shop.renew(key, updates_until=date(2031, 1, 31))
    client = shop.client(SETTINGS, version="1.9.1")
    assert client.verify(force=True).updates_until == date(2031, 1, 31)
    offer(client)
    assert (hands.heading(), hands.message(), hands.links()) == ("Photo Lab 3.0 is available", "", [])
    assert explain(client.status(), "en") == "Licensed."
    hands.close_window()
    hands.until(lambda: not hands.is_open())
