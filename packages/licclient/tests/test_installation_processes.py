"""Many processes around one installation (D-81): at once, killed, and started by a launcher."""

import errno
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from stage.archives import APP, content_of, names, pack

from licclient.install import Installation
from licclient.install._versions import read_pointer

needs_unix = pytest.mark.skipif(os.name == "nt", reason="needs modes, exec or signals of Unix")


def test_many_at_once_unpack_once(root, lay, monkeypatch):
    """They wait for each other, and all get the same result."""
    from licclient.install import _unpack  # noqa: PLC0415 - to count

    unpacked, real = [], _unpack.unpack

    def slowly(*args: object):
        unpacked.append(args)
        time.sleep(0.1)
        real(*args)

    monkeypatch.setattr(_unpack, "unpack", slowly)
    update = lay("1.0.0")
    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(lambda _: Installation(root).apply(update), range(6)))
    assert len(found) == len(unpacked) == 1


def test_another_process_is_not_waited_for_forever(root, lay, monkeypatch):
    """After two minutes, or what stands for them here, an OSError says that somebody is at it."""
    installation = Installation(root)
    monkeypatch.setattr("licclient.install.LOCK_SECONDS", 0.05)
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
from licclient import Downloaded
from licclient.install import Installation
path, size, sha256, version = sys.argv[2:]
update = Downloaded(Path(path), int(size), sha256, version, is_verified=True)
print("ready", flush=True)
sys.stdin.readline()
Installation(sys.argv[1]).apply(update)
"""


@pytest.mark.crash
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
        arguments = [update.path, str(update.size), update.sha256, update.version]
        victim = subprocess.Popen(
            [sys.executable, "-c", APPLY, root, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
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

LAUNCHER = "import sys; from licclient.install import Installation; "
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


@needs_unix
@pytest.mark.parametrize("step", ["installed", "begun"])
def test_an_update_while_the_launcher_starts(root, lay, monkeypatch, step):
    """It reads the pointer again, once, if the version is gone that it was about to start."""
    installation, started = Installation(root), []
    first = installation.apply(lay("1.0.0"))
    name = "_installed" if step == "installed" else "_begin_start"
    real = getattr(Installation, name)

    def late(self, *arguments: object):
        if first.folder.exists():
            installation.apply(lay("1.1.0"))
            installation.apply(lay("1.2.0"))
        return real(self, *arguments)

    def execute(path, *_: object):
        if not os.path.exists(path):  # noqa: PTH110 - a text
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        started.append(path)

    monkeypatch.setattr(Installation, name, late)
    monkeypatch.setattr("os.execve", execute)
    Installation(root).start("photo-lab")
    assert ["1.2.0-" in path for path in started] == [True]
    assert not first.folder.exists()


def test_nothing_to_start(root, lay):
    """Without a version, or without the program in it, an OSError says so."""
    with pytest.raises(FileNotFoundError, match="No version"):
        Installation(root).start("photo-lab")
    installation = Installation(root)
    installation.apply(lay("1.0.0"))
    with pytest.raises(OSError, match="no-such-program"):
        installation.start("no-such-program")


def test_a_program_of_windows_that_does_not_start_is_named(tmp_path, monkeypatch):
    """Windows' own call names no file in its errors."""
    from licclient.install._launch import run  # noqa: PLC0415 - Windows takes it in `start`

    def refuse(command, env, check):
        raise PermissionError(errno.EACCES, "Access is denied")

    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(PermissionError, match="photo-lab'"):
        run(tmp_path / "photo-lab", [])
    (tmp_path / "photo-lab.exe").touch()
    with pytest.raises(PermissionError, match=r"photo-lab\.exe'"):
        run(tmp_path / "photo-lab", [])


@needs_unix
def test_the_way_of_windows_is_to_wait(root, lay):
    """Where there is no exec the status is handed on, and `.exe` may be left out."""
    from licclient.install._launch import run  # noqa: PLC0415 - Windows takes it in `start`

    folder = (
        Installation(root)
        .apply(lay("1.0.0", pack({"app.exe": b"#!/bin/sh\nexit $1\n"}, frozenset({"app.exe"}))))
        .folder
    )
    assert run(folder / "app.exe", ["7"]) == 7
    assert run(folder / "app", ["3"]) == 3
