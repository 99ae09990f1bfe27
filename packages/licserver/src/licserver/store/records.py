"""The vendor's books: products, releases, licenses and what becomes of them.

Each method is one transaction. What is missing or already there is a return value, never a
half-written state; `licserver.vendor` turns it into words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, CursorResult, Row, Select, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from licserver.model import Artifact, Environment, EnvironmentPolicy, Product, Release
from licserver.rules import latest
from licserver.store.asks import RowWriter
from licserver.store.engine import Database
from licserver.store.rows import newest_manifest, read_product, read_release, split_entries
from licserver.store.tables import activations, licenses, manifests, products, releases


@dataclass(frozen=True, slots=True)
class NewLicense:
    """A license about to be issued; `sealed_key` and `id` come from the vault."""

    id: bytes
    sealed_key: bytes
    product_id: int
    product_name: str
    issued_at: datetime
    expires_on: date | None
    lifetime: bool
    slots: int | None
    allowed: tuple[str, ...]
    subscription_id: str | None
    subscription_ended_at: datetime | None
    support_until: date | None


@dataclass(frozen=True, slots=True)
class IssuedLicense:
    """A license as the vendor sees it."""

    id: bytes
    sealed_key: bytes
    product_slug: str
    product_name: str
    issued_at: datetime
    expires_on: date | None
    lifetime: bool
    revoked_at: datetime | None
    revoked_reason: str | None
    slots: int | None
    slots_used: int
    allowed: tuple[str, ...]
    subscription_id: str | None
    subscription_ended_at: datetime | None
    support_until: date | None


# A vendor issues a million at once, and through Core half the time would be Core's.
_LICENSES = RowWriter(licenses)
_in_order = itemgetter(*licenses.columns.keys())
_PRODUCTS = select(products, releases).outerjoin(releases, releases.c.id == products.c.latest_release_id)

_ISSUED = select(
    licenses,
    products.c.slug,
    select(func.count())
    .where(activations.c.license_id == licenses.c.id)
    .scalar_subquery()
    .label("slots_used"),
).join(products, products.c.id == licenses.c.product_id)


class Records:
    """Reads and writes the vendor's books.

    Every method raises `StoreUnavailable` when the database fails; then nothing has changed.

    Args:
        database: Shared with the public endpoints: the very next request sees a change.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

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

    def rename_product(self, slug: str, name: str) -> bool:
        """Change a product's name; False when there is no such product."""
        return self._update(update(products).where(products.c.slug == slug).values(name=name)) == 1

    def product(self, slug: str) -> Product | None:
        """Load a product with its latest release."""
        with self._database.reading() as connection:
            row = connection.execute(_PRODUCTS.where(products.c.slug == slug)).first()
        return None if row is None else read_product(row)

    def products(self) -> list[Product]:
        """Load all products, by slug."""
        with self._database.reading() as connection:
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
        with self._database.writing() as connection:
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
        with self._database.writing() as connection:
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
        with self._database.writing() as connection:
            _lock_product(connection, release.product_id)
            _add_manifest(connection, release.id, manifest, now)
            _choose_latest(connection, release.product_id)

    def releases(self, product_id: int) -> list[Release]:
        """Load a product's releases, in the order of publication."""
        with self._database.reading() as connection:
            rows = connection.execute(
                _releases_of(product_id).order_by(releases.c.published_at, releases.c.id)
            )
            return [read_release(row) for row in rows]

    # --- licenses -----------------------------------------------------------------------------

    def issue(self, issued: Sequence[NewLicense]) -> None:
        """Write new licenses, all of them or none."""
        rows = [
            {
                "id": new.id,
                "sealed_key": new.sealed_key,
                "product_id": new.product_id,
                "product_name": new.product_name,
                "issued_at": new.issued_at,
                "expires_on": new.expires_on,
                "lifetime": new.lifetime,
                "revoked_at": None,
                "revoked_reason": None,
                "slots": new.slots,
                "allowed": "\n".join(new.allowed),
                "subscription_id": new.subscription_id,
                "subscription_ended_at": new.subscription_ended_at,
                "support_until": new.support_until,
                "customer_email": None,
                "note": None,
            }
            for new in sorted(issued, key=lambda new: new.id)  # in the index's order: half the page writes
        ]
        with self._database.writing() as connection:
            _LICENSES.write(connection, list(map(_in_order, rows)))

    def license(self, license_id: bytes) -> IssuedLicense | None:
        """Load one license."""
        with self._database.reading() as connection:
            row = connection.execute(_ISSUED.where(licenses.c.id == license_id)).first()
        return None if row is None else _read_issued(row)

    def licenses(self, product_id: int | None = None) -> Iterator[IssuedLicense]:
        """Load all licenses, or those of one product, by the instant of issue, a page at a time."""
        statement = _ISSUED.order_by(licenses.c.issued_at, licenses.c.id)
        if product_id is not None:
            statement = statement.where(licenses.c.product_id == product_id)
        with self._database.reading() as connection:
            for row in connection.execution_options(yield_per=1000).execute(statement):
                yield _read_issued(row)

    def activations(self, license_id: bytes) -> list[tuple[Environment, datetime]]:
        """Load a license's activations with the instants at which they took their slots."""
        with self._database.reading() as connection:
            rows = connection.execute(
                select(activations)
                .where(activations.c.license_id == license_id)
                .order_by(activations.c.activated_at, activations.c.domain, activations.c.ip)
            )
            return [(Environment(row.domain, row.ip), row.activated_at) for row in rows]

    def revoke(self, license_id: bytes, reason: str | None, now: datetime) -> None:
        """Revoke a license; one that is revoked already keeps its first date and reason."""
        self._update(
            update(licenses)
            .where(licenses.c.id == license_id, licenses.c.revoked_at.is_(None))
            .values(revoked_at=now, revoked_reason=reason)
        )

    def reinstate(self, license_id: bytes) -> None:
        """Take a revocation back."""
        self._update(
            update(licenses).where(licenses.c.id == license_id).values(revoked_at=None, revoked_reason=None)
        )

    def deactivate(self, license_id: bytes, domain: str | None, ip: str | None) -> int:
        """Remove the activations of a domain or of an address, and say how many slots that freed."""
        with self._database.writing() as connection:
            _lock_licenses(connection, licenses.c.id == license_id)
            result = connection.execute(
                activations.delete().where(
                    activations.c.license_id == license_id,
                    or_(activations.c.domain == domain, activations.c.ip == ip),
                )
            )
            return result.rowcount

    def allow(self, license_id: bytes, entry: str) -> bool:
        """Add an owner's entry; False when it is there already."""
        with self._database.writing() as connection:
            row = licenses.c.id == license_id
            held = split_entries(
                connection.execute(select(licenses.c.allowed).where(row).with_for_update()).scalar_one()
            )
            if entry in held:
                return False
            connection.execute(update(licenses).where(row).values(allowed="\n".join((*held, entry))))
            return True

    # --- subscriptions ------------------------------------------------------------------------

    def end_subscription(self, subscription_id: str, at: datetime) -> int:
        """Note when a subscription ends on all its licenses, and say how many they are."""
        hangs = licenses.c.subscription_id == subscription_id
        with self._database.writing() as connection:
            _lock_licenses(connection, hangs)
            result = connection.execute(update(licenses).where(hangs).values(subscription_ended_at=at))
            return result.rowcount

    def subscription_ended_at(self, subscription_id: str) -> datetime | None:
        """When a subscription ended or will end, as far as its licenses tell."""
        with self._database.reading() as connection:
            ended_at: datetime | None = connection.scalar(
                select(func.max(licenses.c.subscription_ended_at)).where(
                    licenses.c.subscription_id == subscription_id
                )
            )
            return ended_at

    # --- within -------------------------------------------------------------------------------

    def _update(self, statement: Any) -> int:
        with self._database.writing() as connection:
            return cast("CursorResult[Any]", connection.execute(statement)).rowcount

    def _insert_unless_taken(self, statement: Any) -> bool:
        with self._database.writing() as connection:
            try:
                with connection.begin_nested():
                    connection.execute(statement)
            except IntegrityError:
                return False
            return True


def _lock_product(connection: Connection, product_id: int) -> None:
    """Let nobody else publish for this product until the transaction ends."""
    connection.execute(select(products.c.id).where(products.c.id == product_id).with_for_update()).all()


def _lock_licenses(connection: Connection, which: ColumnElement[bool]) -> None:
    """Lock licenses in the order in which claims do, so that no two transactions wait for each other."""
    connection.execute(select(licenses.c.id).where(which).order_by(licenses.c.id).with_for_update()).all()


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


def _read_issued(row: Row[Any]) -> IssuedLicense:
    return IssuedLicense(
        id=row.id,
        sealed_key=row.sealed_key,
        product_slug=row.slug,
        product_name=row.product_name,
        issued_at=row.issued_at,
        expires_on=row.expires_on,
        lifetime=row.lifetime,
        revoked_at=row.revoked_at,
        revoked_reason=row.revoked_reason,
        slots=row.slots,
        slots_used=row.slots_used,
        allowed=split_entries(row.allowed),
        subscription_id=row.subscription_id,
        subscription_ended_at=row.subscription_ended_at,
        support_until=row.support_until,
    )
