"""Running totals: what is counted is added up by day, so that a plot reads a few hundred rows (D-99)."""

from collections.abc import Collection, Mapping
from datetime import date
from typing import NamedTuple

from sqlalchemy import func, select

from licserver.database.engine import Database
from licserver.database.repositories.base import insert_into
from licserver.database.tables import licenses, products, releases, totals


class CountKey(NamedTuple):
    """What is counted.

    Args:
        name: ``verify``, ``activation`` or ``update``.
        product: Its slug; empty when it is nobody's.
        label: What kind of it: a verdict, or a version.
    """

    name: str
    product: str
    label: str


class Total(NamedTuple):
    """How often something was on one day."""

    day: date
    counted: CountKey
    times: int


def add_counts(database: Database, day: date, counts: Mapping[CountKey, int]) -> None:
    """Add to a day's totals, all at once; several processes may add at the same time.

    Raises:
        StoreUnavailableError: when the database fails; then nothing was added.
    """
    rows = [{"day": day, **counted._asdict(), "count": count} for counted, count in sorted(counts.items())]
    if not rows:
        return
    with database.writing() as connection:
        add = insert_into(connection, totals)
        connection.execute(
            add.on_conflict_do_update(
                index_elements=list(totals.primary_key.columns),
                set_={"count": totals.c.count + add.excluded.count},
            ),
            rows,
        )


def load_totals(database: Database, since: date) -> list[Total]:
    """Load the totals of the days from one on."""
    with database.reading() as connection:
        rows = connection.execute(select(totals).where(totals.c.day >= since).order_by(totals.c.day))
        return [Total(day, CountKey(*counted), times) for day, *counted, times in rows]


def published_versions(database: Database, slugs: Collection[str]) -> dict[tuple[str, str | None], str]:
    """Load how the versions of some products are written, by slug and version key."""
    if not slugs:
        return {}
    of = select(products.c.slug, releases.c.version_key, releases.c.version).join(
        releases, releases.c.product_id == products.c.id
    )
    with database.reading() as connection:
        rows = connection.execute(of.where(products.c.slug.in_(list(slugs))))
        return {(row.slug, row.version_key): row.version for row in rows}


def count_expiring(database: Database, first: date, last: date) -> int:
    """Count the licenses whose last day lies within some days.

    Each key of these days is looked at: a range of the index, and the row behind each entry (D-99).
    """
    meant = (
        licenses.c.expires_on.between(first, last),
        licenses.c.revoked_at.is_(None),
        licenses.c.lifetime.is_(False),
    )
    with database.reading() as connection:
        return connection.scalar(select(func.count()).select_from(licenses).where(*meant)) or 0


def any_license(database: Database) -> bool:
    """Tell whether there is a license."""
    with database.reading() as connection:
        return connection.execute(select(licenses.c.id).limit(1)).first() is not None
