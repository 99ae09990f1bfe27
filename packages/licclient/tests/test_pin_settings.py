"""Pins that cannot work are an error at construction: a slip must not switch the check off."""

import pytest

from harness.oracle import Signer

PIN = Signer().text


@pytest.mark.parametrize(
    ("pins", "url", "problem", "words"),
    [
        (PIN, "https://x.example", TypeError, "must be a list of keys"),
        ([], "https://x.example", ValueError, "leave it out to pin none"),
        ([7], "https://x.example", TypeError, "a public key is a string"),
        (["ed25519:nonsense"], "https://x.example", ValueError, "looks like ed25519:"),
        ([Signer().text for _ in range(17)], "https://x.example", ValueError, "1 to 16"),
        ([PIN], "https://münchen.example", ValueError, "xn--"),
        ([PIN], "https://x.example/a/../b", ValueError, r"without /\."),
    ],
)
def test_pins_that_cannot_work_are_refused_at_once(flavour, pins, url, problem, words):
    """An empty list would switch the check off, and an address that is rewritten fits no signature."""
    with pytest.raises(problem, match=words):
        flavour(url, public_keys=pins)


def test_a_pin_without_the_library_is_refused_at_once(flavour, monkeypatch):
    """The error at construction names the extra to install."""
    monkeypatch.setattr("licclient._ed25519.find_spec", lambda name: None)
    flavour("https://x.example")
    with pytest.raises(ImportError, match=r"pip install 'licclient\[signed\]'"):
        flavour("https://x.example", public_keys=[PIN])


def test_a_key_named_twice_is_one(flavour):
    """It is asked for once."""
    assert len(flavour("https://x.example", public_keys=iter([PIN, PIN]))._steps.settings.public_keys) == 1
