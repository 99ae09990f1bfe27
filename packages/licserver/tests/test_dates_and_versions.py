"""The edges of days and instants (D-09, D-10, D-25), the latest version (D-23), keys and slugs (D-02)."""

import random
import re
import string
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from licserver.domain.channel_offers import describe_audience, latest, latest_by_platform
from licserver.domain.decisions import (
    correct_platform,
    generate_license_key,
    is_expired,
    is_license_key,
    is_platform,
    is_slug,
    is_support_over,
    mask_key,
    visible_expiry,
)
from licserver.domain.records import Artifact, LicenseSnapshot, Product, Release
from licserver.domain.text import KeyPart, describe_short_year, describe_span, find_reference, parse_key_part
from licserver.domain.versions import parse_version, version_key, version_of

TICK = timedelta(microseconds=1)


@pytest.mark.parametrize("day", [date.min, date(27, 1, 31), date(999, 12, 31)])
def test_a_year_of_two_digits_is_described(day):
    """A browser makes 0027 of 27, and the license would have ended 2,000 years ago."""
    described = describe_short_year(day)
    assert described is not None
    assert described.startswith(f"{day} is in the year {day.year}; write")
    assert describe_short_year(date(1000, 1, 1)) is None


DAY = date(2026, 6, 15)
MIDNIGHT = datetime(2026, 6, 16, tzinfo=UTC)
ENDS = datetime(2026, 6, 15, 13, 30, tzinfo=UTC)
NOW = ENDS


def a_license(**terms: Any):
    """A license in good order."""
    return LicenseSnapshot(id=b"i" * 16, product_id=1, product_name="App", **terms)


EXPIRY = {
    "no date, no subscription": ({}, datetime(9999, 12, 31, tzinfo=UTC), False),
    "first instant of the day": ({"expires_on": DAY}, MIDNIGHT - timedelta(days=1), False),
    "last microsecond of the day": ({"expires_on": DAY}, MIDNIGHT - TICK, False),
    "midnight": ({"expires_on": DAY}, MIDNIGHT, True),
    "the last day there is": ({"expires_on": date.max}, datetime.max.replace(tzinfo=UTC), False),
    "subscription, a microsecond before": ({"subscription_ended_at": ENDS}, ENDS - TICK, False),
    "subscription, at the instant": ({"subscription_ended_at": ENDS}, ENDS, True),
    "subscription ends before the date": ({"subscription_ended_at": ENDS, "expires_on": DAY}, ENDS, True),
    "date ends before the subscription": (
        {"subscription_ended_at": MIDNIGHT + timedelta(9), "expires_on": DAY},
        MIDNIGHT,
        True,
    ),
    "lifetime wins over the date": ({"lifetime": True, "expires_on": DAY}, MIDNIGHT, False),
    "lifetime wins over the subscription": ({"lifetime": True, "subscription_ended_at": ENDS}, ENDS, False),
}


@pytest.mark.parametrize(("terms", "now", "expired"), EXPIRY.values(), ids=EXPIRY.keys())
def test_a_key_expires_after_its_day_and_at_its_subscriptions_end(terms, now, expired):
    """The named day counts to its last microsecond, a subscription to its instant, and lifetime for ever."""
    assert is_expired(a_license(**terms), now) is expired


def test_a_lifetime_key_shows_no_date():
    """`lifetime: true` goes with `expiry: null`, whatever is stored (D-10)."""
    assert visible_expiry(a_license(lifetime=True, expires_on=DAY)) is None
    assert visible_expiry(a_license(expires_on=DAY)) == DAY
    assert visible_expiry(a_license(subscription_ended_at=ENDS)) is None


SUPPORT = {
    "no policy": (False, date(2000, 1, 1), MIDNIGHT, False),
    "policy, no period": (True, None, MIDNIGHT, False),
    "last microsecond": (True, DAY, MIDNIGHT - TICK, False),
    "midnight": (True, DAY, MIDNIGHT, True),
}


@pytest.mark.parametrize(("policy", "until", "now", "over"), SUPPORT.values(), ids=SUPPORT.keys())
def test_support_ends_after_its_day_where_there_is_a_policy(policy, until, now, over):
    """Without a policy, or without a period, support never ends (D-25)."""
    app = Product(1, "app", "App", has_support_policy=policy)
    assert is_support_over(app, a_license(support_until=until), now) is over


def releases(*versions: str):
    """Releases of these versions; one in parentheses is withdrawn."""
    return [
        Release(
            number,
            1,
            text.strip("()"),
            "",
            NOW,
            Artifact("a", 1, b""),
            withdrawn_at=NOW if text[0] == "(" else None,
        )
        for number, text in enumerate(versions)
    ]


LATEST = {
    "nothing published": ([], None),
    "one": (["1.0"], "1.0"),
    "numbers, not letters": (["1.9", "1.10", "1.2"], "1.10"),
    "stable before a higher pre-release": (["1.0", "2.0rc1"], "1.0"),
    "only pre-releases": (["2.0a1", "2.0rc1", "2.0b3"], "2.0rc1"),
    "dev is a pre-release": (["1.0", "1.1.dev3"], "1.0"),
    "dev below alpha": (["1.0.dev9", "1.0a1"], "1.0a1"),
    "post is stable and higher": (["1.0", "1.0.post1"], "1.0.post1"),
    "post of a pre-release is one": (["1.0", "1.1rc1.post2"], "1.0"),
    "local is higher": (["1.0", "1.0+build.2"], "1.0+build.2"),
    "epoch": (["2026.1", "1!0.1"], "1!0.1"),
    "withdrawn does not count": (["1.0", "(2.0)"], "1.0"),
    "the last stable one withdrawn": (["(1.0)", "2.0rc1"], "2.0rc1"),
    "all withdrawn": (["(1.0)", "(2.0)"], None),
    "unreadable is passed over": (["1.0", "banana"], "1.0"),
    "a v before it": (["v1.1", "1.0"], "v1.1"),
    "two of one version": (["1.0", "1.0"], "1.0"),
}


@pytest.mark.parametrize(("published", "offered"), LATEST.values(), ids=LATEST.keys())
def test_the_highest_stable_version_is_offered(published, offered):
    """PEP 440 orders; a pre-release is offered only where nothing stable is; publication order is nothing."""
    shuffled = releases(*published)
    random.Random(7).shuffle(shuffled)
    for order in (shuffled, shuffled[::-1]):
        found = latest(order)
        assert (found.version if found else None) == offered


def files(*texts: str):
    """Files of versions, written as `version platform`."""
    return [
        found._replace(platform=text.partition(" ")[2])
        for text, found in zip(texts, releases(*(text.partition(" ")[0] for text in texts)), strict=True)
    ]


PLATFORMS = {
    "nothing": ([], {}),
    "the default for all": (["1.0", "1.1"], {"": "1.1"}),
    "its own before the default": (["1.0 win", "1.0"], {"": "1.0", "win": "1.0"}),
    "a newer default before its own": (["1.0 win", "1.1"], {"": "1.1"}),
    "a version for one platform": (["1.0", "1.1 win", "1.0 mac"], {"": "1.0", "win": "1.1", "mac": "1.0"}),
    "no default": (["1.0 win", "1.1 mac"], {"win": "1.0", "mac": "1.1"}),
    "its own stable one": (["2.0rc1", "1.0 win"], {"": "2.0rc1", "win": "1.0"}),
    "its own pre-release": (["1.0", "2.0rc1 win"], {"": "1.0"}),
    "withdrawn": (["1.0", "(1.1) win"], {"": "1.0"}),
}


@pytest.mark.parametrize(("published", "offered"), PLATFORMS.values(), ids=PLATFORMS.keys())
def test_a_platform_is_offered_its_own_file_or_the_default(published, offered):
    """What is missing here gets the default (D-187); of one version the own file is chosen."""
    for order in (files(*published), files(*published)[::-1]):
        chosen = latest_by_platform(order)
        assert {name: found.version for name, found in chosen.items()} == offered
        assert all(found.platform == name for name, found in chosen.items())


UNTIL = "until a stable version is published."
AUDIENCES = {
    "stable": (["1.0"], None),
    "unreadable": (["banana"], None),
    "nothing stable": (["1.0rc1"], f"installations of a pre-release are offered it {UNTIL}"),
    "a stable one": (["1.1rc1", "1.0"], "no installation is offered it, because 1.0 is offered instead."),
    "a platform": (
        ["1.1rc1 win", "1.0 mac"],
        f"installations of a pre-release on win are offered it {UNTIL}",
    ),
    "a platform with a stable one": (
        ["1.1rc1 win", "1.0"],
        "no installation on win is offered it, because 1.0 is offered instead.",
    ),
    "others have a stable one": (
        ["1.1rc1", "1.0 win", "1.0 mac"],
        f"installations of a pre-release, except on mac, win, are offered it {UNTIL}",
    ),
    "withdrawn": (["(1.0rc1)"], "no installation is offered it."),
}


@pytest.mark.parametrize(("published", "sentence"), AUDIENCES.values(), ids=AUDIENCES.keys())
def test_who_is_offered_a_pre_release(published, sentence):
    """The first of these files was published last."""
    order = files(*published)
    begin = f"{order[0].version} is a pre-release: "
    assert describe_audience(order[0], order) == (sentence and begin + sentence)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("windows-x86_64", True),
        ("a", True),
        ("a" * 41, False),
        ("", False),
        ("Windows", False),
        ("a b", False),
    ],
)
def test_a_platform_is_a_short_name(text, fits):
    """Lower-case letters, digits and some signs."""
    assert is_platform(text) is fits


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("linux", "linux-x86_64"),
        ("linux-amd64", "linux-x86_64"),
        ("linux_aarch64", "linux-arm64"),
        ("win64", "windows-x86_64"),
        ("win32", "windows-x86"),
        ("windows-amd64", "windows-x86_64"),
        ("windows.x64", "windows-x86_64"),
        ("darwin-arm64", "macos-arm64"),
        ("macos", "macos-arm64"),
        ("windows-x86_64", None),
        ("linux-riscv64", None),
        ("steamdeck", None),
        ("", None),
    ],
)
def test_the_usual_name_of_a_platform(text, usual):
    """For a warning (D-410): names of a vendor's own have none."""
    assert correct_platform(text) == usual


def test_all_spellings_of_a_version_are_one():
    """What cannot be published twice is recognised by a form that they share (D-23)."""
    assert {version_key(Version(text)) for text in ("1.0", "1.0.0", "v1", "1.0+0")} == {"1", "1+0"}


@pytest.mark.parametrize("text", ["", "banana", "1.0-", "1..0", "9" * 5000, "1.0\x00", "1,0"])
def test_an_invalid_version_is_none(text):
    """No text makes reading a version fail: it is one, or it is none."""
    assert parse_version(text) is None


KEY = "CP-ABCDEF-012345-GHIJKL-6789MN-OPQRST"
SHAPES = {
    "as issued": (KEY, True),
    "digits alone": ("CP-" + "-".join(["000000"] * 5), True),
    "lower case": (KEY.lower(), False),
    "blank in front": (" " + KEY, False),
    "newline behind": (KEY + "\n", False),
    "no prefix": (KEY[3:], False),
    "other prefix": ("CD" + KEY[2:], False),
    "four groups": (KEY[:-7], False),
    "six groups": (KEY + "-ABCDEF", False),
    "a group of five": (KEY[:-1], False),
    "a group of seven": (KEY + "A", False),
    "other hyphens": (KEY.replace("-", "‐"), False),
    "other digits": (KEY.replace("0", "٠"), False),
    "an umlaut": (KEY.replace("A", "Ä"), False),
    "NUL": (KEY[:-1] + "\0", False),
    "empty": ("", False),
}


@pytest.mark.parametrize(("text", "fits"), SHAPES.values(), ids=SHAPES.keys())
def test_a_key_has_one_exact_shape(text, fits):
    """The server repairs nothing: the shape is met to the letter (D-02)."""
    assert is_license_key(text) is fits


def test_drawn_keys_have_the_shape_and_use_every_character():
    """Keys are drawn over all 36 characters, and none twice."""
    keys = [generate_license_key() for _ in range(400)]
    assert all(map(is_license_key, keys))
    assert len(set(keys)) == 400
    assert set("".join(key[3:].replace("-", "") for key in keys)) == set(
        string.ascii_uppercase + string.digits
    )


def test_a_masked_key_shows_six_characters_of_thirty():
    """A masked key distinguishes two and cannot be completed by trying; of a short one less is shown."""
    masked = {KEY: "CP-AB…QRST", "ABCD-EFGH-IJKL": "AB…KL", "short": "…"}
    masked |= {"0123456789abcdef": "01234…cdef", "0123456789abcde": "01…de", "0123456789ab": "01…ab"}
    masked |= {"0123456789a": "…"}
    assert {key: mask_key(key) for key in masked} == masked


def test_what_people_have_of_a_key():
    """A key or a link is found in a text; a part is distinguished from other words."""
    assert [
        find_reference(text) for text in (f"my key: {KEY.lower()}.", "x/console/licenses/" + "0a" * 16, "no")
    ] == [
        KEY,
        "0a" * 16,
        None,
    ]
    parts = {
        "CP-AB…QRST": ("CP-AB", "QRST"),
        "cp-ab ... qrst": ("CP-AB", "QRST"),
        KEY: ("CP-AB", "QRST"),
        KEY[:11]: (KEY[:11], ""),
        f"-{KEY[-13:]}": ("", KEY[-13:]),
        "OPQRST": ("", "OPQRST"),
        "…qrst": ("", "QRST"),
        "38b14…4d51": ("38b14", "4d51"),  # sold elsewhere
    }
    assert {text: parse_key_part(text) for text in parts} == parts
    assert [parse_key_part(text) for text in ("CP-ABC", "CP-ABCDEF x", "…", "a … bcdef g", "two words")] == [
        None
    ] * 5
    part = KeyPart(KEY[:11], "")
    assert (part.masked, part.is_masked, part.fits(KEY), part.fits(f"X{KEY}")) == (
        "CP-AB…",
        False,
        True,
        False,
    )
    assert KeyPart("38b1460", "4D51").fits("38b1460a-5104-4067-a91d-77b872934d51")
    assert (KeyPart("", KEY[-6:]).masked, KeyPart("CP-AB", "QRST").is_masked) == ("…QRST", True)


SLUGS = {
    "one word": ("app", True),
    "words": ("my-app-2", True),
    "a digit": ("7", True),
    "100 characters": ("a" * 100, True),
    "101 characters": ("a" * 101, False),
    "upper case": ("App", False),
    "underscore": ("my_app", False),
    "double hyphen": ("my--app", False),
    "hyphen in front": ("-app", False),
    "hyphen behind": ("app-", False),
    "slash": ("a/b", False),
    "dot": ("a.b", False),
    "blank": ("a b", False),
    "newline": ("app\n", False),
    "umlaut": ("äpp", False),
    "surrogate": ("a\udcff", False),
    "empty": ("", False),
}


@pytest.mark.parametrize(("text", "fits"), SLUGS.values(), ids=SLUGS.keys())
def test_a_slug_is_lower_case_words(text, fits):
    """A slug is what needs no quoting anywhere."""
    assert is_slug(text) is fits


def test_a_release_that_cannot_be_compared_is_never_offered():
    """Its version is requested only by a fault in the code."""
    (unreadable,) = releases("nightly")
    assert latest([unreadable]) is None
    with pytest.raises(ValueError, match="'nightly' is not a version"):
        version_of(unreadable)


@given(st.from_regex(re.compile(r"[A-Za-z0-9.!+_\-]{1,20}"), fullmatch=True))
def test_reading_a_version_never_fails(text):
    """Version-like rubbish is read or is none, and what is read can be compared."""
    version = parse_version(text)
    assert version is None or version == parse_version(str(version))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 minutes"), (90, "1 minute"), (-7_200, "2 hours"), (86_400, "1 day"), (10**6, "11 days")],
)
def test_a_span_is_shown_in_its_largest_unit(seconds, text):
    """Whichever way it goes."""
    assert describe_span(timedelta(seconds=seconds)) == text
