"""What the public endpoints ask of the database, for many requests at a time.

One statement serves everybody who waits. No rule stands here: a claim brings the judge along that
has the last word on the locked record.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    case,
    func,
    insert,
    literal,
    or_,
    select,
)

from licserver.model import Environment, EnvironmentPolicy, License, Product, Release
from licserver.rules import Valid, VerifyVerdict
from licserver.store.engine import Database
from licserver.store.rows import read_product, read_release, split_entries
from licserver.store.tables import activations, licenses, products, releases


@dataclass(frozen=True, slots=True)
class Sighting:
    """A license is asked for from an environment."""

    license_id: bytes
    environment: Environment


@dataclass(frozen=True, slots=True)
class Claim:
    """A license's slot is wanted for an environment.

    Args:
        sighting: Who asks, and from where.
        judge: Called with the locked record, or None; its verdict is final.
        now: The instant to note on the activation.
    """

    sighting: Sighting
    judge: Callable[[License | None], VerifyVerdict]
    now: datetime


@dataclass(frozen=True, slots=True)
class UpdateAsk:
    """An update of a product is asked for; None stands for a key that has not even the shape of one."""

    license_id: bytes | None
    slug: str


_slots_used = (
    select(func.count())
    .select_from(activations)
    .where(activations.c.license_id == licenses.c.id)
    .correlate(licenses)
    .scalar_subquery()
)

_LICENSE_COLUMNS: list[ColumnElement[Any]] = [
    licenses.c.id,
    licenses.c.product_id,
    licenses.c.product_name,
    products.c.environment_policy,
    licenses.c.expires_on,
    licenses.c.lifetime,
    licenses.c.revoked_at,
    licenses.c.slots,
    licenses.c.allowed,
    licenses.c.subscription_ended_at,
    licenses.c.support_until,
]

_LICENSES = (
    select(*_LICENSE_COLUMNS, literal(0).label("slots_used"))
    .join(products, products.c.id == licenses.c.product_id)
    .where(licenses.c.id.in_(bindparam("ids", expanding=True)))
)

# Of the activations only those that share a half with somebody who waits: a key without a limit may
# have a hundred thousand. Nobody counts the slots of such a key either.
_SIGHTINGS = (
    select(
        *_LICENSE_COLUMNS,
        case((licenses.c.slots.is_(None), 0), else_=_slots_used).label("slots_used"),
        activations.c.domain,
        activations.c.ip,
    )
    .join(products, products.c.id == licenses.c.product_id)
    .outerjoin(
        activations,
        and_(
            activations.c.license_id == licenses.c.id,
            or_(
                activations.c.domain.in_(bindparam("domains", expanding=True)),
                activations.c.ip.in_(bindparam("ips", expanding=True)),
            ),
        ),
    )
    .where(licenses.c.id.in_(bindparam("ids", expanding=True)))
)

# In order, so that two transactions that want the same licenses cannot wait for each other.
_LOCK = (
    select(licenses.c.id)
    .where(licenses.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(licenses.c.id)
    .with_for_update()
)

_PRODUCTS = (
    select(products, releases)
    .outerjoin(releases, releases.c.id == products.c.latest_release_id)
    .where(products.c.slug.in_(bindparam("slugs", expanding=True)))
)

_RELEASES = select(releases).where(releases.c.id.in_(bindparam("ids", expanding=True)))


class BatchStore:
    """Answers lookups and admits environments, a batch at a time.

    Args:
        database: Shared with the vendor's operations.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def look_up(self, sightings: Sequence[Sighting]) -> list[License | None]:
        """Load the licenses that are asked for, in the order asked.

        Raises:
            StoreUnavailable: when the database fails.
        """
        with self._database.reading() as connection:
            found = _load_sightings(connection, sightings)
        return [found.get(sighting.license_id) for sighting in sightings]

    def admit(self, claims: Sequence[Claim]) -> list[VerifyVerdict | Exception]:
        """Judge claims on locked records and note the activations of those that are granted (D-08).

        All claims share one durable transaction. Each sees what the ones before it took, so that
        the same new environment asked for many times at once takes one slot.

        Args:
            claims: In the order in which they came.

        Returns:
            The verdicts in that order; in the place of a claim whose judge failed, the exception.

        Raises:
            StoreUnavailable: when the database fails; then no claim was granted.
        """
        verdicts: list[VerifyVerdict | Exception] = []
        granted: list[dict[str, Any]] = []
        sightings = [claim.sighting for claim in claims]
        with self._database.writing() as connection:
            # The lock is a statement of its own: what a statement reads beside the rows that it
            # waited for may be older than the lock.
            connection.execute(_LOCK, {"ids": list({sighting.license_id for sighting in sightings})}).all()
            held = _load_sightings(connection, sightings)
            for claim in claims:
                license_id, environment = claim.sighting.license_id, claim.sighting.environment
                try:
                    verdict = claim.judge(held.get(license_id))
                except Exception as error:  # noqa: BLE001 - belongs to this claim, its neighbours go on
                    verdicts.append(error)
                    continue
                verdicts.append(verdict)
                if isinstance(verdict, Valid) and verdict.takes_slot:
                    held[license_id] = _with_activation(verdict.license, environment)
                    granted.append(
                        {
                            "license_id": license_id,
                            "domain": environment.domain,
                            "ip": environment.ip,
                            "activated_at": claim.now,
                        }
                    )
            if granted:
                connection.execute(insert(activations), granted)
        return verdicts

    def look_up_updates(self, asks: Sequence[UpdateAsk]) -> list[tuple[License | None, Product | None]]:
        """Load the licenses and the products that update checks name, in the order asked.

        Raises:
            StoreUnavailable: when the database fails.
        """
        ids = list({ask.license_id for ask in asks if ask.license_id is not None})
        with self._database.reading() as connection:
            found = _load_licenses(connection, ids)
            rows = connection.execute(_PRODUCTS, {"slugs": list({ask.slug for ask in asks})}) if found else ()
            by_slug = {product.slug: product for product in map(read_product, rows)}
        return [
            (found.get(ask.license_id) if ask.license_id is not None else None, by_slug.get(ask.slug))
            for ask in asks
        ]

    def look_up_download(self, license_id: bytes, release_id: int) -> tuple[License | None, Release | None]:
        """Load the license and the release that a download link names.

        Raises:
            StoreUnavailable: when the database fails.
        """
        with self._database.reading() as connection:
            found = _load_licenses(connection, [license_id])
            row = connection.execute(_RELEASES, {"ids": [release_id]}).first()
        return found.get(license_id), None if row is None else read_release(row)

    def ping(self) -> None:
        """Ask the database for nothing.

        Raises:
            StoreUnavailable: when it does not answer.
        """
        with self._database.reading() as connection:
            connection.execute(select(literal(1)))


def _load_licenses(connection: Connection, ids: Sequence[bytes]) -> dict[bytes, License]:
    if not ids:
        return {}
    return {row.id: _read_license(row, ()) for row in connection.execute(_LICENSES, {"ids": ids})}


def _load_sightings(connection: Connection, sightings: Sequence[Sighting]) -> dict[bytes, License]:
    rows = connection.execute(
        _SIGHTINGS,
        {
            "ids": list({sighting.license_id for sighting in sightings}),
            "domains": list({sighting.environment.domain for sighting in sightings}),
            "ips": list({sighting.environment.ip for sighting in sightings}),
        },
    )
    by_license: dict[bytes, list[Row[*tuple[Any, ...]]]] = defaultdict(list)
    for row in rows:
        by_license[row.id].append(row)
    return {
        license_id: _read_license(
            found[0], tuple(Environment(row.domain, row.ip) for row in found if row.domain is not None)
        )
        for license_id, found in by_license.items()
    }


def _read_license(row: Row[*tuple[Any, ...]], known: tuple[Environment, ...]) -> License:
    return License(
        id=row.id,
        product_id=row.product_id,
        product_name=row.product_name,
        policy=EnvironmentPolicy(row.environment_policy),
        expires_on=row.expires_on,
        lifetime=row.lifetime,
        revoked_at=row.revoked_at,
        slots=row.slots,
        slots_used=row.slots_used,
        allowed=split_entries(row.allowed),
        activations=known,
        subscription_ended_at=row.subscription_ended_at,
        support_until=row.support_until,
    )


def _with_activation(license_: License, environment: Environment) -> License:
    return replace(
        license_,
        slots_used=license_.slots_used + 1,
        activations=(*license_.activations, environment),
    )
