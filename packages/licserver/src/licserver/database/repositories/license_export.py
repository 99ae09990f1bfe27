"""Licenses with their activations, as rows of a file, read as of one moment."""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final

from sqlalchemy import select

from licserver.database.engine import Database
from licserver.database.rows import split_entries
from licserver.database.tables import activations, licenses, products
from licserver.protocol.license_files import ActivationRow, LicenseRow

_PAGE: Final = 1_000


def held_licenses(database: Database, product_id: int | None) -> Iterator[tuple[LicenseRow, bytes, bytes]]:
    """Read licenses by the instant of issue, all or those of one product.

    Returns:
        For each one the row without its key, the sealed key, and the license's id.

    Raises:
        StoreUnavailable: when the database fails.
    """
    statement = select(licenses, products.c.slug).join(products, products.c.id == licenses.c.product_id)
    if product_id is not None:
        statement = statement.where(licenses.c.product_id == product_id)
    statement = statement.order_by(licenses.c.issued_at, licenses.c.id)
    taken = select(activations).order_by(*activations.primary_key)
    with database.snapshot() as connection:
        streamed = connection.execution_options(yield_per=_PAGE)
        for page in streamed.execute(statement).partitions(_PAGE):
            of_page = taken.where(activations.c.license_id.in_([row.id for row in page]))
            slots = {
                license_id: tuple(ActivationRow(*one[1:]) for one in of_it)
                for license_id, of_it in groupby(connection.execute(of_page), attrgetter("license_id"))
            }
            for row in page:
                yield (
                    LicenseRow(
                        product=row.slug,
                        product_name=row.product_name,
                        issued_at=row.issued_at,
                        expires_on=row.expires_on,
                        lifetime=row.lifetime,
                        slots=row.slots,
                        allowed=split_entries(row.allowed),
                        subscription=row.subscription_id,
                        subscription_ended_at=row.subscription_ended_at,
                        support_until=row.support_until,
                        revoked_at=row.revoked_at,
                        revoked_reason=row.revoked_reason,
                        customer_email=row.customer_email,
                        note=row.note,
                        activations=slots.get(row.id, ()),
                    ),
                    row.sealed_key,
                    row.id,
                )
