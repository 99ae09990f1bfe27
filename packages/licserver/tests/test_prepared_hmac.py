"""An HMAC whose key is hashed once."""

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licserver.protocol.prepared_hmac import PreparedHmac


@given(
    st.binary(max_size=64), st.binary(max_size=80), st.lists(st.binary(max_size=200), min_size=1, max_size=3)
)
def test_it_is_that_of_the_standard_library(key, prefix, messages):
    """Of each message, as if there had been no other."""
    prepared = PreparedHmac(key, prefix)
    for message in messages:
        assert prepared.digest(message) == hmac.digest(key, prefix + message, "sha256")


def test_a_longer_key_is_refused():
    """RFC 2104 hashes it first, which this does not."""
    with pytest.raises(ValueError, match="a key of more than 64 bytes"):
        PreparedHmac(bytes(65))


def test_it_shows_no_key():
    """It stands in secrets, which may be printed."""
    assert repr(PreparedHmac(b"secret")) == "PreparedHmac()"
