"""A bundle of macOS is replaced whole or not at all (D-357); its tools are stand-ins here."""

import os
import stat
from pathlib import Path

import pytest
from stage.archives import downloaded, pack

from licclient.errors import InstallationError, UntrustedResponseError
from licclient.install import _app_bundle

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs shells of Unix")

DITTO = '#!/bin/sh\nexec python3 -m zipfile -e "$3" "$4"\n'
CODESIGN = """#!/bin/sh
for last; do :; done
case $1 in
--verify) test -f "$last/Contents/sealed" ;;
*) echo "TeamIdentifier=$(cat "$last/Contents/team")" >&2 ;;
esac
"""


def files_of(version: str, team: str = "AB12CD34EF") -> dict[str, bytes]:
    """Return the files of a bundle."""
    contents = {"sealed": b"", "team": team.encode(), "version": version.encode()}
    return {f"Photo Lab.app/Contents/{name}": content for name, content in contents.items()}


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    """The bundle of version 1.0, and stand-ins for what macOS has."""
    for name, text in (("DITTO", DITTO), ("CODESIGN", CODESIGN)):
        tool = tmp_path / name
        tool.write_text(text)
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(_app_bundle, name, str(tool))
    applications = tmp_path / "Applications"
    for path, content in files_of("1.0").items():
        file = applications / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return applications / "Photo Lab.app"


def version(bundle: Path) -> str:
    """Return the version of a bundle; nothing else may lie beside it."""
    assert [path.name for path in bundle.parent.iterdir()] == ["Photo Lab.app"]
    return (bundle / "Contents" / "version").read_text()


def test_a_bundle_is_replaced_whole(bundle, tmp_path):
    """No file of the old one is left in it."""
    (bundle / "Contents" / "old").write_bytes(b"")
    _app_bundle.replace_bundle(downloaded(tmp_path, pack(files_of("2.0"))), bundle)
    assert version(bundle) == "2.0"
    assert not (bundle / "Contents" / "old").exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("files", "error"),
    [
        (files_of("2.0", team="ANOTHER"), InstallationError),
        (
            {name: content for name, content in files_of("2.0").items() if "sealed" not in name},
            UntrustedResponseError,
        ),
        ({"readme.txt": b""}, InstallationError),
    ],
    ids=["another team", "a broken seal", "no bundle"],
)
def test_another_bundle_replaces_nothing(bundle, tmp_path, files, error):
    """The old one stays as it was."""
    with pytest.raises(error):
        _app_bundle.replace_bundle(downloaded(tmp_path, pack(files)), bundle)
    assert version(bundle) == "1.0"


def test_a_file_that_is_no_zip_replaces_nothing(bundle, tmp_path):
    """`ditto` refuses it."""
    with pytest.raises(InstallationError):
        _app_bundle.replace_bundle(downloaded(tmp_path, b"no zip"), bundle)
    assert version(bundle) == "1.0"


def test_an_exchanged_file_replaces_nothing(bundle, tmp_path):
    """Its digest is another one."""
    file = downloaded(tmp_path, pack(files_of("2.0")))
    file.path.write_bytes(pack(files_of("6.6")))
    with pytest.raises(UntrustedResponseError):
        _app_bundle.replace_bundle(file, bundle)
    assert version(bundle) == "1.0"


def test_the_old_bundle_comes_back_if_the_new_one_cannot_be_moved(bundle, tmp_path, monkeypatch):
    """As with a disk that fails in between."""
    rename = Path.rename

    def fail(path, target):
        if path.parent.name == "new":
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output"):
        _app_bundle.replace_bundle(downloaded(tmp_path, pack(files_of("2.0"))), bundle)
    assert version(bundle) == "1.0"


def test_the_old_bundle_is_kept_if_it_cannot_be_moved_back_either(bundle, tmp_path, monkeypatch):
    """It stays beside its place: an app that is nowhere is worse than a folder left over."""
    rename = Path.rename

    def fail(path, target):
        if target == bundle:
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output"):
        _app_bundle.replace_bundle(downloaded(tmp_path, pack(files_of("2.0"))), bundle)
    (kept,) = bundle.parent.glob(".licclient-*/old.app")
    assert (kept / "Contents" / "version").read_text() == "1.0"
