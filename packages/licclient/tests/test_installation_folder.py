"""An app that replaces itself (D-80, D-81): real folders, real zips, real processes."""

import errno
import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from stage.archives import APP, HOSTILE, app, downloaded, pack
from stage.damage import edits

from licclient import Installation, Installed, UntrustedAnswer, UnusableArchive
from licclient._unpack import unpack
from licclient._versions import read_pointer

needs_unix = pytest.mark.skipif(os.name == "nt", reason="needs modes, exec or signals of Unix")


@pytest.fixture
def root(tmp_path):
    """The app's own folder; not there yet."""
    return tmp_path / "Photo Lab"


@pytest.fixture
def lay(tmp_path):
    """Lay down the zip of a version, as `download` leaves it."""
    return lambda version, content=None: downloaded(tmp_path, content or app(version), version)


def content_of(folder: Path) -> dict[str, bytes]:
    """Read a folder whole."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def names(root: Path) -> set[str]:
    """Return the names of everything in the folder of versions."""
    return {path.name for path in (root / "versions").iterdir()}


def test_a_new_version_beside_the_old_one(root, lay):
    """Unpacked whole, current from then on, and the one before is kept."""
    installation = Installation(root)
    assert (installation.current, installation.previous) == (None, None)
    first = installation.apply(lay("1.0.0"))
    assert first == installation.current
    assert (first.version, first.folder.parent) == ("1.0.0", root / "versions")
    second = installation.apply(lay("1.1.0"))
    assert (installation.current, installation.previous) == (second, first)
    assert content_of(second.folder) == {
        "photo-lab": b'#!/bin/sh\necho "photo-lab 1.1.0 $*"\n',
        "_internal/base.txt": b"base",
        "_internal/a/b.txt": b"",
        "_internal/version.txt": b"1.1.0",
    }
    assert (root / "current.txt").read_text() == f"{second.folder.name}\n{first.folder.name}\n"


@needs_unix
def test_programs_stay_programs(root, lay):
    """What could be run can be run, what could not cannot, and the umask has its say."""
    before = os.umask(0o027)
    try:
        folder = Installation(root).apply(lay("1.0.0")).folder
    finally:
        os.umask(before)
    assert (folder / "photo-lab").stat().st_mode & 0o7777 == 0o750
    assert (folder / "_internal" / "base.txt").stat().st_mode & 0o7777 == 0o640
    assert folder.stat().st_mode & 0o7777 == 0o750


@needs_unix
def test_no_file_gets_the_rights_of_its_owner(root, lay):
    """The bits that make a program run as somebody else are not taken over."""
    import stat  # noqa: PLC0415 - here alone
    import zipfile  # noqa: PLC0415 - the same

    content = pack({"a": b"x"})
    folder = root.parent / "odd.zip"
    folder.write_bytes(content)
    with zipfile.ZipFile(folder, "w") as zipped:
        info = zipfile.ZipInfo("a")
        info.external_attr = (stat.S_IFREG | 0o6777) << 16
        zipped.writestr(info, b"x")
    made = Installation(root).apply(lay("1.0.0", folder.read_bytes())).folder / "a"
    assert made.stat().st_mode & 0o7000 == 0


def test_the_last_one_is_gone_back_to(root, lay):
    """Once; then there is nothing before it, and a next version is laid over it as usual."""
    installation = Installation(root)
    assert installation.roll_back() is None
    first = installation.apply(lay("1.0.0"))
    assert installation.roll_back() is None
    second = installation.apply(lay("1.1.0"))
    assert installation.roll_back() == first == installation.current
    assert installation.previous is None
    assert installation.roll_back() is None
    third = installation.apply(lay("1.2.0"))
    assert (installation.current, installation.previous) == (third, first)
    assert not second.folder.exists()


def test_nothing_to_go_back_to_when_it_is_gone(root, lay):
    """A version whose folder somebody deleted is not made current."""
    installation = Installation(root)
    first, second = installation.apply(lay("1.0.0")), installation.apply(lay("1.1.0"))
    shutil.rmtree(first.folder)
    assert installation.roll_back() is None
    assert (installation.current, installation.previous) == (second, None)


def test_older_ones_are_removed(root, lay):
    """Two are kept, whatever the number of updates; what others put there stays."""
    installation = Installation(root)
    (root / "versions" / "mine").mkdir(parents=True)
    made = [installation.apply(lay(f"1.{number}.0")) for number in range(4)]
    assert names(root) == {made[2].folder.name, made[3].folder.name, "mine"}


def test_what_is_there_is_not_unpacked_again(root, lay):
    """An app that applies at every start, or was killed before it could note that it had, loses nothing."""
    installation = Installation(root)
    installation.apply(lay("1.0.0"))
    newer = lay("1.1.0")
    second = installation.apply(newer)
    (second.folder / "made-at-run-time").write_text("")
    before = installation.previous
    newer.path.unlink()
    assert installation.apply(newer) == second
    assert installation.previous == before
    assert (second.folder / "made-at-run-time").exists()


def test_another_archive_of_the_same_version_is_another_folder(root, lay):
    """A vendor who replaced a file is not held to what was unpacked before."""
    installation = Installation(root)
    first = installation.apply(lay("1.0.0"))
    second = installation.apply(lay("1.0.0", pack({"photo-lab": b"mended"})))
    assert first.folder != second.folder
    assert content_of(second.folder) == {"photo-lab": b"mended"}


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_what_may_not_be_unpacked_changes_nothing(root, lay, name):
    """Nothing is current that was not, nothing is left over, and nothing was made outside the folder."""
    installation = Installation(root)
    first = installation.apply(lay("1.0.0"))
    bad = lay("1.1.0", HOSTILE[name] or b"\0")
    if not HOSTILE[name]:
        bad.path.write_bytes(b"")
        bad = downloaded(root.parent, b"", "1.1.0")
    outside = {path.name for path in root.parent.iterdir()}
    with pytest.raises(UnusableArchive):
        installation.apply(bad)
    assert installation.current == first
    assert names(root) == {first.folder.name}
    assert {path.name for path in root.parent.iterdir()} == outside
    assert not (root / "evil").exists()


def test_the_hostile_zips_are_hostile_in_one_thing_only(root, lay):
    """The same zip without what is wrong is taken: the rows above do not fail for another reason."""
    installation = Installation(root)
    assert content_of(
        installation.apply(lay("1.0.0", pack({"good.txt": b"good", "bad": b"bad"}))).folder
    ) == {
        "good.txt": b"good",
        "bad": b"bad",
    }


def test_a_zip_damaged_anywhere_is_refused_or_does_no_harm(tmp_path, monkeypatch):
    """Each byte changed, lost or doubled before it was signed: no other error, nothing outside the folder."""
    monkeypatch.setattr("licclient._unpack.os.fsync", lambda _: None)  # a thousand of them take their time
    good = pack({"a": b"first", "b/c": b"second"})
    refused = 0
    (tmp_path / "in").mkdir()
    for _, content in edits(good, flips=(1,)):
        bad = downloaded(tmp_path / "in", content)
        folder = tmp_path / "out" / "folder"
        folder.parent.mkdir()
        try:
            unpack(bad.path, bad.size, bad.sha256, folder)
        except UnusableArchive:
            refused += 1
        else:
            assert len(content_of(folder)) >= 1
        assert {path.name for path in (tmp_path / "out").iterdir()} <= {"folder"}
        assert [path.name for path in tmp_path.iterdir() if path.name not in {"in", "out"}] == []
        shutil.rmtree(folder.parent)
    assert refused > len(good)


@pytest.mark.parametrize("change", [b"x", b""])
def test_a_file_that_changed_since_it_was_verified(root, lay, change):
    """Longer, or of the same length: what was verified is not what lies there."""
    good = lay("1.1.0")
    raw = bytearray(good.path.read_bytes())
    raw[40] ^= 1
    good.path.write_bytes(bytes(raw) + change)
    with pytest.raises(UntrustedAnswer):
        Installation(root).apply(good)
    assert names(root) == set()


def test_a_version_that_is_none(root, lay):
    """A folder is never named after what cannot be read."""
    with pytest.raises(ValueError, match="PEP 440"):
        Installation(root).apply(replace(lay("1.0.0"), version="../evil"))
    assert not root.exists()


def test_room_on_the_disk_is_looked_for_first(root, lay, monkeypatch):
    """Without room nothing is written, and the error says how much it takes."""
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 - as shutil's own
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(1 << 40, 1 << 40, 16 * 1024 * 1024))
    with pytest.raises(OSError, match="No room") as caught:
        Installation(root).apply(lay("1.0.0"))
    assert caught.value.errno == errno.ENOSPC
    assert names(root) == set()


def test_a_folder_that_cannot_be_used(root, lay):
    """Trouble with the disk is an OSError, as the app knows it."""
    root.write_text("")
    with pytest.raises(OSError, match="Photo Lab"):
        Installation(root).apply(lay("1.0.0"))


def test_a_disk_that_fills_up_while_unpacking(root, lay, monkeypatch):
    """What was begun is taken away, and the old version is current."""
    installation = Installation(root)
    first = installation.apply(lay("1.0.0"))

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("licclient._unpack.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        installation.apply(lay("1.1.0"))
    monkeypatch.undo()
    assert names(root) == {first.folder.name}
    assert installation.current == first


# --- damage and leftovers ---------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b"../../etc\n", b"\0" * 40])
def test_a_damaged_pointer_is_mended_by_the_next_update(root, lay, damage):
    """It points nowhere, no version is removed because of it, and `apply` writes a good one."""
    installation = Installation(root)
    first = installation.apply(lay("1.0.0"))
    (root / "current.txt").write_bytes(damage)
    assert (installation.current, installation.previous, installation.roll_back()) == (None, None, None)
    second = installation.apply(lay("1.1.0"))
    assert installation.current == second
    assert first.folder.is_dir()


def test_a_current_version_that_is_gone_is_unpacked_again(root, lay):
    """Whoever deleted its folder gets it back with the same archive."""
    installation = Installation(root)
    first = installation.apply(lay("1.0.0"))
    shutil.rmtree(first.folder)
    assert installation.current is None
    assert installation.apply(lay("1.0.0")) == first == installation.current
    assert installation.previous is None


def test_leftovers_are_removed_by_the_next_update(root, lay):
    """Of processes that were killed: drafts, what was being removed, and a pointer's draft."""
    installation = Installation(root)
    first = installation.apply(lay("1.0.0"))
    newer = lay("1.1.0")
    begun = f".incoming-1.1.0-{newer.sha256[:16]}"
    for name in (begun, ".incoming-2.0-aaaaaaaaaaaaaaaa", ".discarded-x", "1.0.5-aaaaaaaaaaaaaaaa"):
        (root / "versions" / name / "deep").mkdir(parents=True)
    (root / "versions" / ".discarded-1.0.5-aaaaaaaaaaaaaaaa").mkdir()
    (root / "current.txt.draft").write_text("half")
    second = installation.apply(newer)
    assert names(root) == {first.folder.name, second.folder.name}
    assert {path.name for path in root.iterdir()} <= {"current.txt", "versions", ".licclient.lock"}


def test_the_version_that_runs_is_not_removed(root, lay):
    """An app that stays up through two updates may still load its own files."""
    program = f"""
import sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from licclient import Downloaded, Installation
for told in sys.argv[2:]:
    path, size, sha256, version = told.split("|")
    Installation(sys.argv[1]).apply(Downloaded(Path(path), int(size), sha256, version))
print(sorted(path.name for path in Path(sys.argv[1], "versions").iterdir()))
"""
    installation = Installation(root)
    first = installation.apply(lay("1.0.0", pack({"main.py": program.encode()})))
    more = [lay(f"1.{number}.0") for number in (1, 2, 3)]
    told = [f"{one.path}|{one.size}|{one.sha256}|{one.version}" for one in more]
    done = subprocess.run(
        [sys.executable, first.folder / "main.py", root, *told], capture_output=True, text=True, check=True
    )
    assert first.folder.name in done.stdout
    assert done.stdout.count("'") == 2 * 3  # 1.1.0 is gone
    assert names(root) == {first.folder.name, *(path.name for path in (root / "versions").glob("1.[23].*"))}
    installation.apply(lay("1.4.0"))
    assert not first.folder.exists()


# --- many at once, and killed -----------------------------------------------------------------


def test_many_at_once_unpack_once(root, lay, monkeypatch):
    """They wait for each other, and all are told the same."""
    from licclient import _unpack  # noqa: PLC0415 - to count

    unpacked, real = [], _unpack.unpack

    def slowly(*told: object):
        unpacked.append(told)
        time.sleep(0.1)
        real(*told)

    monkeypatch.setattr(_unpack, "unpack", slowly)
    update = lay("1.0.0")
    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(lambda _: Installation(root).apply(update), range(6)))
    assert len(found) == len(unpacked) == 1


def test_another_process_is_not_waited_for_forever(root, lay, monkeypatch):
    """After two minutes, or what stands for them here, an OSError says that somebody is at it."""
    installation = Installation(root)
    monkeypatch.setattr("licclient._installation.LOCK_SECONDS", 0.05)
    with installation._alone():
        for change in (lambda: installation.apply(lay("1.0.0")), installation.roll_back):
            with pytest.raises(OSError, match="Another process") as caught:
                change()
            assert caught.value.errno == errno.EBUSY


def test_where_files_cannot_be_locked_nothing_is_changed(root, lay, monkeypatch):
    """Two at once could leave half a version: better none."""

    def none(*_: object, **__: object):
        raise NotImplementedError

    monkeypatch.setattr("filelock.FileLock.acquire", none)
    with pytest.raises(OSError, match="cannot be locked"):
        Installation(root).apply(lay("1.0.0"))
    assert names(root) == set()


APPLY = """
import sys
from pathlib import Path
from licclient import Downloaded, Installation
path, size, sha256, version = sys.argv[2:]
update = Downloaded(Path(path), int(size), sha256, version)
print("ready", flush=True)
sys.stdin.readline()
Installation(sys.argv[1]).apply(update)
"""


@needs_unix
def test_killed_at_any_moment_one_version_is_current_and_whole(root, lay, crashes):
    """`kill -9` while unpacking, switching or cleaning up: the old one or the new one, never half of one."""
    bulk = {f"_internal/{number}": bytes([number % 256]) * 4000 for number in range(120)}
    whole = {version: APP | bulk | {"version.txt": version.encode()} for version in ("1.0.0", "1.1.0")}
    updates = [lay(version, pack(files)) for version, files in whole.items()]
    installation = Installation(root)
    installation.apply(updates[0])
    seen, takes = set(), None
    for round_ in range(crashes + 1):
        update = updates[(round_ + 1) % 2]
        told = [update.path, str(update.size), update.sha256, update.version]
        victim = subprocess.Popen(
            [sys.executable, "-c", APPLY, root, *told], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert victim.stdout.readline() == b"ready\n"
        for name in names(root) - {installation.current.folder.name}:
            shutil.rmtree(root / "versions" / name)  # so that there is something to unpack each time
        victim.stdin.write(b"go\n")
        victim.stdin.flush()
        began = time.monotonic()
        if (
            takes is None
        ):  # the first is left alone: the others are killed at every part of the time that it took
            victim.communicate()
            takes = time.monotonic() - began
        else:
            time.sleep(takes * (round_ - 1) / crashes)
            victim.kill()
            victim.communicate()
        current = installation.current
        assert content_of(current.folder) == whole[current.version]
        pointer = read_pointer((root / "current.txt").read_bytes())
        assert pointer.current == current.folder.name
        seen.add(current.version == update.version)
        began = time.monotonic()
        installation.apply(update)  # no lock is held by the dead, and nothing of theirs is left
        assert time.monotonic() - began < 20
        assert not [name for name in names(root) if name.startswith(".")]
    assert False in seen


# --- starting what is current -----------------------------------------------------------------

LAUNCHER = "import sys; from licclient import Installation; "
LAUNCHER += "sys.exit(Installation(sys.argv[1]).start('photo-lab', sys.argv[2:]))"


@needs_unix
def test_the_launcher_starts_what_is_current(root, lay):
    """With its arguments, in its own process; from one start to the next it is another version."""
    installation = Installation(root)

    def start():
        return subprocess.run(
            [sys.executable, "-c", LAUNCHER, root, "a b", "c"], capture_output=True, text=True, check=True
        ).stdout

    installation.apply(lay("1.0.0"))
    assert start() == "photo-lab 1.0.0 a b c\n"
    installation.apply(lay("1.1.0"))
    assert start() == "photo-lab 1.1.0 a b c\n"
    installation.roll_back()
    assert start() == "photo-lab 1.0.0 a b c\n"


def test_nothing_to_start(root, lay):
    """Without a version, or without the program in it, an OSError says so."""
    with pytest.raises(FileNotFoundError, match="No version"):
        Installation(root).start("photo-lab")
    installation = Installation(root)
    installation.apply(lay("1.0.0"))
    with pytest.raises(OSError, match="no-such-program"):
        installation.start("no-such-program")


@needs_unix
def test_the_way_of_windows_is_to_wait(root, lay):
    """Where there is no exec the status is handed on, and `.exe` may be left out."""
    from licclient._installation import _run  # noqa: PLC0415 - Windows takes it in `start`

    folder = (
        Installation(root)
        .apply(lay("1.0.0", pack({"app.exe": b"#!/bin/sh\nexit $1\n"}, frozenset({"app.exe"}))))
        .folder
    )
    assert _run(folder / "app.exe", ["7"]) == 7
    assert _run(folder / "app", ["3"]) == 3


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (
            {"LD_LIBRARY_PATH": "/bundle", "LD_LIBRARY_PATH_ORIG": "/opt/lib"},
            {"LD_LIBRARY_PATH": "/opt/lib"},
        ),
        ({"LD_LIBRARY_PATH": "/bundle"}, {}),
    ],
)
def test_a_frozen_launcher_hands_on_a_clean_environment(monkeypatch, given, left):
    """What PyInstaller's loader set for the launcher's own libraries is no business of the app."""
    from licclient._installation import _own_environment  # noqa: PLC0415 - needs no program to run

    for name in ("LD_LIBRARY_PATH", "LD_LIBRARY_PATH_ORIG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert _own_environment().items() >= given.items()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    found = _own_environment()
    assert found.pop("PYINSTALLER_RESET_ENVIRONMENT") == "1"
    assert {name: value for name, value in found.items() if name.startswith("LD_LIBRARY_PATH")} == left


def test_an_app_may_work_in_another_folder_later(root, lay, monkeypatch):
    """A relative path means what it meant when the installation was made."""
    monkeypatch.chdir(root.parent)
    installation = Installation(root.name)
    monkeypatch.chdir("/")
    assert installation.apply(lay("1.0.0")).folder.parent == root / "versions"


def test_making_one_opens_nothing(root):
    """No file, no folder; and its `repr` says where it is."""
    assert repr(Installation(root)) == f"Installation({str(root)!r})"
    assert not root.exists()
    assert Installed("1.0", root).folder == root
