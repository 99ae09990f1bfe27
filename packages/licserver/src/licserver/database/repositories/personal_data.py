"""A person's data in the database: found by address and license, exported, erased in batches."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, and_, exists, false, func, or_, select, true

from licserver.database.repositories.base import Repository, in_batches
from licserver.database.repositories.erasure import PersonEraser
from licserver.database.repositories.licenses import lock_licenses
from licserver.database.repositories.personal_columns import ADDRESS, Key, Row, key_of, person_columns
from licserver.database.tables import access, events, licenses, metadata, sales
from licserver.domain.personal_data import AddressPattern, find_addresses, split_addresses
from licserver.protocol.webhooks import EventType

_TIMES: Final = (
    *("issued_at", "at", "created_at", "received_at", "activated_at", "taken_at", "freed_at", "first_at"),
    *("sent_at", "stored_at", "found_at"),
)
_MENTIONS: Final[Mapping[sa.Table, Sequence[sa.Column[str]]]] = {
    events.jobs: (events.jobs.c.payload, events.jobs.c.key),
    events.webhook_events: (events.webhook_events.c.body,),
}
"""The columns that name a license by its id within a text."""

_ID: Final = re.compile("[0-9a-f]{32}")

_LITERAL: Final = re.compile("[%_~]")  # what LIKE would not take as it is
_NOT_ASCII: Final = "[^ -~]"
_CHUNK: Final = 50
_FETCHED: Final = 1_000


class PersonIdentifiers(NamedTuple):
    """A customer's data without readable text: keyed hashes and encrypted rows."""

    owners: Collection[str]
    code_addresses: Collection[bytes]
    jobs: Collection[int] = ()
    receipts: Collection[int] = ()


class PersonalData(NamedTuple):
    """A customer's data in the database: the ids of the licenses, and all rows by table."""

    license_ids: list[bytes]
    rows: dict[str, list[Row]]


# --- finding ----------------------------------------------------------------------------------


def find_person(
    connection: Connection,
    pattern: AddressPattern,
    identifiers: PersonIdentifiers,
    before: datetime | None = None,
) -> PersonalData:
    """Return all that is held of a customer; with `before`, only what was stored until then.

    It reads every row of the tables with text.
    """
    by_table: dict[str, dict[Key, Row]] = defaultdict(dict)

    def add(table: sa.Table, rows: Iterator[Row]) -> None:
        by_table[table.name] |= {key_of(table, row): row for row in rows}

    for table in metadata.sorted_tables:
        add(table, _find_text(connection, table, pattern))
    mine = [row for row in by_table["licenses"].values() if pattern.is_it(row[ADDRESS])]
    ids = [row["id"] for row in mine if before is None or row["issued_at"] <= before]
    newer = {row["id"] for row in mine}.difference(ids)
    for table, condition in (*_of_licenses(ids), *_of_address(identifiers)):
        add(table, _select(connection, table, condition))
    for table, row in _find_mentions(connection, ids):
        add(table, iter((row,)))
    job_ids = [row["id"] for row in by_table["jobs"].values()]
    event_ids = [row["id"] for row in by_table["webhook_events"].values()]
    deliveries = events.webhook_deliveries
    for column, values in ((deliveries.c.job_id, job_ids), (deliveries.c.event_id, event_ids)):
        for chunk in in_batches(values, _CHUNK):
            add(deliveries, _select(connection, deliveries, column.in_(chunk)))
    rows = {
        name: [row for row in by_key.values() if _is_older(name, row, newer, before)]
        for name, by_key in by_table.items()
    }
    return PersonalData(ids, {name: of_table for name, of_table in rows.items() if of_table})


def _is_older(table: str, row: Row, newer: Collection[bytes], before: datetime | None) -> bool:
    """Return whether a row was stored until an instant, and belongs to no license that is newer."""
    if before is None:
        return True
    changed_at = next((row[name] for name in _TIMES if isinstance(row.get(name), datetime)), None)
    license_id = row["id"] if table == "licenses" else row.get("license_id")
    return license_id not in newer and (changed_at is None or changed_at <= before)


def _find_text(connection: Connection, table: sa.Table, pattern: AddressPattern) -> Iterator[Row]:
    columns = person_columns(table)
    if not columns:
        return
    for row in _select(connection, table, or_(*(_may_hold(column, pattern) for column in columns))):
        if any(holds_address(pattern, column.name, row[column.key]) for column in columns):
            yield row


def _may_hold(column: sa.Column[Any], pattern: AddressPattern) -> ColumnElement[bool]:
    """Return the condition that a column may hold the address: in a known form, or as another spelling."""
    likes = [func.lower("%" + _LITERAL.sub(r"~\g<0>", form) + "%") for form in pattern.forms]
    is_like = or_(*(func.lower(column).like(like, escape="~") for like in likes))
    return or_(is_like, column.regexp_match(_NOT_ASCII)) if column.name == ADDRESS else is_like


def holds_address(pattern: AddressPattern, name: str, value: object) -> bool:
    """Return whether a column holds the address; another customer's may end as this one does."""
    return pattern.is_listed(value) if name == ADDRESS else pattern.is_in(value)


def find_spellings(connection: Connection, pattern: AddressPattern) -> set[str]:
    """Return the spellings in which the address is stored as a customer's."""
    spellings = set[str]()
    columns = (column for table in metadata.sorted_tables for column in table.columns)
    for column in (column for column in columns if column.name == ADDRESS):
        statement = select(column).where(_may_hold(column, pattern)).distinct()
        stored = connection.scalars(statement.execution_options(yield_per=_FETCHED))
        spellings.update(value.strip() for value in stored if pattern.is_it(value))
    return spellings


def _find_mentions(connection: Connection, ids: Collection[bytes]) -> Iterator[tuple[sa.Table, Row]]:
    """Yield rows that name a license by its id within a text; many ids cost one look at each table."""
    hexes = {license_id.hex() for license_id in ids}
    few = sorted(hexes) if len(hexes) <= _CHUNK else []
    for table, columns in _MENTIONS.items():
        names = or_(*(column.like(f"%{hex_id}%") for column in columns for hex_id in few)) if few else true()
        for row in _select(connection, table, names) if hexes else ():
            if any(not hexes.isdisjoint(_ID.findall(row[column.key])) for column in columns):
                yield table, row


def _of_licenses(ids: Sequence[bytes]) -> Iterator[tuple[sa.Table, ColumnElement[bool]]]:
    """Yield where rows refer to licenses, by indexes."""
    for chunk in in_batches(ids, _CHUNK):
        for column in _OF_LICENSE:
            yield column.table, column.in_(chunk)
        audit = licenses.audit.c
        hexes = [license_id.hex() for license_id in chunk]
        yield licenses.audit, and_(audit.object_kind == "license", audit.object_id.in_(hexes))


def _of_address(identifiers: PersonIdentifiers) -> Iterator[tuple[sa.Table, ColumnElement[bool]]]:
    """Yield where rows belong to the address without its text."""
    yield events.jobs, events.jobs.c.owner.in_(identifiers.owners)
    for chunk in in_batches(list(identifiers.jobs), _CHUNK):
        yield events.jobs, events.jobs.c.id.in_(chunk)
    yield access.account_codes, access.account_codes.c.address.in_(identifiers.code_addresses)
    yield access.daily_counts, access.daily_counts.c.subject.in_(identifiers.code_addresses)
    for chunk in in_batches(list(identifiers.receipts), _CHUNK):
        yield access.idempotency_keys, access.idempotency_keys.c.id.in_(chunk)


_OF_LICENSE: Final = [licenses.licenses.c.id] + [
    key.parent
    for table in metadata.sorted_tables
    for key in table.foreign_keys
    if key.column is licenses.licenses.c.id
]


def _select(connection: Connection, table: sa.Table, condition: ColumnElement[bool]) -> Iterator[Row]:
    statement = select(table).where(condition).execution_options(yield_per=_FETCHED)
    for row in connection.execute(statement).mappings():
        yield {column.key: row[column] for column in table.columns}


def list_addresses(connection: Connection) -> Iterator[str]:
    """Yield every text that may be a mail address, such as to look for erased ones; some more than once."""
    for table in metadata.sorted_tables:
        for column in person_columns(table):
            has_sign = or_(column.like("%@%"), column.like("%~%40%", escape="~"))
            statement = select(column).where(has_sign).distinct().execution_options(yield_per=_FETCHED)
            read = split_addresses if column.name == ADDRESS else find_addresses
            for text in connection.scalars(statement):
                yield from read(text)


def list_encrypted(connection: Connection) -> Iterator[tuple[str, Row]]:
    """Yield the rows of jobs and recorded responses, whose content is encrypted."""
    for table, condition in (
        (events.jobs, events.jobs.c.payload.like('%"encrypted"%')),
        (access.idempotency_keys, ~false()),
    ):
        for row in _select(connection, table, condition):
            yield table.name, row


# --- exporting --------------------------------------------------------------------------------


def to_plain(table: str, row: Row) -> dict[str, Any]:
    """Return a row for JSON, without secrets and digests; ids of licenses in hexadecimal digits."""
    columns = metadata.tables[table].columns
    plain: dict[str, Any] = {}
    for column in columns:
        value = row[column.key]
        if isinstance(value, bytes):
            if column.key in {"id", "license_id"}:
                plain[column.name] = value.hex()
        elif isinstance(value, date):
            plain[column.name] = value.isoformat()
        else:
            plain[column.name] = value
    return plain


# --- erasing ----------------------------------------------------------------------------------


def find_sold(connection: Connection, ids: Sequence[bytes]) -> set[bytes]:
    """Return which licenses a shop has sold: a delivery that comes again would issue them anew."""
    sold = sales.sale_licenses.c.license_id
    return {
        license_id
        for chunk in in_batches(ids, _CHUNK)
        for license_id in connection.scalars(select(sold).where(sold.in_(chunk)))
    }


class PersonalDataRepository(Repository):
    """All stored data of a person, of every table."""

    def find(
        self, pattern: AddressPattern, identifiers: PersonIdentifiers, before: datetime | None = None
    ) -> PersonalData:
        """Find the person's data in one state of the database, as `find_person`, without a time limit."""
        with self._database.snapshot() as connection:
            return find_person(connection, pattern, identifiers, before)

    def find_spellings(self, pattern: AddressPattern) -> set[str]:
        """Return the spellings in which the address is stored as a customer's."""
        with self._database.snapshot() as connection:
            return find_spellings(connection, pattern)

    def list_addresses(self) -> Iterator[str]:
        """Yield texts that may be mail addresses."""
        with self._database.snapshot() as connection:
            yield from list_addresses(connection)

    def list_encrypted(self) -> Iterator[tuple[str, Row]]:
        """Yield rows whose content is encrypted, with the name of their table."""
        with self._database.snapshot() as connection:
            yield from list_encrypted(connection)

    def find_sold(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return which licenses a shop has sold."""
        with self._reading() as connection:
            return find_sold(connection, ids)

    def erase(self, table: str, keys: Sequence[Key], erasure: PersonEraser) -> int:
        """Erase rows of a table; return how many were changed or deleted."""
        with self._writing() as connection:
            return erasure.erase(connection, metadata.tables[table], keys)

    def erase_licenses(self, ids: Sequence[bytes], erasure: PersonEraser) -> dict[str, int]:
        """Erase licenses, and what was stored of them since they were found; return the numbers, by table."""
        with self._writing() as connection:
            lock_licenses(connection, licenses.licenses.c.id.in_(ids))
            keys = defaultdict[str, dict[Key, None]](dict)
            for table, condition in _of_licenses(ids):
                rows = _select(connection, table, condition)
                keys[table.name] |= {key_of(table, row): None for row in rows}
            in_order = (table for table in reversed(metadata.sorted_tables) if keys[table.name])
            return {table.name: erasure.erase(connection, table, [*keys[table.name]]) for table in in_order}

    def list_mentions(self, ids: Collection[bytes], since: datetime) -> Iterator[tuple[str, Key]]:
        """Yield the rows that name a license by its id within a text, and were stored after an instant.

        The event that it was revoked is not among them: receivers are to have it.
        """
        with self._database.snapshot() as connection:
            for table, row in _find_mentions(connection, ids):
                text = row["payload"] if table is events.jobs else row["type"]
                if row["created_at"] > since and EventType.LICENSE_REVOKED.value not in text:
                    yield table.name, key_of(table, row)

    def add_erasure(self, name: str, note: bytes) -> None:
        """Store that an address was erased, by its hash."""
        self._put(licenses.facts, {"name": f"{_ERASURE}{name}", "value": note})

    def is_erased(self, name: str) -> bool:
        """Return whether an address was erased, by its hash."""
        return self._scalar(select(exists().where(licenses.facts.c.name == f"{_ERASURE}{name}"))) is True

    def list_erasures(self) -> dict[str, bytes]:
        """Load the hashes of erased addresses, each with its note."""
        rows = self._all(select(licenses.facts).where(licenses.facts.c.name.like(f"{_ERASURE}%")))
        return {row.name.removeprefix(_ERASURE): row.value for row in rows}


_ERASURE: Final = "erased/"
