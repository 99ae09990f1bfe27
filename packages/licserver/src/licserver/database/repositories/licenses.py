"""Licenses, their activations and their subscriptions in the vendor's books.

As in `products`: each method is one transaction, and what is missing is a return value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, func, literal, or_, select, tuple_, update

from licserver.database.bulk import BulkWriter
from licserver.database.repositories.base import Repository
from licserver.database.rows import split_entries
from licserver.database.tables import activations, license_words, licenses, products
from licserver.domain.records import Environment
from licserver.domain.search_words import extract_words


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
    customer_email: str | None = None
    note: str | None = None


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
    customer_email: str | None
    note: str | None


class Activation(NamedTuple):
    """A slot that is taken; `last_seen_at` is noted once a day."""

    environment: Environment
    activated_at: datetime
    last_seen_at: datetime | None


# A vendor issues a million at once, and through Core half the time would be Core's.
_LICENSES = BulkWriter(licenses)
_WORDS = BulkWriter(license_words)
_in_order = itemgetter(*licenses.columns.keys())
_ISSUED = select(
    licenses,
    products.c.slug,
    select(func.count())
    .where(activations.c.license_id == licenses.c.id)
    .scalar_subquery()
    .label("slots_used"),
).join(products, products.c.id == licenses.c.product_id)


class LicenseRepository(Repository):
    """Licenses, activations and subscriptions."""

    # --- licenses -----------------------------------------------------------------------------

    def add_all(self, issued: Sequence[NewLicense]) -> None:
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
                "customer_email": new.customer_email,
                "note": new.note,
            }
            for new in sorted(issued, key=lambda new: new.id)  # in the index's order: half the page writes
        ]
        with self._writing() as connection:
            _LICENSES.write(connection, list(map(_in_order, rows)))
            if words := [row for new in issued for row in _word_rows(new.id, new.customer_email, new.note)]:
                _WORDS.write(connection, sorted(words))

    def find(self, license_id: bytes, *, locked: bool = False) -> IssuedLicense | None:
        """Load one license.

        Args:
            license_id: Its id.
            locked: Let nobody else change it until the transaction ends (`together`).
        """
        with self._reading() as connection:
            if locked:
                lock_licenses(connection, licenses.c.id == license_id)
            row = connection.execute(_ISSUED.where(licenses.c.id == license_id)).first()
        return None if row is None else _read_issued(row)

    def find_all(self, ids: Sequence[bytes]) -> list[IssuedLicense]:
        """Load licenses, in the order asked; what is not there is left out."""
        with self._reading() as connection:
            rows = connection.execute(_ISSUED.where(licenses.c.id.in_(ids)))
            found = {row.id: _read_issued(row) for row in rows}
        return [found[one] for one in ids if one in found]

    def list_all(self, product_id: int | None = None) -> Iterator[IssuedLicense]:
        """Load all licenses, or those of one product, by the instant of issue, a page at a time."""
        statement = _ISSUED.order_by(licenses.c.issued_at, licenses.c.id)
        if product_id is not None:
            statement = statement.where(licenses.c.product_id == product_id)
        with self._reading() as connection:
            for row in connection.execution_options(yield_per=1000).execute(statement):
                yield _read_issued(row)

    def list_activations(self, license_id: bytes) -> list[tuple[Environment, datetime]]:
        """Load a license's activations with the instants at which they took their slots."""
        with self._reading() as connection:
            rows = connection.execute(
                select(activations)
                .where(activations.c.license_id == license_id)
                .order_by(activations.c.activated_at, activations.c.domain, activations.c.ip)
            )
            return [(Environment(row.domain, row.ip), row.activated_at) for row in rows]

    def list_activations_page(
        self, license_id: bytes, after: tuple[str, str] | None, limit: int
    ) -> list[Activation]:
        """Load activations by domain and address, from one on.

        Args:
            license_id: The license's.
            after: Domain and address of the last one that is known, or None.
            limit: How many at most.
        """
        key = tuple_(activations.c.domain, activations.c.ip)
        statement = select(activations).where(activations.c.license_id == license_id)
        if after is not None:
            statement = statement.where(key > tuple_(*map(literal, after)))
        with self._reading() as connection:
            rows = connection.execute(statement.order_by(activations.c.domain, activations.c.ip).limit(limit))
            return [
                Activation(Environment(row.domain, row.ip), row.activated_at, row.last_seen_at)
                for row in rows
            ]

    def revoke(self, license_id: bytes, reason: str | None, now: datetime) -> None:
        """Revoke a license; one that is revoked already keeps its first date and reason."""
        self._execute(
            update(licenses)
            .where(licenses.c.id == license_id, licenses.c.revoked_at.is_(None))
            .values(revoked_at=now, revoked_reason=reason)
        )

    def reinstate(self, license_id: bytes) -> None:
        """Take a revocation back."""
        self._execute(
            update(licenses).where(licenses.c.id == license_id).values(revoked_at=None, revoked_reason=None)
        )

    def deactivate(self, license_id: bytes, domain: str | None, ip: str | None) -> int:
        """Remove the activations of a domain or of an address, and say how many slots that freed."""
        with self._writing() as connection:
            lock_licenses(connection, licenses.c.id == license_id)
            result = connection.execute(
                activations.delete().where(
                    activations.c.license_id == license_id,
                    or_(activations.c.domain == domain, activations.c.ip == ip),
                )
            )
            return result.rowcount

    def remove_activation(self, license_id: bytes, environment: Environment) -> bool:
        """Remove one activation; False when there is none like it."""
        domain, ip = environment
        with self._writing() as connection:
            lock_licenses(connection, licenses.c.id == license_id)
            result = connection.execute(
                activations.delete().where(
                    activations.c.license_id == license_id,
                    activations.c.domain == domain,
                    activations.c.ip == ip,
                )
            )
            return result.rowcount > 0

    def change(self, before: IssuedLicense, **changes: Any) -> None:
        """Change what is agreed.

        Args:
            before: The license, locked.
            **changes: Fields of `IssuedLicense`, with what they are to hold.
        """
        if "allowed" in changes:
            changes["allowed"] = "\n".join(changes["allowed"])
        with self._writing() as connection:
            connection.execute(update(licenses).where(licenses.c.id == before.id).values(**changes))
            old = {*_word_rows(before.id, before.customer_email, before.note)}
            email, note = (changes.get(name, getattr(before, name)) for name in ("customer_email", "note"))
            new = {*_word_rows(before.id, email, note)}
            if gone := [word for word, _ in old - new]:
                of_it = license_words.c.license_id == before.id
                connection.execute(license_words.delete().where(license_words.c.word.in_(gone), of_it))
            if added := sorted(new - old):
                _WORDS.write(connection, added)


def lock_licenses(connection: Connection, which: ColumnElement[bool]) -> None:
    """Lock licenses in the order in which claims do, so that no two transactions wait for each other."""
    connection.execute(select(licenses.c.id).where(which).order_by(licenses.c.id).with_for_update()).all()


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
        customer_email=row.customer_email,
        note=row.note,
    )


def _word_rows(license_id: bytes, email: str | None, note: str | None) -> list[tuple[str, bytes]]:
    return [(word, license_id) for word in extract_words(email, note)] if email or note else []
