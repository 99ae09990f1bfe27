"""Looks licenses up as an environment sees them, a batch by one statement."""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
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

from licserver.database.hot_path.driver import BatchedQuery, Row
from licserver.database.hot_path.license_rows import LICENSE_COLUMNS, read_license
from licserver.database.tables.licenses import activations, licenses, plans, products
from licserver.domain.records import Environment, EnvironmentMatch, EnvironmentPolicy, LicenseSnapshot


class Lookup(NamedTuple):
    """A license, and the environment of the request."""

    license_id: bytes
    environment: Environment


def _number(value: int) -> ColumnElement[int]:
    """Write a number into the statement itself: a batched statement takes no other parameters."""
    return literal_column(str(value), Integer)


def _lookups(requested: CTE) -> Select[Any]:
    """Each license with its number of activations, and whether they match domain and address.

    Most environments are known as a pair, and then only that and its day are looked up. Otherwise the
    statement leaves out what the product's policy ignores (`environments.is_known`), and counts only where a
    limit is compared with the number. Domains are found by the table's key; for addresses a license's
    activations are read.
    """
    pair, other = activations.alias("pair"), activations.alias("other")
    of_license = select(literal_column("1", Integer)).where(other.c.license_id == licenses.c.id)
    # Not EXISTS: for a batch PostgreSQL may answer that by reading all activations into a hash.
    first = of_license.limit(_number(1)).offset(_number(0))
    domain = first.where(other.c.domain == requested.c.domain).scalar_subquery()
    ip = first.where(other.c.ip == requested.c.ip).scalar_subquery()
    is_strict, is_either = (
        products.c.policy == literal_column(f"'{policy.value}'", Text)
        for policy in (EnvironmentPolicy.STRICT, EnvironmentPolicy.EITHER)
    )
    is_allowed = licenses.c.allowed != literal_column("''", Text)  # the owner may have allowed the domain
    needs_ip = or_(
        and_(is_strict, or_(domain.is_not(None), is_allowed)),
        and_(is_either, domain.is_(None)),
    )
    is_pair = pair.c.license_id.is_not(None)
    taken = of_license.with_only_columns(func.count()).scalar_subquery()
    # With EITHER, another environment may have updated this pair, but not all activations that this one
    # matches.
    day = func.substr(cast(pair.c.last_seen_at, Text), _number(1), _number(10))
    return (
        select(
            requested.c.n,
            *LICENSE_COLUMNS,
            plans.c.entitlements,
            licenses.c.overrides,
            case((is_either, null()), else_=day).label("seen_on"),
            case((or_(is_pair, licenses.c.slots.is_(None)), _number(0)), else_=taken).label("slots_used"),
            case((is_pair, _number(1)), else_=domain).label("matches_domain"),
            case((is_pair, _number(1)), (needs_ip, ip)).label("matches_ip"),
            products.c.idle_days,
        )
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .join(products, products.c.id == licenses.c.product_id)
        .outerjoin(
            pair,
            and_(
                pair.c.license_id == licenses.c.id,
                pair.c.domain == requested.c.domain,
                pair.c.ip == requested.c.ip,
            ),
        )
        .outerjoin(plans, and_(plans.c.product_id == licenses.c.product_id, plans.c.name == licenses.c.plan))
    )


LOOKUPS: Final = BatchedQuery(
    [column("id", LargeBinary), column("domain", Text), column("ip", Text)], _lookups
)


def find_licenses(connection: Connection, lookups: Sequence[Lookup]) -> list[LicenseSnapshot | None]:
    """Load licenses as their environments see them, in the order of the lookups."""
    return read_lookups(LOOKUPS.rows(connection, lookup_parameters(lookups)), len(lookups))


def lookup_parameters(lookups: Sequence[Lookup]) -> list[Row]:
    """Return the parameters of `LOOKUPS`."""
    return [(license_id, *environment) for license_id, environment in lookups]


def read_lookups(rows: Iterable[Row], count: int) -> list[LicenseSnapshot | None]:
    """Read the rows of `LOOKUPS`, into the order of so many lookups."""
    snapshots: list[LicenseSnapshot | None] = [None] * count
    for row in rows:
        plan, overrides, day, slots_used, matches_domain, matches_ip, idle_days = row[-7:]
        seen_on = None if day is None else date.fromisoformat(day)
        license_ = read_license(row, slots_used, _MATCHES[matches_domain, matches_ip], seen_on)
        if plan is not None or overrides is not None or idle_days:
            license_ = license_._replace(plan=plan, overrides=overrides, idle_days=idle_days)
        snapshots[row[0]] = license_
    return snapshots


_MATCHES: Final = {
    (domain, ip): EnvironmentMatch(domain is not None, ip is not None)
    for domain in (None, 1)
    for ip in (None, 1)
}
"""By the columns of `LOOKUPS`; made once."""
