"""Written in batches beside the hot path: counts of a day, refusals, and when activations were last seen."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, and_, bindparam, func, or_, select

from licserver.database.engine import Database
from licserver.database.repositories.base import Repository, put_into
from licserver.database.repositories.instants import settle
from licserver.database.repositories.licenses import ends_within
from licserver.database.repositories.webhooks import EVENTS, NewEvent, add_events
from licserver.database.tables.access import daily_counts
from licserver.database.tables.events import jobs
from licserver.database.tables.licenses import activations, licenses, products, refusals, releases, totals
from licserver.domain.instants import TOLERANCE
from licserver.domain.records import Environment, EnvironmentPolicy, Machine
from licserver.errors import StatementRefusedError


class CountKey(NamedTuple):
    """A verdict of ``verify``, an ``activation``, or the version of a product's ``update`` check.

    Of calls whose key is unknown or mistyped, and of those counted by earlier versions, the product is empty.
    """

    name: str
    product: str
    label: str


class Total(NamedTuple):
    """A count of one day."""

    day: date
    counted: CountKey
    times: int


def add_counts(database: Database, day: date, counts: Mapping[CountKey, int]) -> None:
    """Add to a day's totals, all or none; several processes may add at the same time."""
    rows = [{"day": day, **counted._asdict(), "count": count} for counted, count in sorted(counts.items())]
    if rows:
        with database.writing() as connection:
            put_into(connection, totals, *rows, added="count")


def load_slugs(database: Database, product_ids: Collection[int | None]) -> Mapping[int | None, str]:
    """Load the slugs of some products, by id; of no product it is empty."""
    slugs = dict.fromkeys(product_ids, "")
    if ids := [product_id for product_id in product_ids if product_id is not None]:
        with database.reading() as connection:
            rows = connection.execute(select(products.c.id, products.c.slug).where(products.c.id.in_(ids)))
            slugs.update((row.id, row.slug) for row in rows)
    return slugs


def published_versions(database: Database, slugs: Collection[str]) -> dict[tuple[str, str | None], str]:
    """Load how the versions of some products are written, by slug and version key."""
    if not slugs:
        return {}
    columns = products.c.slug, releases.c.version_key, releases.c.version
    of_products = select(*columns).join_from(products, releases).where(products.c.slug.in_(list(slugs)))
    with database.reading() as connection:
        rows = connection.execute(of_products)
        return {(row.slug, row.version_key): row.version for row in rows}


class StatisticsRepository(Repository):
    """Figures for the overview, each from daily counts or from the end of an index: never from a scan."""

    def sum_totals(self, since: date, slug: str | None = None) -> list[Total]:
        """Load the daily counts from a day on, of one product or the sums of all; without versions."""
        label = sa.case((totals.c.name == "update", ""), else_=totals.c.label).label("shown")
        summed = select(totals.c.day, totals.c.name, label, func.sum(totals.c.count).label("times"))
        which = summed.where(totals.c.day >= since, _of_product(slug))
        with self._reading() as connection:
            rows = connection.execute(which.group_by(totals.c.day, totals.c.name, "shown"))
            return [Total(day, CountKey(name, slug or "", text), int(n)) for day, name, text, n in rows]

    def sum_versions(self, since: date, slug: str | None = None) -> list[tuple[str, str, int]]:
        """Load the update checks from a day on: slug, version and number, the most frequent first."""
        count = func.sum(totals.c.count)
        summed = select(totals.c.product, totals.c.label, count).where(
            totals.c.day >= since, totals.c.name == "update", _of_product(slug)
        )
        rows = self._all(summed.group_by(totals.c.product, totals.c.label).order_by(count.desc()))
        return [(product, version, int(n)) for product, version, n in rows]

    def count_expiring(self, first: date, last: date, product_id: int | None = None) -> int:
        """Count the licenses whose last day is within some days, both included; revoked ones do not count."""
        statement = select(func.count()).select_from(licenses).where(ends_within(first, last))
        if product_id is not None:
            statement = statement.where(licenses.c.product_id == product_id)
        return self._scalar(statement) or 0

    def has_licenses(self) -> bool:
        """Return whether any license was ever issued."""
        return self._first(select(licenses.c.id).limit(1)) is not None


def _of_product(slug: str | None) -> sa.ColumnElement[bool]:
    return sa.true() if slug is None else totals.c.product == slug


REFUSALS_KEPT: Final = timedelta(days=30)
KEPT_PER_LICENSE: Final = 20  # environments; of what is written at once, another 20 may stay
_MAX_EXPIRED: Final = 1_000  # rows deleted in one transaction; the next ones follow with the next flush


class Refusal(NamedTuple):
    """An environment that a license was refused in lately; `reason` is a label of the statistics."""

    license_id: bytes
    environment: Environment
    reason: str
    times: int
    first_at: datetime
    last_at: datetime


_refused: Final = refusals.c
_of_one: Final = _refused.license_id == bindparam("of")
_last_kept: Final = (
    select(_refused.last_at)
    .where(_of_one)
    .order_by(_refused.last_at.desc())
    .limit(1)
    .offset(KEPT_PER_LICENSE - 1)
)
_TRIM: Final = sa.delete(refusals).where(
    _of_one, _refused.last_at < _last_kept.correlate(None).scalar_subquery()
)


def note_refusals(
    database: Database,
    refused: Mapping[tuple[bytes, Environment, str], int],
    now: datetime,
    events: Sequence[NewEvent] = (),
) -> set[bytes]:
    """Store refusals by license, environment and reason, with their numbers; drop the oldest; all or none.

    `events` are written with them. Those of licenses that were deleted meanwhile are passed over.

    Returns:
        The licenses that another transaction has locked: nothing of theirs is stored.
    """
    if not refused:
        return set()
    named = {license_id for license_id, *_ in refused}
    rows, of_license = [], Counter[bytes]()
    with database.writing() as connection:
        there = select(licenses.c.id).where(licenses.c.id.in_(named))
        # The lock of the foreign key, without waiting for it.
        share = there.with_for_update(read=True, key_share=True, skip_locked=True)
        free = set(connection.scalars(share))
        locked = set(connection.scalars(there)) - free if len(free) < len(named) else set[bytes]()
        for (license_id, environment, reason), count in sorted(refused.items()):  # sorted: no two deadlock
            of_license[license_id] += 1
            if license_id in free and of_license[license_id] <= KEPT_PER_LICENSE:
                row = {"license_id": license_id, **environment._asdict(), "reason": reason, "times": count}
                rows.append({**row, "first_at": now, "last_at": now})
        if rows:
            put_into(connection, refusals, *rows, added="times", unchanged="first_at")
            connection.execute(_TRIM, [{"of": license_id} for license_id in sorted(free)])
        add_events(connection, _within_day(connection, events))
        before = settle(connection, now) - REFUSALS_KEPT
        expired = select(*refusals.primary_key).where(_refused.last_at < before)
        if old := connection.execute(expired.order_by(_refused.last_at).limit(_MAX_EXPIRED)).all():
            is_old = sa.tuple_(*refusals.primary_key).in_(map(tuple, old))
            connection.execute(sa.delete(refusals).where(is_old))
    return locked


def _within_day(connection: Connection, events: Sequence[NewEvent]) -> list[NewEvent]:
    """Return the events that are new, of each license as many as it may have in a day (D-296)."""
    if not events:
        return []
    is_known = jobs.c.queue == EVENTS, jobs.c.key.in_([event.id for event in events])
    stored_ids = set(connection.scalars(select(jobs.c.key).where(*is_known)))
    new = [event for event in events if event.id not in stored_ids]
    admitted, counts = list[NewEvent](), daily_counts.c
    for license_id, of_license in groupby(new, key=lambda event: bytes.fromhex(event.data["license_id"])):
        group = list(of_license)
        day = group[0].at.date()
        this = counts.day == day, counts.subject == license_id
        remaining = max(0, KEPT_PER_LICENSE - (connection.scalar(select(counts.count).where(*this)) or 0))
        if added := group[:remaining]:
            row = {"day": day, "subject": license_id, "count": len(added)}
            put_into(connection, daily_counts, row, added="count")
            admitted += added
    return admitted


class RefusalRepository(Repository):
    """Refusals of the last 30 days."""

    def list_recent(
        self, now: datetime, limit: int, license_id: bytes | None = None, product_id: int | None = None
    ) -> list[Refusal]:
        """Load refusals, the latest first: of one license, of the licenses of a product, or of all."""
        statement = select(refusals).where(_refused.last_at >= now - REFUSALS_KEPT)
        if license_id is not None:
            statement = statement.where(_refused.license_id == license_id)
        if product_id is not None:
            statement = statement.join(licenses).where(licenses.c.product_id == product_id)
        rows = self._all(statement.order_by(_refused.last_at.desc(), *refusals.primary_key).limit(limit))
        return [Refusal(id_, Environment(domain, ip), *others) for id_, domain, ip, *others in rows]

    def find_licenses(self, domain: str | None, ip: str | None, limit: int) -> Sequence[bytes]:
        """Return the licenses that were refused in an environment with this domain or this address."""
        named = [(_refused.domain, domain), (_refused.ip, ip)]
        is_there = or_(sa.false(), *(column == value for column, value in named if value))
        rows = self._all(select(_refused.license_id).where(is_there).distinct().limit(limit))
        return [row.license_id for row in rows]


_BATCH: Final = 500  # activations updated in one transaction; new activations wait for it
_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '100ms'"  # meanwhile the rows before the locked one are held


class Seen(NamedTuple):
    """An activation was used; the policy decides which half of the environment must be its own.

    `machine` is that of the domain: an address may be shared by a whole office.
    """

    license_id: bytes
    environment: Environment
    at: datetime
    policy: EnvironmentPolicy = EnvironmentPolicy.STRICT
    machine: Machine | None = None


_DOMAIN: Final = activations.c.domain == bindparam("in_domain")
_IP: Final = activations.c.ip == bindparam("in_ip")
_others = activations.alias()
_IS_HELD: Final = sa.exists().where(
    _others.c.license_id == bindparam("of"),
    _others.c.domain == bindparam("in_domain"),
    _others.c.ip == bindparam("in_ip"),
)
_SAME: Final = {
    # Domain and address may be known from different activations: each of them was seen.
    EnvironmentPolicy.STRICT: or_(and_(_DOMAIN, _IP), and_(or_(_DOMAIN, _IP), ~_IS_HELD)),
    EnvironmentPolicy.DOMAIN: _DOMAIN,
    EnvironmentPolicy.EITHER: or_(_DOMAIN, _IP),
}


def _newer(column: sa.Column[str], name: str) -> sa.Case[str | None]:
    """Return what the machine of this domain sent now, or else what is stored."""
    value = func.coalesce(bindparam(name, type_=column.type), column)
    return sa.case((_DOMAIN, value), else_=column)


_NOTES: Final = {
    policy: sa.update(activations)
    .where(
        activations.c.license_id == bindparam("of"),
        same,
        or_(
            activations.c.last_seen_at.is_(None),
            activations.c.last_seen_at < bindparam("since"),
            activations.c.last_seen_at > bindparam("latest"),  # of a clock that was ahead
        ),
    )
    .values(
        last_seen_at=bindparam("seen_at"),
        label=_newer(activations.c.label, "new_label"),
        app_version=_newer(activations.c.app_version, "new_version"),
    )
    for policy, same in _SAME.items()
}


def is_due(license_id: bytes, seen_on: date | None, today: date, days: int) -> bool:
    """Return whether to store that an activation was seen, if that is done every so many days (D-251).

    Each license has its own day among them, or all that began together would be written on the same one.
    """
    if seen_on is None or days == 1:
        return seen_on != today
    return seen_on != today and ((today - seen_on).days >= days or _is_its_day(license_id, today, days))


def _is_its_day(license_id: bytes, today: date, days: int) -> bool:
    return (today.toordinal() + license_id[0]) % days == 0


def note_seen(database: Database, batch: Sequence[Seen], days: int = 1) -> list[Seen]:
    """Store that activations were seen, where that `is_due`, a few in a transaction.

    Returns:
        Those that another transaction has locked: to be noted the next time, with none of the others.
    """
    locked: list[Seen] = []
    for start in range(0, len(batch), _BATCH):
        chunk = sorted(batch[start : start + _BATCH], key=lambda seen: seen.at)
        # in one order, so that no two of them deadlock
        latest = [seen for _, seen in sorted({seen[:2] + seen[3:4]: seen for seen in chunk}.items())]
        try:
            with _briefly_waiting(database) as connection:
                _note(connection, latest, days)
        except StatementRefusedError:
            if not database.is_remote:
                raise
            with _briefly_waiting(database) as connection:
                held = _lock_activations(connection, latest)
                _note(connection, [seen for seen in latest if seen.license_id not in held], days)
            locked += [seen for seen in latest if seen.license_id in held]
    return locked


@contextmanager
def _briefly_waiting(database: Database) -> Iterator[Connection]:
    with database.writing() as connection:
        if database.is_remote:
            connection.exec_driver_sql(_LOCK_TIMEOUT)
        yield connection


def _lock_activations(connection: Connection, batch: Sequence[Seen]) -> set[bytes]:
    """Lock what the notes may change; return the licenses of which other transactions hold a part.

    Only after a note has met a lock: otherwise the locks would be a third more to write into the log.
    """
    ids, environments = zip(*((seen.license_id, seen.environment) for seen in batch), strict=True)
    domains, ips = zip(*environments, strict=True)
    rows = select(*activations.primary_key).where(
        activations.c.license_id.in_(ids), or_(activations.c.domain.in_(domains), activations.c.ip.in_(ips))
    )
    free = set(connection.execute(rows.with_for_update(skip_locked=True)))
    return {row.license_id for row in connection.execute(rows) if row not in free}


def _note(connection: Connection, batch: Sequence[Seen], days: int) -> None:
    for policy, note in _NOTES.items():
        if rows := [_to_row(seen, days) for seen in batch if seen.policy is policy]:
            connection.execute(note, rows)


def _to_row(seen: Seen, days: int) -> dict[str, object]:
    domain, ip = seen.environment
    label, version = seen.machine or Machine()
    row = {"of": seen.license_id, "in_domain": domain, "new_label": label, "new_version": version}
    if seen.policy is not EnvironmentPolicy.DOMAIN:
        row["in_ip"] = ip
    since = seen.at.replace(hour=0, minute=0, second=0, microsecond=0)
    if not _is_its_day(seen.license_id, seen.at.date(), days):
        since -= timedelta(days=days - 1)
    return {**row, "seen_at": seen.at, "since": since, "latest": seen.at + TOLERANCE}
