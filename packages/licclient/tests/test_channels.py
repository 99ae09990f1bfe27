"""Channels and the lowest supported version, as an app meets them (D-227 to D-229)."""

import json
from datetime import UTC, datetime

import pytest
from stage.flavours import both

from licclient import ClientSettings, LicenseClient, Trust, Update, Updates, explain
from licclient._cli import main
from licclient._core.policy import is_below, is_newer
from licclient._core.records import read_update_check, write_update_check
from licclient._core.settings import read_settings
from licclient._core.texts import LANGUAGES
from licclient._core.update_model import Listing, UpdateCheckRecord
from licclient.dialogs._states import OfferState, Tone

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = ClientSettings("https://licenses.example.com", product="Notes", slug="notes", version="1.4")


@pytest.fixture
def make(license_service):
    """Make a client of the app, on one computer."""
    return lambda **options: license_service.client(SETTINGS, **options)


@pytest.fixture
def shop(license_service):
    """A service with a stable version, a beta, and the app's key."""
    license_service.publish("1.4", slug="notes")
    license_service.publish("2.0b1", slug="notes", channel="beta")
    license_service.issue("Notes", slug="notes", activated=True)
    return license_service


@both
async def test_an_app_that_names_a_channel_gets_its_pre_releases(flavour, drive, shop):
    """Also from memory."""
    construct = shop.client if flavour is LicenseClient else shop.async_client
    client = drive(construct(SETTINGS, updates=Updates(channels=["beta"])))
    assert (await client.check_for_update()).update.version == "2.0b1"
    assert (await client.check_for_update()).update.version == "2.0b1"
    assert [request.fields["channels"] for request in shop.requests] == ["beta"]


def test_another_app_on_the_same_computer_is_not_shown_them(make, shop):
    """It names no channel, so it sends none, and asks for itself."""
    make(updates=Updates(channels=["beta"])).check_for_update()
    client = make()
    assert client.check_for_update().message == "Version 1.4 is up to date."
    assert "channels" not in shop.requests[-1].fields


def test_who_leaves_a_channel_waits_for_a_higher_stable_version(make, shop):
    """Nothing goes back by itself, and the reason is known, also from memory and in six languages."""
    make(updates=Updates(channels=["beta"]), version="2.0b1").check_for_update()
    client = make(version="2.0b1")
    for _ in range(2):
        check = client.check_for_update()
        assert not check
        assert check.is_ahead
        assert "Version 2.0b1 is newer than 1.4" in check.message
    assert shop.count("update-check") == 2
    sentences = {explain(check, language) for language in LANGUAGES}
    assert len(sentences) == len(LANGUAGES)
    shop.publish("2.0", slug="notes")
    assert client.check_for_update(force=True).update.version == "2.0"


def test_a_signed_beta_that_was_seen_does_not_keep_the_stable_version_away(make, shop):
    """The highest signed version is remembered for each set of channels (D-68)."""
    signed = {"trust": Trust(release_keys=["ed25519:" + "A" * 43]), "version": "1.3"}
    assert make(**signed, updates=Updates(channels=["beta"])).check_for_update().update.version == "2.0b1"
    update = make(**signed).check_for_update().update
    assert (update.version, update.is_authenticated) == ("1.4", True)


def test_a_license_has_channels(make, license_service):
    """The app need not name them."""
    license_service.publish("1.5b1", channel="beta")
    license_service.issue("Notes", slug="notes", channels=["beta"], activated=True)
    assert make().check_for_update().update.version == "1.5b1"


def test_an_app_below_the_lowest_supported_version_is_warned(make, shop):
    """With the update and without a download, in the status, and from memory while the service is away."""
    shop.publish("1.6", slug="notes")
    client = make()
    client.verify()
    assert not client.check_for_update().update.is_required
    shop.support_from("1.5", slug="notes")
    check = client.check_for_update(force=True)
    assert check.update.is_required
    assert "below 1.5 are no longer supported" in check.message
    shop.end_support(shop.storage.key)
    for offline in (False, True):
        if offline:
            shop.go_offline()
        check = client.check_for_update(force=True)
        assert not check
        assert check.is_update_required
    shop.come_back()
    check = client.check_for_update(force=True)
    assert explain(check, "en") == (
        "This version is no longer supported. Please update."
        " Your license does not cover the newest version, 1.6. To get it, please renew the license."
    )
    assert client.status().is_update_required


@pytest.mark.parametrize(
    ("channels", "error"),
    [
        ("beta", TypeError),
        ([1], TypeError),
        (["Beta"], ValueError),
        ([str(n) for n in range(17)], ValueError),
    ],
)
def test_names_of_channels_are_checked(channels, error):
    """A string is no list of names."""
    with pytest.raises(error, match="channels must be"):
        read_settings(ClientSettings("https://licenses.example.com", updates=Updates(channels=channels)))


@pytest.mark.parametrize(
    ("version", "other", "below"),
    [
        ("1.4", "1.5", True),
        ("1.5", "1.5.0", False),
        ("1.5rc1", "1.5", True),
        ("1.4", None, False),
        ("banana", "1.5", False),
        ("1.4", "9" * 257, False),
        ("0" * 257, "1", False),
    ],
)
def test_below_is_what_pep_440_calls_lower(version, other, below):
    """What cannot be read is not below anything."""
    assert is_below(version, other) is below


def test_a_pre_release_of_a_channel_is_newer():
    """Of the stable channel only where a pre-release is installed (D-47)."""
    assert is_newer("2.0b1", "1.4", "beta")
    assert not is_newer("2.0b1", "1.4")
    assert not is_newer("1.3", "1.4", "beta")


def test_channel_and_lowest_version_are_remembered():
    """What an earlier version of the app has written has neither."""
    listing = Listing("Notes", "notes", "2.0b1", "", NOON, None, channel="beta")
    done = UpdateCheckRecord(NOON, 0.0, answered=True, listing=listing, minimum_version="1.5")
    document = write_update_check(done)
    assert read_update_check(document) == done
    listing = {name: value for name, value in document["listing"].items() if name != "channel"}
    earlier = read_update_check(
        {"checked_at": NOON.isoformat(), "spread": 0, "answered": True, "listing": listing}
    )
    assert earlier.minimum_version is earlier.listing.channel is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_dialog_says_that_the_update_is_needed(language):
    """It cannot be skipped for good then."""
    update = Update("Notes", "notes", "2.0", "", NOON)
    needed = Update("Notes", "notes", "2.0", "", NOON, is_required=True)
    assert (
        OfferState(language, update).view().message,
        OfferState(language, update).view().skip is None,
    ) == (
        "",
        False,
    )
    view = OfferState(language, needed).view()
    assert (bool(view.message), view.tone, view.skip) == (True, Tone.PLAIN, None)


def test_the_command_line_names_channels(shop, monkeypatch, capsys):
    """As an option or in the environment; JSON says whether the update is required."""
    shop.support_from("1.5", slug="notes")
    monkeypatch.setattr("licclient._cli.LicenseClient", shop.client)
    arguments = [
        "--server",
        "https://licenses.example.com",
        "--json",
        "check",
        shop.storage.key,
        "notes",
        "1.4",
    ]
    assert main([*arguments, "--channel", "beta", "--channel", "nightly"]) == 0
    assert json.loads(capsys.readouterr().out)["update"]["required"] is True
    assert shop.requests[-1].fields["channels"] == "beta,nightly"
    monkeypatch.setenv("LICCLIENT_CHANNELS", "beta")
    assert main([*arguments, "--force"]) == 0
    assert shop.requests[-1].fields["channels"] == "beta"
    monkeypatch.delenv("LICCLIENT_CHANNELS")
    assert main(arguments) == 1
