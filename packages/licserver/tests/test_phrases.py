"""Words: of counted things, of the details of the audit log, and those by which licenses are found."""

import pytest

from licserver.domain.text import extract_words, format_details, parse_terms, plural


@pytest.mark.parametrize(("number", "word"), [(0, "slots"), (1, "slot"), (2, "slots")])
def test_the_word_for_so_many(number, word):
    """One is one, everything else is many; a word of its own if the plural needs one."""
    assert plural(number, "slot") == word
    assert plural(number, "is", "are") == ("is" if number == 1 else "are")


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ({"slots": [1, 3], "reason": "refund"}, "slots: 1 → 3; reason: refund"),
        ({"slots": [3, None], "lifetime": [False, True]}, "slots: 3 → none; lifetime: no → yes"),
        ({"allowed": [["a.x", "b.x"], []]}, "allowed: a.x, b.x → nothing"),
        (
            {"list": "licenses", "narrowed_by": ["product", "state"]},
            "list: licenses; narrowed by: product, state",
        ),
        ({"narrowed_by": ["q", "product", "state"]}, "narrowed by: q, product, state"),
        ({"narrowed_by": None, "count": 1, "freed": 1, "note": ""}, ""),
        ({"count": 5}, "count: 5"),
        ({"overrides": ["export", "sync"]}, "overrides: export, sync"),
        (
            {"entitlements": {"export": False, "exports": {"limit": 9, "per": "day"}}},
            "entitlements: export=false, exports=9/day",
        ),
        ({"entitlements": {}}, "entitlements: nothing"),
    ],
)
def test_details_say_which_field_they_are_of(details, text):
    """What was and what is, lists as lists, and nothing of what goes without saying."""
    assert format_details(details) == text


@pytest.mark.parametrize(
    ("email", "note", "words"),
    [
        (None, None, []),
        (None, "Rechnung 17", ["17", "rechnung"]),
        ("A.B@c.example", None, ["a.b@c.example", "b", "c.example", "example"]),
        (None, "(Ärger), ÄRGER!", ["ärger"]),
        (None, "ＡＢＣ ab", ["abc"]),
        (None, "x" * 100, ["x" * 64]),
    ],
)
def test_words_are_what_people_would_type(email, note, words):
    """Pieces of addresses and notes, whatever their case; none that begins another."""
    assert extract_words(email, note) == words


def test_the_rarest_term_leads():
    """Numbers and addresses, then what is longest: they leave the fewest to look at."""
    assert parse_terms("  Invoice, 2026-17  inv a@b ") == ["2026-17", "a@b", "invoice", "inv"]


def test_a_long_note_has_a_hundred_words():
    """Whoever pastes a book into a note fills no index with it; the first words count."""
    words = extract_words(None, " ".join(f"w{number:03}" for number in range(150)))
    assert words == [f"w{number:03}" for number in range(100)]
