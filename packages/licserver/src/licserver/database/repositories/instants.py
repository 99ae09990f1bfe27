"""The purpose of each stored instant, and the correction of those stored by a clock that was ahead (D-285).

A new column is classed here; a test names each that is missing.
"""

import enum
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, Connection, Date, func, select, update

from licserver.database.repositories.base import put_into
from licserver.database.tables import metadata
from licserver.database.tables.access import second_factors, tries
from licserver.database.tables.events import webhook_endpoints
from licserver.database.tables.licenses import audit, facts, products, releases
from licserver.domain.instants import (
    ACCOUNT_CODE,
    ACCOUNT_SESSION,
    CONSOLE_SESSION,
    LONGEST_LEASE,
    LONGEST_PAUSE,
    SEAT_REFUSED,
    TOLERANCE,
    TWO_WEBHOOK_SECRETS,
    ClockReading,
    ClockRecord,
    read_clock,
)


class Purpose(enum.Enum):
    """The purpose of an instant."""

    REPORT = (
        "when something happened: shown and sorted, compared with no later instant but to delete what is old"
    )
    GIVEN = "chosen by a person, a customer or a shop, or printed in a file: never changed"
    KEPT = "until when something is kept: a later one keeps it longer, and nothing waits for it"
    START = "something is counted from here, or the newest is the last: never later than now"
    END = "a lease: never later than it lasts from now"
    DUE = "not before: never later than the longest pause from now"
    SEEN = "stored again when it differs from now, wherever the row is read (`statistics.note_seen`)"


class Rule(NamedTuple):
    """The use of a column; of `END` and `DUE` how late it may be, and what a later one becomes."""

    use: Purpose
    limit: timedelta = timedelta()
    instead: timedelta | None = None  # from now; `limit` without it


_REPORTS: Final = """
    tokens.created_at tokens.revoked_at users.password_changed_at users.created_at sessions.created_at
    second_factors.confirmed_at failed_logins.day jobs.created_at jobs.finished_at
    webhook_endpoints.created_at webhook_endpoints.disabled_at webhook_events.created_at
    webhook_deliveries.sent_at
    sale_sources.created_at
    sale_events.received_at sale_events.finished_at products.created_at releases.published_at
    releases.withdrawn_at manifests.added_at rollbacks.reported_at plans.created_at licenses.issued_at
    licenses.revoked_at activations.activated_at seats.taken_at audit.at totals.day daily_counts.day
    sale_facts.stored_at sale_problems.found_at sale_problems.closed_at
"""
_GIVEN: Final = """
    tokens.expires_on licenses.expires_on licenses.support_until licenses.subscription_ended_at
    activations.offline_until sale_subscriptions.paid_through sale_subscriptions.end_reported_at
    sale_subscriptions.ended_at sale_subscriptions.purchased_at sale_subscriptions.change_reported_at
    sale_subscriptions.cancels_at sale_subscriptions.applied_end sale_facts.reported_at
"""
_STARTS: Final = """
    tokens.last_used_on sessions.last_used_at second_factors.created_at second_factors.failed_at
    known_addresses.last_used_at receipts.created_at webhook_endpoints.failing_since
    releases.rollout_started_at releases.rollout_paused_at refusals.first_at refusals.last_at
    trials.started_at moves.freed_at slot_moves.freed_at move_records.moved_at
    shared_licenses.marked_at shared_licenses.announced_at
    sale_problems.mailed_at
"""

RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(_REPORTS.split(), Rule(Purpose.REPORT)),
    **dict.fromkeys(_GIVEN.split(), Rule(Purpose.GIVEN)),
    **dict.fromkeys(_STARTS.split(), Rule(Purpose.START)),
    **dict.fromkeys(("uses.kept_until", "use_ids.kept_until"), Rule(Purpose.KEPT)),
    "sessions.expires_at": Rule(Purpose.END, CONSOLE_SESSION),
    "account_sessions.expires_at": Rule(Purpose.END, ACCOUNT_SESSION),
    "account_codes.expires_at": Rule(Purpose.END, ACCOUNT_CODE),
    "webhook_endpoints.previous_until": Rule(Purpose.END, TWO_WEBHOOK_SECRETS),
    "seats.expires_at": Rule(Purpose.END, SEAT_REFUSED, TOLERANCE),  # apps renew theirs
    "jobs.due_at": Rule(Purpose.DUE, LONGEST_PAUSE, LONGEST_LEASE),
    "activations.last_seen_at": Rule(Purpose.SEEN),
}
"""``table.column`` → its rule, for each column of instants and days."""

COUNTED: Final[Mapping[str, int]] = {"second_factors.last_step": 30, "tries.minute": 60}
"""Columns that count time since 1970 by so many seconds."""

SCANNED: Final = "webhooks_scanned_at"
"""The fact up to when licenses were scanned for events of their ends."""
WATCHED: Final = "activations_watched_since"
"""The fact with the start of sweeps: an activation counts as seen then."""
CLOCK: Final = "clock"
"""The fact with the `ClockRecord`."""

_RESCANNED: Final = timedelta(days=90)
"""The time for which ids of events are kept, by which each is sent once: lost events are searched in it."""


class FutureInstants(NamedTuple):
    """Rows whose instant is later than it can be."""

    column: str
    number: int


def find_column(name: str) -> Column[Any]:
    """Return the column of a rule."""
    table, _, column = name.partition(".")
    return next(candidate for candidate in metadata.tables[table].c if candidate.name == column)


def read_record(connection: Connection) -> ClockRecord | None:
    """Load what is known of the clocks."""
    value = connection.scalar(select(facts.c.value).where(facts.c.name == CLOCK))
    if value is None:
        return None
    confirmed, read, moved, is_mended = json.loads(value)
    parse = datetime.fromisoformat
    return ClockRecord(parse(confirmed), parse(read), None if moved is None else parse(moved), is_mended)


def write_record(connection: Connection, record: ClockRecord) -> None:
    """Store what is known of the clocks."""
    shown = [None if instant is None else instant.astimezone(UTC).isoformat() for instant in record[:3]]
    put_into(connection, facts, {"name": CLOCK, "value": json.dumps([*shown, record.is_mended]).encode()})


def evaluate_clock(connection: Connection, now: datetime) -> ClockReading:
    """Compare the clock with the readings before, and with that of the database; nothing is stored."""
    record = read_record(connection)
    latest = _latest_known(connection) if record is None else None
    return read_clock(record, now, read_database_clock(connection), latest)


def settle(connection: Connection, now: datetime) -> datetime:
    """Return the settled instant, by which expired rows are deleted; nothing is stored."""
    return evaluate_clock(connection, now).settled_at


def read_database_clock(connection: Connection) -> datetime | None:
    """Return the time of a PostgreSQL server; None for SQLite."""
    if connection.dialect.name != "postgresql":
        return None
    now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
    return now


def _latest_known(connection: Connection) -> datetime | None:
    """Return when a person or a scan last used the database."""
    line = connection.scalar(select(audit.c.at).order_by(audit.c.id.desc()).limit(1))
    scanned = _read_fact(connection, SCANNED)
    return max(filter(None, (line, scanned)), default=None)


def _read_fact(connection: Connection, name: str) -> datetime | None:
    value = connection.scalar(select(facts.c.value).where(facts.c.name == name))
    return None if value is None else datetime.fromisoformat(bytes(value).decode())


def _limits(now: datetime, *, went_back: bool = False) -> Iterator[tuple[Column[Any], Any, Any]]:
    """Yield each column that may be late, the latest that it can be, and what a later one becomes."""
    for name, rule in RULES.items():
        column, is_day = find_column(name), isinstance(find_column(name).type, Date)
        match rule.use:
            case Purpose.START if is_day:
                yield column, now.date(), now.date()
            case Purpose.START:
                yield column, now + TOLERANCE, now
            case Purpose.END:
                instead = rule.limit if rule.instead is None else rule.instead
                yield column, now + rule.limit + TOLERANCE, now + instead
            case Purpose.DUE:
                # A running job keeps the longest lease; to repeat a waiting one early does no harm.
                soon = now + LONGEST_LEASE
                yield column, soon if went_back else now + rule.limit, soon
            case _:  # stays as it is
                pass


def count_future(connection: Connection, now: datetime) -> list[FutureInstants]:
    """Count what a clock that was ahead has stored, without what has to stay as it is."""
    future = []
    for column, latest, _ in _limits(now):
        count = connection.scalar(select(func.count()).select_from(column.table).where(column > latest)) or 0
        if count:
            future.append(FutureInstants(f"{column.table.name}.{column.name}", count))
    future += [
        FutureInstants(name, 1)
        for name in (SCANNED, WATCHED)
        if (instant := _read_fact(connection, name)) is not None and instant > now + TOLERANCE
    ]
    for name, seconds in COUNTED.items():
        counted, latest = find_column(name), int((now + TOLERANCE).timestamp()) // seconds
        count = (
            connection.scalar(select(func.count()).select_from(counted.table).where(counted > latest)) or 0
        )
        if count:
            future.append(FutureInstants(name, count))
    return future


def mend(connection: Connection, now: datetime, *, went_back: bool) -> int:
    """Bring back what a clock that was ahead has stored; return how many values.

    Args:
        connection: Of a transaction.
        now: Not of a clock that is behind: that would bring back what is right.
        went_back: A clock was ahead lately, perhaps by less than a job may wait.
    """
    total = 0
    for column, latest, instead in _limits(now, went_back=went_back):
        late = column > latest
        if connection.scalar(select(column).where(late).limit(1)) is None:
            continue  # without a lock
        # What an instant is the key of counts no more: two of them may become the same.
        is_key = column.primary_key
        values = update(column.table).values({column: instead})
        total += connection.execute((column.table.delete() if is_key else values).where(late)).rowcount
        if column.table is releases:  # servers keep what they have read of products
            connection.execute(update(products).values({products.c.slug: products.c.slug}))
    total += _mend_facts(connection, now)
    step = int(now.timestamp()) // COUNTED["second_factors.last_step"]
    is_late = second_factors.c.last_step > step + 1
    total += connection.execute(update(second_factors).where(is_late).values(last_step=step)).rowcount
    minute = int((now + TOLERANCE).timestamp()) // COUNTED["tries.minute"]
    return total + connection.execute(tries.delete().where(tries.c.minute > minute)).rowcount


def _mend_facts(connection: Connection, now: datetime) -> int:
    total = 0
    watched, scanned = _read_fact(connection, WATCHED), _read_fact(connection, SCANNED)
    if watched is not None and watched > now + TOLERANCE:
        put_into(connection, facts, {"name": WATCHED, "value": _dump(now)})
        total += 1
    if scanned is not None and scanned > now + TOLERANCE:
        # What has ended since the clock was right is not known: look again, back to the first endpoint.
        enabled = webhook_endpoints.c.disabled_at.is_(None)
        first = connection.scalar(select(func.min(webhook_endpoints.c.created_at)).where(enabled))
        begin = max(now - _RESCANNED, min(now, now if first is None else first))
        put_into(connection, facts, {"name": SCANNED, "value": _dump(begin)})
        total += 1
    return total


def _dump(at: datetime) -> bytes:
    return at.astimezone(UTC).isoformat().encode()
