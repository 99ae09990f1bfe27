"""Which release the channels of an app and of its license offer (D-227), as pure decisions."""

from datetime import UTC, datetime

import pytest

from licserver.domain.channel_offers import describe_audience
from licserver.domain.offers import (
    OfferedProduct,
    is_channel,
    latest_by_channel,
    latest_of_channels,
    list_downloads,
    parse_channels,
)
from licserver.domain.records import Artifact, LicenseSnapshot, Product, Release

WINDOWS = "windows-x86_64"


def release(version, channel="stable", platform="", withdrawn=False):
    """A release in memory."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    file = Artifact("a", 0, b"")
    return Release(0, 1, version, "", at, file, at if withdrawn else None, None, platform, channel)


RELEASES = [
    release("1.4"),
    release("1.4", platform=WINDOWS),
    release("1.5rc1"),
    release("2.0b1", "beta"),
    release("2.0b2", "beta", WINDOWS),
    release("2.0b3", "beta", withdrawn=True),
    release("1.3", "old"),
]


@pytest.mark.parametrize(
    ("channels", "platform", "version"),
    [
        ((), "", "1.4"),
        (("beta",), "", "2.0b1"),
        (("beta",), WINDOWS, "2.0b2"),
        (("beta", "old"), "haiku", "2.0b1"),
        (("old",), "", "1.4"),
        (("unknown", ""), "", "1.4"),
    ],
)
def test_the_highest_version_of_the_allowed_channels_is_offered(channels, platform, version):
    """Stable is always allowed; in another channel pre-releases count like other versions."""
    assert latest_of_channels(RELEASES, channels, platform).version == version


def test_versions_are_compared_as_versions():
    """Not as texts, and whichever was published first."""
    both = [release("1.10"), release("1.9", "beta")]
    for releases in (both, both[::-1]):
        assert latest_of_channels(releases, ["beta"]).version == "1.10"
    unreadable = [release("2024 Spring"), release("0.1", "beta")]
    assert latest_of_channels(unreadable, ["beta"]).version == "0.1"


def test_a_license_is_offered_files_of_its_channels():
    """A platform is listed where its newest version has a file of its own; without any release nothing is."""
    license_, product = LicenseSnapshot(b"1", 1, "App"), Product(1, "app", "App")

    def downloads(releases):
        return list_downloads(
            OfferedProduct(product, releases), license_, ["beta"], datetime(2026, 2, 1, tzinfo=UTC)
        )

    assert {name: release_.version for (name, _), release_ in downloads(RELEASES).items()} == {
        "": "2.0b1",
        WINDOWS: "2.0b2",
    }
    older = [release("2.0"), release("1.9", "beta", WINDOWS)]
    assert [*downloads(older)] == [("", "folder")]
    assert downloads([]) == {}
    assert [*latest_by_channel([])] == ["stable"]
    assert latest_of_channels([], ["beta"]) is None


def test_what_is_no_name_counts_as_no_channel():
    """Sixteen names are read, of 1 to 40 letters, digits and signs each."""
    assert parse_channels("beta,,Beta, x,a b,nightly") == ("beta", "nightly")
    assert parse_channels(",".join(f"c{number}" for number in range(20))) == tuple(f"c{n}" for n in range(16))
    assert [is_channel(text) for text in ("b-1.2_x", "x" * 40, "x" * 41, "", "a\n")] == [True] * 2 + [
        False
    ] * 3


def test_whom_a_channel_is_for():
    """A vendor who publishes into a channel reads it in a sentence."""
    assert describe_audience(release("2.0", "beta"), []) == (
        "2.0 is in the channel beta: apps and licenses with this channel are offered it, unless there is a"
        " higher version for them."
    )
