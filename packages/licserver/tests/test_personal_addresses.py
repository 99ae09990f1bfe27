"""A customer's address in text of any kind: found, erased, and not taken for a longer one."""

import json

import pytest

from licserver.domain.personal_data import (
    ERASED,
    AddressPattern,
    find_addresses,
    fold_address,
    is_address,
)


@pytest.mark.parametrize(
    "text",
    [
        "to jo@example.com, paid",
        "JO@Example.com",
        json.dumps({"a": "\njo@example.com"}),
        "?email=jo%40example.com&x",
    ],
)
def test_an_address_is_found_and_erased(text):
    """In JSON and URLs as well, in any case."""
    pattern = AddressPattern("jo@example.com")
    assert pattern.is_in(text)
    assert pattern.erase(text).count(ERASED) == 1
    assert not pattern.is_in(pattern.erase(text))


@pytest.mark.parametrize("text", ["bojo@example.com", "jo@example.com.au", "jo@example.company", None, 7])
def test_a_longer_address_is_another(text):
    """And what is no text has none."""
    assert not AddressPattern("jo@example.com").is_in(text)


def test_a_domain_has_two_spellings():
    """Either is found by the other; a domain of very many foreign letters has one."""
    assert AddressPattern("jo@bücher.example").is_in("jo@xn--bcher-kva.example")
    assert AddressPattern("jo@xn--bcher-kva.example").is_in("jo@bücher.example")
    assert fold_address("JO@Bücher.Example") == "jo@xn--bcher-kva.example"
    long = "jo@" + "語" * 300
    assert AddressPattern(long).is_in(long)


def test_accents_are_found_however_they_are_composed():
    """As macOS pastes them, and as keyboards type them: a person sees no difference (found by an attack)."""
    composed, decomposed = "j\u00f6rg@ex\u00e4mple.com", "jo\u0308rg@exa\u0308mple.com"
    for typed, stored in ((composed, decomposed), (decomposed, composed), (decomposed, decomposed)):
        assert AddressPattern(typed).is_in(f"Order of {stored}")
        assert AddressPattern(typed).erase(stored) == ERASED
    assert fold_address(decomposed) == fold_address(composed)
    assert fold_address(composed) in set(map(fold_address, find_addresses(f"Order of {decomposed}")))


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("jo@example.com", True), ("jo", False), ("@x", False), ("j o@x", False), ("a" * 300 + "@x", False)],
)
def test_what_may_be_an_address(text, is_one):
    """Even one to which no mail can be sent."""
    assert is_address(text) == is_one


def test_the_addresses_in_a_text_are_listed():
    """With each place at which one may begin."""
    assert set(find_addresses('{"a":"\\u000ajo@example.com\\n"}')) == {"jo@example.com"}
    assert {"jo@example.com", "mailto=jo@example.com"} <= set(find_addresses("?mailto=jo%40example.com"))
    assert "jo@example.com" in set(find_addresses("%20jo@example.com."))
    assert list(find_addresses("to=@example.com")) == ["to=@example.com"]
    assert list(find_addresses("nobody")) == []


def test_an_address_alone_in_a_field():
    """Compared whole, in any spelling; a list has its addresses, and what ends alike is another."""
    pattern = AddressPattern("jo@bücher.example")
    assert pattern.is_it(" JO@BÜCHER.example ")
    assert not any(map(pattern.is_it, ("r&jo@bücher.example", "jo@bücher.example,ann@example.com", None)))
    assert pattern.is_listed("ann@example.com, <jo@bücher.example>")
    assert not any(map(pattern.is_listed, ("r&jo@bücher.example", "", None)))


@pytest.mark.parametrize("before", ["r&", "e\u0301", "m\u200d", "r\\u0026", "r%26", "r+", "o'"])
def test_what_belongs_to_the_part_before_the_at_sign(before):
    """An ampersand, also escaped, an accent of its own and a joiner are of the same address."""
    text = f"{before}jo@example.com"
    pattern = AddressPattern("jo@example.com")
    assert not pattern.is_in(text)
    assert pattern.erase(text) == text


def test_other_spellings_that_are_stored_are_found_in_text():
    """Such as a domain in letters of another width."""
    stored = "jo@\uff45xample.com"
    assert not AddressPattern("jo@example.com").is_in(f"Order of {stored}")
    assert AddressPattern("jo@example.com", [stored]).is_in(f"Order of {stored}")
