import multiprocessing
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, date, datetime, timedelta
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licclient import _cache as cache_room
from licclient._cache import StateFolder
from licclient._model import Held, Listing, Round, Verified
from licclient._records import (
    read_held,
    read_round,
    record_name,
    seal,
    unseal,
    write_held,
    write_round,
)

NAME = record_name("license", "https://store.example", "key", "domain")
instants = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


# --- records ----------------------------------------------------------------------------------


@given(texts, st.none() | st.dates(), instants, st.timedeltas(timedelta(0), timedelta(days=9)))
def test_a_success_survives_the_disk(product, expiry, checked_at, later):
    """What is written is what is read."""
    held = Held(Verified(product, expiry, expiry is None), checked_at, checked_at + later)
    assert read_held(unseal(NAME, seal(NAME, write_held(held)))) == held


@given(
    instants,
    st.floats(0, 0.1),
    st.booleans(),
    st.none() | st.builds(Listing, texts, texts, texts, texts, instants, st.none()),
)
def test_a_round_survives_the_disk(checked_at, spread, answered, listing):
    """What is written is what is read."""
    done = Round(checked_at, spread, answered, listing)
    assert read_round(unseal(NAME, seal(NAME, write_round(done)))) == done


@given(st.binary(max_size=300))
def test_foreign_bytes_are_no_record(raw):
    """Nothing but what was sealed under this name is read."""
    assert unseal(NAME, raw) is None


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"product": 7},
        {"expiry": "2026-02-30"},
        {"lifetime": True},
        {"checked_at": "2026-11-21T12:00:00"},
        {"checked_at": "noon"},
        {"seen_at": "2026-11-20T12:00:00+00:00"},
    ],
)
def test_a_record_that_makes_no_sense_is_a_miss(change):
    """A sealed record of another schema, or one that contradicts itself, is not used."""
    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    document = {"schema": 1, **write_held(Held(Verified("Notes", date(2027, 1, 1), lifetime=False), at, at))}
    assert read_held(unseal(NAME, seal(NAME, document))) is not None
    assert read_held(unseal(NAME, seal(NAME, document | change))) is None


@pytest.mark.parametrize(
    "change", [{"last_updated": "yesterday"}, {"manifest": 7}, {"changelog": None}, {"version": 2}]
)
def test_a_remembered_offer_that_makes_no_sense_is_none(change):
    """The check itself still counts for the cadence; what it offered is not shown."""
    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    whole = write_round(Round(at, 0.05, True, Listing("Notes", "notes", "2.0", "Faster.", at, None)))  # noqa: FBT003
    assert read_round(whole).listing is not None
    found = read_round({**whole, "listing": {**whole["listing"], **change}})
    assert (found.checked_at, found.listing) == (at, None)


def test_names_tell_nothing_and_never_collide():
    """A name is a digest; moving text from one part to the next makes another name."""
    assert record_name("license", "ab", "c") != record_name("license", "a", "bc")
    assert "store" not in NAME
    assert NAME.replace("-", "").isalnum()


# --- many at once -----------------------------------------------------------------------------


def test_what_another_process_wrote_is_seen(tmp_path):
    """The copy in memory is used only while the file is unchanged."""
    here, there = StateFolder(tmp_path), StateFolder(tmp_path)
    here.change("a", lambda _: {"n": 1})
    assert there.load("a")["n"] == 1
    there.change("a", lambda _: {"n": 2})
    assert here.load("a")["n"] == 2
    there.change("a", lambda _: None)
    assert here.load("a") is None


def count_up(folder, times):
    """Add one to a record, over and over."""
    state = StateFolder(folder)
    for _ in range(times):
        state.change("counter", lambda document: {"n": (document or {"n": 0})["n"] + 1})


def test_processes_and_threads_lose_no_change(tmp_path):
    """Every read-modify-write of three processes with three threads each counts."""
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    processes = [context.Process(target=_many_threads, args=(tmp_path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert StateFolder(tmp_path).load("counter")["n"] == 3 * 3 * 10
    assert not list(tmp_path.glob("*.draft"))


def _many_threads(folder):
    threads = [threading.Thread(target=count_up, args=(folder, 10)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on Windows; not tried there")
def test_a_process_killed_while_writing_leaves_a_readable_state(tmp_path):
    """Killed at any moment, it leaves a whole record and no lock."""
    code = (
        "import sys, pathlib\n"
        "from licclient._cache import StateFolder\n"
        "state = StateFolder(pathlib.Path(sys.argv[1]))\n"
        "count = lambda d: {'n': (d or {'n': 0})['n'] + 1, 'filler': 'x' * 20000}\n"
        "state.change('a', count)\n"
        "print(flush=True)\n"
        "while True: state.change('a', count)\n"
    )
    before = 0
    for number in range(8):
        with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(0.06 + number * 0.003)
            process.kill()
        document = StateFolder(tmp_path).load("a")
        assert document["n"] > before
        before = document["n"]
    started = monotonic()
    StateFolder(tmp_path).change("a", lambda _: {"n": 0})
    assert monotonic() - started < 1
    assert StateFolder(tmp_path).load("a")["n"] == 0


def test_a_lock_that_is_never_released_stops_nobody(tmp_path, monkeypatch):
    """After a short wait the record is kept in memory alone, and a removal is done nevertheless."""
    from filelock import FileLock  # noqa: PLC0415

    monkeypatch.setattr(cache_room, "LOCK_SECONDS", 0.05)
    state = StateFolder(tmp_path)
    state.change("a", lambda _: {"n": 1})
    with FileLock(tmp_path / "licclient.lock", thread_local=False):
        worker = threading.Thread(target=lambda: state.change("a", lambda _: {"n": 2}))
        worker.start()
        worker.join()
        assert state.load("a")["n"] == 2
        assert StateFolder(tmp_path).load("a")["n"] == 1
        worker = threading.Thread(target=lambda: state.change("a", lambda _: None))
        worker.start()
        worker.join()
        assert StateFolder(tmp_path).load("a") is None


def test_a_draft_that_a_killed_process_left_is_no_trouble(tmp_path):
    """The next write takes it over, also when something else has its name."""
    (tmp_path / "a.draft").write_bytes(b"half")
    StateFolder(tmp_path).change("a", lambda _: {"n": 1})
    assert StateFolder(tmp_path).load("a")["n"] == 1
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["a.state"]


def test_a_full_disk_is_remembered_in_memory(tmp_path, monkeypatch):
    """When writing fails, this process still knows, and the old file stays whole."""
    state = StateFolder(tmp_path)
    state.change("a", lambda _: {"n": 1})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    state.change("a", lambda _: {"n": 2})
    assert state.load("a")["n"] == 2
    assert StateFolder(tmp_path).load("a")["n"] == 1


def test_no_folder_at_all_is_memory_alone(monkeypatch):
    """Without a home folder nothing is kept, and nothing breaks."""

    def homeless(*_: object, **__: object):
        raise RuntimeError

    monkeypatch.setattr("platformdirs.user_state_path", homeless)
    state = StateFolder(None)
    state.change("a", lambda _: {"n": 1})
    assert state.load("a") == {"n": 1}
