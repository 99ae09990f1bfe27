"""Stored domains in their normal form (D-06): a program before schema 0036 stored some as they were sent.

Each change can be made again, and none needs a transaction: a slot is never missing meanwhile. The sweep
looks again, because servers of an earlier version may go on beside the upgraded ones for a while.
Statements name their columns, not `tables`: a step uses them on its own schema.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection

from licserver.domain.environments import InvalidDomainError, normalise_domain, parse_ip

Change: TypeAlias = Callable[[Connection], None]
"""Changes one row."""

_PAGE: Final = 5_000  # rows that one statement reads
_ID, _DOMAIN, _IP = "license_id", "domain", "ip"


class _Merge(NamedTuple):
    """The rule by which two rows of an environment become a single row."""

    table: sa.TableClause
    key: tuple[str, ...]  # the primary key
    # Columns of the row that stays, from both rows by name.
    values: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]


def _table(name: str, *columns: str) -> sa.TableClause:
    return sa.table(name, *map(sa.column, columns))


def _merge_activations(stays: Mapping[str, Any], goes: Mapping[str, Any]) -> dict[str, Any]:
    seen = _latest(stays["last_seen_at"], goes["last_seen_at"])
    newer = stays if seen == stays["last_seen_at"] else goes
    return {
        "activated_at": min(stays["activated_at"], goes["activated_at"]),
        "last_seen_at": seen,
        "label": newer["label"],
        "app_version": newer["app_version"],
        "offline_until": _latest(stays["offline_until"], goes["offline_until"]),
    }


def _merge_refusals(stays: Mapping[str, Any], goes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "count": stays["count"] + goes["count"],
        "first_at": min(stays["first_at"], goes["first_at"]),
        "last_at": max(stays["last_at"], goes["last_at"]),
    }


def _merge_moves(stays: Mapping[str, Any], goes: Mapping[str, Any]) -> dict[str, Any]:
    return {"freed_at": max(stays["freed_at"], goes["freed_at"])}


def _latest(instant: Any, other: Any) -> Any:
    return max(filter(None, (instant, other)), default=None)


MERGES: Final = (
    _Merge(
        _table(
            "activations",
            *(_ID, _DOMAIN, _IP, "activated_at", "last_seen_at", "label", "app_version", "offline_until"),
        ),
        (_ID, _DOMAIN, _IP),
        _merge_activations,
    ),
    _Merge(
        _table("refusals", _ID, _DOMAIN, _IP, "reason", "count", "first_at", "last_at"),
        (_ID, _DOMAIN, _IP, "reason"),
        _merge_refusals,
    ),
    _Merge(_table("moves", _ID, _DOMAIN, _IP, "freed_at"), (_ID, _DOMAIN, _IP), _merge_moves),
)

_SEATS: Final = _table("seats", _ID, "seat_id", _DOMAIN)
_LICENSES: Final = _table("licenses", "id", "allowed")


def find_changes(connection: Connection) -> Iterator[Change]:
    """Yield what brings each stored domain into its normal form; read page by page while rows change."""
    for merge in MERGES:
        for row in _find_unusual(connection, merge.table, merge.key):
            if (normal := _normalise(row[_DOMAIN])) != row[_DOMAIN]:
                yield partial(_move, merge, row, normal)
    for row in _find_unusual(connection, _SEATS, (_ID, "seat_id")):
        if (normal := _normalise(row[_DOMAIN])) != row[_DOMAIN]:
            yield partial(_set, _SEATS, row, {_DOMAIN: normal})
    with_entries = _LICENSES.c.allowed != ""
    for row in _read_pages(connection, _LICENSES, ("id",), with_entries):
        allowed = "\n".join(dict.fromkeys(map(_normalise_entry, row["allowed"].split("\n"))))
        if allowed != row["allowed"]:
            yield partial(_set, _LICENSES, row, {"allowed": allowed})


def _find_unusual(
    connection: Connection, table: sa.TableClause, key: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """Yield the keys and domains of rows whose domain is not plainly normal, as that of most is."""
    domain = table.c[_DOMAIN]
    is_unusual: ColumnElement[bool]
    if connection.dialect.name == "sqlite":
        is_unusual = sa.or_(domain.op("GLOB")("*[^a-z0-9.-]*"), domain.like("%."))
    else:
        is_unusual = domain.regexp_match(r"[^a-z0-9.-]|\.$")
    return _read_pages(connection, table, key, is_unusual)


def _read_pages(
    connection: Connection, table: sa.TableClause, key: tuple[str, ...], where: ColumnElement[bool]
) -> Iterator[dict[str, Any]]:
    names = [column.name for column in table.c if column.name in (*key, _DOMAIN, "allowed")]
    columns, place = [table.c[name] for name in names], sa.tuple_(*(table.c[name] for name in key))
    after: list[ColumnElement[bool]] = []
    while True:
        # The end first: one statement that looks for the next row of a few would read the whole table.
        ends = sa.select(*(table.c[name] for name in key)).where(*after).order_by(*place)
        last = connection.execute(ends.offset(_PAGE - 1).limit(1)).first()
        within = after if last is None else [*after, place <= _tuple_of(last)]
        yield from map(dict, connection.execute(sa.select(*columns).where(where, *within)).mappings().all())
        if last is None:
            return
        after = [place > _tuple_of(last)]


def _tuple_of(values: Iterable[Any]) -> sa.Tuple:
    return sa.tuple_(*map(sa.literal, values))


def _move(merge: _Merge, row: Mapping[str, Any], normal: str, connection: Connection) -> None:
    """Rename a row, or merge it into the one that has the name; what was changed meanwhile is left."""
    key = {name: row[name] for name in merge.key}
    target = key | {_DOMAIN: normal}
    goes, stays = (_find(connection, merge.table, sought) for sought in (key, target))
    if goes is None:
        return
    if stays is None:
        connection.execute(sa.update(merge.table).where(*_are(merge.table, key)).values(domain=normal))
        return
    connection.execute(
        sa.update(merge.table).where(*_are(merge.table, target)).values(merge.values(stays, goes))
    )
    connection.execute(sa.delete(merge.table).where(*_are(merge.table, key)))


def _set(
    table: sa.TableClause, row: Mapping[str, Any], values: Mapping[str, Any], connection: Connection
) -> None:
    connection.execute(sa.update(table).where(*_are(table, row)).values(values))


def _find(connection: Connection, table: sa.TableClause, key: Mapping[str, Any]) -> Mapping[str, Any] | None:
    row = connection.execute(sa.select(*table.c).where(*_are(table, key))).mappings().first()
    return None if row is None else dict(row)


def _are(table: sa.TableClause, values: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    return [table.c[name] == value for name, value in values.items()]


def _normalise(domain: str) -> str:
    try:
        return normalise_domain(domain)
    except InvalidDomainError:  # of a program that allowed it; no request can match it any more
        return domain


def _normalise_entry(entry: str) -> str:
    """Bring the domain of an allow-list entry into its normal form; addresses and networks have theirs."""
    if "/" in entry or parse_ip(entry):
        return entry
    wildcard = "*." if entry.startswith("*.") else ""
    return wildcard + _normalise(entry.removeprefix(wildcard))
