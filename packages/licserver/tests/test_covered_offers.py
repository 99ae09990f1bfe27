"""What a license is offered whose support is over, and security releases, as pure decisions."""

import itertools
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from licserver.domain import channel_offers, offers
from licserver.domain.channel_offers import (
    find_last,
    is_only_fix,
    list_covered,
    list_fixes,
    merge_candidates,
    needs_release,
)
from licserver.domain.decisions import Offer, UpdateRefusal, evaluate_update, is_covered
from licserver.domain.offers import (
    Installation,
    OfferedProduct,
    apply_rollout,
    evaluate_public_feed,
    list_downloads,
    list_offered,
    list_releases,
)
from licserver.domain.records import (
    AfterSupport,
    Artifact,
    LicenseSnapshot,
    Product,
    Release,
    Rollout,
    SecurityNotice,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TODAY = NOW.date()
NOTICE = SecurityNotice("https://example.com/1", ("CVE-2026-1234",))
VERSIONS = ("0.9rc1", "0.9.1", "1.0", "1.4rc1", "1.4.2", "1.4.3", "2.0b1", "2.0", "2.0.1", "3.0")


def release(version, days_ago, security=None, platform="", channel="stable", rollout=None, withdrawn=False):
    """Return a release that was published some days ago."""
    at = NOW - timedelta(days=days_ago)
    return Release(
        VERSIONS.index(version) * 10 + len(platform),
        7,
        version,
        "",
        at,
        Artifact("app.zip", 1, b"0" * 32),
        withdrawn_at=at if withdrawn else None,
        platform=platform,
        channel=channel,
        rollout=None if rollout is None else Rollout(rollout, NOW),
        security=security,
    )


def find_as_described(releases, channels, platform):
    """The highest that a channel offers, then the highest below it, as long as a rollout holds one back."""
    candidates = []
    while True:
        highest = [pick_latest(releases, platform, name) for name in ("stable", *channels)]
        release = max(filter(None, highest), key=lambda item: Version(item.version), default=None)
        if release is not None:
            candidates.append(release)
        if release is None or release.rollout is None:
            return tuple(candidates)
        releases = [item for item in releases if Version(item.version) < Version(release.version)]


def pick_latest(releases, platform, channel):
    """The highest stable version of a channel, otherwise the highest; a platform's own file first."""
    readable = [
        item
        for item in releases
        if item.channel == channel and item.platform in ("", platform) and item.withdrawn_at is None
    ]
    stable = [item for item in readable if channel == "stable" and not Version(item.version).is_prerelease]
    return max(stable or readable, key=lambda item: (Version(item.version), item.platform), default=None)


def product_of(releases, after=AfterSupport.COVERED, channels=(), platform=""):
    """Return a product as an update check loads it."""
    product = Product(7, "app", "App", has_support_policy=True, after_support=after)
    return OfferedProduct(product, releases).find_offers(channels, platform)


def license_of(**fields: Any):
    """Return a license of the product."""
    return LicenseSnapshot(**{"id": b"1", "product_id": 7, "product_name": "App", **fields})


def check(releases, installed="1.0", after=AfterSupport.COVERED, **fields: Any):
    """Decide an update check of a license whose support ended ten days ago, unless `fields` differ."""
    license_ = license_of(**{"support_until": TODAY - timedelta(days=10), **fields})
    verdict = evaluate_update(license_, product_of(releases, after), NOW, installed=installed)
    return apply_rollout(verdict, Installation("a.example", installed), NOW)


def offered(verdict):
    """Return the version that can be downloaded, and the newer one that is named."""
    if isinstance(verdict, UpdateRefusal):
        return verdict
    return verdict.release.version if verdict.downloadable else None, verdict.latest_version


BEFORE, LATER = release("2.0", 10), release("3.0", 9)


# --- covered versions


def test_the_newest_version_of_the_period_is_offered():
    """The last day counts; what is beyond is named, and its end with it."""
    verdict = check([release("1.0", 40), BEFORE, LATER])
    assert offered(verdict) == ("2.0", "3.0")
    assert verdict.covered_until == TODAY - timedelta(days=10)
    assert [is_covered(verdict, of) for of in (BEFORE, LATER)] == [True, False]


def test_a_product_that_chooses_nothing_offers_the_latest_without_a_file():
    """As specified."""
    assert offered(check([BEFORE, LATER], after=AfterSupport.NONE)) == (None, None)


@pytest.mark.parametrize(
    ("releases", "expected"),
    [
        ([BEFORE], ("2.0", None)),
        ([LATER], (None, None)),
        ([release("2.0b1", 20), release("1.0", 9)], ("2.0b1", None)),
        ([release("1.0", 40), release("2.0", 20, withdrawn=True), LATER], ("1.0", "3.0")),
        ([], UpdateRefusal.NO_VERSIONS),
    ],
    ids=["nothing-newer", "nothing-of-the-period", "a-pre-release", "withdrawn", "no-versions"],
)
def test_what_else_was_published(releases, expected):
    """A withdrawn version is not offered, and without one of the period the answer is as specified."""
    assert offered(check(releases)) == expected


@pytest.mark.parametrize("until", [None, TODAY, TODAY + timedelta(days=1)])
def test_during_support_the_latest_is_offered(until):
    """A license without a period has no end of it."""
    assert offered(check([BEFORE, LATER], support_until=until)) == ("3.0", None)


def test_a_covered_version_reaches_installations_by_its_rollout():
    """It was held back by the vendor for a reason."""
    held = release("2.0", 12, rollout="1%,100%@5d")
    assert offered(check([release("1.0", 40), held, LATER])) == ("1.0", "3.0")


def test_a_list_of_releases_has_none_that_is_not_covered():
    """An appcast lists other channels as well, which are filtered the same way."""
    beta = release("2.0b1", 30, channel="beta")
    releases = [release("1.0", 40), BEFORE, LATER, beta]
    offered = OfferedProduct(product_of([]), releases)
    license_ = license_of(support_until=TODAY - timedelta(days=10))
    offer = evaluate_update(license_, offered.find_offers((), ""), NOW)
    assert isinstance(offer, Offer)
    listed = list_releases(offer, offered, (), "", Installation("", "1.0"), NOW)
    assert [(of.release.version, of.is_on_request) for of in listed] == [("2.0", False)]
    beta = release("2.0.1", 20, channel="beta")
    offered = OfferedProduct(product_of([]), [*releases, beta, release("3.0", 5, channel="beta")])
    listed = list_releases(offer, offered, (), "", Installation("", "1.0"), NOW)
    assert [(of.release.version, of.is_on_request) for of in listed] == [("2.0", False), ("2.0.1", True)]


def test_covered_versions_are_those_of_a_platform_and_of_a_channel():
    """As an update check is offered them; a day without something new adds nothing."""
    own, beta = release("2.0", 9, platform="windows-x86_64"), release("2.0b1", 20, channel="beta")
    releases = [release("1.0", 40), release("1.4.2", 40), beta, release("2.0", 10), own]

    def versions(releases, channel, platform):
        offered = [covered.candidates[0] for covered in list_covered(releases, channel, platform)]
        return [(newest.version, newest.platform) for newest in offered]

    assert versions(releases, "stable", "") == [("1.4.2", ""), ("2.0", "")]
    own_files = versions(releases, "stable", "windows-x86_64")
    assert own_files == [("1.4.2", ""), ("2.0", ""), ("2.0", "windows-x86_64")]
    assert versions(releases, "beta", "") == [("2.0b1", "")]
    assert versions([beta], "stable", "") == []


# --- security releases

FIX_1, FIX_2 = release("1.4.3", 5, NOTICE), release("2.0.1", 4, NOTICE)
FIXED = [release("1.4.2", 60), BEFORE, FIX_1, FIX_2, release("3.0", 3)]


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ("1.0", ("1.4.3", "3.0")),
        ("1.4.3", (None, None)),
        ("2.0", ("2.0.1", "3.0")),
        ("2.0.1", (None, None)),
        ("0.9", ("2.0.1", "3.0")),
        ("3.0", (None, None)),
        ("nightly", (None, None)),
    ],
)
def test_a_license_that_covers_nothing_gets_the_fix_of_its_line(installed, expected):
    """After that, nothing higher comes for nothing; a version of no fixed line gets the highest fix."""
    assert offered(check(FIXED, installed, after=AfterSupport.NONE)) == expected


def test_a_covered_offer_gives_way_to_a_higher_fix():
    """The covered version has the hole that the fix closes."""
    assert offered(check(FIXED, "2.0")) == ("2.0.1", "3.0")
    assert offered(check(FIXED, "1.0")) == ("2.0", "3.0"), "covered, and higher than the fix of its line"


@pytest.mark.parametrize("end", ["expired", "subscription"])
def test_an_ended_license_gets_the_fix_and_nothing_else(end):
    """It goes on to be refused without one."""
    ended = {"expires_on": TODAY - timedelta(days=1)}
    if end == "subscription":
        ended = {"subscription_ended_at": NOW - timedelta(days=1)}
    assert offered(check(FIXED, "2.0", **ended)) == ("2.0.1", "3.0")
    assert check(FIXED, "2.0.1", **ended) is UpdateRefusal.LICENSE_EXPIRED
    assert check([BEFORE, LATER], "1.0", **ended) is UpdateRefusal.LICENSE_EXPIRED
    assert check(FIXED, "2.0", trial=True, **ended) is UpdateRefusal.LICENSE_EXPIRED
    offer = check(FIXED, "2.0", **ended)
    assert [of.version for of in FIXED if is_covered(offer, of)] == ["2.0.1"]


def test_a_trial_counts_while_it_is_valid():
    """It is offered the latest, which includes the fix."""
    fields = {"trial": True, "expires_on": TODAY, "support_until": None}
    assert offered(check(FIXED, "2.0", **fields)) == ("3.0", None)


@pytest.mark.parametrize("installed", ["1.0", "2.0"])
def test_a_revoked_license_gets_none(installed):
    """Nor does a license of another product, or an imported key where such keys are not accepted."""
    assert check(FIXED, installed, revoked_at=NOW) is UpdateRefusal.INVALID_LICENSE
    assert check(FIXED, installed, product_id=8) is UpdateRefusal.PRODUCT_MISMATCH
    assert check(FIXED, installed, product_id=8, expires_on=date(2026, 1, 1)) is UpdateRefusal.LICENSE_EXPIRED


def test_a_rollout_holds_no_fix_back():
    """Neither its own nor that of the latest."""
    fix = release("2.0.1", 4, NOTICE, rollout="1%,100%@5d")
    assert offered(check([BEFORE, fix], "2.0", support_until=None)) == ("2.0.1", None)
    assert offered(check([fix], "2.0", support_until=None)) == ("2.0.1", None)
    newest = release("3.0", 1, rollout="1%,100%@5d")
    assert offered(check([BEFORE, fix, newest], "2.0", support_until=None)) == ("2.0.1", "3.0")


@pytest.mark.parametrize(("below", "is_critical"), [("2.0.1", True), ("2.0", False), (None, False)])
def test_a_fix_may_be_important_as_well(below, is_critical):
    """For versions below a limit, as any release (D-231)."""
    fix = FIX_2._replace(critical_below=below)
    verdict = check([BEFORE, fix, LATER], "2.0", after=AfterSupport.NONE)
    assert (verdict.release, verdict.is_critical) == (fix, is_critical)


def test_fixes_are_for_channels_and_platforms():
    """A platform's own file before the default, and nothing of a channel that was not requested."""
    beta = release("2.0b1", 4, NOTICE, channel="beta")
    files = [FIX_2, release("2.0.1", 4, NOTICE, "windows-x86_64"), beta]
    assert list_fixes(files) == (FIX_2,)
    assert list_fixes(files, platform="windows-x86_64") == (files[1],)
    assert list_fixes(files, "beta") == (beta,)
    license_ = license_of(support_until=TODAY - timedelta(days=10))
    product = product_of(files, AfterSupport.NONE, platform="windows-x86_64")
    verdict = evaluate_update(license_, product, NOW, installed="2.0")
    assert isinstance(verdict, Offer)
    assert verdict.release.platform == "windows-x86_64"


def test_a_pre_release_beside_stable_versions_is_no_fix():
    """Clients with a stable version ignore it (D-47), and would get no other update any more."""
    releases = [release("1.0", 40), release("1.4.2", 30), release("2.0b1", 5, NOTICE)]
    assert offered(check(releases, support_until=None)) == ("1.4.2", None)
    assert offered(check(releases, after=AfterSupport.NONE)) == (None, None)
    assert list_fixes(releases[2:]) == (releases[2],)
    beta = releases[2]._replace(channel="beta")
    assert list_fixes([*releases[:2], beta], "beta") == (beta,)


def test_a_public_feed_holds_no_fix_back():
    """There the rollout alone decides, so that it must not hold a fix back."""
    fix = release("2.0.1", 4, NOTICE, rollout="1%,100%@5d")
    verdict = evaluate_public_feed(OfferedProduct(Product(7, "app", "App"), [BEFORE, fix]), (), "", "2.0")
    here = Installation("a.example", "2.0")
    assert apply_rollout(verdict, here, NOW).release == fix
    without = evaluate_public_feed(OfferedProduct(Product(7, "app", "App"), [BEFORE, fix]), (), "")
    assert apply_rollout(without, here, NOW).release == BEFORE


@pytest.mark.parametrize("plan", ["1%,100%@5d", "7d"])
def test_a_list_without_a_domain_holds_no_fix_back(plan):
    """The app chooses from it: neither by its own groups, nor only at 100 %."""
    fix = release("2.0.1", 4, NOTICE, rollout=plan)
    offered = OfferedProduct(Product(7, "app", "App"), [BEFORE, fix])
    offer = evaluate_public_feed(offered, (), "")
    assert isinstance(offer, Offer)
    listed = list_releases(offer, offered, (), "", Installation("", ""), NOW)
    assert [(item.release.version, item.span) for item in listed] == [("2.0.1", None)]


@pytest.mark.parametrize(
    ("fields", "after", "expected"),
    [
        ({"support_until": None}, AfterSupport.NONE, {"": "3.0"}),
        ({}, AfterSupport.NONE, {"": "2.0.1"}),
        ({}, AfterSupport.COVERED, {"": "2.0.1"}),
        ({"support_until": TODAY - timedelta(days=30)}, AfterSupport.NONE, {"": "1.4.3"}),
        ({"support_until": TODAY - timedelta(days=30)}, AfterSupport.COVERED, {"": "1.4.3"}),
        ({"support_until": TODAY - timedelta(days=90)}, AfterSupport.COVERED, {}),
        ({"expires_on": TODAY - timedelta(days=1)}, AfterSupport.COVERED, {"": "2.0.1"}),
        ({"support_until": None, "expires_on": TODAY - timedelta(days=1)}, AfterSupport.NONE, {"": "2.0.1"}),
        ({"subscription_ended_at": NOW - timedelta(days=30)}, AfterSupport.NONE, {"": "1.4.3"}),
        ({"revoked_at": NOW}, AfterSupport.COVERED, {}),
    ],
    ids=[
        "in-support",
        "nothing-covered",
        "covered-below-the-fix",
        "no-fix-of-a-higher-major",
        "covered-and-no-fix-of-a-higher-major",
        "bought-before-any",
        "expired-later",
        "expired",
        "subscription-ended",
        "revoked",
    ],
)
def test_a_page_of_customers_offers_the_highest_that_may_be_had(fields, after, expected):
    """It knows no installed version, and no rollout holds it back; a fix is no upgrade to a later major."""
    license_ = license_of(**{"support_until": TODAY - timedelta(days=10), **fields})
    product = Product(7, "app", "App", has_support_policy=True, after_support=after)
    downloads = list_downloads(OfferedProduct(product, FIXED), license_, (), NOW)
    assert {platform: item.version for (platform, _), item in downloads.items()} == expected
    older = [release("1.4.2", 60), release("1.4.3", 40, NOTICE), *FIXED[3:]]
    if after is AfterSupport.COVERED and fields == {}:
        assert (
            list_downloads(OfferedProduct(product, older), license_, (), NOW)["", "folder"].version == "1.4.3"
        ), "no 2.x for nothing"
    held = [release("1.0", 40), release("2.0", 12, rollout="1%,100%@5d")]
    assert list_downloads(OfferedProduct(product, held), license_of(), (), NOW)["", "folder"].version == "2.0"


def test_a_page_of_customers_offers_the_highest_fix_beside_one_of_0_x():
    """To have nothing installed is not to have 0.x."""
    releases = [release("0.9.1", 5, NOTICE), *FIXED]
    license_ = license_of(support_until=TODAY - timedelta(days=10))
    product = Product(7, "app", "App", has_support_policy=True, after_support=AfterSupport.NONE)
    assert (
        list_downloads(OfferedProduct(product, releases), license_, (), NOW)["", "folder"].version == "2.0.1"
    )


def test_a_page_of_customers_replaces_a_covered_version_that_was_withdrawn():
    """A vendor withdraws what has the hole as soon as its fix is out; the customer has paid for that line."""
    releases = [FIXED[0], BEFORE._replace(withdrawn_at=NOW), *FIXED[2:]]
    license_ = license_of(support_until=TODAY - timedelta(days=10))
    product = Product(7, "app", "App", has_support_policy=True, after_support=AfterSupport.NONE)
    assert (
        list_downloads(OfferedProduct(product, releases), license_, (), NOW)["", "folder"].version == "2.0.1"
    )


def test_all_that_some_license_may_be_offered():
    """The latest of each channel and platform, fixes, and what was the newest on some day."""
    beta, own = release("2.0b1", 20, channel="beta"), release("2.0", 10, platform="windows-x86_64")
    withdrawn = FIX_1._replace(withdrawn_at=NOW)
    releases = [release("1.0", 40), release("1.4.2", 30), beta, own, withdrawn, FIX_2, LATER]

    def versions(after, *, has_support_policy=True):
        product = Product(7, "app", "App", after_support=after, has_support_policy=has_support_policy)
        return {(item.version, item.platform) for item in list_offered(product, releases)}

    always = {("3.0", ""), ("2.0b1", ""), ("2.0.1", "")}
    assert versions(AfterSupport.NONE) == versions(AfterSupport.COVERED, has_support_policy=False) == always
    assert versions(AfterSupport.COVERED) == always | {("1.0", ""), ("1.4.2", ""), ("2.0", "windows-x86_64")}


def test_sets_of_channels_cost_no_more_than_their_channels(monkeypatch):
    """A customer requested another set each time: 640 requests held all others up for 96 seconds."""
    names = ("beta", "alpha", "nightly", "rc", "lts", "canary", "dev", "eap", "qa")
    releases = [release("1.0", 9), *(release("2.0b1", 5, channel=name) for name in names)]
    computed, offered = [], OfferedProduct(product_of([]), releases)

    def list_offers(*args: Any, **fields: Any):
        computed.append(args)
        return channel_offers.list_offers(*args, **fields)

    monkeypatch.setattr(offers, "list_offers", list_offers)
    sets = [chosen for size in range(10) for chosen in itertools.combinations(names, size)]
    for chosen in [*sets, *sets]:
        for platform in ("", "mac", "windows"):
            assert len(offered.find_offers(chosen, platform).covered) == 1 + len(chosen)
    assert len(computed) == len(names) + 1


@pytest.mark.parametrize(
    ("installed", "is_needed"),
    [("1.4.2", True), ("1.4.3", False), ("2.0", True), ("2.0.1", False), ("0.9", True), ("nightly", False)],
)
def test_who_still_needs_a_fix(installed, is_needed):
    """Customers with the fix of 1.x were alarmed about that of 2.x, which their licenses do not cover."""
    assert needs_release(installed, FIX_2, FIXED) is is_needed
    assert needs_release(installed, BEFORE, FIXED) is (installed in ("1.4.2", "1.4.3", "0.9"))


def test_the_last_fix_of_a_major_version():
    """Its withdrawal leaves installations with the hole: another major, channel or platform does not help."""
    own = release("1.4.3", 5, NOTICE, platform="mac")
    for others in (
        [],
        [release("2.0.1", 4, NOTICE)],
        [release("1.4.2", 9, NOTICE)],
        [release("2.0", 9)],
        [own],
    ):
        assert is_only_fix(FIX_1, [FIX_1, *others])
    lower = release("1.4.2", 9, NOTICE)
    assert not is_only_fix(lower, [lower, FIX_1])
    assert is_only_fix(lower, [lower, FIX_1._replace(channel="beta")])
    assert is_only_fix(lower, [lower, own])
    assert not is_only_fix(lower, [lower, FIX_1._replace(withdrawn_at=NOW), own._replace(platform="")])
    assert not is_only_fix(release("1.0", 9), [])
    assert not is_only_fix(FIX_1._replace(withdrawn_at=NOW), [])
    assert is_only_fix(FIX_1._replace(version="nightly"), [])


# --- against a small oracle


@given(st.data())
def test_covered_versions_of_each_day(data):
    """They are what an update check would be offered if nothing later had been published."""
    releases = []
    for version in data.draw(st.lists(st.sampled_from(VERSIONS), unique=True)):
        of_version = {  # all its files share these
            "channel": data.draw(st.sampled_from(["stable", "beta"])),
            "rollout": data.draw(st.sampled_from([None, "7d"])),
            "withdrawn": data.draw(st.integers(0, 4)) == 0,
        }
        platforms = data.draw(st.sampled_from([("",), ("mac",), ("", "mac")]))
        days = {platform: data.draw(st.integers(0, 6)) for platform in platforms}
        releases += [release(version, day, platform=platform, **of_version) for platform, day in days.items()]
    channels, platform = data.draw(st.sampled_from([(), ("beta",)])), data.draw(st.sampled_from(["", "mac"]))
    product = product_of(releases, channels=channels, platform=platform)
    assert product.candidates == find_as_described(releases, channels, platform)
    for day in (TODAY - timedelta(days=back) for back in range(8)):
        until_then = [item for item in releases if item.published_at.date() <= day]
        of_day = merge_candidates(find_last(covered, day) for covered in product.covered)
        assert of_day == find_as_described(until_then, channels, platform)


@st.composite
def published(draw):
    """Make some releases up."""
    names = draw(st.lists(st.sampled_from(VERSIONS), min_size=1, unique=True))
    return [release(name, draw(st.integers(0, 40)), draw(st.sampled_from([None, NOTICE]))) for name in names]


@given(
    published(),
    st.sampled_from(VERSIONS),
    st.sampled_from(list(AfterSupport)),
    st.sampled_from([None, -20, -1, 0, 5]),
    st.sampled_from([None, -1, 0]),
    st.booleans(),
)
def test_any_releases_and_any_license(releases, installed, after, support, expiry, trial):
    """By the words of D-330 and D-331, one after the other."""
    until = None if support is None else TODAY + timedelta(days=support)
    ends = None if expiry is None else TODAY + timedelta(days=expiry)
    verdict = check(releases, installed, after, support_until=until, expires_on=ends, trial=trial)

    def pick(of):
        final = [item for item in of if not Version(item.version).is_prerelease]
        return max(final or of, key=lambda item: Version(item.version), default=None)

    is_over, is_expired = until is not None and until < TODAY, ends is not None and ends < TODAY
    final = [item for item in releases if not Version(item.version).is_prerelease]
    fixes = [item for item in final or releases if item.security]
    line = [item for item in fixes if Version(item.version).major == Version(installed).major]
    fix = max(line or fixes, key=lambda item: Version(item.version), default=None)
    if fix is not None and Version(fix.version) <= Version(installed):
        fix = None
    if is_expired and trial:
        fix = None
    of_period = [item for item in releases if until is None or item.published_at.date() <= until]
    allowed = of_period if after is AfterSupport.COVERED else []
    own = None if is_expired else pick(allowed if is_over else releases)
    best = max((item for item in (own, fix) if item), key=lambda item: Version(item.version), default=None)
    if best is None:
        expected = UpdateRefusal.LICENSE_EXPIRED if is_expired else (None, None)
    else:
        newest = pick(releases)
        newer = newest.version if Version(newest.version) > Version(best.version) else None
        expected = best.version, newer
    assert offered(verdict) == expected
