"""An app that replaces itself (D-80, D-81): real folders, real zips, real processes."""

import errno
import os
import shutil
import stat
import struct
import subprocess
import sys
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
from stage.archives import HOSTILE, content_of, downloaded, entry, names, pack, zip_of
from stage.damage import edits
from stage.meters import bounded

from licclient.errors import UntrustedResponseError, UnusableArchiveError
from licclient.install import Installation, _unpack
from licclient.install._unpack import unpack

needs_unix = pytest.mark.skipif(os.name == "nt", reason="needs modes, exec or signals of Unix")


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
    zipped = zip_of(entry("a", stat.S_IFREG | 0o6777))
    made = Installation(root).apply(lay("1.0.0", zipped)).folder / "a"
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


async def test_a_version_that_was_rolled_back_is_offered_only_on_request(
    root, lay, client, service, key, clock, monkeypatch
):
    """Not by itself, from the server or from memory; but on request, when newer, or when applied again."""
    installation, second = Installation(root), lay("2.0")
    first = installation.apply(lay("1.0"))
    installation.apply(second)
    installation.roll_back()
    monkeypatch.setattr("sys.argv", [str(first.folder / "photo-lab")])
    service.offers("2.0.0")
    check = await client.check_for_update(key)
    assert not check
    assert "rolled back" in check.message
    assert (await client.check_for_update(key, force=True)).update.version == "2.0.0"
    assert not await client.check_for_update(key)
    service.offers("2.1")
    assert (await client.check_for_update(key, force=True)).update.version == "2.1"
    assert (await client.check_for_update(key)).update.version == "2.1"
    installation.apply(second)
    service.offers("2.0")
    clock.move(hours=14)
    assert (await client.check_for_update(key)).update.version == "2.0"


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


@pytest.mark.parametrize(
    ("count", "name", "words"),
    [(600_000, b"ab", "list of files is larger"), (350_000, b"a", "more than 100000 entries")],
)
def test_a_directory_is_counted_before_it_is_built(tmp_path, count, name, words):
    """Half a million entries in 29 MiB, of which the zip says that there are none, take no 270 MiB."""
    size = count * (46 + len(name))
    content = (b"PK\x01\x02" + bytes(24) + struct.pack("<H", len(name)) + bytes(16) + name) * count
    content += b"PK\x05\x06" + bytes(8) + struct.pack("<LLH", size, 0, 0)
    bad = downloaded(tmp_path, content)
    del content
    with bounded(20), pytest.raises(UnusableArchiveError, match=words):
        unpack(bad.path, bad.size, bad.sha256, tmp_path / "new")
    assert not (tmp_path / "new").exists()


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
    with pytest.raises(UnusableArchiveError):
        installation.apply(bad)
    assert installation.current == first
    assert names(root) == {first.folder.name}
    assert {path.name for path in root.parent.iterdir()} == outside
    assert not (root / "evil").exists()


def test_the_hostile_zips_are_hostile_in_one_thing_only(root, lay):
    """The same zip without what is wrong is taken: the rows above do not fail for another reason."""
    made = Installation(root).apply(lay("1.0.0", zip_of(entry("bad"))))
    assert content_of(made.folder) == {"good.txt": b"good", "bad": b"bad"}


@pytest.mark.slow
def test_a_zip_damaged_anywhere_is_refused_or_does_no_harm(tmp_path, monkeypatch):
    """Each byte changed, lost or doubled before it was signed: no other error, nothing outside the folder."""
    monkeypatch.setattr(
        "licclient.install._unpack.os.fsync", lambda _: None
    )  # a thousand of them take their time
    good = pack({"a": b"first", "b/c": b"second"})
    refused = 0
    (tmp_path / "in").mkdir()
    for _, content in edits(good):
        bad = downloaded(tmp_path / "in", content)
        folder = tmp_path / "out" / "folder"
        folder.parent.mkdir()
        try:
            unpack(bad.path, bad.size, bad.sha256, folder)
        except UnusableArchiveError:
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
    with pytest.raises(UntrustedResponseError):
        Installation(root).apply(good)
    assert names(root) == set()


@needs_unix
@pytest.mark.sampled(3, "mode", "owner")
@pytest.mark.parametrize("mode", [0o644, 0o664, 0o646])
@pytest.mark.parametrize("owner", [0, 1])
def test_another_user_cannot_change_what_was_verified(root, lay, monkeypatch, mode, owner):
    """A file that others may write to is unpacked from a copy, whatever they write once it was verified."""
    good, real = lay("1.1.0"), _unpack.file_digest
    good.path.chmod(mode)
    monkeypatch.setattr("os.geteuid", lambda: good.path.stat().st_uid + owner)
    is_shared = owner or mode != 0o644

    def verified(*arguments: object):
        digest = real(*arguments)
        if is_shared:
            good.path.write_bytes(bytes(good.size))  # in place: the open file sees it
        return digest

    monkeypatch.setattr(_unpack, "file_digest", verified)
    folder = Installation(root).apply(good).folder
    assert content_of(folder)["_internal/version.txt"] == b"1.1.0"
    assert names(root) == {folder.name}


@needs_unix
@pytest.mark.sampled(1)
@pytest.mark.parametrize("change", [b"", b"more"])
def test_a_copy_is_verified(root, lay, change):
    """A shared file of another length or content is refused, and leaves nothing."""
    bad = lay("1.1.0")
    bad.path.write_bytes(bad.path.read_bytes()[: -1 if not change else None] + change)
    bad.path.chmod(0o666)
    with pytest.raises(UntrustedResponseError):
        Installation(root).apply(bad)
    assert names(root) == set()


@needs_unix
def test_a_copy_needs_room(root, lay, monkeypatch):
    """Without it nothing is begun; a disk that fills up all the same leaves nothing."""
    shared = lay("1.1.0")
    shared.path.chmod(0o666)

    def full(*_: object, **__: object):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("require_space", "open_temporary"):
        monkeypatch.setattr(_unpack, name, full)
        with pytest.raises(OSError, match="No space left"):
            Installation(root).apply(shared)
        monkeypatch.undo()
        assert names(root) == set()


def test_a_file_that_was_not_verified_needs_the_apps_word(root, lay):
    """Nothing is unpacked without it; with it, the file must still be the one that was downloaded (D-55)."""
    file = replace(lay("1.1.0"), is_verified=False)
    with pytest.raises(UntrustedResponseError, match="allow_unverified=True"):
        Installation(root).apply(file)
    assert not root.exists()
    assert Installation(root).apply(file, allow_unverified=True).version == "1.1.0"
    with pytest.raises(UntrustedResponseError, match="its digest differs"):
        Installation(root / "other").apply(replace(file, sha256="0" * 64), allow_unverified=True)


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

    monkeypatch.setattr("licclient.install._unpack.os.fsync", full)
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


def test_a_damaged_version_is_replaced_by_one_beside_it(root, lay):
    """It stays current until the other is whole, also on Windows, where what runs cannot be moved."""
    installation, newer = Installation(root), lay("1.1.0")
    first = installation.apply(lay("1.0.0"))
    folders = [installation.apply(newer).folder]
    (folders[0] / ".licclient-confirmed").touch()
    for _ in range(3):
        (folders[-1] / "photo-lab").unlink()
        mended = installation.apply(newer)
        assert mended == installation.current == installation.apply(newer)
        assert installation.previous == first
        assert (mended.folder / "photo-lab").exists()
        assert (mended.folder / ".licclient-confirmed").exists()  # it works here, as it did
        assert folders[-1].exists()  # it may run
        folders.append(mended.folder)
        assert len(names(root)) <= 4
    assert folders[0] != folders[1] != folders[2]
    later = installation.apply(lay("1.2.0"))
    assert names(root) == {later.folder.name, mended.folder.name}


def test_a_damaged_version_before_is_replaced_as_well(root, lay):
    """By hand, as any version that is not current; it is never its own predecessor."""
    installation, older = Installation(root), lay("1.0.0")
    first, second = installation.apply(older), installation.apply(lay("1.1.0"))
    (first.folder / "photo-lab").unlink()
    mended = installation.apply(older)
    assert (installation.current, installation.previous) == (mended, second)
    assert mended.folder != first.folder


@pytest.mark.parametrize("name", [".incoming-file", ".discarded-file"])
def test_a_leftover_may_be_a_file(root, lay, name):
    """Such as the copy of a download, where a file system gives it a name."""
    installation = Installation(root)
    first = installation.apply(lay("1.0.0"))
    (root / "versions" / name).write_text("")
    second = installation.apply(lay("1.1.0"))
    assert names(root) == {first.folder.name, second.folder.name}


@pytest.mark.parametrize("call", [1, 2])
def test_what_cannot_be_removed_prevents_no_update(root, lay, monkeypatch, caplog, call):
    """It is logged, and removed by a later one: the version is current, and nothing raises."""
    installation, real, calls = Installation(root), Path.iterdir, []
    installation.apply(lay("1.0.0"))

    def listed(path):
        calls.append(path)
        if len(calls) == call:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", listed)
        made = installation.apply(lay("1.1.0"))
    assert installation.current == made
    assert "cannot be removed (Input/output error)" in caplog.text
    later = installation.apply(lay("1.2.0"))
    assert names(root) == {made.folder.name, later.folder.name}


def test_what_ran_before_stays_for_one_update(root, lay):
    """It may still run and load more of its files, whatever process installs the next ones."""
    installation = Installation(root)
    first = installation.apply(lay("1.0.0"))
    (first.folder / ".licclient-confirmed").touch()
    second = installation.apply(lay("1.1.0"))
    third = installation.apply(lay("1.2.0"))
    assert installation.previous == first  # since the second was not confirmed
    assert names(root) == {first.folder.name, second.folder.name, third.folder.name}
    fourth = installation.apply(lay("1.3.0"))
    assert names(root) == {first.folder.name, third.folder.name, fourth.folder.name}


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


@pytest.mark.parametrize("name", ["photo-lab/photo-lab", "photo-studio"])
def test_a_frozen_program_is_found_in_each_version(root, lay, monkeypatch, name):
    """The launcher starts it by its name: not the folder packed in place of its content, nor renamed."""
    installation = Installation(root)
    first = installation.apply(lay("1.0.0"))
    monkeypatch.setattr(sys, "executable", str(first.folder / "photo-lab"))
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    wrong = zip_of(entry(name, stat.S_IFREG | 0o755))
    with pytest.raises(UnusableArchiveError, match=r"has no photo-lab, the program that is"):
        installation.apply(downloaded(root.parent, wrong, "1.1.0"))
    assert installation.current == first
    assert [path.name for path in (root / "versions").iterdir()] == [first.folder.name]
    assert installation.apply(lay("1.1.0")).version == "1.1.0"
    monkeypatch.delattr(sys, "frozen")  # a Python in the version has another name after an update
    assert installation.apply(downloaded(root.parent, wrong, "1.2.0")).version == "1.2.0"


def test_the_version_that_runs_is_not_removed(root, lay):
    """An app that stays up through two updates may still load its own files."""
    program = f"""
import sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from licclient import Downloaded
from licclient.install import Installation
for argument in sys.argv[2:]:
    path, size, sha256, version = argument.split("|")
    Installation(sys.argv[1]).apply(Downloaded(Path(path), int(size), sha256, version, is_verified=True))
print(sorted(path.name for path in Path(sys.argv[1], "versions").iterdir()))
"""
    installation = Installation(root)
    first = installation.apply(lay("1.0.0", pack({"main.py": program.encode()})))
    more = [lay(f"1.{number}.0") for number in (1, 2, 3)]
    arguments = [f"{release.path}|{release.size}|{release.sha256}|{release.version}" for release in more]
    done = subprocess.run(
        [sys.executable, first.folder / "main.py", root, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    assert first.folder.name in done.stdout
    assert done.stdout.count("'") == 2 * 3  # 1.1.0 is gone
    assert names(root) == {first.folder.name, *(path.name for path in (root / "versions").glob("1.[23].*"))}
    installation.apply(lay("1.4.0"))
    assert not first.folder.exists()


def test_an_app_may_work_in_another_folder_later(root, lay, monkeypatch):
    """A relative path means what it meant when the installation was made."""
    monkeypatch.chdir(root.parent)
    installation = Installation(root.name)
    monkeypatch.chdir("/")
    assert installation.apply(lay("1.0.0")).folder.parent == root / "versions"
