"""Overview: charts with the previous period, and the first steps until they are done; the user's account."""

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, Final, NamedTuple

from licserver.database.repositories.statistics import Total
from licserver.domain.records import Product
from licserver.services.installation import Services
from licserver.services.license_search import LicenseFilter
from licserver.services.self_check import Finding, Level, check_installation
from licserver.web.console.formatting import number
from licserver.web.console.pages import HtmlPage, PageContext, with_query

PERIODS: Final = (7, 30, 90)
"""Days that can be chosen; the second is the default."""

_MOST_PROBLEMS: Final = 100  # that are counted

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
    """A colour of a chart: label, class of the style sheet (without ``s-``), a value for each day."""

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
        return sum(series.total for series in self.series)

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
        return list(zip(*(series.values for series in self.series), strict=True))


def show(context: PageContext) -> HtmlPage:
    """Show the overview of all products, or of a single product."""
    services, today, typed = context.services, context.now.date(), context.from_query("days")
    products = services.products.list_all()
    product = next((product for product in products if product.slug == context.from_query("product")), None)
    slug, product_id = (None, None) if product is None else (product.slug, product.id)
    count = int(typed) if typed in map(str, PERIODS) else PERIODS[1]
    days = [today - timedelta(days=back) for back in reversed(range(count))]
    totals = services.statistics.sum_totals(days[0] - timedelta(days=count), slug)
    links = {
        days_shown: with_query("/console", {"days": str(days_shown), "product": slug})
        for days_shown in PERIODS
    }
    return HtmlPage(
        "overview.html",
        periods=links,
        products=products,
        product=product,
        licenses=None if product is None else _count_licenses(services, product.slug),
        plots=_plot_totals(totals, days),
        versions=_count_versions(services.statistics.sum_versions(days[-7], slug)),
        refusals=services.support.list_latest_refusals(8, product_id),
        expiring=_expiring(services, today, product),
        steps=_first_steps(services, products),
        problems=services.sale_problems.count_open(_MOST_PROBLEMS) if context.user.may("support") else 0,
        disabled=[endpoint for endpoint in services.webhooks.list_endpoints() if endpoint.disabled_reason],
    )


def show_account(context: PageContext) -> HtmlPage:
    """Show the form for another password, and whether there is a second factor."""
    return HtmlPage("account.html", left=context.services.second_factors.count_recovery_codes(context.user))


def show_health(context: PageContext) -> HtmlPage:
    """Show the findings of `licserver check`."""
    services = context.services
    findings = [*check_installation(services.settings, context.now, reach=False, reads_file=False)]
    for endpoint in services.webhooks.list_endpoints():
        about, advice = f"webhook {endpoint.id}", "see Webhooks"
        if endpoint.disabled_reason is not None:
            findings.append(Finding(about, Level.FAILED, f"disabled: {endpoint.disabled_reason}", advice))
        elif endpoint.failing_since is not None and endpoint.disabled_at is None:
            finding = "deliveries fail; they are repeated for three days"
            findings.append(Finding(about, Level.WARNING, finding, advice))
    return HtmlPage("health.html", findings=findings)


def _plot_totals(totals: Sequence[Total], days: Sequence[date]) -> list[Plot]:
    count, before = Counter[tuple[str, str, date]](), Counter[str]()
    for total in totals:
        name = total.counted.name
        count[name, total.counted.label, total.day] += total.times
        if total.day < days[0]:
            before[name] += total.times
    verdicts = [
        Series(label, style, [count["verify", label, day] for day in days]) for label, style in _VERDICTS
    ]
    activations = Series("activations", "two", [count["activation", "", day] for day in days])
    checks = Series("update checks", "one", [count["update", "", day] for day in days])
    return [
        Plot("Verify calls", days, verdicts, before["verify"]),
        Plot("Activations", days, [activations], before["activation"]),
        Plot("Update checks", days, [checks], before["update"]),
    ]


def _count_versions(checks: Sequence[tuple[str, str, int]]) -> list[dict[str, Any]]:
    """Return the most used versions; shares are of their product."""
    products = Counter[str]()
    for slug, _, count in checks:
        products[slug] += count
    return [
        {"slug": slug, "version": version, "checks": count, "share": count / products[slug]}
        for slug, version, count in checks[:12]
    ]


def _count_licenses(services: Services, slug: str) -> str:
    counted = services.licenses.count(LicenseFilter(product=slug))
    return "" if counted is None else f"{number(counted[0])}{'+' if counted[1] else ''}"


def _expiring(services: Services, today: date, product: Product | None) -> dict[str, Any]:
    """Count the licenses that expire in the next 30 days."""
    until, product_id = today + timedelta(days=30), None if product is None else product.id
    search = {"from": today.isoformat(), "until": until.isoformat(), "product": product and product.slug}
    count = services.statistics.count_expiring(today, until, product_id)
    return {"licenses": count, "until": until, "link": with_query("/console/licenses", search)}


def _first_steps(services: Services, products: Sequence[Product]) -> dict[str, Any] | None:
    """Return what the first steps have reached; None when all are done."""
    has_licenses = services.statistics.has_licenses()
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
