"""Figures for an overview, each from running totals or from the end of an index: never from a scan (D-99)."""

from datetime import date

from licserver.database.repositories.statistics import Total, any_license, count_expiring, load_totals
from licserver.services.base import Room


class Figures(Room):
    """What a vendor wants to know at a glance."""

    def totals(self, since: date) -> list[Total]:
        """What was counted from a day on."""
        return load_totals(self.database, since)

    def count_expiring(self, first: date, last: date) -> int:
        """How many licenses have their last day within some days, both included.

        Revoked ones and those for a lifetime do not count.
        """
        return count_expiring(self.database, first, last)

    def has_licenses(self) -> bool:
        """Tell whether any license was ever issued."""
        return any_license(self.database)
