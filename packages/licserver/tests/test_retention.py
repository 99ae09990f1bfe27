"""`licserver sweep`: what is older than the settings allow goes, what was seen stays (D-105)."""

import io
from dataclasses import replace

import pytest
from sqlalchemy import func, select
from sqlalchemy.event import listen, remove

from harness import engines
from harness.engines import ENGINES
from licserver.database.hot_path.store import BatchStore
from licserver.database.repositories import audit as rooms
from licserver.database.repositories import base
from licserver.database.repositories.statistics import Seen, note_refusals, note_seen
from licserver.database.tables.licenses import refusals, seats
from licserver.domain.records import Environment
from licserver.errors import SettingsError
from licserver.services.backup import write_backup
from licserver.services.installation import Services, open_services
from licserver.services.restore import restore_backup
from licserver.settings import Settings, load_settings

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps


@pytest.fixture
def activate(make_world):
    """A world that forgets after 40 days, and what takes slots in it."""
    world = make_world(activation_days=40, audit_days=100)

    def take(key: str, *domains: str) -> None:
        store = BatchStore(world.services.database)
        for domain in domains:
            store.activate([world.request_slot(key, domain)])
        store.close()

    take.world = world  # type: ignore[attr-defined]
    return take


def seen(world, key, domain):
    """Note that an activation was used now."""
    license_id = world.services.vault.license_id(key)
    note_seen(world.services.database, [Seen(license_id, Environment(domain, "192.0.2.1"), world.clock())])


@pytest.mark.slow
def test_who_was_not_seen_for_long_gives_the_slot_back(activate):
    """Forty days after it was last seen a slot is free; one that was seen meanwhile stays; it is logged."""
    world = activate.world
    key = world.key(slots=None)
    world.services.retention.sweep()  # from here on it is watched
    activate(key, "gone.example", "here.example", "never.example")
    world.clock.forward(days=1)
    seen(world, key, "gone.example")
    seen(world, key, "here.example")
    world.clock.forward(days=38)
    assert world.services.retention.sweep().activations == 0
    seen(world, key, "here.example")
    world.clock.forward(days=1, seconds=1)
    assert world.services.retention.sweep(dry_run=True).activations == 1
    assert world.services.retention.sweep().activations == 1  # never seen since its activation
    world.clock.forward(days=1)
    assert world.services.retention.sweep().activations == 1
    assert [domain for domain, _ in world.held(key)] == ["here.example"]
    (line, *_) = [
        entry for entry in world.services.audit.list_page().items if entry.action == "license.sweep"
    ]
    assert line.object_id == world.services.licenses.get(key).id.hex()
    assert line.details["freed"] == 1


def test_an_upgrade_frees_nobody(activate):
    """Activations from before anything was noted count as seen when the first sweep looked at them."""
    world = activate.world
    key = world.key(slots=None)
    activate(key, "old.example")
    world.clock.forward(days=1000)
    assert world.services.retention.sweep().activations == 0
    world.clock.forward(days=39)
    assert world.services.retention.sweep().activations == 0
    world.clock.forward(days=2)
    assert world.services.retention.sweep().activations == 1


@pytest.mark.slow
@pytest.mark.parametrize("into", ENGINES)
def test_a_restore_frees_nobody(activate, into, tmp_path, request):
    """A backup knows nothing of who was seen since it was made: all get the days of the setting anew."""
    world = activate.world
    key = world.key(slots=None)
    activate(key, "busy.example")
    seen(world, key, "busy.example")
    world.services.retention.sweep()  # from here on it is watched
    held = io.BytesIO()
    write_backup(world.services, held, world.clock())
    held.seek(0)
    world.clock.forward(days=41)
    url = request.getfixturevalue("empty_database") if into == "postgresql" else None
    settings = Settings(data_dir=tmp_path / "anew", database_url=url, activation_days=40)
    restore_backup(held, settings)
    restored = open_services(settings, world.clock)
    try:
        assert restored.retention.sweep().activations == 0
        world.clock.forward(days=40, seconds=1)
        assert restored.retention.sweep().activations == 1
    finally:
        restored.close()


def test_nothing_goes_unless_it_is_asked_for(make_world, activate):
    """Without the settings a sweep removes no activation and no line of the log."""
    world = activate.world
    key = world.key()
    activate(key, "old.example")
    settings = world.settings.model_copy(update={"activation_days": 0, "audit_days": 0})
    services = Services(replace(world.services.context, settings=settings))
    world.clock.forward(days=5000)
    assert set(services.retention.sweep()) == {0}
    assert world.held(key)


def test_old_lines_of_the_log_go(activate, monkeypatch):
    """In small batches, the youngest stay."""
    monkeypatch.setattr(rooms, "BATCH", 3)
    world = activate.world
    key = world.key()
    for _ in range(8):
        world.services.licenses.reveal(key)
    before = len(world.services.audit.list_page().items)
    world.clock.forward(days=99)
    world.services.licenses.reveal(key)
    assert world.services.retention.sweep(dry_run=True).audit == 0
    world.clock.forward(days=2)
    assert world.services.retention.sweep(dry_run=True).audit == before
    assert world.services.retention.sweep().audit == before
    assert [entry.action for entry in world.services.audit.list_page().items] == ["sweep", "license.reveal"]


def test_many_batches_free_all(activate, monkeypatch):
    """More activations than fit into a batch are freed all the same, each once."""
    monkeypatch.setattr(rooms, "BATCH", 4)
    monkeypatch.setattr(rooms, "RANGE", 5)
    world = activate.world
    keys = [world.key(slots=None) for _ in range(3)]
    world.services.retention.sweep()
    for key in keys:
        activate(key, *(f"host-{number}.example" for number in range(7)))
    world.clock.forward(days=41)
    assert world.services.retention.sweep(dry_run=True).activations == 21
    assert world.services.retention.sweep().activations == 21
    assert not any(world.held(key) for key in keys)


def test_what_has_expired_goes_in_batches(activate, monkeypatch):
    """More refusals than fit into a batch, of many licenses; the young ones stay."""
    monkeypatch.setattr(base, "BATCH", 4)
    world = activate.world
    refused = {
        (
            world.services.vault.license_id(world.key()),
            Environment(f"{at}.example", "192.0.2.1"),
            "revoked",
        ): 1
        for at in range(9)
    }
    note_refusals(world.services.database, refused, world.clock())
    world.clock.forward(days=29)
    note_refusals(world.services.database, dict(list(refused.items())[:2]), world.clock())
    world.clock.forward(days=2)
    world.services.retention.sweep()
    with world.services.database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(refusals)) == 2


def test_uses_and_webhooks_go_in_batches(activate, monkeypatch):
    """No statement removes more than a batch: one for all would need longer than statements may take."""
    monkeypatch.setattr(base, "BATCH", 4)
    world, removed = activate.world, []
    repositories, now = world.services.repositories, world.clock()
    license_id = world.services.vault.license_id(world.key())
    for number in range(9):
        repositories.uses.add_id(license_id, f"{number:032x}", "exports", 1, now)
        repositories.webhooks.add_deliveries(f"msg_{number}", "license.issued", "{}", [], now)
    engine = world.services.database.engine

    def note(_connection, cursor, statement, _parameters, _context, _many):
        if statement.startswith(("DELETE FROM use_ids", "DELETE FROM webhook_events")):
            removed.append(cursor.rowcount)

    listen(engine, "after_cursor_execute", note)
    world.clock.forward(days=1)
    world.services.retention.sweep()
    repositories.webhooks.sweep(world.clock())
    remove(engine, "after_cursor_execute", note)
    assert [count for count in removed if count] == [4, 4, 1] * 2


@engines.postgresql_only
def test_a_row_that_another_program_holds_is_left_to_the_next_sweep(activate):
    """The sweep deletes all others. An expired seat stays if the program that held its row renewed it."""
    world = activate.world
    key = world.key(slots=None)
    world.services.retention.sweep()
    activate(key, "held.example", "other.example")
    row = {"license_id": world.services.vault.license_id(key), "domain": "a.example", "is_ended": False}
    row |= {"taken_at": world.clock(), "expires_at": world.clock()}
    with world.services.database.writing() as connection:
        connection.execute(seats.insert(), [{**row, "seat_id": bytes([number] * 16)} for number in range(3)])
    world.clock.forward(days=41)
    meddler = engines.Meddler(world.settings.database_url.get_secret_value(), world.settings.data_dir)
    meddler.do("BEGIN")
    meddler.do("SELECT 1 FROM activations WHERE domain = 'held.example' FOR UPDATE")
    meddler.do(
        "UPDATE seats SET expires_at = '2100-01-01' WHERE seat_id = '\\x00000000000000000000000000000000'"
    )
    assert world.services.retention.sweep().activations == 1
    assert [domain for domain, _ in world.held(key)] == ["held.example"]
    meddler.do("COMMIT")
    meddler.close()
    assert world.services.retention.sweep().activations == 1
    assert world.held(key) == []
    with world.services.database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(seats)) == 1


def test_a_longer_precision_frees_nobody_earlier(activate):
    """What is stored once a week may be six days behind: a sweep waits for as long."""
    world = activate.world
    settings = world.settings.model_copy(update={"last_seen_days": 7})
    services = Services(replace(world.services.context, settings=settings))
    key = world.key()
    services.retention.sweep()
    activate(key, "weekly.example")
    world.clock.forward(days=45)
    assert services.retention.sweep().activations == 0
    world.clock.forward(days=2)
    assert services.retention.sweep().activations == 1


def test_a_holiday_is_no_absence(monkeypatch):
    """Fewer than thirty days are refused: customers ask once a day at the most."""
    monkeypatch.setenv("LICSERVER_ACTIVATION_DAYS", "7")
    with pytest.raises(SettingsError, match="LICSERVER_ACTIVATION_DAYS: must be 0 for never, or at least 30"):
        load_settings()


def test_the_command(cli):
    """It says what it has done; JSON for programs."""
    cli("product", "add", "app", "--name", "App")
    assert cli("sweep") == "freed 0 slots and removed 0 lines of the audit log\n"
    assert cli("sweep", "--dry-run") == "would free 0 slots and remove 0 lines of the audit log\n"
    assert '"activations": 0' in cli("sweep", "--json")
