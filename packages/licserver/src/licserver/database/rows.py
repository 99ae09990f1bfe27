"""Rows of the tables, read into records."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Row, ScalarSelect, select

from licserver.database.tables import licenses, manifests, products, releases
from licserver.domain.records import Artifact, EnvironmentPolicy, IssuedLicense, Product, Release


def join_entries(entries: Sequence[str]) -> str:
    """Write the column `licenses.allowed`: an entry a line."""
    return "\n".join(entries)


def split_entries(text: str) -> tuple[str, ...]:
    """Read the column `licenses.allowed`: an entry a line."""
    return tuple(text.split("\n")) if text else ()


_STORED: Final = attrgetter(*licenses.columns.keys())
_ALLOWED: Final = licenses.columns.keys().index("allowed")


def license_row(license_: IssuedLicense) -> tuple[Any, ...]:
    """Return the row of a license, in the order of the table's columns."""
    row = list(_STORED(license_))
    row[_ALLOWED] = join_entries(license_.allowed)
    return tuple(row)


def read_license(row: Row[Any]) -> IssuedLicense:
    """Read a row whose columns have the names of the record's fields."""
    values = row._asdict()
    return IssuedLicense(**{**values, "allowed": split_entries(values["allowed"])})


def newest_manifest() -> ScalarSelect[Any]:
    """The manifest of a release that is selected: of all its documents the newest."""
    of_it = select(manifests.c.document).where(manifests.c.release_id == releases.c.id)
    return of_it.order_by(manifests.c.id.desc()).limit(1).scalar_subquery()


def read_release(row: Row[Any]) -> Release:
    """Read a row of `releases` into the record."""
    columns = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for access by column
    return Release(
        id=columns[releases.c.id],
        product_id=columns[releases.c.product_id],
        version=columns[releases.c.version],
        changelog=columns[releases.c.changelog],
        published_at=columns[releases.c.published_at],
        artifact=Artifact(
            file_name=columns[releases.c.file_name],
            size=columns[releases.c.size],
            sha256=columns[releases.c.sha256],
        ),
        withdrawn_at=columns[releases.c.withdrawn_at],
        manifest=columns.get("manifest"),  # only where it was asked for
    )


def read_product(row: Row[Any]) -> Product:
    """Read a row of `products`, joined with its latest release, into the record."""
    columns = row._mapping  # noqa: SLF001 - as above
    return Product(
        id=columns[products.c.id],
        slug=columns[products.c.slug],
        name=columns[products.c.name],
        policy=EnvironmentPolicy(columns[products.c.environment_policy]),
        has_support_policy=columns[products.c.has_support_policy],
        latest=None if columns[releases.c.id] is None else read_release(row),
    )
