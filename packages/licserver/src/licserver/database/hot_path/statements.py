"""The statements of the hot paths: about many licenses at once, each found by its id."""

from typing import Any, Final

from sqlalchemy import (
    CTE,
    ColumnElement,
    Integer,
    LargeBinary,
    Select,
    Text,
    and_,
    case,
    cast,
    column,
    func,
    literal_column,
    null,
    or_,
    select,
)

from licserver.database.hot_path.queries import BatchedQuery, RowWriter
from licserver.database.tables import activations, licenses, products
from licserver.domain.records import EnvironmentPolicy

# In the order of License's fields, without what depends on who asks.
_LICENSE_COLUMNS: Final[list[ColumnElement[Any]]] = [
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


def _number(value: int) -> ColumnElement[int]:
    """Write a number into the statement itself: see `BatchedQuery`."""
    return literal_column(str(value), Integer)


def _sightings(asked: CTE) -> Select[Any]:
    """Each license with how full it is, and which halves of the asker's environment it knows.

    Most askers are known as a pair, and then that and its day is all that is looked up. For the others the
    last column is the license's activations times four, and two when the domain is among them, and one when
    the address is; nothing is looked up that the product's policy does not look at (`environment.is_known`),
    or that no limit is compared with. Domains are found by the table's key; for addresses a license's
    activations are read.
    """
    pair, other = activations.alias("pair"), activations.alias("other")
    of_license = select(literal_column("1", Integer)).where(other.c.license_id == licenses.c.id)
    # Not EXISTS: for a batch PostgreSQL may answer that by reading all activations into a hash.
    one = of_license.limit(_number(1)).offset(_number(0))
    domain = one.where(other.c.domain == asked.c.domain).scalar_subquery()
    ip = func.coalesce(one.where(other.c.ip == asked.c.ip).scalar_subquery(), _number(0))
    held = of_license.with_only_columns(func.count()).scalar_subquery()
    is_strict, is_either = (
        products.c.environment_policy == literal_column(f"'{policy.value}'", Text)
        for policy in (EnvironmentPolicy.STRICT, EnvironmentPolicy.EITHER)
    )
    is_allowed = licenses.c.allowed != literal_column("''", Text)  # the owner may have let the domain in
    halves = case(
        (domain.is_not(None), _number(2) + case((is_strict, ip), else_=_number(0))),
        (or_(is_either, and_(is_strict, is_allowed)), ip),
        else_=_number(0),
    )
    day = func.substr(cast(pair.c.last_seen_at, Text), _number(1), _number(10))
    # By either half another asker may have kept this pair fresh, and not all that ours lives by.
    seen_on = case((is_either, null()), else_=day)
    count = case((licenses.c.slots.is_not(None), held * _number(4)), else_=_number(0))
    return (
        select(
            asked.c.n,
            *_LICENSE_COLUMNS,
            seen_on,
            case((pair.c.license_id.is_not(None), _number(3)), else_=count + halves),
        )
        .select_from(asked)
        .join(licenses, licenses.c.id == asked.c.id)
        .join(products, products.c.id == licenses.c.product_id)
        .outerjoin(
            pair,
            and_(
                pair.c.license_id == licenses.c.id,
                pair.c.domain == asked.c.domain,
                pair.c.ip == asked.c.ip,
            ),
        )
    )


def _locks(asked: CTE) -> Select[Any]:
    """Lock the licenses that no other transaction has locked; the others are not in the result."""
    return (
        select(asked.c.n, licenses.c.id)
        .select_from(asked)
        .join(licenses, licenses.c.id == asked.c.id)
        .with_for_update(of=licenses, skip_locked=True)
    )


def _update_asks(asked: CTE) -> Select[Any]:
    """Each license, and the product that was named beside it."""
    named = products.alias("named")
    return (
        select(
            asked.c.n,
            *_LICENSE_COLUMNS,
            named.c.id,
            named.c.name,
            named.c.environment_policy,
            named.c.has_support_policy,
            named.c.latest_release_id,
            named.c.latest_manifest_id,
        )
        .select_from(asked)
        .join(licenses, licenses.c.id == asked.c.id)
        .join(products, products.c.id == licenses.c.product_id)
        .outerjoin(named, named.c.slug == asked.c.slug)
    )


def _licenses(asked: CTE) -> Select[Any]:
    """Each license alone."""
    return (
        select(asked.c.n, *_LICENSE_COLUMNS)
        .select_from(asked)
        .join(licenses, licenses.c.id == asked.c.id)
        .join(products, products.c.id == licenses.c.product_id)
    )


_ID: Final = column("id", LargeBinary)
SIGHTINGS: Final = BatchedQuery([_ID, column("domain", Text), column("ip", Text)], _sightings)
LOCKS: Final = BatchedQuery([_ID], _locks)
UPDATE_ASKS: Final = BatchedQuery([_ID, column("slug", Text)], _update_asks)
LICENSES: Final = BatchedQuery([_ID], _licenses)
ACTIVATIONS: Final = RowWriter(activations, leaving={"last_seen_at"})
