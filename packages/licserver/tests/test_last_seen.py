"""When an activation was last seen: noted once a day, in batches."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from harness import engines
from licserver.database.repositories.statistics import Seen, is_due, note_seen
from licserver.database.tables.licenses import activations
from licserver.domain.records import Environment

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps

HERE = Environment("a.example", "192.0.2.1")


@pytest.fixture
def held(world, activate):
    """A key that is activated, and what its activations say of themselves."""
    key = world.key(slots=None)
    activate(key, *HERE)
    license_id = world.services.vault.license_id(key)

    def read():
        with world.services.database.reading() as connection:
            return list(connection.scalars(select(activations.c.last_seen_at)))

    return license_id, read


def test_an_activation_is_noted_once_a_day(world, held):
    """Taking the slot counts, and later calls of that UTC day do not; the next day counts again."""
    license_id, read = held
    noon = world.clock()
    for at in (noon + timedelta(hours=3), noon - timedelta(days=1)):
        assert read() == [noon]
        note_seen(world.services.database, [Seen(license_id, HERE, at)])
    tomorrow = noon + timedelta(days=1)
    batch = [Seen(license_id, HERE, at) for at in (tomorrow, noon)]
    note_seen(world.services.database, batch)
    assert read() == [tomorrow]


def test_what_is_not_activated_any_more_is_passed_over(world, held):
    """An activation that was freed meanwhile, and an empty batch, leave everything as it is."""
    license_id, read = held
    noon = world.clock()
    note_seen(world.services.database, [])
    note_seen(
        world.services.database,
        [Seen(license_id, Environment("b.example", "192.0.2.9"), noon + timedelta(days=1))],
    )
    assert read() == [noon]


@pytest.mark.parametrize(("ip", "seen"), [("192.0.2.1", [True, False]), ("192.0.2.2", [True, True])])
def test_a_machine_lives_by_all_activations_that_lend_it_a_half(world, activate, ip, seen):
    """Its domain came with one, its address with another (D-03): a sweep must free neither."""
    key = world.key(slots=2)
    activate(key, "a.example", "192.0.2.1")
    activate(key, "b.example", "192.0.2.2")
    license_id = world.services.vault.license_id(key)
    world.clock.forward(days=1)
    note_seen(world.services.database, [Seen(license_id, Environment("a.example", ip), world.clock())])
    query = select(activations.c.last_seen_at).order_by(activations.c.domain)
    with world.services.database.reading() as connection:
        assert [at == world.clock() for at in connection.scalars(query)] == seen


def test_with_a_precision_of_a_week_each_license_is_written_once_in_it(world, activate):
    """Machines that verify daily are spread over the days of the week; after an absence each is written."""
    days, stored, keys = 7, [], [world.key(slots=None) for _ in range(30)]
    ids = [world.services.vault.license_id(key) for key in keys]
    for key in keys:
        activate(key, *HERE)
    noon = world.clock()

    def read():
        query = select(activations.c.license_id, activations.c.last_seen_at)
        with world.services.database.reading() as connection:
            return {row.license_id: row.last_seen_at for row in connection.execute(query)}

    assert set(read().values()) == {noon}  # the first time
    for day in range(1, 15):
        now, before = noon + timedelta(days=day), read()
        due = [id_ for id_ in ids if is_due(id_, before[id_].date(), now.date(), days)]
        note_seen(world.services.database, [Seen(id_, HERE, now) for id_ in ids], days)
        after = read()
        assert sorted(due) == sorted(id_ for id_ in ids if after[id_] != before[id_])
        assert all(now - at < timedelta(days=days) for at in after.values())
        stored.append(len(due))
    assert sum(stored) == 2 * len(ids)
    assert max(stored) < len(ids)
    later = noon + timedelta(days=14 + days)
    note_seen(world.services.database, [Seen(id_, HERE, later) for id_ in ids], days)
    assert set(read().values()) == {later}


@engines.postgresql_only
def test_no_index_names_what_is_noted(world):
    """Not even in its condition: otherwise PostgreSQL changes all indexes at each update."""
    with world.services.database.reading() as connection:
        indexes = connection.exec_driver_sql(
            "SELECT string_agg(pg_get_indexdef(indexrelid), ' ') FROM pg_index "
            "WHERE indrelid = 'activations'::regclass"
        ).scalar_one()
    assert "license_id" in indexes
    assert not [name for name in ("last_seen_at", "label", "app_version") if name in indexes]
