"""What one address makes a server store, in short; ``python -m bench.growth`` does it for ten minutes."""

import pytest
from bench import growth

pytestmark = pytest.mark.slow

WRITTEN = ("verify 200", "deactivate 200", "seat 200", "consume 200", "code 303", "key 200", "take-back 303")
"""Loads by what comes of them: each was really there."""


def test_what_one_address_sends_is_stored_within_bounds() -> None:
    """In eight seconds less than half a megabyte, of which a loop once wrote two in that time."""
    found = growth.run(8.0, ACTIVATION_LIMIT="20", USE_LIMIT="50")
    assert not [kind for kind in WRITTEN if not found.answers[kind]], found
    assert found.answers["verify 429"] > 0, found
    assert found.used_up - found.start < 500_000, found
    assert found.end - found.used_up < 500_000, found
