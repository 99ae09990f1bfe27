"""`licserver export` and `import`: whole lists, all or nothing, and the same again (D-103)."""

import io
import json
import os
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from harness import engines
from harness.engines import postgresql_only, sqlite_only
from harness.transfer import ASSUMED
from licserver.database.repositories.statistics import Seen, note_seen
from licserver.domain.decisions import generate_license_key
from licserver.domain.records import Environment, EnvironmentPolicy
from licserver.errors import ConflictError, StoreUnavailableError
from licserver.protocol.license_files import FORMATS, read_rows, write_head, write_row
from licserver.services.license_search import LicenseFilter

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps


def exported(world: Any, form: str) -> str:
    """All licenses as a file's text."""
    rows = world.services.transfer.export()
    return write_head(form) + "".join(write_row(form, row) for row in rows)


def import_text(world: Any, form: str, text: str) -> tuple[int, list[tuple[int, str]], list[tuple[int, str]]]:
    """Import a file's text: how many, what is wrong, and the keys that were drawn."""
    with world.services.transfer.start_import() as incoming:
        incoming.read(read_rows(form, io.StringIO(text, newline=""), ASSUMED))
        if incoming.problems:
            return 0, [tuple(problem) for problem in incoming.problems], []
        return incoming.commit(), [], list(incoming.generated_keys())


def sorted_rows(form: str, text: str) -> list[Any]:
    """What a file says, line by line, sorted."""
    return sorted((row for _, row in read_rows(form, io.StringIO(text, newline=""), ASSUMED)), key=repr)


@pytest.fixture
def stocked(world, activate):
    """A world with a license of every kind."""
    world.services.products.add("other", "Other", EnvironmentPolicy.DOMAIN)
    keys = [
        world.key(slots=None, allowed=("*.example.org", "192.0.2.0/24")),
        world.key(lifetime=True, customer_email="jo@example.com", note="=SUM(A1)\nsecond line, 'quoted'"),
        world.key(expires_on=date(2027, 1, 31), support_until=date(2026, 12, 31)),
        world.key("other", subscription_id="sub-1", slots=7),
        world.key("other", subscription_id="sub-1"),
    ]
    world.services.subscriptions.end("sub-1")
    world.services.licenses.revoke(keys[1], "-refunded")
    world.clock.forward(hours=1, microseconds=5)
    for number in (0, 1, 2, 1):
        seen = Environment(f"host-{number}.example", "198.51.100.7")
        activate(keys[0], *seen)
        note_seen(
            world.services.database, [Seen(world.services.vault.license_id(keys[0]), seen, world.clock())]
        )
        world.clock.forward(days=1)
    world.services.products.rename("app", "Renamed")
    world.keys = keys
    return world


@pytest.mark.parametrize("form", FORMATS)
def test_what_was_exported_is_imported_as_it_was(stocked, form, make_world):
    """Into another vendor's books, other secrets and all, and out again: the same to the letter."""
    text = exported(stocked, form)
    assert all(key in text for key in stocked.keys)
    other = make_world()
    other.services.products.add("other", "Elsewhere", EnvironmentPolicy.DOMAIN)
    assert import_text(other, form, text) == (5, [], [])
    assert sorted_rows(form, exported(other, form)) == sorted_rows(form, text)  # of one instant, by their ids
    assert other.held(stocked.keys[0]) == stocked.held(stocked.keys[0])
    assert import_text(other, form, text) == (0, [], [])  # again: all are there
    other.services.licenses.change(stocked.keys[2], slots=9)
    (problem,) = import_text(other, form, text)[1]
    assert problem[1] == "license_key: is in the database already, with other terms: slots"


def test_all_problems_of_a_line_are_shown_at_once(world):
    """Of its key, its terms and the fields that only imports set; a person mends the line once."""
    line = {
        "product": "app",
        "license_key": "CP-SHORT",
        "slots": 2**31,
        "customer_email": "nobody",
        "revoked_reason": "refund",
    }
    _, ((number, message),), _ = import_text(world, "jsonl", json.dumps(line))
    assert number == 1
    assert [part.partition(":")[0] for part in message.split("; ")] == [
        "license_key",
        "revoked_reason",
        "slots must be a whole number from 0, or unlimited",
        "a customer's e-mail must look like name@example.com",
    ]


def test_all_or_nothing(world):
    """A file with faults changes nothing, and every fault is reported with its line."""
    taken, twice = world.key(), generate_license_key()
    lines = [
        {"product": "app"},
        {"product": "nowhere"},
        {"product": "app", "license_key": "CP-SHORT"},
        {"product": "app", "lifetime": True, "expires_on": "2027-01-01"},
        {"product": "app", "license_key": twice},
        {"product": "app", "license_key": twice},
        {"product": "app", "license_key": taken, "slots": 2},
        {"product": "app", "slots": 2**31},
        {"product": "app", "allowed": ["not a / domain"]},
        {"product": "app", "customer_email": "nobody"},
        {"product": "app", "activations": [{"domain": "x", "ip": "somewhere"}]},
        {"product": "app", "revoked_reason": "two\nlines"},
        {"product": "app", "subscription": "x" * 256},
        "nothing",
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    _, problems, _ = import_text(world, "jsonl", text)
    messages = dict(problems)
    assert sorted(messages) == [2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert "there is no 'nowhere'" in messages[2]
    assert messages[6] == "license_key: is also in line 5"
    assert messages[7] == "license_key: is in the database already, with other terms: slots"
    assert twice not in str(problems)
    assert len(list(world.services.licenses.list_all())) == 1


def test_drawn_keys_come_in_the_order_of_the_file(world):
    """Lines without a key get one, which is printed once it is in the database."""
    given = generate_license_key()
    text = f"license_key,product,slots,note\n,app,1,first\n{given},app,2,given\n,app,3,third\n"
    count, problems, drawn = import_text(world, "csv", text)
    assert (count, problems) == (3, [])
    assert [line for line, _ in drawn] == [2, 4]
    assert [world.services.licenses.get(key).note for _, key in drawn] == ["first", "third"]
    assert world.services.licenses.get(given).slots == 2
    assert world.services.audit.list_page().items[0].action == "license.import"


def test_who_comes_without_having_been_seen_counts_as_seen(make_world):
    """An old activation of another shop's list is not swept at once, and is found by its domain."""
    world = make_world(activation_days=40)
    world.services.retention.sweep()  # from here on it is watched
    world.clock.forward(days=60)
    here = {"domain": "oldpc.example", "ip": "192.0.2.1", "activated_at": "2025-01-01T00:00:00Z"}
    _, _, ((_, key),) = import_text(
        world, "jsonl", json.dumps({"product": "app", "slots": 2, "activations": [here]})
    )
    assert world.services.retention.sweep().activations == 0
    assert world.held(key) == [("oldpc.example", "192.0.2.1")]
    (found,) = world.services.licenses.search(LicenseFilter(query="oldpc.example")).items
    assert found.id == world.services.licenses.get(key).id
    world.clock.forward(days=40, seconds=1)
    assert world.services.retention.sweep().activations == 1


def test_a_known_end_of_a_subscription_counts_for_who_comes(world):
    """A license that comes with a subscription that has ended is ended, as one that is issued is (D-09)."""
    world.key(subscription_id="gone")
    world.services.subscriptions.end("gone")
    _, _, ((_, key),) = import_text(world, "jsonl", '{"product": "app", "subscription": "gone"}')
    assert world.services.licenses.get(key).subscription_ended_at == world.clock()


def test_a_subscription_that_ends_while_keys_are_moved_ends_for_them(world):
    """Whoever ends it waits for the move, and ends what has come; no key stays without its end."""
    world.key(subscription_id="going")
    key = generate_license_key()
    line = json.dumps({"product": "app", "license_key": key, "subscription": "going"})
    with ThreadPoolExecutor(1) as elsewhere:
        with world.services.transfer.start_import() as incoming:
            incoming.read(read_rows("jsonl", [line], ASSUMED))
            with incoming._staged.committing():
                ending = elsewhere.submit(world.services.subscriptions.end, "going")
                wait([ending], timeout=0.3)  # who would not wait for the move is done long before
        assert ending.result() == 2
    assert world.services.licenses.get(key).subscription_ended_at == world.clock()


@pytest.mark.parametrize("ahead", [True, False])
def test_a_key_that_comes_meanwhile_is_noticed(world, ahead):
    """Somebody else's import of the file's last key between check and move: nothing of it is moved."""
    key = generate_license_key()
    text = json.dumps({"product": "app", "license_key": key})
    with world.services.transfer.start_import() as incoming:
        incoming.read(read_rows("jsonl", ['{"product": "app"}'] * 250 + [text], ASSUMED))
        assert import_text(world, "jsonl", text)[0] == 1
        with pytest.raises(ConflictError, match="meanwhile"):  # noqa: PT012 - either of the two, by the engine
            if ahead:
                incoming.prepare()
            incoming.commit()
    assert len(list(world.services.licenses.list_all())) == 1


def test_what_no_other_import_explains_is_not_reported_as_one(world, monkeypatch):
    """Rows that a table refuses for another reason are the database's complaint, and nothing is moved."""
    monkeypatch.setattr("licserver.services.license_imports.extract_words", lambda *_: ["twice", "twice"])
    with pytest.raises(StoreUnavailableError, match=r"(?i)unique"):
        import_text(world, "jsonl", '{"product": "app"}')
    assert not list(world.services.licenses.list_all())


def test_an_empty_file_brings_nothing(world):
    """No line, no license, no fault."""
    assert import_text(world, "jsonl", "") == (0, [], [])


@postgresql_only
def test_while_keys_are_moved_a_release_is_published(world):
    """A move may take minutes: it keeps nobody from its product, and in the end it hurries."""
    with world.services.transfer.start_import() as incoming:
        incoming.read(read_rows("jsonl", ['{"product": "app"}'] * 250, ASSUMED))
        incoming.prepare()
        assert incoming._staged._connection.connection.driver_connection.is_throttled
        assert not list(world.services.licenses.list_all())  # nobody sees a part of it
        with incoming._staged.committing() as connection:
            assert not connection.connection.driver_connection.is_throttled
            assert world.publish("1.0").version == "1.0"
    assert len(list(world.services.licenses.list_all())) == 250


@pytest.mark.slow
@sqlite_only
@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_many_keys_need_little_memory_and_no_lock(world, count):
    """The keys of a file are never in memory together, and another process can issue a key meanwhile."""

    def lines():
        for number in range(count):
            if number == count * 3 // 4:  # the import has begun to write: others still write at once
                began = time.monotonic()
                world.key()
                waited.append(time.monotonic() - began)
            yield f'{{"product": "app", "slots": {number % 10}, "note": "customer {number}"}}\n'

    waited: list[float] = []
    with world.services.transfer.start_import() as incoming:
        tracemalloc.start()
        incoming.read(read_rows("jsonl", lines(), ASSUMED))
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert incoming.commit() == count
    assert held < 20 << 20, held
    assert len(waited) == 1  # a lock held by the import would have ended this with "locked"
    assert sum(1 for _ in world.services.licenses.list_all()) == count + 1


@pytest.mark.slow
def test_the_commands(bare_cli, tmp_path):
    """Export, import, a dry run, faults by line, and private files."""
    cli = bare_cli
    cli("product", "add", "app", "--name", "App")
    cli("license", "issue", "app", "--count", "3")
    file = tmp_path / "keys.csv"
    assert "exported 3 licenses" in cli("export", str(file))
    assert os.name == "nt" or file.stat().st_mode & 0o077 == 0
    there = ("--data-dir", str(tmp_path / "there"))
    cli("product", "add", "app", "--name", "App", *there)
    assert "3 licenses can be imported" in cli("import", str(file), "--dry-run", *there)
    assert json.loads(cli("license", "list", "--json", *there)) == []
    assert cli("import", str(file), *there) == ""
    assert "0 licenses can be imported, 3 unchanged" in cli("import", str(file), "--dry-run", *there)
    new = tmp_path / "new.jsonl"
    new.write_text('{"product": "app"}\n{"product": "app"}\n')
    drawn = cli("import", str(new), "--slots", "1", "--expires", "never", *there).split()
    assert len(drawn) == 2
    assert drawn[0] in cli("license", "show", drawn[0], "--reveal", *there)
    assert "cannot read" in cli("import", str(tmp_path / "no.csv"), *there, expect=2)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"product\n\xff\xfe\n")
    assert "UTF-8" in cli("import", str(binary), *there, expect=2)
    assert "--format" in cli("export", str(tmp_path / "keys.txt"), *there, expect=2)
    file.unlink()


@sqlite_only
def test_what_was_imported_is_found(world):
    """The customer's words of an import are searched as those of a license that was issued."""
    import_text(world, "jsonl", '{"product": "app", "customer_email": "kim@example.net", "note": "reseller"}')
    for query in ("kim", "resel", "example.net"):
        assert len(world.services.licenses.search(LicenseFilter(query=query)).items) == 1
    assert world.clock() - timedelta(days=1) < world.services.licenses.search().items[0].issued_at


@pytest.mark.slow
def test_many_rows_at_once_are_what_few_would_be(world):
    """However a database takes rows by the thousand, no text gains or loses anything."""
    note = "tab\t, \\N, \\., 'quoted', \"too\", é, \U0001f600"
    line = {
        "product": "app",
        "slots": "unlimited",
        "lifetime": True,
        "customer_email": "jo@example.com",
        "note": note,
        "issued_at": "2026-02-03T04:05:06.789012Z",
        "support_until": "2027-01-31",
        "allowed": ["192.0.2.0/24"],
        "activations": [{"domain": "a.example", "ip": "192.0.2.7"}],
    }
    count, problems, drawn = import_text(world, "jsonl", f"{json.dumps(line)}\n" * 600)
    assert (count, problems, len(drawn)) == (600, [], 600)
    (license_,) = {replace(row, license_key=None) for row in world.services.transfer.export()}
    assert (license_.note, license_.slots, license_.lifetime, license_.allowed) == (
        note,
        None,
        True,
        ("192.0.2.0/24",),
    )
    assert (license_.support_until, license_.issued_at.isoformat()) == (
        date(2027, 1, 31),
        "2026-02-03T04:05:06.789012+00:00",
    )
    assert len(world.services.licenses.search(LicenseFilter(query="quoted"), limit=200).items) == 200
