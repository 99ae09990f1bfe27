"""Figures for the overview, each from daily counts or from the end of an index: never from a scan (D-99)."""

from datetime import date

from licserver.database.repositories.statistics import Total, any_license, count_expiring, load_totals
from licserver.services.context import Context


class StatisticsService:
    """Reads counts."""

    def __init__(self, context: Context) -> None:
        self._database = context.database

    def load_totals(self, since: date) -> list[Total]:
        """Return the daily counts from a day on."""
        return load_totals(self._database, since)

    def count_expiring(self, first: date, last: date) -> int:
        """Count the licenses whose last day is within some days, both included; revoked ones do not count."""
        return count_expiring(self._database, first, last)

    def has_licenses(self) -> bool:
        """Return whether any license was ever issued."""
        return any_license(self._database)
