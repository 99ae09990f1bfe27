"""What is remembered, as bytes."""

import pytest

from licclient._records import read_instant


@pytest.mark.parametrize(
    "text",
    ["", "soon", "2026-11-21", "2026-11-21T12:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:00-14:00"],
)
def test_what_is_no_instant_reads_as_nothing(text):
    """No zone, no time, or a time that no zone but its own can tell."""
    assert read_instant(text) is None
