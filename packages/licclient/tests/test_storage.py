"""What is remembered on the disk: by many at once, through kills and full disks, and never in the way."""

import errno
import logging
import multiprocessing
import os
import stat
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pytest
from stage.operations import descriptors

from harness.standstill import Standstill
from harness.threads import call_at_once
from licclient._core import storage as _storage
from licclient._core.records import seal
from licclient._core.storage import (
    FOLDER_PAUSES,
    MAX_RECORD_BYTES,
    StateFolder,
    open_plain,
    read_private,
    replace_file,
)


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
    """Add one to a record, over and over, in a process of its own."""
    _storage.LOCK_SECONDS = 60  # a slow disk is not what is tried here
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
        process.join(90)
    assert StateFolder(tmp_path).load("counter")["n"] == 3 * 3 * 10
    assert not list(tmp_path.glob("*.draft"))


def _many_threads(folder):
    call_at_once([partial(count_up, folder, 10)] * 3)


@pytest.mark.crash
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on Windows; not tried there")
def test_a_process_killed_while_writing_leaves_a_readable_state(tmp_path, monkeypatch):
    """Killed at any moment, it leaves a whole record and no lock."""
    code = (
        "import sys, pathlib\n"
        "from licclient._core.storage import StateFolder\n"
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
    monkeypatch.setattr(_storage, "LOCK_SECONDS", 60)
    with Standstill() as machine:
        started = monotonic()
        StateFolder(tmp_path).change("a", lambda _: {"n": 0})
        ended = monotonic()
    assert ended - started - machine.within(started, ended) < 15
    assert StateFolder(tmp_path).load("a")["n"] == 0


def test_a_lock_that_is_never_released_stops_nobody(tmp_path, monkeypatch):
    """After a short wait the record is kept in memory alone, and a removal is done nevertheless."""
    from filelock import FileLock  # noqa: PLC0415

    monkeypatch.setattr(_storage, "LOCK_SECONDS", 0.05)
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


def test_a_key_that_a_held_lock_keeps_off_the_disk_is_in_the_log(tmp_path, monkeypatch, caplog):
    """Behind a process that was stopped in the middle: else the next start would just ask for it again."""
    from filelock import FileLock  # noqa: PLC0415

    monkeypatch.setattr(_storage, "LOCK_SECONDS", 0.05)
    with FileLock(tmp_path / "licclient.lock", thread_local=False):
        StateFolder(tmp_path).change("activation-a", lambda _: {"n": 1})
    assert "its lock is not given back" in caplog.text
    assert "may ask for the license key again" in caplog.text


def test_no_draft_stays_behind(tmp_path, monkeypatch):
    """What an activation writes holds the key: neither a full disk nor a kill leaves it beside the record."""
    state = StateFolder(tmp_path)
    state.change("activation-a", lambda _: {"key": "CP-1"})
    monkeypatch.setattr(_storage.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    state.change("activation-a", lambda _: {"key": "CP-2"})
    assert not list(tmp_path.glob("*.draft"))
    assert [storage.load("activation-a")["key"] for storage in (state, StateFolder(tmp_path))] == [
        "CP-2",
        "CP-1",
    ]
    (tmp_path / "activation-a.draft").write_text("CP-3")  # of a process that was killed
    state.change("activation-a", lambda _: None)
    assert {path.name for path in tmp_path.iterdir()} <= {"licclient.lock"}  # Windows leaves none


def test_a_draft_that_a_killed_process_left_is_no_trouble(tmp_path):
    """The next write takes it over, also when something else has its name."""
    (tmp_path / "a.draft").write_bytes(b"half")
    StateFolder(tmp_path).change("a", lambda _: {"n": 1})
    assert StateFolder(tmp_path).load("a")["n"] == 1
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["a.state"]


NEXT_START = (
    "the next start may ask for the license key again and take another slot, unless the app passes a domain."
)


@pytest.mark.parametrize(("problem", "words"), [(OSError(28, "full"), "full"), (OSError(), "OSError")])
def test_what_cannot_be_written_is_logged_once(tmp_path, monkeypatch, caplog, problem, words):
    """With the reason, and with what the customers of the app will notice (D-52)."""

    def fail(_descriptor):
        raise problem

    monkeypatch.setattr(_storage.os, "fsync", fail)
    state = StateFolder(tmp_path)
    for name in ("installation-1", "activation-1", "activation-1", "license-1"):
        state.change(name, lambda _: {"n": 1})
    message = f"The state cannot be written ({words}: {tmp_path}): {NEXT_START}"
    assert caplog.record_tuples == [("licclient", logging.WARNING, message)]


def test_a_folder_that_cannot_be_made_is_explained(tmp_path, monkeypatch, caplog):
    """By what refuses it, and not by the folder that is missing for that reason."""

    def refuse(*_: object, **__: object):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    StateFolder(tmp_path / "state").change("a", lambda _: {"n": 1})
    assert f"({os.strerror(errno.EROFS)}: {tmp_path / 'state'})" in caplog.text


def test_without_a_folder_the_log_says_so(monkeypatch, caplog):
    """No home folder: the same warning, without a path."""
    monkeypatch.setattr(_storage, "MOST_IN_MEMORY", 4)
    state = StateFolder(None)
    monkeypatch.setattr(state, "root", lambda: None)
    state.change("activation-1", lambda _: {"a": 1})
    for number in range(20):
        assert state.load(f"other-{number}") is None
    assert state.load("activation-1") == {"a": 1}, "there is no other copy"
    assert caplog.messages == [f"The state cannot be written (there is no folder for it): {NEXT_START}"]


# --- memory -----------------------------------------------------------------------------------


def test_the_older_half_of_what_is_on_the_disk_leaves_the_memory(tmp_path, monkeypatch):
    """Up to the bound all records are kept; what could not be written has no other copy, and stays."""
    monkeypatch.setattr(_storage, "MOST_IN_MEMORY", 10)
    state = StateFolder(tmp_path)
    (tmp_path / "lost-1.state").mkdir()
    state.change("lost-1", lambda _: {"n": -1})
    names = [f"kept-{number}" for number in range(9)]
    for number, name in enumerate(names):
        state.change(name, lambda _, number=number: {"n": number})
    assert set(state._memory) == {"lost-1", *names}
    assert state._path("lost-1") is state._path("lost-1")
    assert state.load("one more") is None
    assert set(state._memory) == set(state._paths) == {"lost-1", *names[4:], "one more"}
    assert [state.load(name)["n"] for name in names] == list(range(9))
    assert state.load("lost-1") == {"n": -1}
    (tmp_path / "lost-1.state").rmdir()
    state.change("lost-1", lambda _: {"n": -2})  # written by now
    for name in names:
        state.change(name, lambda _: None)  # removed by now
    for number in range(10):
        state.load(f"other-{number}")
    assert not set(state._memory) & {"lost-1", *names[:5]}


def test_a_removal_that_the_disk_refuses_is_kept_in_memory(tmp_path, monkeypatch):
    """This process does not forget a refusal, whatever else it reads."""
    monkeypatch.setattr(_storage, "MOST_IN_MEMORY", 4)
    state = StateFolder(tmp_path)
    state.change("license-1", lambda _: {"n": 1})

    def denied(*_: object, **__: object):
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", denied)
    assert state.change("license-1", lambda _: None) is None
    for number in range(20):
        state.load(f"other-{number}")
    assert state.load("license-1") is None


# --- the folder and its files -----------------------------------------------------------------


def test_a_record_is_edited_as_it_is(tmp_path):
    """Whoever edits is given what is there; who gives it back has written nothing."""
    StateFolder(tmp_path).change("a", lambda _: {"n": 1})
    state = StateFolder(tmp_path)
    given = []

    def look(document):
        given.append(document)
        return document

    before = (tmp_path / "a.state").stat()
    assert state.change("a", look)["n"] == 1
    assert given[0]["n"] == 1
    assert given[0] is state.load("a")
    assert (tmp_path / "a.state").stat() == before


def test_an_unchanged_file_is_read_once(tmp_path, monkeypatch):
    """Looking at it costs next to nothing; the very same object comes back, a miss as well."""
    StateFolder(tmp_path).change("a", lambda _: {"n": 1})
    (tmp_path / "b.state").write_bytes(b"damaged")
    state = StateFolder(tmp_path)
    first = state.load("a")
    assert state.load("b") is None
    monkeypatch.setattr(_storage, "read_private", None)
    assert state.load("a") is first
    assert state.load("b") is None


@pytest.mark.parametrize("problem", [None, OSError, RuntimeError])
def test_without_a_folder_of_its_own_an_app_uses_the_platforms(tmp_path, monkeypatch, problem):
    """Found once; where there is none, there is no lock either."""
    calls = []

    def user_state_path(*args: object, **options: object):
        calls.append((args, options))
        if problem is not None:
            raise problem
        return tmp_path

    monkeypatch.setattr("platformdirs.user_state_path", user_state_path)
    state = StateFolder(None)
    assert state.folder() == (None if problem else tmp_path)
    assert set(map(repr, calls)) == {"(('licclient',), {'appauthor': False})"}


@pytest.mark.skipif(sys.platform == "win32", reason="no modes on Windows")
def test_folder_records_and_locks_are_the_users_alone(tmp_path):
    """Whatever the umask allows."""
    before = os.umask(0)
    try:
        StateFolder(tmp_path / "of" / "mine").change("a", lambda _: {"n": 1})
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "of").rglob("*")}
    assert modes == {"mine": 0o700, "a.state": 0o600, "licclient.lock": 0o600}
    assert stat.S_IMODE((tmp_path / "of").stat().st_mode) == 0o700


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_nothing_is_written_through_a_link(tmp_path, monkeypatch):
    """Also when somebody puts one in the draft's place just after we have cleared it."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "a.draft").symlink_to(victim)
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    state = StateFolder(tmp_path)
    assert state.change("a", lambda _: {"n": 1}) == {"n": 1}
    assert victim.read_bytes() == b"precious"
    assert StateFolder(tmp_path).load("a") is None


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names on Windows")
def test_a_pipe_is_no_record_even_with_one_in_it(tmp_path):
    """Only plain files are read."""
    path = tmp_path / "a.state"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)
    try:
        os.write(pipe, seal("a", {"n": 1}))
        assert StateFolder(tmp_path).load("a") is None
    finally:
        os.close(pipe)


def test_a_file_of_bearable_size_is_read_and_no_larger_one(tmp_path):
    """To the byte."""
    path = tmp_path / "a"
    for more, is_read in ((0, True), (1, False)):
        path.write_bytes(b"x" * (MAX_RECORD_BYTES + more))
        assert (read_private(path) is not None) is is_read


def test_a_read_that_fails_leaves_no_file_open(tmp_path, monkeypatch):
    """An update in a folder that Windows then could not replace, and one descriptor less each time."""
    file = tmp_path / "app.zip"
    file.write_bytes(b"zip")
    before = descriptors()
    with monkeypatch.context() as broken:
        broken.setattr(os, "fstat", lambda _: (tmp_path / "gone").stat())
        with pytest.raises(FileNotFoundError):
            open_plain(file)
    assert descriptors() == before
    replace_file(file, tmp_path / "other.zip", pauses=())


@pytest.mark.parametrize(
    ("system", "failures", "pauses", "given"),
    [
        ("nt", 2, [0.01, 0.02], ()),
        ("nt", 5, [0.01, 0.02, 0.05, 0.1, 0.2], ()),
        ("nt", 6, None, ()),
        ("nt", 15, [*FOLDER_PAUSES], (FOLDER_PAUSES,)),
        ("posix", 0, [], ()),
        ("posix", 1, None, ()),
    ],
)
def test_on_windows_a_reader_is_waited_out(tmp_path, monkeypatch, system, failures, pauses, given):
    """Virus scanners hold files open for a moment; elsewhere a refusal is one."""
    slept, tries = [], iter(range(100))
    replace = Path.replace

    def held_open(self, target):
        if next(tries) < failures:
            raise PermissionError
        return replace(self, target)

    monkeypatch.setattr(_storage, "os", SimpleNamespace(name=system))
    monkeypatch.setattr(_storage, "sleep", slept.append)
    monkeypatch.setattr(Path, "replace", held_open)
    (tmp_path / "new").write_bytes(b"new")
    if pauses is None:
        with pytest.raises(PermissionError):
            replace_file(tmp_path / "new", tmp_path / "old", *given)
        return
    replace_file(tmp_path / "new", tmp_path / "old", *given)
    assert (tmp_path / "old").read_bytes() == b"new"
    assert slept == pauses


def test_a_lock_that_is_kept_is_waited_for_once(tmp_path, monkeypatch):
    """One call writes several records, and a process that hangs keeps the lock through all of them."""
    waits = []
    take_lock = _storage.take_lock
    monkeypatch.setattr(_storage, "take_lock", lambda path, wait: (waits.append(wait), take_lock(path, 0))[1])
    state = StateFolder(tmp_path, lock_timeout=0.5)
    lock = take_lock(tmp_path / "licclient.lock", 0)
    for name in ("a", "b", "c"):
        assert state.change(name, lambda _: {"n": 1}) == {"n": 1}
    assert waits == [0.5, 0, 0]
    _storage.release_lock(lock)
    state.change("a", lambda _: {"n": 2})
    state.change("a", lambda _: {"n": 3})
    assert waits[3:] == [0, 0.5]
    assert StateFolder(tmp_path).load("a")["n"] == 3


@pytest.mark.skipif(sys.platform != "linux", reason="a folder in which root makes no file either")
def test_a_folder_that_takes_no_file_holds_no_lock(monkeypatch):
    """Filelock takes an open that fails with ENOENT, as in /proc, for a lock that another process holds."""
    create_lock = _storage.create_lock

    def create_for_one_try(path, seconds, mode):
        lock = create_lock(path, seconds, mode=mode)
        acquire = lock.acquire
        lock.acquire = lambda timeout: acquire(timeout=timeout)  # to wait, it is called without
        return lock

    monkeypatch.setattr(_storage, "create_lock", create_for_one_try)
    assert _storage.take_lock(Path("/proc/self/licclient.lock"), 60) is None
