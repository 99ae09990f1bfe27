"""Staged rollout as pure decisions: plans, shares, who is in, what the others are offered (D-230)."""

from bisect import bisect_left
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from licserver.domain.decisions import Offer, UpdateRefusal
from licserver.domain.offers import (
    Installation,
    RolloutOptions,
    apply_rollout,
    bucket,
    current_share,
    find_candidates,
    is_for_all,
    parse_plan,
)
from licserver.domain.records import Artifact, LicenseSnapshot, Product, Release, Rollout
from licserver.errors import InvalidInputError

START = datetime(2026, 11, 1, tzinfo=UTC)
WEEK, STEPS = Rollout("7d", START), Rollout("10%,50%@2d,100%@5d", START)
EVERYBODY = [f"installation-{number}" for number in range(100_000)]


def after(**by: float):
    """Return an instant after the start of the rollouts."""
    return START + timedelta(**by)


def release(version, rollout=None, critical_below=None, platform="", **more: object):
    """Return a release."""
    file = Artifact("app.zip", 1, b"0" * 32)
    return Release(
        1,
        1,
        version,
        "",
        START,
        file,
        platform=platform,
        rollout=rollout,
        critical_below=critical_below,
        **more,
    )


@pytest.mark.parametrize(
    ("rollout", "now", "share"),
    [
        (WEEK, after(days=-1), 0),
        (WEEK, after(), 0),
        (WEEK, after(hours=84), 0.5),
        (WEEK, after(days=8), 1),
        (WEEK._replace(paused_at=after(hours=84)), after(days=30), 0.5),
        (Rollout("36h", START), after(hours=9), 0.25),
        (STEPS, after(days=-1), 0),
        (STEPS, after(), 0.1),
        (STEPS, after(days=2, seconds=-1), 0.1),
        (STEPS, after(days=2), 0.5),
        (STEPS, after(days=5), 1),
        (STEPS._replace(paused_at=after(days=1)), after(days=30), 0.1),
        (Rollout("2.5%", START), after(days=999), 0.025),
    ],
)
def test_the_share_grows_by_the_plan_and_stands_still_in_a_pause(rollout, now, share):
    """Evenly or in steps, and it stays where the plan ends."""
    assert current_share(rollout, now) == share


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "0d",
        "7w",
        "10",
        "0%",
        "0%,50%@1d",
        "101%",
        "10%@",
        "10%,5%@2d",
        "10%,50%",
        "10%@2d,50%@2d",
        "a%",
    ],
)
def test_what_is_no_plan_is_refused(text):
    """The sentence shows how one is written."""
    with pytest.raises(InvalidInputError, match=r"rollout"):
        parse_plan(text)


@pytest.mark.parametrize(
    ("reach", "match"),
    [
        (RolloutOptions("7w"), "not a valid rollout"),
        (RolloutOptions(None, "x"), "'x'"),
        (RolloutOptions(None, "1.1"), "not higher"),
    ],
)
def test_what_no_version_can_have_is_refused(reach, match):
    """A plan that cannot be read, and a limit that is no version or above the version itself."""
    RolloutOptions("7d", "1.0").check("1.0")
    with pytest.raises(InvalidInputError, match=match):
        reach.check("1.0")


@pytest.mark.parametrize("rollout", [WEEK, STEPS])
def test_100_000_installations_join_as_planned_and_stay(rollout):
    """Within 1 % of the share at every step; who is in stays in, and at the end all are."""
    numbers = sorted(bucket("app", "1.5", address) for address in EVERYBODY)
    before = 0
    for hours in range(0, 24 * 8, 12):
        share = current_share(rollout, after(hours=hours))
        reached = bisect_left(numbers, share)  # those below the share: more and more of the same order
        assert reached >= before
        assert abs(reached / len(EVERYBODY) - share) < 0.01
        before = reached
    assert before == len(EVERYBODY)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("other", [("app", "1.6"), ("app", "1.5.1"), ("other", "1.5")])
def test_two_releases_do_not_begin_with_the_same_customers(other):
    """Chi-square over the tenths of both: 81 degrees of freedom stay below 126 in 999 of 1,000 cases."""
    pairs = Counter(
        (int(bucket("app", "1.5", address) * 10), int(bucket(*other, address) * 10)) for address in EVERYBODY
    )
    expected = len(EVERYBODY) / 100
    assert sum((pairs[x, y] - expected) ** 2 / expected for x in range(10) for y in range(10)) < 126


def test_a_rollout_stands_before_what_reaches_everybody():
    """The list ends with the first version without a rollout, and never leads to a higher one."""
    old, full = release("1.3"), release("1.4")
    first, second = release("1.6", WEEK), release("1.5", STEPS)
    own = release("1.5", STEPS, platform="windows-x86_64")
    early = release("1.7rc1")
    assert find_candidates([old, full, first, second, own, early]) == (first, second, full)
    assert find_candidates([old, full, first, second, own], platform="windows-x86_64") == (first, own, full)
    beta = release("1.7b1", WEEK, channel="beta")
    assert find_candidates([old, full, first, beta, early], ["beta"]) == (beta, first, full)
    assert find_candidates([old, full, first, beta]) == (first, full)
    assert find_candidates([first, beta], ["beta"]) == (beta, first)
    assert find_candidates([first]) == (first,)
    assert find_candidates([]) == ()


def offer_of(releases):
    """Return the offer of releases to a license, before any rollout."""
    candidates = find_candidates(releases)
    product = Product(1, "app", "App", candidates=candidates)
    return Offer(product, candidates[0], LicenseSnapshot(b"", 1, "App"), downloadable=True)


def offered(releases, installation, now):
    """Return the version that is offered, and whether it is important; None for no version."""
    verdict = apply_rollout(offer_of(releases), installation, now)
    if isinstance(verdict, UpdateRefusal):
        assert verdict is UpdateRefusal.NO_VERSIONS
        return None
    return verdict.release.version, verdict.is_critical


LATE = max(EVERYBODY[:1000], key=lambda name: bucket("app", "1.5", name))
EARLY = min(EVERYBODY[:1000], key=lambda name: bucket("app", "1.5", name))
NEW, OLD = release("1.5", STEPS), release("1.4")


@pytest.mark.parametrize(
    ("installation", "version"),
    [
        (Installation(EARLY, "1.0"), "1.5"),
        (Installation(LATE, "1.0"), "1.4"),
        (Installation(LATE, "1.0", is_manual=True), "1.5"),
        (Installation(LATE, "1.5.0"), "1.5"),  # it is there already, by hand
        (Installation(LATE, "1.6"), "1.5"),
        (Installation(LATE, "2024 Spring"), "1.4"),
    ],
)
def test_a_rollout_reaches_some(installation, version):
    """The others are offered the version before; a person who asks, and who has it already, the new one."""
    assert offered([OLD, NEW], installation, after(days=1)) == (version, False)
    assert offered([OLD, NEW], installation, after(days=5)) == ("1.5", False)


@pytest.mark.slow
def test_nobody_is_offered_the_version_before_again():
    """From each installation's first offer of the new version on, it is offered that."""
    for address in EVERYBODY[:500]:
        offers = [
            offered([OLD, NEW], Installation(address, "1.0"), after(hours=hours))
            for hours in range(0, 130, 6)
        ]
        assert offers == sorted(offers)
        assert offers[-1] == ("1.5", False)


def test_the_first_version_of_all_may_have_a_rollout():
    """For those that it does not reach, there is no version yet."""
    assert offered([NEW], Installation(LATE, "0"), after()) is None
    assert offered([NEW], Installation(EARLY, "0"), after()) == ("1.5", False)


def test_an_important_version_is_offered_at_once_to_those_below_the_limit():
    """Also without a rollout it is marked; unreadable versions are below nothing."""
    new = release("1.5", STEPS, critical_below="1.2")
    for version, expected in [("1.1", ("1.5", True)), ("1.2", ("1.4", False)), ("x", ("1.4", False))]:
        assert offered([OLD, new], Installation(LATE, version), after()) == expected
    alone = release("1.5", critical_below="1.2")
    assert offered([OLD, alone], Installation(LATE, "1.1"), after()) == ("1.5", True)


def test_a_later_version_is_important_too_but_takes_its_time():
    """Where the version that mended the fault is offered, the next one comes by its share, and is marked."""
    mended = release("1.4", critical_below="1.2")
    rollout, limit = RolloutOptions("10%").begin("1.5", [mended, release("1.6", critical_below="1.4")], START)
    new = release("1.5", rollout, critical_below=limit)
    assert (rollout, limit) == (Rollout("10%", START), "1.2")
    assert offered([mended, new], Installation(LATE, "1.1"), after()) == ("1.4", True)
    assert offered([mended, new], Installation(EARLY, "1.1"), after()) == ("1.5", True)
    assert RolloutOptions(None, "1.3").begin("1.5", [mended], START) == (None, "1.3")
    withdrawn = release("1.4", critical_below="1.2", withdrawn_at=START)
    assert RolloutOptions().begin("1.5", [withdrawn], START) == (None, None)


def test_a_further_file_of_a_version_has_its_rollout():
    """It cannot have one of its own."""
    there = release("1.5", STEPS, critical_below="1.2")
    assert RolloutOptions().begin("1.5", [release("1.4"), there], after(days=1)) == (STEPS, "1.2")
    with pytest.raises(
        InvalidInputError, match=r"1\.5 has a file already.* which are the same for all its files"
    ):
        RolloutOptions("7d").begin("1.5", [there], START)


@pytest.mark.parametrize(
    ("newest", "expected"),
    [(OLD, True), (release("1.5", STEPS), False), (release("1.5", critical_below="1.2"), False)],
)
def test_offers_that_go_to_all_are_known(newest, expected):
    """For these no installation and no instant is needed; for the others the share decides."""
    verdict = offer_of([newest])
    assert is_for_all(verdict) is expected
    if expected:
        assert apply_rollout(verdict, Installation(LATE, "1"), START) is verdict


def test_other_verdicts_stay():
    """A refusal is none of its business, nor is a version that reaches everybody."""
    assert offered([OLD], Installation(LATE, "1"), START) == ("1.4", False)
    assert apply_rollout(UpdateRefusal.LICENSE_EXPIRED, Installation(LATE, "1"), START) is (
        UpdateRefusal.LICENSE_EXPIRED
    )
