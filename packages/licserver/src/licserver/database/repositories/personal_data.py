"""Where the database may hold a person: found by address and license, exported, erased.

The lists name all columns with text, and a test compares them with the schema.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, and_, delete, false, func, or_, select, update
from sqlalchemy.types import TypeDecorator, TypeEngine

from licserver.database.repositories.base import Repository
from licserver.database.repositories.licenses import lock_licenses
from licserver.database.tables import access, events, licenses, metadata, sales
from licserver.domain.personal_data import ERASED, AddressPattern

PERSON: Final[Mapping[str, str]] = {
    "licenses": "revoked_reason allowed subscription_id customer_email note customer_language",
    "license_words": "word",
    "activations": "domain ip label app_version",
    "refusals": "domain ip",
    "moves": "domain ip",
    "slot_moves": "domain ip",
    "seats": "domain label",
    "use_ids": "use_id",
    "audit": "object_id details",
    "jobs": "key payload last_error owner",
    "webhook_endpoints": "disabled_reason",
    "webhook_events": "body",
    "webhook_deliveries": "answer",
    "receipts": "key",
    # What shops send, and what they name; any further text of theirs counts as well.
    "sale_events": "delivery type content object reason",
    "sale_facts": "id content customer_email",
    "sale_links": "object id",
    "sale_licenses": "order_id item line_id thing object applied",
    "sale_problems": "object name message external_ids",
    "sale_orders": "order_id subscription_id",
    "sale_subscriptions": "subscription_id",
}
"""Table → columns with text that may hold a customer: names, addresses, computers, and what others wrote."""

OTHERS: Final[Mapping[str, str]] = {
    "licenses": "masked_key product_name plan overrides channels",
    "refusals": "reason",
    "uses": "name period",
    "use_ids": "name",
    # The vendor's own people, whom this is not about.
    "audit": "actor_kind actor_name action object_kind",
    "users": "name password_hash role",
    "tokens": "name scope",
    "failed_logins": "action subject",
    "jobs": "queue state",
    "webhook_endpoints": "id url types",
    "webhook_events": "id type",
    "webhook_deliveries": "endpoint_id event_id",
    "facts": "name",
    "totals": "name product label",
    "products": "slug name environment_policy minimum_version",
    "plans": "name entitlements",
    "manifests": "document",
    "releases": "version version_key changelog file_name platform channel rollout critical_below requires "
    "tested requires_php details_url file_signatures",
    "sale_sources": "name kind secret_env changes states renewal_field key_env url",
    "sale_mappings": "source external_id expires_in support plan",
    "sale_events": "source state",
    "sale_facts": "source kind",
    "sale_links": "source kind",
    "sale_licenses": "source",
    "sale_problems": "source kind answers answer",
    "sale_orders": "source",
    "sale_subscriptions": "source period",
}
"""Table → columns with text of the vendor, and of a fixed choice."""

_SHOPS: Final = "sale_"
_REMOVED: Final = {
    *("license_words", "jobs", "webhook_events", "webhook_deliveries", "receipts", "account_codes"),
    *("account_sessions", "daily_counts"),
}
"""Tables of which a row that holds the person is deleted: it is done with, or without meaning for others."""

_BLANKED: Final[Mapping[str, tuple[str, ...]]] = {
    "licenses": ("customer_email", "note", "customer_language", "revoked_reason"),
    "activations": ("label", "app_version"),
    "seats": ("label",),
}
"""What is removed of a license that stays, besides each text with the address. Its slots go on holding."""

_TIMES: Final = (
    *("issued_at", "at", "created_at", "received_at", "activated_at", "taken_at", "freed_at", "first_at"),
    *("sent_at", "stored_at", "found_at"),
)
_MENTIONS: Final = (events.jobs.c.payload, events.jobs.c.key, events.webhook_events.c.body)
"""Where a license is named by its id within a text."""

_LITERAL: Final = re.compile("[%_~]")  # what LIKE would not take as it is
_CHUNK: Final = 50
_FETCHED: Final = 1_000

Row = Mapping[str, Any]


class Known(NamedTuple):
    """A customer's data without readable text: keyed hashes and encrypted rows."""

    owner: str
    code_address: bytes
    jobs: Collection[int] = ()
    receipts: Collection[int] = ()


class PersonalData(NamedTuple):
    """What the database holds of a customer: the ids of the licenses, and all rows by table."""

    license_ids: list[bytes]
    rows: dict[str, list[Row]]


def is_text(column: sa.Column[Any]) -> bool:
    """Return whether a column has text, or JSON."""
    return isinstance(_plain_type(column.type), sa.String)


def person_columns(table: sa.Table) -> list[sa.Column[Any]]:
    """Return the columns of a table that may hold a person."""
    named, others = PERSON.get(table.name, "").split(), OTHERS.get(table.name, "").split()
    is_shops = table.name.startswith(_SHOPS)  # a column that is added there counts at once
    return [
        column
        for column in table.columns
        if column.name in named or (is_shops and is_text(column) and column.name not in others)
    ]


def _plain_type(type_: TypeEngine[Any]) -> TypeEngine[Any]:
    return type_.impl_instance if isinstance(type_, TypeDecorator) else type_


# --- finding ----------------------------------------------------------------------------------


def find_person(
    connection: Connection, pattern: AddressPattern, known: Known, before: datetime | None = None
) -> PersonalData:
    """Return all that is held of a customer; with `before`, only what was stored until then.

    It reads every row of the tables with text.
    """
    by_table: dict[str, dict[tuple[Any, ...], Row]] = defaultdict(dict)

    def add(table: sa.Table, rows: Iterator[Row]) -> None:
        by_table[table.name] |= {tuple(row[column.key] for column in table.primary_key): row for row in rows}

    for table in metadata.sorted_tables:
        add(table, _find_text(connection, table, pattern))
    mine = [row for row in by_table["licenses"].values() if pattern.is_in(row["customer_email"])]
    ids = [row["id"] for row in mine if before is None or row["issued_at"] <= before]
    newer = {row["id"] for row in mine}.difference(ids)
    for table, condition in _conditions(ids, known):
        add(table, _select(connection, table, condition))
    job_ids = [row["id"] for row in by_table["jobs"].values()]
    event_ids = [row["id"] for row in by_table["webhook_events"].values()]
    deliveries = events.webhook_deliveries
    for column, values in ((deliveries.c.job_id, job_ids), (deliveries.c.event_id, event_ids)):
        for chunk in _chunks(values):
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
    at = next((row[name] for name in _TIMES if isinstance(row.get(name), datetime)), None)
    license_id = row["id"] if table == "licenses" else row.get("license_id")
    return license_id not in newer and (at is None or at <= before)


def _find_text(connection: Connection, table: sa.Table, pattern: AddressPattern) -> Iterator[Row]:
    columns = person_columns(table)
    if not columns:
        return
    likes = [func.lower("%" + _LITERAL.sub(r"~\g<0>", form) + "%") for form in pattern.forms]
    condition = or_(*(func.lower(column).like(like, escape="~") for column in columns for like in likes))
    for row in _select(connection, table, condition):
        if any(pattern.is_in(row[column.key]) for column in columns):
            yield row


def _conditions(ids: Sequence[bytes], known: Known) -> Iterator[tuple[sa.Table, ColumnElement[bool]]]:
    """Yield where else to look: rows that refer to a license, mention it, or belong to the address."""
    for chunk in _chunks(ids):
        for column in _OF_LICENSE:
            yield column.table, column.in_(chunk)
        hexes = [license_id.hex() for license_id in chunk]
        audit = licenses.audit.c
        yield licenses.audit, and_(audit.object_kind == "license", audit.object_id.in_(hexes))
        for column in _MENTIONS:
            yield column.table, or_(*(column.like(f"%{hex_id}%") for hex_id in hexes))
    yield events.jobs, events.jobs.c.owner == known.owner
    for chunk in _chunks(list(known.jobs)):
        yield events.jobs, events.jobs.c.id.in_(chunk)
    yield access.account_codes, access.account_codes.c.address == known.code_address
    yield access.daily_counts, access.daily_counts.c.who == known.code_address
    for chunk in _chunks(list(known.receipts)):
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


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(values), _CHUNK):
        yield values[first : first + _CHUNK]


def list_texts(connection: Connection) -> Iterator[str]:
    """Yield every text that may hold a mail address, such as to look for erased ones."""
    for table in metadata.sorted_tables:
        for column in person_columns(table):
            has_sign = or_(column.like("%@%"), column.like("%~%40%", escape="~"))
            statement = select(column).where(has_sign).distinct().execution_options(yield_per=_FETCHED)
            yield from connection.execute(statement).scalars()


def list_sealed(connection: Connection) -> Iterator[tuple[str, Row]]:
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
        for chunk in _chunks(ids)
        for license_id in connection.scalars(select(sold).where(sold.in_(chunk)))
    }


def erase_person(
    connection: Connection,
    person: PersonalData,
    pattern: AddressPattern,
    token: str,
    now: datetime,
    kept: Collection[bytes],
) -> dict[str, int]:
    """Erase the data of `find_person`; return the number of rows that were changed or deleted, by table.

    Args:
        token: Takes the place of the address everywhere: an order that is called by it keeps one name in all
            tables, and orders of different people keep different names.
        kept: Ids of licenses that stay, without the person; others are deleted.
    """
    gone = frozenset(person.license_ids) - frozenset(kept)
    eraser = _Eraser(connection, pattern, token, now, frozenset(person.license_ids), gone)
    counts: dict[str, int] = {}
    for table in reversed(metadata.sorted_tables):
        count = sum(eraser.erase(table, row) for row in person.rows.get(table.name, ()))
        if count:
            counts[table.name] = count
    return counts


class _Eraser(NamedTuple):
    """Erases rows; `gone` are those of the licenses `ids` that are deleted."""

    connection: Connection
    pattern: AddressPattern
    token: str
    now: datetime
    ids: frozenset[bytes]
    gone: frozenset[bytes]

    def erase(self, table: sa.Table, row: Row) -> int:
        """Delete or change a row; return 1 if there was something to do."""
        is_it = and_(*(column == row[column.key] for column in table.primary_key))
        license_id = row["id"] if table is licenses.licenses else row.get("license_id")
        is_mine, is_gone = license_id in self.ids, license_id in self.gone
        if is_gone and table is licenses.trials:
            values: dict[str, Any] = {"license_id": None}  # the machine stays known: it has had its trial
        elif is_gone or table.name in _REMOVED or (is_mine and table is licenses.refusals):
            return self.connection.execute(delete(table).where(is_it)).rowcount
        else:
            values = self._changes(table, row, is_mine=is_mine)
        if values:
            self.connection.execute(update(table).where(is_it).values(values))
        return bool(values)

    def _changes(self, table: sa.Table, row: Row, *, is_mine: bool) -> dict[str, Any]:
        values = _erased_values(table, row, self.pattern, self.token)
        if is_mine:
            values |= {name: None for name in _BLANKED.get(table.name, ()) if row[name] is not None}
        if table is licenses.audit and row["object_kind"] == "license" and row["details"] != "{}":
            mine = {license_id.hex() for license_id in self.ids}
            values |= {"details": "{}"} if row["object_id"] in mine else {}
        if table is sales.sale_events and values and row["state"] in {"waiting", "dead"}:
            values |= {"state": "ignored", "reason": ERASED, "finished_at": self.now}
        return values


def _erased_values(table: sa.Table, row: Row, pattern: AddressPattern, token: str) -> dict[str, Any]:
    values = {}
    for column in person_columns(table):
        if pattern.is_in(row[column.key]):
            erased = pattern.erase(row[column.key], token)
            values[column.key] = None if column.name == "customer_email" else erased
    return values


class PersonalDataRepository(Repository):
    """All stored data of a person, of every table."""

    def find(self, pattern: AddressPattern, known: Known, before: datetime | None = None) -> PersonalData:
        """Find the person's data in one state of the database, as `find_person`, without a time limit."""
        with self._database.snapshot() as connection:
            return find_person(connection, pattern, known, before)

    def list_texts(self) -> Iterator[str]:
        """Yield texts that may hold a mail address."""
        with self._database.snapshot() as connection:
            yield from list_texts(connection)

    def list_sealed(self) -> Iterator[tuple[str, Row]]:
        """Yield rows whose content is encrypted, with the name of their table."""
        with self._database.snapshot() as connection:
            yield from list_sealed(connection)

    def find_sold(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return which licenses a shop has sold."""
        with self._reading() as connection:
            return find_sold(connection, ids)

    def erase(
        self,
        person: PersonalData,
        pattern: AddressPattern,
        token: str,
        now: datetime,
        kept: Collection[bytes],
    ) -> dict[str, int]:
        """Erase the data that `find_person` returned, as `erase_person`."""
        with self._writing() as connection:
            lock_licenses(connection, licenses.licenses.c.id.in_(person.license_ids))
            return erase_person(connection, person, pattern, token, now, kept)

    def add_erasure(self, name: str, note: bytes) -> None:
        """Store that an address was erased, by its hash."""
        self._put(licenses.facts, {"name": f"{_ERASURE}{name}", "value": note})

    def list_erasures(self) -> dict[str, bytes]:
        """Load the hashes of erased addresses, each with its note."""
        rows = self._all(select(licenses.facts).where(licenses.facts.c.name.like(f"{_ERASURE}%")))
        return {row.name.removeprefix(_ERASURE): row.value for row in rows}


_ERASURE: Final = "erased/"
