"""The one place that reads the clock; everything else is handed `now` or a `Clock`."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Returns the present instant as an aware datetime in UTC."""


def system_clock() -> datetime:
    """Read the machine's clock."""
    return datetime.now(UTC)
