"""Licenses, activations and subscriptions. What is missing is a return value; services raise the error."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from licserver.database.hot_path.lookups import Lookup, find_licenses
from licserver.database.hot_path.row_writer import RowWriter
from licserver.database.repositories.base import Repository, matching
from licserver.database.tables.access import account_sessions
from licserver.database.tables.licenses import activations, license_words, licenses, products
from licserver.database.tables.sales import sale_sources, sale_subscriptions
from licserver.domain.entitlements import dump, load
from licserver.domain.records import LISTS, Activation, Environment, IssuedLicense, LicenseSnapshot, Machine
from licserver.domain.text import extract_words

IMPORT_LOCK: Final = (0x6C696373, 1)
"""An advisory lock of PostgreSQL: shared while a license of a subscription is issued or a subscription
ends, exclusive while an import is moved in."""


class SubscriptionLicenses(NamedTuple):
    """A subscription, by the id that the vendor's store gave it, and how many licenses are linked to it."""

    id: str
    licenses: int
    ended_at: datetime | None


_PAGE: Final = 1_000

# A million may be issued at once; SQLAlchemy Core would take half of that time.
_LICENSES = RowWriter(licenses)
_WORDS = RowWriter(license_words)
_STORED: Final[Select[Any]] = select(
    *(column.label(column.key) for column in licenses.columns), products.c.slug.label("product_slug")
).join(products, products.c.id == licenses.c.product_id)
_SELECT: Final = _STORED.add_columns(
    select(func.count())
    .where(activations.c.license_id == licenses.c.id)
    .scalar_subquery()
    .label("slots_used")
)
_FIND: Final = _SELECT.where(licenses.c.id == bindparam("license"))
_ACTIVATIONS: Final = (
    select(activations)
    .where(activations.c.license_id == bindparam("license"))
    .order_by(activations.c.activated_at, activations.c.domain, activations.c.ip)
)


def _of_product(statement: Select[Any], product_id: int | None) -> Select[Any]:
    """Select the licenses of a product, or all, by the instant of issue."""
    ordered = statement.order_by(licenses.c.issued_at, licenses.c.id)
    return ordered if product_id is None else ordered.where(licenses.c.product_id == product_id)


class LicenseRepository(Repository):
    """Licenses and activations."""

    def add_all(self, new: Sequence[IssuedLicense]) -> None:
        """Write new licenses, all of them or none."""
        # In the order of the index: half the page writes.
        ordered = sorted(new, key=lambda license_: license_.id)
        with self._writing() as connection:
            _LICENSES.write(connection, list(map(license_row, ordered)))
            if words := [row for license_ in new for row in _word_rows(license_)]:
                _WORDS.write(connection, sorted(words))

    def find(self, license_id: bytes, *, locked: bool = False) -> IssuedLicense | None:
        """Load one license; a `locked` row cannot be changed by others until the transaction ends."""
        with self._reading() as connection:
            if locked:
                lock_licenses(connection, licenses.c.id == license_id)
            row = connection.execute(_FIND, {"license": license_id}).first()
        return None if row is None else _read_license(row)

    def find_all(self, ids: Sequence[bytes], *, locked: bool = False) -> list[IssuedLicense]:
        """Load licenses, in the given order, without those that do not exist; `locked` as in `find`."""
        with self._reading() as connection:
            if locked:
                lock_licenses(connection, licenses.c.id.in_(ids))
            rows = connection.execute(_SELECT.where(licenses.c.id.in_(ids))).all()
        by_id = {row.id: _read_license(row) for row in rows}
        return [by_id[license_id] for license_id in ids if license_id in by_id]

    def list_all(self, product_id: int | None = None) -> Iterator[IssuedLicense]:
        """Load all licenses, or those of one product, by the instant of issue, a page at a time."""
        with self._reading() as connection:
            streamed = connection.execution_options(yield_per=_PAGE)
            yield from map(_read_license, streamed.execute(_of_product(_SELECT, product_id)))

    def list_with_activations(
        self, product_id: int | None
    ) -> Iterator[tuple[IssuedLicense, list[Activation]]]:
        """Load all licenses, or those of one product, by the instant of issue, as of one moment.

        `slots_used` is not loaded: the activations are.
        """
        slots = select(activations).order_by(*activations.primary_key)
        with self._database.snapshot() as connection:
            streamed = connection.execution_options(yield_per=_PAGE)
            for page in streamed.execute(_of_product(_STORED, product_id)).partitions(_PAGE):
                of_page = slots.where(activations.c.license_id.in_([row.id for row in page]))
                taken = {
                    license_id: list(map(_read_activation, rows))
                    for license_id, rows in groupby(connection.execute(of_page), attrgetter("license_id"))
                }
                for row in page:
                    yield _read_license(row), taken.get(row.id, [])

    def list_activations(self, license_id: bytes) -> list[Activation]:
        """Load a license's activations, in the order in which they took their slots."""
        return list(map(_read_activation, self._all(_ACTIVATIONS, license=license_id)))

    def list_by_last_seen(
        self, license_id: bytes, domains: int, *, oldest_first: bool = False
    ) -> list[Activation]:
        """Load all activations of so many domains: those that were seen last, or longest ago."""
        seen = func.max(func.coalesce(activations.c.last_seen_at, activations.c.activated_at))
        of_license = activations.c.license_id == license_id
        order = seen, activations.c.domain
        chosen = select(activations.c.domain).where(of_license).group_by(activations.c.domain)
        chosen = chosen.order_by(*(column.asc() if oldest_first else column.desc() for column in order))
        statement = select(activations).where(of_license, activations.c.domain.in_(chosen.limit(domains)))
        return list(map(_read_activation, self._all(statement)))

    def list_activations_of(self, license_id: bytes, domains: Collection[str]) -> list[Activation]:
        """Load the activations of some domains."""
        if not domains:
            return []
        of_them = (activations.c.license_id == license_id) & activations.c.domain.in_(sorted(domains))
        return list(map(_read_activation, self._all(select(activations).where(of_them))))

    def has_slot(self, license_id: bytes, domain: str) -> bool:
        """Return whether a domain holds a slot of a license."""
        statement = select(activations.c.ip).where(
            matching(activations, license_id=license_id, domain=domain)
        )
        return self._first(statement.limit(1)) is not None

    def list_activations_page(
        self, license_id: bytes, after: tuple[str, str] | None, limit: int
    ) -> list[Activation]:
        """Load activations by domain and address, after those of the last page."""
        key = activations.c.domain, activations.c.ip
        page = select(activations).where(activations.c.license_id == license_id).order_by(*key).limit(limit)
        if after is not None:
            page = page.where(tuple_(*key) > tuple_(*map(literal, after)))
        return list(map(_read_activation, self._all(page)))

    def list_few_activations(self, ids: Sequence[bytes]) -> dict[bytes, list[Activation]]:
        """Load all activations of licenses that have few, by domain and address."""
        by_license: dict[bytes, list[Activation]] = {license_id: [] for license_id in ids}
        statement = select(activations).where(activations.c.license_id.in_(ids))
        for row in self._all(statement.order_by(activations.c.domain, activations.c.ip)) if ids else ():
            by_license[row.license_id].append(_read_activation(row))
        return by_license

    def list_machines(self, ids: Sequence[bytes], limit: int) -> list[tuple[bytes, Activation]]:
        """Load activations of some licenses, each with its license's id."""
        statement = select(activations).where(activations.c.license_id.in_(ids))
        rows = self._all(statement.order_by(*activations.primary_key).limit(limit))
        return [(row.license_id, _read_activation(row)) for row in rows]

    def deactivate(self, license_id: bytes, domain: str | None, ip: str | None) -> int:
        """Remove the activations of a domain or of an address; return how many slots that freed."""
        either = or_(activations.c.domain == domain, activations.c.ip == ip)
        return self._remove_activations(license_id, either)

    def remove_activation(self, license_id: bytes, environment: Environment) -> bool:
        """Remove one activation; return False if it does not exist."""
        return self._remove_activations(license_id, matching(activations, **environment._asdict())) > 0

    def _remove_activations(self, license_id: bytes, which: ColumnElement[bool]) -> int:
        with self._writing() as connection:
            lock_licenses(connection, licenses.c.id == license_id)
            its = activations.c.license_id == license_id
            return connection.execute(activations.delete().where(its, which)).rowcount

    def find_snapshot(self, license_id: bytes, environment: Environment) -> LicenseSnapshot | None:
        """Load a license as an environment sees it, by the statement of a verify."""
        with self._reading() as connection:
            return find_licenses(connection, [Lookup(license_id, environment)])[0]

    def add_activation(
        self, license_id: bytes, environment: Environment, now: datetime, machine: Machine
    ) -> None:
        """Insert an activation of a license, which must be locked."""
        self._execute(activations.insert().values((license_id, *environment, now, now, *machine, None)))

    def hold_offline(self, license_id: bytes, domain: str, until: datetime) -> None:
        """Store until when a license file holds the slots of a domain; an earlier file may end later."""
        held = activations.c.offline_until
        its = (activations.c.license_id == license_id) & (activations.c.domain == domain)
        is_earlier = held.is_(None) | (held < until)
        self._execute(update(activations).where(its, is_earlier).values(offline_until=until))

    def change(self, *before: IssuedLicense, **changes: Any) -> None:
        """Change fields of licenses, which must be locked; all get the same values.

        Another address ends the sessions of the customer's page, which the one before may have.
        """
        changes |= {name: "\n".join(changes[name]) for name in LISTS if name in changes}
        if "overrides" in changes:
            changes["overrides"] = dump(changes["overrides"])
        old = {row for license_ in before for row in _word_rows(license_)}
        new = {row for license_ in before for row in _word_rows(replace(license_, **changes))}
        ids = [license_.id for license_ in before]
        email = changes.get("customer_email")
        moved = [
            license_.id
            for license_ in before
            if "customer_email" in changes and license_.customer_email != email
        ]
        with self._writing() as connection:
            connection.execute(update(licenses).where(licenses.c.id.in_(ids)).values(**changes))
            if moved:
                connection.execute(account_sessions.delete().where(account_sessions.c.license_id.in_(moved)))
            gone = defaultdict[str, list[bytes]](list)
            for word, id_ in sorted(old - new):
                gone[word].append(id_)
            for word, of in gone.items():
                is_it = license_words.c.word == word, license_words.c.license_id.in_(of)
                connection.execute(license_words.delete().where(*is_it))
            if added := sorted(new - old):
                _WORDS.write(connection, added)

    def list_ending(self, first: date, last: date, after: bytes, limit: int) -> Sequence[Row[Any]]:
        """Load licenses with an address whose last day is within some days, by id: `id` and `expires_on`."""
        columns = licenses.c
        has_address = columns.customer_email.is_not(None), columns.id > after
        statement = select(columns.id, columns.expires_on).where(ends_within(first, last), *has_address)
        return self._all(statement.order_by(columns.id).limit(limit))

    def list_ending_subscriptions(
        self, now: datetime, until: datetime, after: bytes, limit: int
    ) -> Sequence[Row[Any]]:
        """Load licenses with an address whose subscription is known to end, by id; with both of their ends.

        Not those without such a report of the shop: they end unless they are renewed.
        """
        columns, sale_columns = licenses.c, sale_subscriptions.c
        of_license = (
            sale_columns.source.in_(select(sale_sources.c.name)),
            sale_columns.subscription_id == columns.subscription_id,
        )
        is_open = exists().where(
            *of_license, sale_columns.cancels_at.is_distinct_from(columns.subscription_ended_at)
        )
        ends = columns.subscription_ended_at > now, columns.subscription_ended_at <= until
        is_valid = ~columns.lifetime, columns.revoked_at.is_(None), columns.customer_email.is_not(None)
        statement = select(columns.id, columns.expires_on, columns.subscription_ended_at)
        page = statement.where(*ends, *is_valid, columns.id > after, ~is_open)
        return self._all(page.order_by(columns.id).limit(limit))


_SUBSCRIPTIONS: Final = select(
    licenses.c.subscription_id, func.count(), func.max(licenses.c.subscription_ended_at)
).group_by(licenses.c.subscription_id)


class SubscriptionRepository(Repository):
    """Subscriptions."""

    def set_end(self, subscription_id: str, at: datetime | None) -> int:
        """Store on all linked licenses when a subscription ends; return their number."""
        linked = licenses.c.subscription_id == subscription_id
        with self._writing() as connection:
            lock_licenses(connection, linked)
            ended = update(licenses).where(linked).values(subscription_ended_at=at)
            return connection.execute(ended).rowcount

    def lock(self, subscription_id: str) -> datetime | None:
        """Block others from issuing for a subscription or ending it, until commit; return its end."""
        with self._writing() as connection:
            if self._database.is_remote:  # else the whole file is locked; there may be no row yet to lock
                lock = func.pg_advisory_xact_lock(func.hashtextextended(subscription_id, 0))
                connection.execute(select(func.pg_advisory_xact_lock_shared(*IMPORT_LOCK), lock))
            end = select(func.max(licenses.c.subscription_ended_at))
            ended_at: datetime | None = connection.scalar(
                end.where(licenses.c.subscription_id == subscription_id)
            )
            return ended_at

    def list_page(self, after: str | None, limit: int) -> list[SubscriptionLicenses]:
        """Load subscriptions by id, after the last id of the page before."""
        column = licenses.c.subscription_id
        page = _SUBSCRIPTIONS.where(column.is_not(None) if after is None else column > after)
        return list(map(SubscriptionLicenses._make, self._all(page.order_by(column).limit(limit))))

    def find(self, subscription_id: str) -> SubscriptionLicenses | None:
        """Load one subscription."""
        statement = _SUBSCRIPTIONS.where(licenses.c.subscription_id == subscription_id)
        return self._find(statement, SubscriptionLicenses._make)


def ends_within(first: date, last: date) -> ColumnElement[bool]:
    """Return the condition that the last day of a license is within these, and it is not revoked."""
    columns = licenses.c
    return and_(columns.expires_on.between(first, last), ~columns.lifetime, columns.revoked_at.is_(None))


def lock_licenses(connection: Connection, which: ColumnElement[bool]) -> None:
    """Lock licenses in the order of their ids, so that no two transactions wait for each other.

    A transaction of SQLite that writes has the whole file locked.
    """
    if connection.dialect.name == "sqlite":
        return
    connection.execute(select(licenses.c.id).where(which).order_by(licenses.c.id).with_for_update()).all()


def _read_activation(row: Row[Any]) -> Activation:
    return Activation._make((Environment(row.domain, row.ip), *row[3:]))


def _word_rows(license_: IssuedLicense) -> list[tuple[str, bytes]]:
    texts = license_.customer_email, license_.revoked_reason, license_.note
    return [(word, license_.id) for word in extract_words(*texts)] if any(texts) else []


_COLUMNS: Final = licenses.columns.keys()
_ROW: Final = attrgetter(*_COLUMNS)
_LISTS: Final = [(_COLUMNS.index(name), name) for name in LISTS]
_OVERRIDES: Final = _COLUMNS.index("overrides")


def license_row(license_: IssuedLicense) -> tuple[Any, ...]:
    """Return the row of a license, in the order of the table's columns."""
    row = list(_ROW(license_))
    for index, name in _LISTS:
        row[index] = "\n".join(getattr(license_, name))
    row[_OVERRIDES] = dump(license_.overrides)
    return tuple(row)


def _read_license(row: Row[Any]) -> IssuedLicense:
    values = row._asdict()
    values |= {name: tuple(filter(None, values[name].split("\n"))) for name in LISTS}
    values["overrides"] = load(values["overrides"])
    return IssuedLicense(**values)
