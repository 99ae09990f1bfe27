"""A clock that is ahead, and comes back: nothing stands still afterwards, and nothing was done for good."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from harness.engines import both_engines
from harness.world import World
from licserver.database.repositories import instants
from licserver.database.repositories.clock import SettledClock
from licserver.database.repositories.instants import COUNTED, RULES, Purpose, find_column, read_database_clock
from licserver.database.repositories.statistics import Seen, note_seen
from licserver.database.repositories.tokens import IdempotencyKey
from licserver.database.repositories.webhooks import DELIVERIES, EVENTS
from licserver.database.tables import metadata
from licserver.database.tables.access import second_factors
from licserver.database.tables.events import webhook_endpoints
from licserver.database.tables.licenses import activations
from licserver.database.tables.types import Instant
from licserver.domain.instants import TOLERANCE, ClockRecord, read_clock
from licserver.domain.offers import current_share
from licserver.domain.records import ActorKind, Environment, LicenseTerms, Machine, Rollout, Scope
from licserver.errors import RetryJobError
from licserver.services.mail import NOTICES
from licserver.services.self_check import Level, check_installation
from licserver.services.tokens import Response

pytestmark = pytest.mark.usefixtures("suspicious")

YEAR = timedelta(days=365)
HOOK = "https://hooks.example/in"
NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)


# --- the inventory, derived from the tables ---------------------------------------------------

COLUMNS = sorted(
    f"{table.name}.{column.name}"
    for table in metadata.sorted_tables
    for column in table.c
    if isinstance(column.type, Instant | sa.Date)
)


def test_each_column_of_time_has_a_rule() -> None:
    """A new column fails here until `repositories.instants` says what it is for."""
    assert sorted(RULES) == COLUMNS
    assert all(isinstance(find_column(name).type, sa.Integer | sa.BigInteger) for name in COUNTED)
    assert all(rule.limit for rule in RULES.values() if rule.use in {Purpose.END, Purpose.DUE})


FILLED: dict[str, Any] = {
    "tokens.scope": "read",
    "products.environment_policy": "strict",
    "jobs.state": "waiting",
    "jobs.queue": EVENTS,
    "jobs.payload": "{}",
    "sale_events.state": "done",
    "audit.actor_kind": "cli",
    "audit.details": "{}",
}


def add_row(connection: sa.Connection, table: sa.Table, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Add a row of any table with the rows that it refers to; return its values by the columns' names."""
    if table.name in known:
        return known[table.name]
    row: dict[str, Any] = {}
    for column in table.c:
        name = f"{table.name}.{column.name}"
        if column.foreign_keys:
            target = next(iter(column.foreign_keys)).column
            if not column.nullable:
                row[column.name] = add_row(connection, target.table, known)[target.name]
        elif name in FILLED:
            row[column.name] = FILLED[name]
        elif name in RULES:
            row[column.name] = NOON.date() if isinstance(column.type, sa.Date) else NOON
        elif not column.nullable or column.primary_key:
            row[column.name] = _value(column)
    if table.name == "receipts":
        row["user_id"] = add_row(connection, metadata.tables["users"], known)["id"]
    connection.execute(table.insert().values({table.c[_key(table, name)]: row[name] for name in row}))
    known[table.name] = row
    return row


def _key(table: sa.Table, name: str) -> str:
    return next(column.key for column in table.c if column.name == name)


def _value(column: sa.Column[Any]) -> Any:
    match column.type:
        case sa.Boolean():
            return False
        case sa.Integer() | sa.BigInteger():
            return 1
        case sa.LargeBinary():
            return b"0123456789abcdef"
        case _:
            return "1"


@pytest.mark.sampled(7)
@both_engines
@pytest.mark.parametrize("name", COLUMNS)
def test_pg_cron_105_what_a_clock_ahead_has_stored_does_not_stand_still(world: World, name: str) -> None:
    """Each column, as a clock a year ahead has written it: brought back, or left to those who chose it."""
    column, rule, now = find_column(name), RULES[name], NOON
    with world.services.database.writing() as connection:
        add_row(connection, column.table, {})
        is_day = isinstance(column.type, sa.Date)
        ahead: Any = now + YEAR + rule.limit
        connection.execute(sa.update(column.table).values({column: ahead.date() if is_day else ahead}))
        instants.write_record(connection, ClockRecord(now, now + YEAR))
    world.clock.now = now + timedelta(minutes=1)
    world.services.context.settled_now()
    with world.services.database.reading() as connection:
        stored = connection.scalar(sa.select(column))
        future = [future_.column for future_ in instants.count_future(connection, world.clock())]
    assert name not in future
    if stored is None:  # a key of its row
        assert column.primary_key
        return
    if rule.use in {Purpose.START, Purpose.END, Purpose.DUE}:
        latest = world.clock() + rule.limit
        assert stored <= (latest.date() if is_day else latest)
    else:
        assert stored == (ahead.date() if is_day else ahead)


def test_what_is_right_stays(world: World) -> None:
    """Rows that a clock has written which was never wrong are not changed by any step that brings back."""
    with world.services.database.writing() as connection:
        known: dict[str, dict[str, Any]] = {}
        for table in metadata.sorted_tables:
            if table.name != "facts":
                add_row(connection, table, known)
        for name, rule in RULES.items():
            column = find_column(name)
            value: Any = NOON + rule.limit
            is_day = isinstance(column.type, sa.Date)
            connection.execute(sa.update(column.table).values({column: value.date() if is_day else value}))
    world.clock.now = NOON
    world.services.context.settled_now()
    before = dump(world)
    assert world.repositories.clock.mend(NOON) == 0
    assert dump(world) == before


def dump(world: World) -> dict[str, list[Any]]:
    """All values of time."""
    with world.services.database.reading() as connection:
        return {name: [*connection.execute(sa.select(find_column(name)))] for name in RULES}


# --- which instant is settled -----------------------------------------------------------------

STEPS = [timedelta(minutes=6), timedelta(hours=2), timedelta(days=3), YEAR]


@pytest.mark.parametrize("step", [*STEPS, *(-step_ for step_ in STEPS)], ids=str)
@pytest.mark.parametrize("stays", [timedelta(), timedelta(minutes=3), timedelta(hours=1)], ids=str)
def test_a_step_is_believed_only_once_it_has_lasted(step: timedelta, stays: timedelta) -> None:
    """Until then the settled instant stays; a clock that comes back earlier goes on as before."""
    record, at = ClockRecord(NOON, NOON), timedelta()
    hold = min(abs(step), timedelta(days=1))
    while at <= stays:
        reading = read_clock(record, NOON + step + at, None, None)
        assert (reading.settled_at == NOON + step + at) is (at >= hold or step < timedelta())
        assert reading.settled_at <= NOON + max(step, timedelta()) + at
        record, at = reading.record, at + timedelta(minutes=1)
    if step > timedelta() and stays < min(hold, TOLERANCE):
        back = read_clock(record, NOON + stays, None, None)
        assert (back.settled_at, back.believed_from) == (NOON + stays, None)


def test_an_outage_is_believed_after_a_day_at_the_latest() -> None:
    """The same time as it has lasted, by readings that go on; a second step begins anew."""
    record = ClockRecord(NOON, NOON)
    first = read_clock(record, NOON + 30 * timedelta(days=1), None, None)
    assert first.believed_from == NOON + 31 * timedelta(days=1)
    later = read_clock(first.record, NOON + 31 * timedelta(days=1), None, None)
    assert later.settled_at == NOON + 31 * timedelta(days=1)
    again = read_clock(first.record, NOON + 60 * timedelta(days=1), None, None)
    assert again.settled_at == NOON


def test_a_database_that_agrees_is_believed_after_a_minute() -> None:
    """Two readings, and the database's clock; if that does not agree, the earlier of both counts."""
    record, ahead = ClockRecord(NOON, NOON), NOON + YEAR
    first = read_clock(record, ahead, ahead, None)
    assert first.settled_at == NOON
    minute = timedelta(minutes=1)
    assert read_clock(first.record, ahead + minute, ahead + minute, None).settled_at == ahead + minute
    assert read_clock(record, ahead, NOON + minute, None).settled_at == NOON + minute


@both_engines
def test_the_clock_of_the_database_is_read(world: World) -> None:
    """PostgreSQL has one, which agrees with this machine's; SQLite has none."""
    with world.services.database.reading() as connection:
        now, is_postgres = read_database_clock(connection), connection.dialect.name == "postgresql"
    assert (now is not None) is is_postgres
    assert now is None or abs(now - datetime.now(UTC)) < TOLERANCE


def test_the_first_reading_is_compared_with_what_the_database_knows(world: World) -> None:
    """A clock that is ahead when a program is new is not believed; lines of the future decide nothing."""
    assert read_clock(None, NOON + YEAR, None, NOON).settled_at == NOON
    assert read_clock(None, NOON, None, NOON + YEAR).settled_at == NOON
    assert read_clock(None, NOON, None, None).settled_at == NOON


# --- what is done once --------------------------------------------------------------------------


def expired_events(world: World) -> list[str]:
    """The ids of events of licenses that have expired."""
    found = world.repositories.queue.list_page(EVENTS, limit=200)
    return [job.key for job in found if job.payload["type"] == "license.expired"]


def live(world: World, span: timedelta, every: timedelta = timedelta(minutes=4)) -> None:
    """Let time pass beside a server, which reads the clock."""
    end = world.clock.now + span
    while world.clock.now < end:
        world.clock.now = min(end, world.clock.now + every)
        world.services.context.settled_now()


@pytest.fixture
def mailing(make_world: Callable[..., World]) -> World:
    """A vendor with mail, a webhook endpoint, and a license that ends in twenty days."""
    vendor = make_world(
        mail_host="mail.example", mail_sender="shop@example.com", activation_days=90, audit_days=30
    )
    vendor.services.products.add("app", "App")
    vendor.services.webhooks.add(HOOK, ["license.expired", "subscription.ended"])
    last = vendor.clock().date() + timedelta(days=20)
    terms = LicenseTerms(expires_on=last, customer_email="ann@example.com")
    vendor.services.licenses.issue("app", terms)
    vendor.services.licenses.issue("app", LicenseTerms(subscription_id="sub_1"))
    vendor.services.subscriptions.end("sub_1", vendor.clock() + timedelta(days=10))
    vendor.services.context.settled_now()
    return vendor


def do_all(world: World) -> None:
    """Do what a server and its timers do now and then."""
    world.services.webhooks.scan()
    world.services.mail.send_ending()
    world.services.retention.sweep()


def counts(world: World) -> dict[str, int]:
    """The rows of each table but those that note the clock and what was counted."""
    with world.services.database.reading() as connection:
        return {
            table.name: connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
            if table.name != "facts"
        }


@pytest.mark.sampled(1)
@both_engines
@pytest.mark.parametrize("stays", [1, 4, 60])
def test_dbader_schedule_323_a_clock_a_year_ahead_does_nothing_for_good(mailing: World, stays: int) -> None:
    """No event, no mail and no deletion; when it has come back, each goes out at its time, once."""
    begin, before = mailing.clock(), counts(mailing)
    mailing.clock.now = begin + YEAR
    do_all(mailing)
    for _ in range(stays):
        mailing.clock.forward(minutes=1)
        mailing.services.context.settled_now()
    do_all(mailing)
    assert counts(mailing) == before
    mailing.clock.now = begin + timedelta(minutes=stays + 1)
    do_all(mailing)
    assert counts(mailing) == before
    live(mailing, timedelta(hours=2))
    days_go_by(mailing, 22)
    found = mailing.repositories.queue.list_page(EVENTS, limit=200)
    assert sorted(job.payload["type"] for job in found) == [
        "license.expired",
        "license.expired",
        "subscription.ended",
    ]
    notices = mailing.repositories.queue.list_page(NOTICES, limit=200)
    assert [job.payload["template"] for job in notices] == ["license_ending"]


def days_go_by(world: World, days: int) -> None:
    """Let days pass, with all that is done now and then."""
    for _ in range(days):
        world.clock.forward(days=1)
        world.repositories.clock.accept(world.clock())  # as a server that has read it all day
        do_all(world)


@pytest.mark.slow
def test_what_a_program_of_before_has_sent_too_early_is_sent_again(mailing: World) -> None:
    """Its mark of the future is brought back, and the event gets an id that receivers do not know."""
    begin = mailing.clock()
    for step in (timedelta(days=15), YEAR):
        mailing.clock.now = begin + step
        mailing.repositories.clock.accept(
            mailing.clock()
        )  # as programs before: whatever the clock shows counts
        do_all(mailing)
    early = expired_events(mailing)
    assert len(early) == 2
    with mailing.services.database.writing() as connection:
        connection.execute(sa.text("DELETE FROM facts WHERE name = 'clock'"))
    mailing.clock.now = begin + timedelta(hours=1)
    do_all(mailing)
    mark = mailing.repositories.webhooks.read_scanned_at()
    assert mark is not None
    assert mark <= mailing.clock()
    assert expired_events(mailing) == early
    days_go_by(mailing, 22)
    again = [expired_event for expired_event in expired_events(mailing) if expired_event not in early]
    assert len(again) == 2
    notices = [job.key for job in mailing.repositories.queue.list_page(NOTICES, limit=200)]
    assert [notice.count("license_ending") for notice in notices] == [1, 1]
    assert notices[0] == f"again/{notices[1]}"
    days_go_by(mailing, 3)
    assert len(expired_events(mailing)) == 4


def test_nothing_is_deleted_by_a_clock_ahead(mailing: World) -> None:
    """Neither slots in use, nor lines of the audit log, done jobs, or what was answered to a POST."""
    services, begin = mailing.services, mailing.clock()
    (license_,) = services.licenses.search(limit=1).items
    services.context.repositories.licenses.add_activation(
        license_.id, Environment("a.example", ""), begin, Machine()
    )
    services.retention.sweep()
    token, _ = services.tokens.create("shop", Scope.WRITE)
    key = IdempotencyKey(ActorKind.TOKEN, token.id, "once", b"0" * 32)
    with services.transaction() as tx:
        tx.idempotency.record(key, Response(201, b"{}"))
    before = counts(mailing)
    mailing.clock.now = begin + YEAR
    for _ in range(3):
        services.retention.sweep()
        services.repositories.queue.sweep(services.context.settled_now() - timedelta(days=90))
        mailing.clock.forward(minutes=2)
    recorded = services.idempotency.find(key)
    assert recorded is not None
    assert recorded.status == 201
    assert counts(mailing) == before


@pytest.mark.slow
def test_a_clock_ahead_signs_nobody_out(world: World) -> None:
    """A sign-in deletes the sessions that have ended: those of the console, and of customers."""
    services, begin = world.services, world.clock()
    services.users.add("ann", "a long enough pass phrase")
    services.products.add("app", "App")
    _, key = services.licenses.issue("app", LicenseTerms())
    services.context.settled_now()
    first, customer = (
        services.logins.sign_in("ann", "a long enough pass phrase"),
        services.customer_sign_in.sign_in(key),
    )
    assert first is not None
    assert customer is not None
    world.clock.now = begin + YEAR
    assert services.logins.sign_in("ann", "a long enough pass phrase") is not None
    assert services.customer_sign_in.sign_in(key) is not None
    world.clock.now = begin + timedelta(minutes=1)
    assert services.logins.authenticate(first.token) is not None
    assert services.customer_sign_in.find_licenses(customer)


def test_an_endpoint_is_not_disabled_by_a_step(mailing: World) -> None:
    """Five days of failures are five days of a clock that is believed."""
    services, begin = mailing.services, mailing.clock()
    (endpoint,) = services.webhooks.list_endpoints()
    services.webhooks.send_test(endpoint.id)
    for step in (timedelta(), YEAR):
        mailing.clock.now = begin + step
        (job,) = services.repositories.queue.claim(
            DELIVERIES, mailing.clock() + YEAR, timedelta(minutes=1), 1
        )
        with pytest.raises(RetryJobError):
            services.webhooks.record(job, 500, "")
    assert services.webhooks.get(endpoint.id).disabled_at is None


def test_a_retry_of_a_clock_ahead_is_due_again(mailing: World) -> None:
    """It is tried soon after the clock has come back, also if the clock was ahead by less than a pause."""
    services, begin = mailing.services, mailing.clock()
    services.webhooks.send_test(services.webhooks.list_endpoints()[0].id)
    for step in (YEAR, timedelta(hours=7)):
        mailing.clock.now = begin + step
        services.context.settled_now()
        (job,) = services.repositories.queue.claim(DELIVERIES, mailing.clock(), timedelta(minutes=1), 1)
        services.repositories.queue.retry(job, mailing.clock() + timedelta(minutes=5), "failed")
        begin += timedelta(minutes=2)
        mailing.clock.now = begin
        services.context.settled_now()
        live(mailing, timedelta(minutes=16))
        begin = mailing.clock()
        assert services.repositories.queue.find_due([DELIVERIES], begin) == {DELIVERIES}


def test_a_code_of_a_clock_ahead_locks_nobody_out(world: World) -> None:
    """The time step of the last code is none of the future."""
    with world.services.database.writing() as connection:
        add_row(connection, second_factors, {})
        step = int((NOON + YEAR).timestamp()) // 30
        connection.execute(sa.update(second_factors).values(last_step=step))
        instants.write_record(connection, ClockRecord(NOON, NOON + YEAR))
    world.clock.now = NOON
    world.services.context.settled_now()
    with world.services.database.reading() as connection:
        assert connection.scalar(sa.select(second_factors.c.last_step)) == int(NOON.timestamp()) // 30


def test_a_clock_that_is_behind_brings_nothing_back(world: World) -> None:
    """A board without a battery starts in the past: what is right stays, until that has lasted a day."""
    with world.services.database.writing() as connection:
        add_row(connection, webhook_endpoints, {})
        connection.execute(sa.update(webhook_endpoints).values(failing_since=NOON))
        instants.write_record(connection, ClockRecord(NOON, NOON))
    world.clock.now = NOON - YEAR
    for _ in range(3):
        world.services.context.settled_now()
        world.repositories.clock.mend(world.clock())
        world.clock.forward(hours=1)
    world.clock.now = NOON + timedelta(minutes=3)
    assert world.services.context.settled_now() == world.clock()
    with world.services.database.reading() as connection:
        assert connection.scalar(sa.select(webhook_endpoints.c.failing_since)) == NOON


def test_an_activation_that_a_clock_ahead_has_seen_is_seen_again(world: World) -> None:
    """Otherwise its days of silence would begin a year later."""
    with world.services.database.writing() as connection:
        row = add_row(connection, activations, {})
        connection.execute(sa.update(activations).values(last_seen_at=NOON + YEAR))
    note_seen(world.services.database, [Seen(row["license_id"], Environment("1", "1"), NOON)])
    with world.services.database.reading() as connection:
        assert connection.scalar(sa.select(activations.c.last_seen_at)) == NOON


def test_check_reports_a_clock_that_is_not_believed(mailing: World) -> None:
    """How far it is ahead, what waits, from when on it is believed; and instants of the future."""
    begin = mailing.clock()
    mailing.clock.now = begin + YEAR
    (ahead,) = clock_warnings(mailing)
    assert "365 days ahead of the latest reading that is certain" in ahead
    mailing.services.webhooks.send_test(mailing.services.webhooks.list_endpoints()[0].id)
    mailing.clock.now = begin
    assert "1 in jobs.due_at" in clock_warnings(mailing)[0]
    mailing.repositories.clock.mend(mailing.clock())
    assert clock_warnings(mailing) == []


def test_a_rollout_grows_by_no_step(world: World) -> None:
    """A version that an installation was offered is installed: a step of a year would offer it to all."""
    rollout = Rollout("7d", NOON)
    world.clock.now = NOON
    world.services.context.settled_now()
    settled = SettledClock(world.services.database, world.clock)
    assert settled.settle(NOON) == NOON
    settled.refresh()
    assert settled.settle(NOON + timedelta(minutes=2)) == NOON + timedelta(minutes=2)
    for _ in range(3):
        world.clock.now = NOON + YEAR
        assert current_share(rollout, settled.settle(world.clock())) < 0.001
        settled.refresh()
        world.services.context.settled_now()
    world.clock.now = NOON + timedelta(minutes=3)
    world.services.context.settled_now()
    settled.refresh()
    assert settled.settle(world.clock()) == world.clock()


def clock_warnings(world: World) -> list[str]:
    """What `licserver check` warns of about the clock."""
    found = check_installation(world.services.settings, world.clock(), reach=False)
    return [
        finding.message for finding in found if finding.about == "clock" and finding.level is not Level.OK
    ]
