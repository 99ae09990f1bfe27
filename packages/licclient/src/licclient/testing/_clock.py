"""A clock for tests."""

from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2030, 1, 15, 12, tzinfo=UTC)
"""What a `LicenseClock` shows at first: always the same, so that a test that passes today passes tomorrow."""


class LicenseClock:
    """A clock that stands still until it is moved.

    Attributes:
        now: What it shows; aware. May be set.
    """

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Read it."""
        return self.now

    def move(self, span: timedelta | None = None, /, **parts: float) -> None:
        """Let time pass, or turn it back.

        Args:
            span: By how much.
            **parts: Or so: `days=1, hours=2`, as in a timedelta.
        """
        self.now += timedelta(**parts) if span is None else span
