"""What files of licenses are read with, where a test is about something else than their columns."""

from datetime import UTC, datetime
from typing import Final

from licserver.protocol.conversion import Conversion

ASSUMED: Final = Conversion(now=datetime(2026, 6, 15, 12, tzinfo=UTC), slots="1", expires="never")
"""As `--slots 1 --expires never`: a file needs no column for either."""
