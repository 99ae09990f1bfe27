"""Zips as tools of other systems make them: what they do not state is not guessed wrongly."""

import io
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from stage.archives import APP, app, downloaded, entry, pack, zip_of

from licclient.errors import UnusableArchiveError
from licclient.install import Installation

needs_unix = pytest.mark.skipif(sys.platform == "win32", reason="needs modes of Unix")
NAME = "Grüße.txt"


def _without_flag(content: bytes, system: int) -> bytes:
    """Take away that names are in UTF-8, as tools leave it away, and set the system that made the zip."""
    changed = bytearray(content)
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(signature)
        while at >= 0:
            changed[at + flags + 1] &= ~0x08
            if signature == b"PK\x01\x02":
                changed[at + 5] = system
            at = content.find(signature, at + 4)
    return bytes(changed)


def _named(raw: bytes, system: int) -> bytes:
    """Zip a file with these bytes as its name, in an encoding that is not stated."""
    placeholder = "N" * len(raw)
    content = pack(APP | {placeholder: b"hello"}).replace(placeholder.encode(), raw)
    return _without_flag(content, system)


def _install(tmp_path: Path, content: bytes) -> Path:
    return Installation(tmp_path / "app").apply(downloaded(tmp_path, content)).folder


@pytest.mark.skipif(shutil.which("zip") is None, reason="Info-ZIP is not installed")
def test_python_cpython_84353(tmp_path: Path) -> None:
    """`zip -r` of Info-ZIP writes names in UTF-8 and does not say so: the real tool."""
    source = tmp_path / "source"
    source.mkdir()
    (source / NAME).write_text("hello")
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o755)
    zipped = tmp_path / "made.zip"
    subprocess.run(["zip", "-q", "-r", str(zipped), "."], cwd=source, check=True)
    folder = _install(tmp_path, zipped.read_bytes())
    assert {path.name for path in folder.iterdir()} == {NAME, "run"}


@pytest.mark.parametrize("system", [3, 19], ids=["Unix", "macOS"])
def test_of_unix_it_is_utf8(tmp_path: Path, system: int) -> None:
    """The same on macOS, where names may be decomposed."""
    folder = _install(tmp_path, _named(NAME.encode(), system))
    assert (folder / NAME).read_bytes() == b"hello"


@pytest.mark.parametrize(
    ("raw", "system"),
    [
        (NAME.encode(), 0),  # srikanth-lingala/zip4j and others: UTF-8 on Windows, without the flag
        (NAME.encode("cp437"), 0),
        (NAME.encode("cp1252"), 3),
        ("写真.txt".encode("shift-jis"), 3),
        ("写真.txt".encode("gbk"), 11),
    ],
)
def test_elsewhere_it_is_refused(tmp_path: Path, raw: bytes, system: int) -> None:
    """Each guess is wrong for somebody: the vendor learns so before the customer does."""
    with pytest.raises(UnusableArchiveError, match="pack it with names in UTF-8"):
        _install(tmp_path, _named(raw, system))
    assert Installation(tmp_path / "app").current is None


# --- programs --------------------------------------------------------------------------------------


def _on_windows(files: dict[str, bytes]) -> bytes:
    """Zip files as tools of Windows do: without permissions."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(entry(name, 0, create_system=0), content)
    return raw.getvalue()


@needs_unix
@pytest.mark.parametrize(
    "start",
    [b"#!/bin/sh\n", b"\x7fELF\2\1\1", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"],
    ids=["script", "Linux", "macOS", "macOS, universal"],
)
def test_openrct2_openrct2_11050(tmp_path: Path, start: bytes) -> None:
    """A zip made on Windows, or by a CI service, has no permissions: its programs are executable anyway."""
    folder = _install(tmp_path, _on_windows({"bin/photo-lab": start + b"\n", "readme.txt": b"read me"}))
    assert os.access(folder / "bin" / "photo-lab", os.X_OK)
    assert not (folder / "readme.txt").stat().st_mode & 0o111


@needs_unix
def test_what_the_archive_states_is_not_guessed(tmp_path: Path) -> None:
    """With one executable file, a script that is none stays none."""
    folder = _install(tmp_path, pack({"photo-lab": b"#!/bin/sh\n", "hook.sh": b"#!/bin/sh\n"}))
    assert os.access(folder / "photo-lab", os.X_OK)
    assert not (folder / "hook.sh").stat().st_mode & 0o111


@needs_unix
def test_grangerhub_tremulous_15(tmp_path: Path) -> None:
    """An update without any program, such as another system's, does not take the place of one that runs."""
    installation = Installation(tmp_path / "app")
    first = installation.apply(downloaded(tmp_path, app("1.0"), "1.0"))
    files = {"photo-lab.exe": b"MZ\x90\0", "base.dll": b"MZ"}
    for content in (_on_windows(files), zip_of(entry("base.dll", stat.S_IFREG | 0o644))):
        with pytest.raises(UnusableArchiveError, match="permissions of Unix"):
            installation.apply(downloaded(tmp_path, content, "1.1"))
    assert installation.current == first
    assert [path.name for path in (tmp_path / "app" / "versions").iterdir()] == [first.folder.name]
