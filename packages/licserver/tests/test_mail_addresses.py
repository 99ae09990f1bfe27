"""Mail addresses as typed: of customers, in any script, and of the vendor as the sender."""

import pytest

from licserver.domain.mail_addresses import (
    InvalidAddressError,
    Sender,
    can_be_mailed,
    parse_address,
    parse_sender,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ann@example.com", ("ann", "example.com")),
        ("änne@bücher.example", ("änne", "xn--bcher-kva.example")),
    ],
)
def test_an_address_has_a_domain_in_ascii(text, address):
    """All mail servers accept A-labels."""
    assert parse_address(text) == address
    assert can_be_mailed(text)


@pytest.mark.parametrize(
    "text",
    [
        "ann",
        "@example.com",
        "ann@",
        "ann@b@example.com",
        "ann (x)@example.com",
        "=?utf-8?q?a?=@example.com",
        "deleted@site.invalid",
        "ann@Site.INVALID.",
        "ann\n@example.com",
        "ann@ex\u00a0ample.com",
        "ann@" + "語" * 254 + ".example",
        "ann@" + "語" * 60 + ".example",
        "a" * 250 + "@example.com",
    ],
)
def test_other_text_is_no_address(text):
    """Nor is what `email` would read as another address, or what has no form in DNS."""
    with pytest.raises(InvalidAddressError, match="write it like ann@"):
        parse_address(text)
    assert not can_be_mailed(text)


@pytest.mark.parametrize(
    ("text", "sender"),
    [
        ("a@shop.example", Sender("", "a", "shop.example")),
        (" Acme, Inc. <a@shop.example> ", Sender("Acme, Inc.", "a", "shop.example")),
        (r'"Acme \"Two\" \\" <a@shop.example>', Sender('Acme "Two" \\', "a", "shop.example")),
        ("Bücher <a@bücher.example>", Sender("Bücher", "a", "xn--bcher-kva.example")),
    ],
)
def test_a_sender_has_a_name_and_an_address(text, sender):
    """A name needs no quotes; those that it has go."""
    assert parse_sender(text) == sender


@pytest.mark.parametrize(
    "text", ["Acme", "Acme <a@shop.example", "Acme <>", "A<b> <a@shop.example>", "A\n<a@b>"]
)
def test_a_sender_without_an_address_is_refused(text):
    """The message shows the format."""
    with pytest.raises(InvalidAddressError, match="must look like Example Software"):
        parse_sender(text)


def test_a_sender_is_ascii_before_the_at_sign():
    """Other servers would not take the mail."""
    with pytest.raises(InvalidAddressError, match="must be ASCII before the @"):
        parse_sender("Änne <änne@shop.example>")
