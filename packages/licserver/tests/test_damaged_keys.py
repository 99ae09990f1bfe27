"""Keys and dates that a spreadsheet has damaged before an import."""

from datetime import date

import pytest

from licserver.protocol.damaged_keys import DigitKeys, describe_damage, describe_doubt, describe_doubtful_date


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("1.23457E+15", "is a number as a spreadsheet shortens it"),
        ("##########", "is what a spreadsheet shows in the key's place"),
        ("#VALUE!", "is what a spreadsheet shows in the key's place"),
        ("#REF!#REF!", "is what a spreadsheet shows in the key's place"),
        ("AAAA\u2013BBBB", "has the dash \u2013 (U+2013)"),
        ("AAAA\u2212BBBB", "has the dash \u2212 (U+2212)"),
        ("AAAA\u200bBBBB", "has the invisible character U+200B"),
        ("AAAA\u00a0BBBB", "has the invisible character U+00A0"),
    ],
)
def test_certain_damage_is_described(key, words):
    """Of the key only the damaged character is named."""
    described = describe_damage(key)
    assert described is not None
    assert described.startswith(words)
    assert "AAAA" not in described


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ('="AAAA"', "is a formula"),
        ("=AAAA+1", "begins with ="),
        ("2027-01-31", "is a date"),
        ("31/01/2027", "is a date"),
        ("5-Mar-2027", "is a date"),
        ("'AAAA", "begins with an apostrophe"),
        ("123456789012345000", "ends in zeros after 15 digits"),
    ],
)
def test_probable_damage_is_described(key, words):
    """It may still be the key."""
    described = describe_doubt(key)
    assert described is not None
    assert described.startswith(words)
    assert describe_damage(key) is None


@pytest.mark.parametrize(
    "key",
    [
        "CP-ÄÖÜ",
        "AAAA-BBBB",
        "#1-AAAA",
        "12-34-5678",
        "2027-0131-AA",
        "123456789012345",
        "123456789012345001",
        "",
    ],
)
def test_an_intact_key_is_neither(key):
    """Letters of any script may be in a key."""
    assert (describe_damage(key), describe_doubt(key)) == (None, None)


def test_days_that_programs_write_by_mistake():
    """And no others."""
    assert describe_doubtful_date(None) is None
    assert describe_doubtful_date(date(2026, 1, 31)) is None
    short = describe_doubtful_date(date(27, 1, 31))
    assert short is not None
    assert short.startswith("0027-01-31 is in the year 27")
    described = describe_doubtful_date(date(1899, 12, 30))
    assert described is not None
    assert described.startswith("is 1899-12-30, which programs write for the number 0")


def test_keys_that_are_shorter_than_the_others_have_lost_zeros():
    """If most have the same length; otherwise they are of different lengths, and nothing is said."""
    keys = DigitKeys()
    assert keys.find_shorter()[:2] == ([], 0)
    for line, key in enumerate(["1234", "5678", "12", "x12"]):
        keys.add(line, key)
    assert keys.find_shorter()[:2] == ([2], 1)
    for line in range(4, 106):
        keys.add(line, "77")
    lines, count, doubt = keys.find_shorter()
    assert (lines, count) == ([], 0)
    assert "than the other keys (4)" in doubt
    for line in range(106, 250):
        keys.add(line, "1234")
    lines, count, _ = keys.find_shorter()
    assert (len(lines), count) == (100, 103)


@pytest.mark.parametrize(("short", "count"), [(3, 3), (4, 0)])
def test_half_of_the_keys_are_enough(short, count):
    """Three of six keys have the length of the longest, and three of seven do not suffice."""
    keys = DigitKeys()
    for line, key in enumerate(["1234"] * 3 + ["123"] * short):
        keys.add(line, key)
    assert keys.find_shorter()[1] == count
