"""Words that the command line and the console share: counted things, details of the audit log."""

import pytest

from licserver.domain.text import plural, say_details


@pytest.mark.parametrize(("number", "word"), [(0, "slots"), (1, "slot"), (2, "slots")])
def test_the_word_for_so_many(number, word):
    """One is one, everything else is many; a word of its own if the plural needs one."""
    assert plural(number, "slot") == word
    assert plural(number, "is", "are") == ("is" if number == 1 else "are")


@pytest.mark.parametrize(
    ("details", "said"),
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
def test_details_say_which_field_they_are_of(details, said):
    """What was and what is, lists as lists, and nothing of what goes without saying."""
    assert say_details(details) == said
