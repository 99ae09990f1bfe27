"""Overview: charts beside the days before, and the first steps while one is missing; one's own account."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any, Final, NamedTuple

from licserver.database.repositories.statistics import Total
from licserver.services import Services
from licserver.services.self_check import check_installation
from licserver.web.console.pages import Page, PageContext, with_query

PERIODS: Final = (7, 30, 90)
"""Days that can be chosen; the second is shown unless another one is."""

_VERDICTS: Final = (
    ("valid", "one"),
    ("slots full", "three"),
    ("expired", "five"),
    ("revoked", "four"),
    ("unknown", "six"),
    ("malformed", "two"),
)
"""Labels of the statistics from the bottom of a column, with their colours."""


class Series(NamedTuple):
    """One colour of a chart: label, class of the style sheet (without ``s-``), a value for each day."""

    label: str
    style: str
    values: Sequence[int]

    @property
    def total(self) -> int:
        """The sum of all days."""
        return sum(self.values)


class Plot(NamedTuple):
    """Numbers by day as a chart and as a table; series are stacked from the bottom."""

    title: str
    days: Sequence[date]
    series: Sequence[Series]
    before: int = 0
    """The sum of all series in as many days before."""

    @property
    def change(self) -> str:
        """The difference to the days before, as text; empty if there is nothing to compare with."""
        if not self.before:
            return ""
        percent = round(100 * (self.total - self.before) / self.before)
        return f"{abs(percent)} % {'more' if percent > 0 else 'less'}" if percent else "as many"

    @property
    def total(self) -> int:
        """The sum of all series."""
        return sum(one.total for one in self.series)

    @property
    def top(self) -> int:
        """The end of the scale."""
        return round_up(max((sum(column) for column in self._columns), default=0))

    @property
    def rows(self) -> list[tuple[date, tuple[int, ...]]]:
        """The table's rows, the latest day first, without days of zeros."""
        rows = zip(self.days, self._columns, strict=True)
        return [(day, column) for day, column in rows if any(column)][::-1]

    @property
    def _columns(self) -> list[tuple[int, ...]]:
        return list(zip(*(one.values for one in self.series), strict=True))


def show(context: PageContext) -> Page:
    """Show the overview."""
    today, typed = context.now.date(), context.from_query("days")
    count = int(typed) if typed in map(str, PERIODS) else PERIODS[1]
    days = [today - timedelta(days=back) for back in reversed(range(count))]
    totals = context.services.statistics.load_totals(days[0] - timedelta(days=count))
    return Page(
        "overview.html",
        {
            "periods": PERIODS,
            "plots": _plot_totals(totals, days),
            "versions": _count_versions(total for total in totals if total.day >= days[-7]),
            "refusals": context.services.support.list_latest_refusals(8),
            "expiring": _expiring(context.services, today),
            "steps": _first_steps(context.services),
        },
    )


def show_account(context: PageContext) -> Page:
    """Show the form for another password, and whether there is a second factor."""
    return Page("account.html", {"left": context.services.second_factors.count_recovery_codes(context.user)})


def show_health(context: PageContext) -> Page:
    """Show what `licserver check` finds."""
    findings = check_installation(context.services.settings, context.now, reach=False)
    return Page("health.html", {"findings": list(findings)})


def _plot_totals(totals: Sequence[Total], days: Sequence[date]) -> list[Plot]:
    count, before = Counter[tuple[str, str, date]](), Counter[str]()
    for total in totals:
        name = total.counted.name
        count[name, total.counted.label if name == "verify" else "", total.day] += total.times
        if total.day < days[0]:
            before[name] += total.times
    verdicts = [
        Series(label, style, [count["verify", label, day] for day in days]) for label, style in _VERDICTS
    ]
    activations = Series("activations", "two", [count["activation", "", day] for day in days])
    return [
        Plot("Verify calls", days, verdicts, before["verify"]),
        Plot("Activations", days, [activations], before["activation"]),
    ]


def _count_versions(totals: Iterable[Total]) -> list[dict[str, Any]]:
    """Count update checks by version, the most used first; shares are of their product."""
    counts, products = Counter[tuple[str, str]](), Counter[str]()
    for total in totals:
        if total.counted.name == "update":
            counts[total.counted.product, total.counted.label] += total.times
            products[total.counted.product] += total.times
    return [
        {"slug": slug, "version": version, "checks": count, "share": count / products[slug]}
        for (slug, version), count in counts.most_common(12)
    ]


def _expiring(services: Services, today: date) -> dict[str, Any]:
    """Count the licenses that expire in the next 30 days."""
    until = today + timedelta(days=30)
    link = with_query("/console/licenses", {"from": today.isoformat(), "until": until.isoformat()})
    return {"licenses": services.statistics.count_expiring(today, until), "until": until, "link": link}


def _first_steps(services: Services) -> dict[str, Any] | None:
    """Return what the first steps have reached; None when all are done."""
    products, has_licenses = services.products.list_all(), services.statistics.has_licenses()
    has_release = any(product.latest for product in products)
    if has_licenses and has_release:
        return None
    slug = products[0].slug if products else None
    return {"slug": slug, "has_release": has_release, "has_licenses": has_licenses}


def round_up(value: int) -> int:
    """Round up to the next number that is easy to read at the end of a scale."""
    if value <= 0:
        return 0
    unit = int(10 ** max(0, len(str(value)) - 2))
    leads = (1, 2, 3, 4, 5, 6, 8, 10) if value < 10 else (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)  # noqa: PLR2004
    return next(unit * lead for lead in leads if unit * lead >= value)
