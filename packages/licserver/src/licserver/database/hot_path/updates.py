"""Reads of update checks, in batches: licenses, and what their products offer."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import CTE, Connection, LargeBinary, Select, Text, column, select

from licserver.database.hot_path.driver import BatchedQuery, KeptConnection, Row
from licserver.database.hot_path.license_rows import LICENSE_COLUMNS, read_license
from licserver.database.repositories.products import PRODUCTS, read_product, read_release, releases_of
from licserver.database.tables.licenses import licenses, products
from licserver.domain.offers import OfferedProduct
from licserver.domain.records import LicenseSnapshot, Product


def _updates(requested: CTE) -> Select[Any]:
    """Each license, and of the product with the slug the id and the number of its state."""
    named = products.alias("named")
    return (
        select(
            requested.c.n,
            *LICENSE_COLUMNS,
            licenses.c.channels,
            named.c.id,
            named.c.release_changes,
        )
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .join(products, products.c.id == licenses.c.product_id)
        .outerjoin(named, named.c.slug == requested.c.slug)
    )


UPDATES: Final = BatchedQuery([column("id", LargeBinary), column("slug", Text)], _updates)


class UpdateQuery(NamedTuple):
    """An update check; None is a text that is not a license key, and no platform or kind is empty."""

    license_id: bytes | None
    slug: str
    platform: str = ""
    channels: tuple[str, ...] = ()
    kind: str = ""


class UpdateReader:
    """Loads licenses and products for update checks.

    Args:
        read: Runs a batched query.
        reader: The connection for other statements.
    """

    def __init__(
        self, read: Callable[[Callable[[Connection], list[Row]]], list[Row]], reader: KeptConnection
    ) -> None:
        self._read = read
        self.products = OfferedProducts(reader)

    def find(self, queries: Sequence[UpdateQuery]) -> list[tuple[LicenseSnapshot | None, Product | None]]:
        """Load licenses and products, in the order of the queries; a product only with a license."""
        results: list[tuple[LicenseSnapshot | None, Product | None]] = [(None, None)] * len(queries)
        numbered = [(index, query) for index, query in enumerate(queries) if query.license_id is not None]
        if not numbered:
            return results

        def load(connection: Connection) -> list[Row]:
            return UPDATES.rows(connection, [(query.license_id, query.slug) for _, query in numbered])

        for row in self._read(load):
            index, query = numbered[row[0]]
            of_license, product_id, change = row[-3:]
            product = None
            if product_id is not None:
                channels = (*query.channels, *of_license.split("\n")) if of_license else query.channels
                product = self.products.find(product_id, change, channels, query.platform, query.kind)
            results[index] = (read_license(row), product)
        return results


_CHANGE: Final = select(products.c.id, products.c.release_changes)


class _CachedProduct(NamedTuple):
    """A product as it was read at a change."""

    change: int
    offered: OfferedProduct


class OfferedProducts:
    """Products with what they offer, read once after each change.

    A change of a product, its releases or their manifests gives it another random number in the same
    transaction. So a kept product is the one whose row a request has just read, on whichever host.
    """

    def __init__(self, reader: KeptConnection) -> None:
        self._reader = reader
        self._cache: dict[int, _CachedProduct] = {}

    def find(
        self, product_id: int, change: int, channels: Collection[str], platform: str, kind: str = ""
    ) -> Product:
        """Return a product with the latest release for channels, a platform and a kind."""
        return self._keep(product_id, change).find_offers(channels, platform, kind)

    def find_all(self, slug: str) -> OfferedProduct | None:
        """Return the product of a slug with its releases, or None."""

        def load(connection: Connection) -> Row | None:
            row = connection.execute(_CHANGE.where(products.c.slug == slug)).one_or_none()
            return None if row is None else tuple(row)

        row = self._reader.run(load)
        return None if row is None else self._keep(*row)

    def _keep(self, product_id: int, change: int) -> OfferedProduct:
        entry = self._cache.get(product_id)
        if entry is None or entry.change != change:
            entry = self._cache[product_id] = _CachedProduct(change, self._load(product_id))
        return entry.offered

    def _load(self, product_id: int) -> OfferedProduct:
        def load(connection: Connection) -> OfferedProduct:
            product = read_product(connection.execute(PRODUCTS.where(products.c.id == product_id)).one())
            releases = [read_release(row) for row in connection.execute(releases_of(product_id))]
            return OfferedProduct(product, releases)

        return self._reader.run(load)
