"""What is remembered on the disk: by many at once, through kills and full disks, and never in the way."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from time import monotonic

import pytest

from licclient import _cache as cache_room
from licclient._cache import StateFolder


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
