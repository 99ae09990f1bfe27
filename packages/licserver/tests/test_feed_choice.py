"""What feeds list for an installation that chooses by itself, and offer to anyone, as pure decisions."""

from datetime import UTC, datetime, timedelta

import pytest

from licserver.domain.decisions import Offer, UpdateRefusal
from licserver.domain.offers import (
    NO_LICENSE,
    Installation,
    ListedRelease,
    OfferedProduct,
    bucket,
    evaluate_public_feed,
    list_releases,
    public_feed_license,
)
from licserver.domain.records import Artifact, LicenseSnapshot, Product, Release, Rollout

START = datetime(2026, 11, 1, tzinfo=UTC)
DAY = START + timedelta(days=1)
END = START + timedelta(days=9)
WINDOWS = "windows-x86_64"
APP = Product(7, "app", "App")
NAMELESS = Installation("", "1.0")
NAMES = [f"installation-{number}" for number in range(1000)]
EARLY, LATE = (pick(NAMES, key=lambda name: bucket("app", "1.5", name)) for pick in (min, max))


def release(number, version, rollout=None, channel="stable", platform=""):
    """Return a release; `rollout` is a plan that began at `START`."""
    plan = None if rollout is None else Rollout(rollout, START)
    file = Artifact("app.zip", 1, b"0" * 32)
    return Release(number, 7, version, "", START, file, platform=platform, channel=channel, rollout=plan)


OLD = release(1, "1.4")
EVENLY, IN_STEPS = release(2, "1.5", "7d"), release(2, "1.5", "10%,100%@5d")
BETA = release(3, "2.0b1", channel="beta")


def listed(releases, installation=NAMELESS, now=DAY, channels=(), platform=""):
    """List releases for an installation, as their product offers them to anyone."""
    offered = OfferedProduct(APP, releases)
    offer = evaluate_public_feed(offered, channels, platform)
    assert isinstance(offer, Offer)
    return list_releases(offer, offered, channels, platform, installation, now)


def test_anyone_is_offered_what_a_license_is():
    """The offer can be downloaded, and names no license; the versions below a rollout come with it."""
    offer = evaluate_public_feed(OfferedProduct(APP, [OLD, EVENLY, BETA]), (), "")
    assert isinstance(offer, Offer)
    assert (offer.release, offer.product.candidates) == (EVENLY, (EVENLY, OLD))
    assert (offer.product.id, offer.downloadable) == (7, True)
    assert offer.license == public_feed_license(7) == LicenseSnapshot(NO_LICENSE, 7, "")
    beta = evaluate_public_feed(OfferedProduct(APP, [OLD, BETA]), ["beta"], "")
    assert isinstance(beta, Offer)
    assert beta.release == BETA


def test_without_a_release_anyone_is_offered_none():
    """Nor without one of the platform and the channels."""
    own = release(1, "1.4", platform=WINDOWS)
    assert evaluate_public_feed(OfferedProduct(APP, []), (), "") is UpdateRefusal.NO_VERSIONS
    assert evaluate_public_feed(OfferedProduct(APP, [own, BETA]), (), "") is UpdateRefusal.NO_VERSIONS
    assert isinstance(evaluate_public_feed(OfferedProduct(APP, [own]), (), WINDOWS), Offer)


def test_even_growth_is_left_to_the_app():
    """It draws its own turn within the plan's time; until then it sees the version before."""
    assert listed([OLD, EVENLY]) == [ListedRelease(EVENLY, span=timedelta(days=7)), ListedRelease(OLD)]
    assert listed([OLD, EVENLY], now=END) == [ListedRelease(EVENLY)]


@pytest.mark.parametrize(
    "held", [IN_STEPS, EVENLY._replace(rollout=Rollout("7d", START, paused_at=DAY))], ids=["steps", "pause"]
)
def test_what_no_app_can_draw_is_not_listed(held):
    """Steps and a paused growth reach nobody without a name."""
    assert listed([OLD, held]) == [ListedRelease(OLD)]
    assert listed([held]) == []


@pytest.mark.parametrize(
    ("installation", "release_"),
    [
        (Installation(EARLY, "1.0"), IN_STEPS),
        (Installation(LATE, "1.0"), OLD),
        (Installation(LATE, "1.0", is_manual=True), IN_STEPS),
        (Installation("", "1.0", is_manual=True), IN_STEPS),
    ],
)
def test_who_has_a_name_or_asks_sees_one_release(installation, release_):
    """That is the one that an update check offers."""
    assert listed([OLD, IN_STEPS], installation) == [ListedRelease(release_)]


def test_a_rollout_that_reaches_a_name_not_yet_leaves_nothing():
    """There is no version before it."""
    assert listed([IN_STEPS], Installation(LATE, "1.0")) == []


def test_other_channels_are_there_on_request():
    """Each shows what it has above stable; a channel that was named counts as offered."""
    alpha = release(4, "3.0a1", channel="alpha")
    low = release(5, "1.3", channel="old")
    releases = [OLD, BETA, alpha, low]
    assert listed(releases) == [
        ListedRelease(OLD),
        ListedRelease(alpha, is_on_request=True),
        ListedRelease(BETA, is_on_request=True),
    ]
    assert listed(releases, channels=("beta",)) == [
        ListedRelease(BETA),
        ListedRelease(alpha, is_on_request=True),
    ]
    assert listed(releases, channels=("beta", "alpha")) == [ListedRelease(alpha)]


def test_a_channel_has_its_own_rollout_and_platforms():
    """Its releases reach installations as those of stable do."""
    own = release(3, "2.0b1", "7d", "beta")
    file = release(6, "2.0b1", "7d", "beta", WINDOWS)
    assert listed([OLD, own]) == [
        ListedRelease(OLD),
        ListedRelease(own, is_on_request=True, span=timedelta(days=7)),
    ]
    assert listed([OLD, own, file], platform=WINDOWS) == [
        ListedRelease(OLD),
        ListedRelease(file, is_on_request=True, span=timedelta(days=7)),
    ]
    late = max(NAMES, key=lambda name: bucket("app", "2.0b1", name))
    assert listed([OLD, own], Installation(late, "1.0")) == [ListedRelease(OLD)]
    assert listed([OLD, own], Installation(late, "1.0"), END) == [
        ListedRelease(OLD),
        ListedRelease(own, is_on_request=True),
    ]


def test_whom_a_channel_s_rollout_does_not_reach_sees_what_stands_before_it():
    """The version of the channel below it, on request as well."""
    new = release(6, "2.0b2", "10%", "beta")
    late = max(NAMES, key=lambda name_: bucket("app", "2.0b2", name_))
    early = min(NAMES, key=lambda name_: bucket("app", "2.0b2", name_))
    for name, shown in ((late, BETA), (early, new)):
        found = listed([OLD, BETA, new], Installation(name, "1.0"))
        assert found == [ListedRelease(OLD), ListedRelease(shown, is_on_request=True)]


def test_an_installation_without_a_name_is_the_last():
    """It has no number of its own."""
    assert bucket("app", "1.5", "") > max(bucket("app", "1.5", name) for name in NAMES)
