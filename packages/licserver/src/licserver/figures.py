"""Figures for an overview, each from running totals or from the end of an index: never from a scan (D-99)."""

from datetime import date

from licserver.store import Database
from licserver.store.totals import Total, any_license, count_expiring, load_totals


class Figures:
    """What a vendor wants to know at a glance.

    Args:
        database: The vendor's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def totals(self, since: date) -> list[Total]:
        """What was counted from a day on."""
        return load_totals(self._database, since)

    def expiring(self, first: date, last: date) -> int:
        """How many licenses have their last day within some days, both included; revoked and lifetime ones do not count."""
        return count_expiring(self._database, first, last)

    def has_licenses(self) -> bool:
        """Tell whether any license was ever issued."""
        return any_license(self._database)
