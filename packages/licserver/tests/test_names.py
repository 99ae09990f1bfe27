"""Domains that an earlier version stored otherwise: found again, without another slot (D-06)."""

from datetime import timedelta

import pytest
import sqlalchemy as sa
from alembic import command

from harness import engines
from licserver.database import migrate
from licserver.database.names import MERGES, find_changes
from licserver.database.tables import metadata
from licserver.database.tables.licenses import activations, licenses, moves, refusals, seats
from licserver.domain.records import Environment

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps

FORMER = {  # as stored before schema 0036, and as it is now
    "my_shop.example.com:8443": "my_shop.example.com",
    "my_shop.example.com/": "my_shop.example.com",
    "my_shop.example.com.": "my_shop.example.com",
    "my_shop.example.com": "my_shop.example.com",
    "\U0001f4a9.example/blog": "xn--ls8h.example",
    "r3--cache.example:80": "r3--cache.example",
    "plain.example": "plain.example",
    "install {4f2a} #7": "install {4f2a} #7",
    "aa:bb:cc:dd:ee:11": "aa:bb:cc:dd:ee:11",
    "2001:db8::1": "2001:db8::1",
}
IP = "127.0.0.1"
PATHS = ["upgrade", "sweep"]


@pytest.fixture
def former(world):
    """A world at the schema before, with a license whose activations have the names of then."""
    key = world.key(slots=None, allowed=("192.0.2.0/24", "2001:db8::/64"))
    license_id = world.services.licenses.get(key).id
    now = world.clock()
    with world.services.database.writing() as connection:
        for number, domain in enumerate(FORMER):
            seen = now - timedelta(hours=4 - number)
            until = now + timedelta(hours=1) if number == 1 else None
            row = (license_id, domain, IP, now - timedelta(hours=number), seen, f"pc {number}", "1.0", until)
            connection.execute(activations.insert().values(row))
            connection.execute(moves.insert().values((license_id, domain, IP, seen)))
            connection.execute(refusals.insert().values((license_id, domain, IP, "slots", 2, now, seen)))
            seat = (license_id, bytes([number] * 16), domain, None, now, seen + timedelta(days=1), False)
            connection.execute(seats.insert().values(seat))
        entries = "*.my_shop.example.com:8443\nmy_shop.example.com:80\nmy_shop.example.com\n192.0.2.0/24"
        connection.execute(sa.update(licenses).values(allowed=entries))
    world.license_id, world.sold = license_id, key
    return world


def bring_up(world, path):
    """Run the step, or the sweep that looks for what servers of the version before have stored meanwhile."""
    database = world.services.database
    if path == "upgrade":
        step = "0036"
        migrate.migrate_beside_servers(database, lambda config: command.downgrade(config, "0035"))
        migrate.migrate_beside_servers(database, lambda config: command.upgrade(config, step))
        migrate.upgrade(database)
    else:
        assert world.services.retention.sweep().names > 0


@pytest.mark.parametrize("path", PATHS)
async def test_a_machine_is_found_under_its_former_name_and_takes_no_slot(former, open_site, path):
    """Each spelling of the former version, and of the present one, is the same activation."""
    bring_up(former, path)
    site = await open_site(former)
    services = former.services
    count = services.licenses.get(former.sold).slots_used
    assert count == len(set(FORMER.values()))
    services.licenses.change(former.sold, slots=count)
    for domain in (*FORMER, "https://MY_SHOP.example.com.:8443/shop", "XN--LS8H.example"):
        assert (await site.verify(former.sold, domain))[0] == 200, domain
    assert services.licenses.get(former.sold).slots_used == count


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_nothing_of_merged_rows_is_lost(former, path):
    """The first activation, the last use with its machine, the end of a license file, and every refusal."""
    now = former.clock()
    bring_up(former, path)
    with former.services.database.reading() as connection:
        merged = connection.execute(
            sa.select(activations).where(activations.c.domain == "my_shop.example.com")
        )
        row = merged.mappings().one()
        assert row["activated_at"] == now - timedelta(hours=3)
        assert (row["last_seen_at"], row["label"]) == (now - timedelta(hours=1), "pc 3")
        assert row["offline_until"] == now + timedelta(hours=1)
        refused = dict(connection.execute(sa.select(refusals.c.domain, refusals.c.times)).all())
        assert refused["my_shop.example.com"] == 8
        assert sum(refused.values()) == 2 * len(FORMER)
        freed = dict(connection.execute(sa.select(moves.c.domain, moves.c.freed_at)).all())
        assert freed["my_shop.example.com"] == now - timedelta(hours=1)
        seated = connection.execute(sa.select(seats.c.domain).order_by(seats.c.seat_id)).scalars().all()
        assert seated == list(FORMER.values())
        assert list(find_changes(connection)) == []
    license_ = former.services.licenses.get(former.sold)
    assert license_.allowed == ("*.my_shop.example.com", "my_shop.example.com", "192.0.2.0/24")
    assert former.services.retention.sweep().names == 0


def test_all_tables_with_a_domain_are_brought_up():
    """A table or column that is added later is merged as well, or named here."""
    with_domain = {table.name for table in metadata.tables.values() if "domain" in table.columns}
    later = {"slot_moves", "move_records"}  # no program has written other names into it
    assert with_domain - later == {merge.table.name for merge in MERGES} | {"seats"}
    for merge in MERGES:
        table = metadata.tables[merge.table.name]
        assert set(merge.table.c.keys()) == {column.name for column in table.columns}
        assert set(merge.key) == {column.name for column in table.primary_key}


def test_a_row_that_is_gone_meanwhile_is_left(former):
    """Changes are found first and applied one by one: a slot that was freed in between stays free."""
    database = former.services.database
    with database.reading() as connection:
        changes = list(find_changes(connection))
    former.services.licenses.free_slot(former.sold, Environment("my_shop.example.com:8443", IP))
    before = former.services.licenses.get(former.sold).slots_used
    for change in changes:
        with database.writing() as connection:
            change(connection)
    assert former.services.licenses.get(former.sold).slots_used == before - 2
