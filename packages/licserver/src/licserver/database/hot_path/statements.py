"""The statements of the hot path: one SELECT or INSERT for many requests.

SQLAlchemy Core writes them, once for each size of batch, and the driver's cursor runs them: executed through
Core, a known verify takes 3.2 times as many instructions. psycopg prepares them.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any, Final

from sqlalchemy import (
    CTE,
    Boolean,
    ColumnClause,
    ColumnElement,
    Connection,
    Dialect,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    column,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    values,
)

from licserver.database.tables import activations, licenses, products
from licserver.domain.records import EnvironmentPolicy

Row = tuple[Any, ...]
_Process = Callable[[Any], Any]
_Processors = list[tuple[int, _Process]]
"""Positions in a row, with what converts the value there."""

_COMPILED_AT_START: Final = (1, 2, 4, 8, 16, 32)
"""Sizes of batches; compiling one takes 3 to 30 ms, in the event loop."""


class BatchedQuery:
    """A SELECT joined to a table ``requested``, whose column ``n`` numbers the requests.

    Args:
        columns: The other columns of ``requested``, typed.
        build: Builds the SELECT from ``requested``; its first column must be ``n``.
    """

    def __init__(self, columns: Sequence[ColumnClause[Any]], build: Callable[[CTE], Select[Any]]) -> None:
        self._columns: Final = columns
        self._build: Final = build
        self._compiled: Final[dict[tuple[str, int], tuple[str, _Processors]]] = {}

    def rows(self, connection: Connection, requests: Sequence[Row]) -> list[Row]:
        """Run the statement for a batch.

        Args:
            connection: Within a transaction, or in autocommit.
            requests: The values of `columns` for each; at least one.

        Returns:
            The rows in any order; each begins with the number of its request.
        """
        count = len(requests)
        size = 1 << (count - 1).bit_length()  # few sizes: few statements to compile and prepare
        sql, processors = self._statement(connection.dialect, size)
        parameters = list(chain.from_iterable(requests))
        parameters += requests[-1] * (size - count)  # the last one again, under unused numbers
        cursor = connection.connection.cursor()
        try:
            cursor.execute(sql, parameters)
            rows = list(cursor.fetchall())
        finally:
            cursor.close()
        if size > count:
            rows = [row for row in rows if row[0] < count]
        return [_convert(row, processors) for row in rows] if processors else rows

    def compile(self, dialect: Dialect) -> None:
        """Compile the statements of the usual sizes."""
        for size in _COMPILED_AT_START:
            self._statement(dialect, size)

    def _statement(self, dialect: Dialect, size: int) -> tuple[str, _Processors]:
        key = (dialect.name, size)
        if key not in self._compiled:
            numbered = [
                (
                    literal_column(str(row), Integer),
                    *(bindparam(f"{one.name}_{row}", type_=one.type) for one in self._columns),
                )
                for row in range(size)
            ]
            requested = values(column("n", Integer), *self._columns, name="requested").data(numbered)
            statement = self._build(requested.cte("requested"))
            compiled = statement.compile(dialect=dialect)
            wanted = [f"{one.name}_{row}" for row in range(size) for one in self._columns]
            if list(compiled.positiontup or ()) != wanted:
                raise AssertionError("a batched statement takes no parameters but the requests")
            processors: _Processors = [
                (at, process)
                for at, one in enumerate(statement.selected_columns)
                if not isinstance(one.type, Boolean)  # 0 and 1 will do
                and (process := one.type.dialect_impl(dialect).result_processor(dialect, None)) is not None
            ]
            self._compiled[key] = str(compiled), processors
        return self._compiled[key]


def _convert(row: Row, processors: _Processors) -> Row:
    """Convert the driver's values to those of the columns' types; most of these are NULL."""
    converted = list(row)
    for at, process in processors:
        if converted[at] is not None:
            converted[at] = process(converted[at])
    return tuple(converted)


class RowWriter:
    """An INSERT of rows into a table, without the columns `leaving`."""

    def __init__(self, table: Table, leaving: Collection[str] = ()) -> None:
        self._table: Final = table
        self._columns: Final = [one for one in table.columns if one.key not in leaving]
        self._compiled: Final[dict[str, tuple[str, _Processors]]] = {}

    def write(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Write rows within a transaction; each has the values of the columns in their order."""
        sql, processors = self._statement(connection.dialect)
        ready = [list(row) for row in rows]
        for at, process in processors:
            for row in ready:
                row[at] = process(row[at])
        cursor = connection.connection.cursor()
        try:
            cursor.executemany(sql, ready)
        finally:
            cursor.close()

    def _statement(self, dialect: Dialect) -> tuple[str, _Processors]:
        if dialect.name not in self._compiled:
            names = [one.key for one in self._columns]
            compiled = insert(self._table).compile(dialect=dialect, column_keys=names)
            if list(compiled.positiontup or ()) != names:
                raise AssertionError("an INSERT of rows takes their values in the table's order")
            processors: _Processors = [
                (at, process)
                for at, one in enumerate(self._columns)
                if (process := one.type.dialect_impl(dialect).bind_processor(dialect)) is not None
            ]
            self._compiled[dialect.name] = str(compiled), processors
        return self._compiled[dialect.name]


# In the order of LicenseSnapshot's fields, without those that depend on the environment.
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
    """Write a number into the statement itself: a batched statement takes no other parameters."""
    return literal_column(str(value), Integer)


def _lookups(requested: CTE) -> Select[Any]:
    """Each license with its number of activations, and what of the environment they match.

    Most environments are known as a pair, and then only that and its day are looked up. Otherwise the last
    column is four times the number of activations, plus two if the domain matches, plus one if the address
    does; what the product's policy ignores (`environments.is_known`), or no limit is compared with, is not
    looked up. Domains are found by the table's key; for addresses a license's activations are read.
    """
    pair, other = activations.alias("pair"), activations.alias("other")
    of_license = select(literal_column("1", Integer)).where(other.c.license_id == licenses.c.id)
    # Not EXISTS: for a batch PostgreSQL may answer that by reading all activations into a hash.
    one = of_license.limit(_number(1)).offset(_number(0))
    domain = one.where(other.c.domain == requested.c.domain).scalar_subquery()
    ip = func.coalesce(one.where(other.c.ip == requested.c.ip).scalar_subquery(), _number(0))
    held = of_license.with_only_columns(func.count()).scalar_subquery()
    is_strict, is_either = (
        products.c.environment_policy == literal_column(f"'{policy.value}'", Text)
        for policy in (EnvironmentPolicy.STRICT, EnvironmentPolicy.EITHER)
    )
    is_allowed = licenses.c.allowed != literal_column("''", Text)  # the owner may have allowed the domain
    match = case(
        (domain.is_not(None), _number(2) + case((is_strict, ip), else_=_number(0))),
        (or_(is_either, and_(is_strict, is_allowed)), ip),
        else_=_number(0),
    )
    day = func.substr(cast(pair.c.last_seen_at, Text), _number(1), _number(10))
    # With EITHER, another environment may have updated this pair, but not all activations that this one
    # matches.
    seen_on = case((is_either, null()), else_=day)
    count = case((licenses.c.slots.is_not(None), held * _number(4)), else_=_number(0))
    return (
        select(
            requested.c.n,
            *_LICENSE_COLUMNS,
            seen_on,
            case((pair.c.license_id.is_not(None), _number(3)), else_=count + match),
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
    )


def _locks(requested: CTE) -> Select[Any]:
    """Lock the licenses that no other transaction has locked; only these are in the result."""
    return (
        select(requested.c.n, licenses.c.id)
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .with_for_update(of=licenses, skip_locked=True)
    )


def _updates(requested: CTE) -> Select[Any]:
    """Each license, and the product of the slug beside it."""
    named = products.alias("named")
    return (
        select(
            requested.c.n,
            *_LICENSE_COLUMNS,
            named.c.id,
            named.c.name,
            named.c.environment_policy,
            named.c.has_support_policy,
            named.c.latest_release_id,
            named.c.latest_manifest_id,
        )
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .join(products, products.c.id == licenses.c.product_id)
        .outerjoin(named, named.c.slug == requested.c.slug)
    )


def _licenses(requested: CTE) -> Select[Any]:
    """Each license alone."""
    return (
        select(requested.c.n, *_LICENSE_COLUMNS)
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .join(products, products.c.id == licenses.c.product_id)
    )


_ID: Final = column("id", LargeBinary)
LOOKUPS: Final = BatchedQuery([_ID, column("domain", Text), column("ip", Text)], _lookups)
LOCKS: Final = BatchedQuery([_ID], _locks)
UPDATES: Final = BatchedQuery([_ID, column("slug", Text)], _updates)
LICENSES: Final = BatchedQuery([_ID], _licenses)
ACTIVATIONS: Final = RowWriter(activations, leaving={"last_seen_at"})
