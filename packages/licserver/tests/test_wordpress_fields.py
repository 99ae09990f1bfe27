"""The form of what WordPress shows of a version (D-199)."""

import pytest

from licserver.domain.records import WordPressFields
from licserver.domain.text import MAX_URL
from licserver.domain.wordpress import read_fields
from licserver.errors import InvalidInputError

PAGE = "https://example.com/app"

GOOD = {
    "a number": (WordPressFields(requires="6"), WordPressFields(requires="6")),
    "four numbers": (WordPressFields(tested="6.7.1.2023"), WordPressFields(tested="6.7.1.2023")),
    "white space": (
        WordPressFields(" 6.4\n", " ", "", f" {PAGE} "),
        WordPressFields("6.4", None, None, PAGE),
    ),
    "an address with all parts": (
        WordPressFields(details_url="https://example.com:8443/a%20b?c=%5B1%5D&d"),
        WordPressFields(details_url="https://example.com:8443/a%20b?c=%5B1%5D&d"),
    ),
    "the longest address": (
        WordPressFields(details_url=f"https://a.example/{'a' * (MAX_URL - 18)}"),
        WordPressFields(details_url=f"https://a.example/{'a' * (MAX_URL - 18)}"),
    ),
}


@pytest.mark.parametrize(("fields", "stored"), GOOD.values(), ids=GOOD.keys())
def test_fields_that_can_be(fields, stored):
    """Nothing but white space is changed."""
    assert read_fields(fields) == stored


@pytest.mark.parametrize("name", ["requires", "tested", "requires_php"])
@pytest.mark.parametrize(
    "text", ["v6.4", "6.x", "6.4-RC1", "6.", ".4", "6..4", "12345", "1.2.3.4.5", "6,4", "٦.٤"]
)
def test_versions_are_numbers_and_dots(name, text):
    """Every field of a version says which one is wrong, and how it is written."""
    with pytest.raises(
        InvalidInputError, match=f"^.* is not a valid version for {name}: write .* such as [0-9.]+$"
    ):
        read_fields(WordPressFields(**{name: text}))


ADDRESSES = [
    *("http://example.com", "//example.com/a", "example.com", "https:", "https:///a", "javascript:alert(1)"),
    *("https://a@example.com", "https://[", "https://example.com:0/", "https://example.com:99999/"),
    *(
        "https://example.com/a b",
        "https://example.com/<b>",
        'https://example.com/"',
        "https://example.com/#a",
    ),
    *("https://möbel.example", "https://example.com/\x00", f"https://a.example/{'a' * (MAX_URL - 17)}"),
]


@pytest.mark.parametrize("url", ADDRESSES)
def test_a_page_has_a_whole_address(url):
    """It is https, without a password, and fits into a header or an attribute as it is."""
    with pytest.raises(InvalidInputError, match=r"^the details_url must be an address like https://"):
        read_fields(WordPressFields(details_url=url))
