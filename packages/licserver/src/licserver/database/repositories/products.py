"""Products and their releases in the vendor's books.

Each method is one transaction. What is missing or already there is a return value, never a
half-written state; `licserver.services` turns it into words.
"""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Select, func, insert, select, update

from licserver.database.repositories.base import Repository
from licserver.database.rows import newest_manifest, read_product, read_release
from licserver.database.tables import manifests, products, releases
from licserver.domain.decisions import latest
from licserver.domain.records import Artifact, EnvironmentPolicy, Product, Release

_PRODUCTS: Final = select(products, releases).outerjoin(
    releases, releases.c.id == products.c.latest_release_id
)


class ProductRepository(Repository):
    """Products and releases."""

    # --- products -----------------------------------------------------------------------------

    def add_product(
        self, slug: str, name: str, policy: EnvironmentPolicy, now: datetime, *, has_support_policy: bool
    ) -> bool:
        """Add a product; False when the slug is taken."""
        row = {
            "slug": slug,
            "name": name,
            "environment_policy": policy.value,
            "has_support_policy": has_support_policy,
            "created_at": now,
        }
        return self._insert_unless_taken(products.insert().values(row))

    def change_product(
        self,
        slug: str,
        name: str | None,
        policy: EnvironmentPolicy | None,
        *,
        has_support_policy: bool | None,
    ) -> None:
        """Change what is said of a product; what is None stays, whoever else is changing it."""
        values = {
            "name": name,
            "environment_policy": None if policy is None else policy.value,
            "has_support_policy": has_support_policy,
        }
        changed = {column: value for column, value in values.items() if value is not None}
        self._update(update(products).where(products.c.slug == slug).values(changed))

    def product(self, slug: str) -> Product | None:
        """Load a product with its latest release."""
        with self._reading() as connection:
            row = connection.execute(_PRODUCTS.where(products.c.slug == slug)).first()
        return None if row is None else read_product(row)

    def products(self) -> list[Product]:
        """Load all products, by slug."""
        with self._reading() as connection:
            return [read_product(row) for row in connection.execute(_PRODUCTS.order_by(products.c.slug))]

    # --- releases -----------------------------------------------------------------------------

    def add_release(
        self,
        product_id: int,
        version: str,
        version_key: str,
        changelog: str,
        artifact: Artifact,
        now: datetime,
        manifest: str | None = None,
    ) -> bool:
        """Publish a release and choose the product's latest anew; False when the version exists.

        Args:
            product_id: The product's.
            version: As the vendor wrote it.
            version_key: The same for all spellings of one version.
            changelog: Plain text or basic HTML.
            artifact: The file, already in the artifact store.
            now: The instant of publication.
            manifest: The signed document, or None.
        """
        with self._writing() as connection:
            _lock_product(connection, product_id)
            same = (releases.c.product_id == product_id) & (releases.c.version_key == version_key)
            if connection.scalar(select(releases.c.id).where(same)) is not None:
                return False
            added = connection.scalar(
                insert(releases)
                .values(
                    product_id=product_id,
                    version=version,
                    version_key=version_key,
                    changelog=changelog,
                    published_at=now,
                    file_name=artifact.file_name,
                    size=artifact.size,
                    sha256=artifact.sha256,
                )
                .returning(releases.c.id)
            )
            if manifest is not None:
                _add_manifest(connection, added, manifest, now)
            _choose_latest(connection, product_id)
            return True

    def withdraw_release(self, product_id: int, version_key: str, now: datetime) -> bool:
        """Withdraw a release and choose the product's latest anew; False when there is no such version.

        One that is withdrawn already keeps its first date.
        """
        with self._writing() as connection:
            _lock_product(connection, product_id)
            same = (releases.c.product_id == product_id) & (releases.c.version_key == version_key)
            if connection.scalar(select(releases.c.id).where(same)) is None:
                return False
            connection.execute(
                update(releases).where(same, releases.c.withdrawn_at.is_(None)).values(withdrawn_at=now)
            )
            _choose_latest(connection, product_id)
            return True

    def renew_manifest(self, release: Release, manifest: str, now: datetime) -> None:
        """Put another manifest in the place of a release's; the very next update check tells it."""
        with self._writing() as connection:
            _lock_product(connection, release.product_id)
            _add_manifest(connection, release.id, manifest, now)
            _choose_latest(connection, release.product_id)

    def releases(self, product_id: int) -> list[Release]:
        """Load a product's releases, in the order of publication."""
        with self._reading() as connection:
            rows = connection.execute(
                _releases_of(product_id).order_by(releases.c.published_at, releases.c.id)
            )
            return [read_release(row) for row in rows]


def _lock_product(connection: Connection, product_id: int) -> None:
    """Let nobody else publish for this product until the transaction ends."""
    # With key_share, or whoever puts licenses of it into the books (an import may take minutes) keeps us out.
    lock = select(products.c.id).where(products.c.id == product_id).with_for_update(key_share=True)
    connection.execute(lock).all()


def _releases_of(product_id: int) -> Select[Any]:
    return select(releases, newest_manifest().label("manifest")).where(releases.c.product_id == product_id)


def _add_manifest(connection: Connection, release_id: int | None, document: str, now: datetime) -> None:
    row = {"release_id": release_id, "document": document, "added_at": now}
    connection.execute(insert(manifests).values(row))


def _choose_latest(connection: Connection, product_id: int) -> None:
    chosen = latest(read_release(row) for row in connection.execute(_releases_of(product_id)))
    manifest_id = None
    if chosen is not None:
        of_it = manifests.c.release_id == chosen.id
        manifest_id = connection.scalar(select(func.max(manifests.c.id)).where(of_it))
    connection.execute(
        update(products)
        .where(products.c.id == product_id)
        .values(latest_release_id=None if chosen is None else chosen.id, latest_manifest_id=manifest_id)
    )
