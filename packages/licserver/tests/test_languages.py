"""The language of a customer: of a tag, and of what a browser accepts."""

import pytest

from licserver.domain.languages import choose_language, find_language


@pytest.mark.parametrize(
    ("text", "language"),
    [("de", "de"), ("de-AT", "de"), (" zh_CN ", "zh"), ("", None), (None, None), ("german", None)],
)
def test_the_language_of_a_tag(text, language):
    """Other text has none."""
    assert find_language(text) == language


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        ("fr", "de", "fr"),
        ("xx", "de", "de"),
        ("", "en;q=0.5, de-AT;q=0.9", "de"),
        ("", "de;q=much, fr", "fr"),
        ("", "de;q=0, pt", "en"),
        ("", "", "en"),
    ],
)
def test_the_choice_of_a_language(chosen, accepted, language):
    """An earlier choice, else the best that there is, else English."""
    assert choose_language(chosen, accepted) == language
