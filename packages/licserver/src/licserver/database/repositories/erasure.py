"""Erase a person's rows: a batch in each transaction, so that other writers get their turn."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, select, tuple_, update

from licserver.database.repositories.base import in_batches
from licserver.database.repositories.personal_columns import ADDRESS, Key, Row, key_of, person_columns
from licserver.database.tables import licenses, metadata, sales
from licserver.domain.personal_data import ERASED, AddressPattern

BATCH: Final = 500
"""Rows that are erased in a transaction: 0.1 s, in which no other one can write."""

_REMOVED: Final = {
    *("license_words", "jobs", "webhook_events", "webhook_deliveries", "receipts", "account_codes"),
    *("account_sessions", "daily_counts"),
}
"""Tables of which a row that holds the person is deleted: it is done with, or without meaning for others."""

_BLANKED: Final = {
    "licenses": ("customer_email", "note", "customer_language", "revoked_reason"),
    "activations": ("label", "app_version"),
    "seats": ("label",),
}
"""Columns emptied in a license that stays, besides each text with the address. Its slots stay taken."""


_HISTORY: Final = (licenses.refusals, licenses.move_records)
"""Tables of which rows about a license that stays are deleted: they have computers that need no slot."""


class PersonEraser(NamedTuple):
    """Erases a person's data.

    Args:
        pattern: The address.
        name: Returns what takes the place of a spelling of the address, the same everywhere: an order that
            is called by it keeps one name in all tables.
        now: The instant.
        ids: The person's licenses.
        kept: Those of them that stay, without the person; others are deleted.
    """

    pattern: AddressPattern
    name: Callable[[str], str]
    now: datetime
    ids: Collection[bytes]
    kept: Collection[bytes]

    def _removes(self, table: sa.Table, row: Row) -> bool:
        """Return whether a row is deleted, and not changed."""
        license_id = _license_of(table, row)
        if license_id in self.ids and license_id not in self.kept:
            return table is not licenses.trials  # the machine stays known: it has had its trial
        return table.name in _REMOVED or (license_id in self.ids and table in _HISTORY)

    def _changes(self, table: sa.Table, row: Row) -> dict[str, Any]:
        """Return the new values of a row that stays."""
        values = dict[str, Any]()
        for column in person_columns(table):
            value = row[column.key]
            if column.name == ADDRESS and self.pattern.is_it(value):
                values[column.key] = None
            elif self.pattern.is_in(value) and (column.name != ADDRESS or self.pattern.is_listed(value)):
                values[column.key] = self.pattern.erase(value, self.name)
        license_id = _license_of(table, row)
        if license_id in self.ids:
            if table is licenses.trials and license_id not in self.kept:
                values["license_id"] = None
            values |= {name: None for name in _BLANKED.get(table.name, ()) if row[name] is not None}
        if table is licenses.audit and row["object_kind"] == "license" and row["details"] != "{}":
            with suppress(ValueError):
                values |= {"details": "{}"} if bytes.fromhex(row["object_id"]) in self.ids else {}
        if table is sales.sale_events and values and row["state"] in {"waiting", "dead"}:
            values |= {"state": "ignored", "reason": ERASED, "finished_at": self.now}
        return values

    def erase(self, connection: Connection, table: sa.Table, keys: Sequence[Key]) -> int:
        """Delete or change rows as they are now; return how many there were something to do with."""
        columns = list(table.primary_key.columns)
        statement = select(table).where(is_one_of(columns, keys)).order_by(*columns).with_for_update()
        removed, changed = list[Key](), defaultdict[tuple[str, ...], list[dict[str, Any]]](list)
        for loaded in connection.execute(statement).mappings().all():
            row = {column.key: loaded[column] for column in table.columns}
            if self._removes(table, row):
                removed.append(key_of(table, row))
            elif values := self._changes(table, row):
                old = {f"old_{column.key}": row[column.key] for column in columns}
                new = {f"new_{name}": value for name, value in values.items()}
                changed[tuple(values)].append(old | new)
        if removed:
            connection.execute(delete(table).where(is_one_of(columns, removed)))
        is_it = and_(*(column == bindparam(f"old_{column.key}") for column in columns))
        for names, rows in changed.items():
            given: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
            connection.execute(update(table).where(is_it).values(given), rows)
        return len(removed) + sum(map(len, changed.values()))


def list_batches(
    rows: Mapping[str, Sequence[Row]], ids: Collection[bytes]
) -> Iterator[tuple[str, Sequence[Key]]]:
    """Yield tables with the keys of rows to erase, those that others refer to last.

    The licenses `ids` are not among them.
    """
    for table in reversed(metadata.sorted_tables):
        is_license = table is licenses.licenses
        of_table = (row for row in rows.get(table.name, ()) if not (is_license and row["id"] in ids))
        keys = [key_of(table, row) for row in of_table]
        for batch in in_batches(sorted(keys), BATCH):
            yield table.name, batch


def _license_of(table: sa.Table, row: Row) -> bytes | None:
    license_id: bytes | None = row["id"] if table is licenses.licenses else row.get("license_id")
    return license_id


def is_one_of(columns: Sequence[sa.Column[Any]], keys: Sequence[Key]) -> ColumnElement[bool]:
    """Return the condition that a row has one of some primary keys."""
    if len(columns) == 1:
        return columns[0].in_([key[0] for key in keys])
    return tuple_(*columns).in_(keys)
