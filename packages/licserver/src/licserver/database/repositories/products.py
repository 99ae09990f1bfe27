"""Products and releases. What is missing or already there is a return value; services raise the error."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Row,
    ScalarSelect,
    Select,
    func,
    insert,
    select,
    update,
)

from licserver.database.repositories.base import Repository
from licserver.database.tables.licenses import (
    manifests,
    products,
    releases,
)
from licserver.domain.decisions import latest_by_platform
from licserver.domain.records import (
    NO_FIELDS,
    STABLE,
    Artifact,
    EnvironmentPolicy,
    Product,
    Release,
    Rollout,
    WordPressFields,
)

PRODUCTS: Final = (
    select(products, releases)
    .select_from(products)
    .outerjoin(releases, releases.c.id == products.c.latest_release_id)
)
"""Products as lists show them, for `read_product`."""


class ProductRepository(Repository):
    """Products with their latest releases."""

    def add(self, product: Product, now: datetime) -> bool:
        """Add a product, which gets its id; return False when the slug is taken."""
        row = {name: getattr(product, name) for name in _PRODUCT if name != "id"}
        return self._insert_unless_taken(products.insert().values(**row, created_at=now))

    def change(self, slug: str, **changes: Any) -> None:
        """Change columns of a product."""
        counted = {**changes, "release_changes": products.c.release_changes + 1}
        self._execute(update(products).where(products.c.slug == slug).values(counted))

    def find(self, slug: str) -> Product | None:
        """Load a product."""
        row = self._first(PRODUCTS.where(products.c.slug == slug))
        return None if row is None else read_product(row)

    def list_all(self) -> list[Product]:
        """Load all products, by slug."""
        return [read_product(row) for row in self._all(PRODUCTS.order_by(products.c.slug))]


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
        platform: str = "",
        channel: str = STABLE,
        rollout: Rollout | None = None,
        critical_below: str | None = None,
        wordpress: WordPressFields = NO_FIELDS,
        *,
        file_signatures: str | None = None,
    ) -> bool:
        """Add a release with its stored file.

        Return False when the version has a file for this platform, in any spelling, or is withdrawn.
        """
        with self._writing() as connection:
            lock_product(connection, product_id)
            same = (releases.c.product_id == product_id) & (releases.c.version_key == version_key)
            taken = (releases.c.platform == platform) | releases.c.withdrawn_at.is_not(None)
            if connection.scalar(select(func.count()).select_from(releases).where(same, taken)):
                return False
            added = connection.scalar(
                insert(releases)
                .values(
                    product_id=product_id,
                    version=version,
                    version_key=version_key,
                    changelog=changelog,
                    published_at=now,
                    platform=platform,
                    channel=channel,
                    critical_below=critical_below,
                    **artifact._asdict(),
                    **wordpress._asdict(),
                    file_signatures=file_signatures,
                    **_rollout_columns(rollout),
                )
                .returning(releases.c.id)
            )
            if manifest is not None:
                _add_manifest(connection, added, manifest, now)
            _choose_latest(connection, product_id)
            return True

    def withdraw(self, release: Release, now: datetime) -> None:
        """Withdraw all files of a release's version; one that is withdrawn already keeps its first date."""
        self._change(release, withdrawn_at=now)

    def promote(self, release: Release, channel: str) -> None:
        """Move all files of a release's version to another channel, unless they are withdrawn."""
        self._change(release, channel=channel)

    def set_rollout(self, release: Release, rollout: Rollout | None) -> None:
        """Replace or end the rollout of a release's version."""
        self._change(release, **_rollout_columns(rollout))

    def set_wordpress(self, release: Release, fields: WordPressFields) -> None:
        """Replace what WordPress shows of a release's version."""
        self._change(release, **fields._asdict())

    def _change(self, release: Release, **changes: Any) -> None:
        with self._writing() as connection:
            lock_product(connection, release.product_id)
            key = select(releases.c.version_key).where(releases.c.id == release.id).scalar_subquery()
            same = (releases.c.product_id == release.product_id, releases.c.version_key == key)
            offered = releases.c.withdrawn_at.is_(None)
            connection.execute(update(releases).where(*same, offered).values(changes))
            _choose_latest(connection, release.product_id)

    def renew_manifest(
        self, release: Release, manifest: str, now: datetime, file_signatures: str | None = None
    ) -> None:
        """Replace a release's manifest, and its file signatures if there are new ones.

        The very next update check returns the new one.
        """
        with self._writing() as connection:
            lock_product(connection, release.product_id)
            if file_signatures is not None:
                of_it = update(releases).where(releases.c.id == release.id)
                connection.execute(of_it.values(file_signatures=file_signatures))
            _add_manifest(connection, release.id, manifest, now)
            _choose_latest(connection, release.product_id)

    def list_files(self, product_id: int, version_key: str) -> list[Release]:
        """Load the files of one version by platform, so that the default is the first."""
        of_version = releases_of(product_id).where(releases.c.version_key == version_key)
        return [read_release(row) for row in self._all(of_version.order_by(releases.c.platform))]

    def list_all(self, product_id: int) -> list[Release]:
        """Load a product's releases, in the order of publication."""
        in_order = releases_of(product_id).order_by(releases.c.published_at, releases.c.id)
        return [read_release(row) for row in self._all(in_order)]


def _rollout_columns(rollout: Rollout | None) -> dict[str, Any]:
    plan, started_at, paused_at = rollout or (None, None, None)
    return {"rollout": plan, "rollout_started_at": started_at, "rollout_paused_at": paused_at}


def lock_product(connection: Connection, product_id: int) -> None:
    """Block other publications and new trials of this product until the transaction ends."""
    # With key_share: otherwise an import of its licenses, which may take minutes, would block this.
    lock = select(products.c.id).where(products.c.id == product_id).with_for_update(key_share=True)
    connection.execute(lock).all()


def releases_of(product_id: int) -> Select[Any]:
    """All releases of a product, for `read_release`."""
    return select(releases, newest_manifest().label("manifest")).where(releases.c.product_id == product_id)


def _add_manifest(connection: Connection, release_id: int | None, document: str, now: datetime) -> None:
    row = {"release_id": release_id, "document": document, "added_at": now}
    connection.execute(insert(manifests).values(row))


def _choose_latest(connection: Connection, product_id: int) -> None:
    """Choose the release that lists show, and count the change, so that servers read the product anew."""
    offered = latest_by_platform([read_release(row) for row in connection.execute(releases_of(product_id))])
    # A product without default files is shown with the newest file of a platform.
    shown = offered.get("") or max(offered.values(), key=lambda one: one.id, default=None)
    connection.execute(
        update(products)
        .where(products.c.id == product_id)
        .values(
            latest_release_id=None if shown is None else shown.id,
            release_changes=products.c.release_changes + 1,
        )
    )


def newest_manifest() -> ScalarSelect[Any]:
    """The manifest of a release that is selected: of all its documents the newest."""
    of_it = select(manifests.c.document).where(manifests.c.release_id == releases.c.id)
    return of_it.order_by(manifests.c.id.desc()).limit(1).scalar_subquery()


_PRODUCT: Final = [name for name in Product._fields if name in products.c]
_RELEASE: Final = [name for name in Release._fields if name in releases.c]


def read_release(row: Row[Any]) -> Release:
    """Read a row of `releases` into the record, with the manifest if it was selected."""
    columns = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for access by column
    values = {name: columns[releases.c[name]] for name in _RELEASE}
    plan, *times = (columns[releases.c[name]] for name in _rollout_columns(None))
    values["rollout"] = None if plan is None else Rollout(plan, *times)
    for name, record in (("artifact", Artifact), ("wordpress", WordPressFields)):
        values[name] = record(*(columns[releases.c[field]] for field in record._fields))
    return Release(manifest=columns.get("manifest"), **values)  # only where it was asked for


def read_product(row: Row[Any]) -> Product:
    """Read a row of `products`, joined with its latest release, into the record."""
    columns = row._mapping  # noqa: SLF001 - as above
    values = {name: columns[products.c[name]] for name in _PRODUCT}
    values["policy"] = EnvironmentPolicy(values["policy"])
    return Product(latest=None if columns[releases.c.id] is None else read_release(row), **values)
