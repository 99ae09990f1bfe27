"""File systems that do less than those of a developer's machine: no sync, no hard links, names in ASCII."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stage.archives import APP, app, downloaded, pack

from licclient.install import Installation
from licclient.testing import LicenseService

needs_unix = pytest.mark.skipif(sys.platform == "win32", reason="names and syncs of Windows are others")


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a file system that cannot sync: folders only, or files as well."""

    def make(*, folders_only: bool) -> None:
        real = os.fsync

        def sync(descriptor: int) -> None:
            if not folders_only or Path(f"/proc/self/fd/{descriptor}").is_dir():
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", sync)

    return make


@pytest.mark.skipif(sys.platform != "linux", reason="finds folders through /proc")
@pytest.mark.parametrize("folders_only", [True, False], ids=["borgbackup/borg#1287", "libgit2/libgit2#5356"])
def test_a_file_system_that_cannot_sync(
    no_sync: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture, folders_only: bool
) -> None:
    """Versions are installed and rolled back, state and downloads are written; the log mentions it."""
    caplog.set_level("INFO", "licclient")
    no_sync(folders_only=folders_only)
    installation = Installation(tmp_path / "app")
    first = installation.apply(downloaded(tmp_path, app("1.0"), "1.0"))
    second = installation.apply(downloaded(tmp_path, app("1.1"), "1.1"))
    assert (installation.current, installation.previous) == (second, first)
    assert installation.roll_back() == first
    with LicenseService() as shop:
        key = shop.issue("Notes")
        shop.publish("2.0")
        options: dict[str, Any] = {
            "storage": tmp_path / "state",
            "slug": "notes",
            "version": "1.0",
        }
        shop.client(**options).activate(key)
        client = shop.client(**options)
        with shop.offline():
            assert client.require().product == "Notes"
        update = client.check_for_update(force=True).update
        assert update is not None
        assert client.download(update, tmp_path / "downloads").path.read_bytes() == b"the new version"
    assert "cannot be synced" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@needs_unix
def test_a_disk_that_fails_while_it_syncs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then what was written may be lost: the version before stays."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    installation = Installation(tmp_path / "app")
    first = installation.apply(downloaded(tmp_path, app("1.0"), "1.0"))
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        installation.apply(downloaded(tmp_path, app("1.1"), "1.1"))
    assert installation.current == first


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
@pytest.mark.parametrize("is_taken", [False, True])
def test_a_stick_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, is_taken: bool
) -> None:
    """As FAT: a download gets its name all the same, and takes nobody else's."""

    def link(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "link", link)
    target = tmp_path / "downloads" / "app-2.0.zip"
    if is_taken:
        target.parent.mkdir()
        target.write_bytes(b"the user's")
    with LicenseService() as shop:
        key = shop.issue("Notes")
        shop.publish("2.0", content=b"new")
        client = shop.client(slug="notes", version="1.0")
        update = client.check_for_update(key).update
        assert update is not None
        path = client.download(update, target.parent).path
    assert path.read_bytes() == b"new"
    assert path.name == ("app-2.0 (1).zip" if is_taken else "app-2.0.zip")
    assert not is_taken or target.read_bytes() == b"the user's"


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
PROGRAM = """
import os, sys
assert sys.getfilesystemencoding() == "ascii", sys.getfilesystemencoding()
from pathlib import Path
from licclient import Downloaded
from licclient.install import Installation
from licclient.testing import LicenseService
folder = Path(sys.argv[1])
with LicenseService() as shop:
    key = shop.issue("Notes")
    shop.publish("2.0", filename="Größe.zip", content=(folder / "app.zip").read_bytes())
    client = shop.client(slug="notes", version="1.0", storage=f"{folder}/Jürgen")
    done = client.download(client.check_for_update(key, force=True).update, f"{folder}/Hölle")
    again = client.download(client.check_for_update(key, force=True).update, f"{folder}/Hölle")
    assert done.path == again.path
installation = Installation(folder / "app")
installation.apply(done)
sys.exit(installation.start("Grüße", ["x"]))
"""


@pytest.mark.slow
@needs_unix
def test_python_takes_the_file_system_for_one_of_ascii(tmp_path: Path) -> None:
    """As a service or a container without a locale: names are written in UTF-8, as on every other system."""
    content = APP | {"Grüße": b"#!/bin/sh\necho started $1\n"}
    (tmp_path / "app.zip").write_bytes(pack(content, frozenset({"Grüße"})))
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path)],
        env={**os.environ, **ASCII},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "started x\n"), done.stderr
    assert (tmp_path / "Hölle" / "Größe.zip").is_file()
    assert list((tmp_path / "Jürgen").glob("*.state"))
