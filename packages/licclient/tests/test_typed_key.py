import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licclient._core.typed_key import KeyFlaw, Mistyped, is_license_key, mask_key, repair_key

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
keys = st.lists(st.from_regex(r"[A-Z0-9]{6}", fullmatch=True), min_size=5, max_size=5).map(
    lambda groups: "-".join(["CP", *groups])
)


@pytest.mark.parametrize(
    "typed",
    [
        KEY,
        KEY.lower(),
        f"  {KEY}\r\n",
        KEY.replace("-", " - "),
        KEY.replace("-", " "),
        KEY.replace("-", ""),
        KEY.replace("-", "‐"),  # hyphen
        KEY.replace("-", "–"),  # en dash, as word processors like it
        KEY.replace("-", "—"),
        KEY.replace("-", "−"),  # minus
        KEY.replace("-", "ー"),  # the key beside the zero on a Japanese keyboard
        KEY.replace("-", "_"),
        KEY.replace("-", "\u00ad-"),  # with soft hyphens
        "\ufeff" + KEY.replace("-", "-\u200b"),  # copied from a web page
        "ＣＰ－ＡＢＣ１２３－ＤＥＦ４５６－ＧＨＩ７８９－ＪＫＬ０１２－ＭＮＯ３４５",
        KEY.replace("CP", "СР").replace("A", "А"),  # Cyrillic letters that look the same
        f"“{KEY}”",
        f"Your license key: {KEY}.\nThank you!",
        f"{KEY}\n{KEY}",
        "CP-ABC12-3DEF4-56GHI-789JK-L012M-NO345",  # dashes in wrong places
    ],
    ids=itertools.count(),  # a test's name is printed, and must not hold a key
)
def test_what_was_meant_is_found(typed):
    """Spaces, case, dashes of all kinds and what comes along with copying do not matter (D-57)."""
    assert repair_key(typed) == KEY


@pytest.mark.parametrize(
    ("typed", "flaw", "detail"),
    [
        ("", KeyFlaw.EMPTY, ""),
        (KEY * 1000, KeyFlaw.TOO_LONG, "36970"),  # a document that was pasted by mistake
        (" \t\u200b\n", KeyFlaw.EMPTY, ""),
        ("-", KeyFlaw.EMPTY, ""),
        ("hello", KeyFlaw.PREFIX, ""),
        ("my license key", KeyFlaw.PREFIX, ""),
        ("Schlüssel-Ä1234567", KeyFlaw.PREFIX, ""),
        ("x" * 1025, KeyFlaw.PREFIX, ""),
        (KEY.replace("A", "Ä").replace("D", "?"), KeyFlaw.CHARACTERS, "Ä ?"),
        (KEY.replace("A", "\x07"), KeyFlaw.CHARACTERS, "U+0007"),
        (KEY.replace("A", "\ud800"), KeyFlaw.CHARACTERS, "U+D800"),
        (KEY[:-1], KeyFlaw.TOO_SHORT, "1"),
        ("CP-", KeyFlaw.TOO_SHORT, "30"),
        (KEY + "77", KeyFlaw.TOO_LONG, "2"),
        (f"{KEY} or {KEY[:-1]}6", KeyFlaw.TOO_LONG, "34"),  # two keys: which?
    ],
    ids=itertools.count(),
)
def test_what_cannot_be_a_key_says_why(typed, flaw, detail):
    """Before anybody is asked, the person hears what is wrong (D-57)."""
    assert repair_key(typed) == Mistyped(flaw, detail)


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("5f4dcc3b5aa765d61d8327deb882cf99", None),  # Easy Digital Downloads
        (" 38b1460a-5104-4067-a91d-77b872934d51\r\n", "38b1460a-5104-4067-a91d-77b872934d51"),
        ("C1B6DE-39A6E3-DE1529-8559A0-4AF593-V3", None),  # Keygen
        ("key/eyJhIjoi\n  fQ==.c2ln_~", "key/eyJhIjoifQ==.c2ln_~"),  # a long one, as a mail breaks it
        ("“Pro–1a2B—3c4D”\u200b", "Pro-1a2B-3c4D"),
        ("CPU-abcd-1234", None),
    ],
)
def test_a_key_that_was_sold_elsewhere_is_sent_as_typed(typed, key):
    """No character of it changes, only what surrounds it, and typography, which no key has (D-185)."""
    assert repair_key(typed) == (key or typed)


@pytest.mark.slow
@given(keys, st.lists(st.sampled_from([" ", "-", "–", "\u00a0", "\n"]), min_size=40, max_size=40))
def test_no_spacing_and_no_case_loses_a_key(key, spaces):
    """Whatever is strewn between the letters of whatever key, it comes out whole."""
    strewn = "".join(letter + space for letter, space in zip(key.lower(), spaces, strict=False))
    assert repair_key(strewn) == key


@given(st.text())
def test_whatever_is_typed_has_an_answer(typed):
    """Every text is a key of the right shape or a flaw; repairing twice changes nothing."""
    once = repair_key(typed)
    if isinstance(once, str):
        assert repair_key(once) == once


def test_only_text_is_typed():
    """Other types are a slip of the app, not of a person."""
    with pytest.raises(TypeError, match="not bytes"):
        repair_key(KEY.encode())


def test_a_masked_key_tells_keys_apart_and_no_more():
    """Six letters of thirty, as the server's console shows them."""
    masked = {KEY: "CP-AB…O345", "ABCD-EFGH-IJKL": "AB…KL", "short": "…"}  # as in licserver
    assert {key: mask_key(key) for key in masked} == masked


def test_a_key_as_the_service_issues_it():
    """To the letter."""
    assert is_license_key(KEY)
    assert not any(map(is_license_key, (KEY.lower(), f"{KEY}\n", KEY[:-1], "")))


@pytest.mark.parametrize(
    "typed",
    [
        "My key is: CP - ABC123 - DEF456 - GHI789 - JKL012 - MNO345 thanks!",
        "license key: cp abc123 def456 ghi789 jkl012 mno345.",
        "Key: CP -ABC123\n- DEF456- GHI789 –JKL012 MNO345, many thanks",
    ],
)
def test_a_key_with_spaced_dashes_is_found_in_a_sentence(typed):
    """Mail programs and people put spaces around dashes, or in place of them."""
    assert repair_key(typed) == "CP-ABC123-DEF456-GHI789-JKL012-MNO345"


def test_two_spaced_keys_are_not_chosen_from():
    """Which one is meant is for the person to say."""
    first, other = "CP ABC123 DEF456 GHI789 JKL012 MNO345", "CP XYZ123 DEF456 GHI789 JKL012 MNO345"
    assert not isinstance(repair_key(f"keys: {first}, {other}"), str)
