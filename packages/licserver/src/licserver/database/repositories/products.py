"""Products, their plans and releases. What is missing or taken is a return value; services raise."""

from collections.abc import Collection
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Row,
    ScalarSelect,
    Select,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from licserver.database.repositories.base import Repository, matching
from licserver.database.tables.licenses import (
    activations,
    licenses,
    manifests,
    patches,
    plans,
    products,
    releases,
    rollbacks,
)
from licserver.database.tables.sales import sale_mappings
from licserver.domain.channel_offers import latest_by_platform
from licserver.domain.entitlements import Plan, dump, load
from licserver.domain.records import (
    NO_FIELDS,
    AfterSupport,
    Artifact,
    EnvironmentPolicy,
    FileKind,
    Product,
    Release,
    Rollout,
    WordPressFields,
)
from licserver.domain.security_notices import load_notice

PRODUCTS: Final = (
    select(products, releases)
    .select_from(products)
    .outerjoin(releases, releases.c.id == products.c.latest_release_id)
)
"""Products as lists show them, for `read_product`."""

_FIND: Final = PRODUCTS.where(products.c.slug == bindparam("slug"))


class ProductRepository(Repository):
    """Products with their latest releases."""

    def add(self, product: Product, now: datetime) -> bool:
        """Add a product, which gets its id; return False when the slug is taken."""
        row = {name: getattr(product, name) for name in _PRODUCT if name != "id"}
        return self._insert_unless_taken(products.insert().values(**row, created_at=now))

    def change(self, slug: str, **changes: Any) -> None:
        """Change columns of a product."""
        self._execute(update(products).where(products.c.slug == slug).values(changes))

    def lock_name(self, name: str) -> list[str]:
        """Keep others from giving a product this name until commit; return the slugs that have it."""
        with self._writing() as connection:
            if self._database.is_remote:  # else the whole file is locked; there may be no row yet to lock
                lock = func.pg_advisory_xact_lock(func.hashtextextended(name, 0))
                connection.execute(select(lock))
            of_name = select(products.c.slug).where(products.c.name == name).order_by(products.c.slug)
            return list(connection.scalars(of_name))

    def find(self, slug: str) -> Product | None:
        """Load a product."""
        return self._find(_FIND, read_product, slug=slug)

    def list_all(self) -> list[Product]:
        """Load all products, by slug."""
        return [read_product(row) for row in self._all(PRODUCTS.order_by(products.c.slug))]


class PlanRepository(Repository):
    """Plans of products."""

    def add(self, plan: Plan, now: datetime) -> bool:
        """Add a plan; return False when the product has one of this name."""
        row = {**plan._asdict(), "entitlements": dump(plan.entitlements), "created_at": now}
        return self._insert_unless_taken(insert(plans).values(row))

    def replace(self, plan: Plan) -> None:
        """Change what a plan grants."""
        of_it = matching(plans, product_id=plan.product_id, name=plan.name)
        self._execute(update(plans).where(of_it).values(entitlements=dump(plan.entitlements)))

    def remove(self, product_id: int, name: str) -> None:
        """Delete a plan."""
        self._execute(delete(plans).where(matching(plans, product_id=product_id, name=name)))

    def find(self, product_id: int, name: str, *, locked: bool = False) -> Plan | None:
        """Load a plan; others cannot change, remove or choose a `locked` one until the transaction ends."""
        statement = select(plans).where(matching(plans, product_id=product_id, name=name))
        return self._find(statement.with_for_update() if locked else statement, _read_plan)

    def list_all(self, product_id: int) -> list[Plan]:
        """Load the plans of a product, by name."""
        statement = select(plans).where(plans.c.product_id == product_id).order_by(plans.c.name)
        return list(map(_read_plan, self._all(statement)))

    def lock(self, product_id: int, names: Collection[str]) -> set[str]:
        """Keep plans from being removed until the transaction ends; return the names that exist."""
        of_them = plans.c.product_id == product_id, plans.c.name.in_(sorted(names))
        locked = select(plans.c.name).where(*of_them).order_by(plans.c.name)
        return {row.name for row in self._all(locked.with_for_update(read=True, key_share=True))}

    def count_uses(self, product_id: int, name: str) -> tuple[int, int]:
        """Return how many licenses have a plan, and how many mappings of shops give it."""
        of_licenses, of_mappings = (
            self._scalar(select(func.count()).where(matching(table, product_id=product_id, plan=name)))
            for table in (licenses, sale_mappings)
        )
        return of_licenses, of_mappings


def _read_plan(row: Row[Any]) -> Plan:
    return Plan(row.product_id, row.name, load(row.entitlements) or {})


class ReleaseRepository(Repository):
    """Releases of products, with the patches that lead to them."""

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
        rollout: Rollout | None = None,
        wordpress: WordPressFields = NO_FIELDS,
        kind: FileKind = FileKind.FOLDER,
        **more: str | None,
    ) -> bool:
        """Add a release with its stored file; `more` are other columns.

        Return False when the version has a file of this platform and kind, in any spelling, or is withdrawn.
        """
        with self._writing() as connection:
            lock_product(connection, product_id)
            same = matching(releases, product_id=product_id, version_key=version_key)
            taken = matching(releases, platform=platform, kind=kind) | releases.c.withdrawn_at.is_not(None)
            if connection.scalar(select(func.count()).select_from(releases).where(same, taken)):
                return False
            row = {"product_id": product_id, "version": version, "version_key": version_key}
            row |= {"changelog": changelog, "published_at": now, **more}
            row |= {"platform": platform, "kind": kind}
            row |= artifact._asdict() | wordpress._asdict() | _rollout_columns(rollout)
            added = connection.scalar(insert(releases).values(row).returning(releases.c.id))
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

    def set_security(self, release: Release, notice: str | None) -> None:
        """Replace the security notice of a release's version."""
        self._change(release, security=notice)

    def _change(self, release: Release, **changes: Any) -> None:
        with self._writing() as connection:
            lock_product(connection, release.product_id)
            key = select(releases.c.version_key).where(releases.c.id == release.id).scalar_subquery()
            offered = matching(releases, product_id=release.product_id, version_key=key, withdrawn_at=None)
            connection.execute(update(releases).where(offered).values(changes))
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
        """Load the files of one version by platform and kind, so that the default is the first."""
        of_version = releases_of(product_id).where(releases.c.version_key == version_key)
        order = (
            releases.c.platform,
            case({kind: index for index, kind in enumerate(FileKind)}, value=releases.c.kind),
        )
        return [read_release(row) for row in self._all(of_version.order_by(*order))]

    def list_all(self, product_id: int) -> list[Release]:
        """Load a product's releases, in the order of publication."""
        in_order = releases_of(product_id).order_by(releases.c.published_at, releases.c.id)
        return [read_release(row) for row in self._all(in_order)]

    def add_patch(self, release: Release, base_sha256: bytes, patch: Artifact) -> None:
        """Add a stored patch to a release, unless another process has just done so."""
        row: dict[str, Any] = {"release_id": release.id, "base_sha256": base_sha256}
        self._insert_unless_taken(insert(patches).values(**row, size=patch.size, sha256=patch.sha256))

    def list_patches(self, release: Release) -> dict[bytes, Artifact]:
        """Load a release's patches, by the digests of the files that they start from."""
        name = release.artifact.file_name
        rows = self._all(select(patches).where(patches.c.release_id == release.id))
        return {row.base_sha256: Artifact(name, row.size, row.sha256) for row in rows}

    def add_rollback(
        self, release_id: int, license_id: bytes, domain: str, now: datetime, exit_code: int | None = None
    ) -> bool:
        """Store that an installation went back from a release to the version before.

        Return False for an installation without an activation, and for a repeated report.
        """
        is_active = matching(activations, license_id=license_id, domain=domain)
        if self._first(select(activations.c.domain).where(is_active).limit(1)) is None:
            return False
        installation = sha256(license_id + domain.encode()).digest()[:16]
        row = {"release_id": release_id, "installation": installation, "reported_at": now}
        return self._insert_unless_taken(insert(rollbacks).values(row | {"exit_code": exit_code}))

    def count_rollbacks(self, release_ids: Collection[int]) -> int:
        """Count the installations that went back from any of these releases."""
        meant = rollbacks.c.release_id.in_(release_ids)
        return self._scalar(select(func.count()).select_from(rollbacks).where(meant)) or 0

    def count_exit_codes(self, release_ids: Collection[int], limit: int) -> dict[int, int]:
        """Count these installations by the exit code of their set-up, the most frequent codes first."""
        code, count = rollbacks.c.exit_code, func.count()
        meant = (rollbacks.c.release_id.in_(release_ids), code.is_not(None))
        counted = select(code, count).where(*meant).group_by(code).order_by(count.desc(), code).limit(limit)
        return {row[0]: row[1] for row in self._all(counted)}


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
    """Choose the release that lists show; servers read the product anew (its `release_changes`)."""
    offered = latest_by_platform([read_release(row) for row in connection.execute(releases_of(product_id))])
    # A product without default files is shown with the newest file of a platform.
    shown = offered.get("") or max(offered.values(), key=lambda release: release.id, default=None)
    connection.execute(
        update(products)
        .where(products.c.id == product_id)
        .values(latest_release_id=None if shown is None else shown.id)
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
    values["security"] = load_notice(values["security"])
    values["kind"] = FileKind(values["kind"])
    return Release(manifest=columns.get("manifest"), **values)  # only on request


def read_product(row: Row[Any]) -> Product:
    """Read a row of `products`, joined with its latest release, into the record."""
    columns = row._mapping  # noqa: SLF001 - as above
    values = {name: columns[products.c[name]] for name in _PRODUCT}
    values["policy"] = EnvironmentPolicy(values["policy"])
    values["after_support"] = AfterSupport(values["after_support"])
    return Product(candidates=() if columns[releases.c.id] is None else (read_release(row),), **values)
