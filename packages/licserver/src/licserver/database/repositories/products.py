"""Products and releases. What is missing or already there is a return value; services raise the error."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, ScalarSelect, Select, func, insert, select, update

from licserver.database.repositories.base import Repository
from licserver.database.tables import manifests, products, releases
from licserver.domain.decisions import latest
from licserver.domain.records import Artifact, EnvironmentPolicy, Product, Release

_PRODUCTS: Final = select(products, releases).outerjoin(
    releases, releases.c.id == products.c.latest_release_id
)


class ProductRepository(Repository):
    """Products with their latest releases."""

    def add(
        self,
        slug: str,
        name: str,
        policy: EnvironmentPolicy,
        now: datetime,
        *,
        has_support_policy: bool,
        accepts_imported_keys: bool = False,
    ) -> bool:
        """Add a product; return False when the slug is taken."""
        row = {
            "slug": slug,
            "name": name,
            "environment_policy": policy.value,
            "has_support_policy": has_support_policy,
            "accepts_imported_keys": accepts_imported_keys,
            "created_at": now,
        }
        return self._insert_unless_taken(products.insert().values(row))

    def change(self, slug: str, **changes: Any) -> None:
        """Change columns of a product."""
        self._execute(update(products).where(products.c.slug == slug).values(changes))

    def find(self, slug: str) -> Product | None:
        """Load a product."""
        row = self._first(_PRODUCTS.where(products.c.slug == slug))
        return None if row is None else read_product(row)

    def list_all(self) -> list[Product]:
        """Load all products, by slug."""
        return [read_product(row) for row in self._all(_PRODUCTS.order_by(products.c.slug))]


class ReleaseRepository(Repository):
    """Releases of products."""

    def add(
        self,
        product_id: int,
        version: str,
        version_key: str,
        changelog: str,
        artifact: Artifact,
        now: datetime,
        manifest: str | None = None,
    ) -> bool:
        """Add a release with its stored file; return False when the version exists, in any spelling."""
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

    def withdraw(self, release: Release, now: datetime) -> None:
        """Withdraw a release; one that is withdrawn already keeps its first date."""
        with self._writing() as connection:
            _lock_product(connection, release.product_id)
            same = (releases.c.id == release.id, releases.c.withdrawn_at.is_(None))
            connection.execute(update(releases).where(*same).values(withdrawn_at=now))
            _choose_latest(connection, release.product_id)

    def renew_manifest(self, release: Release, manifest: str, now: datetime) -> None:
        """Replace a release's manifest; the very next update check returns the new one."""
        with self._writing() as connection:
            _lock_product(connection, release.product_id)
            _add_manifest(connection, release.id, manifest, now)
            _choose_latest(connection, release.product_id)

    def find(self, product_id: int, version_key: str) -> Release | None:
        """Load one release."""
        row = self._first(_releases_of(product_id).where(releases.c.version_key == version_key))
        return None if row is None else read_release(row)

    def list_all(self, product_id: int) -> list[Release]:
        """Load a product's releases, in the order of publication."""
        with self._reading() as connection:
            rows = connection.execute(
                _releases_of(product_id).order_by(releases.c.published_at, releases.c.id)
            )
            return [read_release(row) for row in rows]


def _lock_product(connection: Connection, product_id: int) -> None:
    """Block other publications for this product until the transaction ends."""
    # With key_share: otherwise an import of its licenses, which may take minutes, would block this.
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
        accepts_imported_keys=columns[products.c.accepts_imported_keys],
    )
