"""Overview: charts of the last 30 days, and the first steps as long as one is missing; one's own account."""

import calendar
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple

from licserver.database.repositories.statistics import Total
from licserver.services import Services
from licserver.web.console.charts import Plot, Series
from licserver.web.console.page_context import Page, PageContext, with_query

_VERDICTS: Final = (
    ("valid", "one"),
    ("slots full", "three"),
    ("expired", "five"),
    ("revoked", "four"),
    ("unknown", "six"),
    ("malformed", "two"),
)
"""Labels of the statistics from the bottom of a column, with their colours."""


class Step(NamedTuple):
    """One of the first steps: what to do, by which command or on which page, and whether it is done."""

    title: str
    text: str
    command: str
    link: str
    done: bool


class Version(NamedTuple):
    """How often a version checks for updates."""

    slug: str
    version: str
    checks: int
    share: float


class Expiring(NamedTuple):
    """Licenses that expire in the rest of this month."""

    licenses: int
    until: date
    link: str


def show(context: PageContext) -> Page:
    """Show the overview."""
    today = context.now.date()
    days = [today - timedelta(days=back) for back in reversed(range(30))]
    totals = context.services.statistics.load_totals(days[0])
    return Page(
        "overview.html",
        {
            "plots": _plot_totals(totals, days),
            "versions": _count_versions(total for total in totals if total.day >= days[-7]),
            "expiring": _expiring(context.services, today),
            "steps": _first_steps(context.services),
        },
    )


def show_account(context: PageContext) -> Page:
    """Show the form for another password, and whether there is a second factor."""
    return Page("account.html", {"left": context.services.second_factors.count_recovery_codes(context.user)})


def _plot_totals(totals: Sequence[Total], days: Sequence[date]) -> list[Plot]:
    count = Counter[tuple[str, str, date]]()
    for total in totals:
        name = total.counted.name
        count[name, total.counted.label if name == "verify" else "", total.day] += total.times
    verdicts = [
        Series(label, style, [count["verify", label, day] for day in days]) for label, style in _VERDICTS
    ]
    activations = Series("activations", "two", [count["activation", "", day] for day in days])
    return [Plot("Verify calls", days, verdicts), Plot("Activations", days, [activations])]


def _count_versions(totals: Iterable[Total]) -> list[Version]:
    """Count update checks by version, the most used first; shares are of their product."""
    counts, products = Counter[tuple[str, str]](), Counter[str]()
    for total in totals:
        if total.counted.name == "update":
            counts[total.counted.product, total.counted.label] += total.times
            products[total.counted.product] += total.times
    return [
        Version(slug, version, count, count / products[slug])
        for (slug, version), count in counts.most_common(12)
    ]


def _expiring(services: Services, today: date) -> Expiring:
    until = today.replace(day=calendar.monthrange(today.year, today.month)[1])
    link = with_query("/console/licenses", {"from": today.isoformat(), "until": until.isoformat()})
    return Expiring(services.statistics.count_expiring(today, until), until, link)


def _first_steps(services: Services) -> list[Step]:
    products = services.products.list_all()
    slug = products[0].slug if products else "my-app"
    has_release = any(product.latest for product in products)
    has_license = services.statistics.has_licenses()
    if has_license and has_release:
        return []
    return [
        Step(
            "Add a product",
            "What you sell, with the slug that your app sends.",
            f'licserver product add {slug} --name "My App" --environment domain',
            "/console/products",
            bool(products),
        ),
        Step(
            "Publish a version",
            "The file that customers download. Without one, update checks return no_versions.",
            f"licserver release publish {slug} 1.0.0 my-app-1.0.0.zip",
            f"/console/products/{slug}" if products else "",
            has_release,
        ),
        Step(
            "Issue a license",
            "A key for a customer, or for yourself to try your app.",
            f"licserver license issue {slug} --slots 3",
            "/console/licenses/issue" if products else "",
            has_license,
        ),
    ]
