"""Files that an app's user or another user has put where `licclient` reads and writes.

No link is followed, nothing is overwritten that is not ours, and nothing but a plain file is opened.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stage.archives import app, downloaded

from licclient import LicenseClient, Trust
from licclient.install import Installation
from licclient.testing import LicenseService
from licclient.types import Progress

Fetch = Callable[..., Path]

needs_unix = pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names, and links need rights")


@pytest.fixture
def shop() -> Iterator[LicenseService]:
    """A service that offers version 2.0 of an app."""
    with LicenseService() as service:
        yield service


@pytest.fixture
def fetch(shop: LicenseService, tmp_path: Path) -> Fetch:
    """Download what is offered, as a new process of the app does."""
    key = shop.issue("Notes")

    def fetch(version: str = "1.0", progress: Progress | None = None) -> Path:
        client: LicenseClient = shop.client(storage=tmp_path / "state", slug="notes", version=version)
        update = client.check_for_update(key, force=True).update
        assert update is not None
        return client.download(update, tmp_path / "downloads", progress).path

    return fetch


def test_ctberthiaume_gdcp_1(shop: LicenseService, fetch: Fetch, tmp_path: Path) -> None:
    """The server names the file like one of the user's: it gets a number, and the user's stays."""
    shop.publish("2.0", filename="Taxes 2025.pdf", content=b"the new version")
    (tmp_path / "downloads").mkdir()
    taxes = tmp_path / "downloads" / "Taxes 2025.pdf"
    taxes.write_bytes(b"the user's taxes")
    assert fetch() == taxes.with_name("Taxes 2025 (1).pdf")
    assert taxes.read_bytes() == b"the user's taxes"
    assert fetch() == taxes.with_name("Taxes 2025 (1).pdf"), "the same file again is no other one"


def test_cryptocat_42(shop: LicenseService, fetch: Fetch) -> None:
    """A vendor gives each version's file the same name: the one that was downloaded last is replaced."""
    shop.publish("2.0", filename="setup.zip", content=b"two")
    path = fetch()
    shop.publish("3.0", filename="setup.zip", content=b"three")
    assert fetch("2.0") == path
    assert path.read_bytes() == b"three"
    path.write_bytes(b"the user has edited it")
    shop.publish("4.0", filename="setup.zip", content=b"four")
    assert fetch("3.0") == path.with_name("setup (1).zip")
    assert path.read_bytes() == b"the user has edited it"


def _stop(*_: object) -> None:
    raise LookupError


@needs_unix
@pytest.mark.parametrize("planted", ["link", "pipe", "folder"])
def test_something_else_has_the_files_name(
    shop: LicenseService, fetch: Fetch, tmp_path: Path, planted: str
) -> None:
    """A link, a pipe or a folder of that name is no file of ours."""
    shop.publish("2.0", filename="setup.zip", content=b"two")
    target, victim = tmp_path / "downloads" / "setup.zip", tmp_path / "victim"
    target.parent.mkdir()
    victim.write_bytes(b"precious")
    if planted == "link":
        target.symlink_to(victim)
    elif planted == "pipe":
        os.mkfifo(target)
    else:
        target.mkdir()
    assert fetch() == target.with_name("setup (1).zip")
    assert victim.read_bytes() == b"precious"


@needs_unix
def test_a_planted_link_in_a_shared_folder_is_not_followed(
    shop: LicenseService, fetch: Fetch, tmp_path: Path
) -> None:
    """The names of part, note and lock can be guessed; all of them lead to a file of the user's."""
    shop.publish("2.0", filename="setup.zip", content=b"x" * 5000)
    downloads, victim = tmp_path / "downloads", tmp_path / "victim"
    victim.write_bytes(b"precious")
    with pytest.raises(LookupError):
        fetch(progress=_stop)
    names = {path.name for path in downloads.iterdir()}
    assert {Path(name).suffix for name in names} == {".part", ".note"}
    for name in [*names, f"{Path(min(names)).stem}.lock"]:
        (downloads / name).unlink(missing_ok=True)
        (downloads / name).symlink_to(victim)
    assert fetch().read_bytes() == b"x" * 5000
    assert victim.read_bytes() == b"precious"


@needs_unix
@pytest.mark.parametrize("ending", [".part", ".note"])
def test_a_link_that_is_planted_in_the_last_moment_is_not_followed(
    shop: LicenseService, fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """After what was there has been removed: the download fails, and nothing is written through the link."""
    shop.publish("2.0", filename="setup.zip", content=b"x" * 5000)
    victim, unlink = tmp_path / "victim", Path.unlink
    victim.write_bytes(b"precious")

    def plant(path: Path, **options: bool) -> None:
        unlink(path, **options)
        if path.suffix == ending:
            path.symlink_to(victim)

    monkeypatch.setattr(Path, "unlink", plant)
    with pytest.raises(OSError, match="exists"):
        fetch()
    assert victim.read_bytes() == b"precious"


@needs_unix
def test_another_users_part_does_not_stop_a_download(
    shop: LicenseService, fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shared folder with a sticky bit it cannot be removed: another name is used."""
    shop.publish("2.0", filename="setup.zip", content=b"x" * 5000)
    with pytest.raises(LookupError):
        fetch(progress=_stop)
    [part] = (tmp_path / "downloads").glob(".*.part")
    before, uid = part.read_bytes(), os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert fetch().read_bytes() == b"x" * 5000
    assert part.read_bytes() == before


@needs_unix
@pytest.mark.parametrize("what", ["license file", "update", "base of a patch"])
def test_a_pipe_in_place_of_a_file_does_not_block(shop: LicenseService, tmp_path: Path, what: str) -> None:
    """It has no writer: opening it to read would wait for ever."""
    pipe = tmp_path / "pipe"
    if what == "license file":
        os.mkfifo(pipe)
        client = shop.client(slug="notes", trust=Trust(public_keys=()))
        with pytest.raises(OSError, match="Not a plain file"):
            client.license_file.install(pipe)
    elif what == "update":
        zipped = downloaded(tmp_path, app("1.0"))
        zipped.path.unlink()
        os.mkfifo(zipped.path)
        with pytest.raises(OSError, match="Not a plain file"):
            Installation(tmp_path / "app").apply(zipped)
    else:
        from licclient._updates.patches import find_base  # noqa: PLC0415

        os.mkfifo(pipe)
        assert find_base({"path": str(pipe), "sha256": "0" * 64}) is None


@needs_unix
def test_an_installations_drafts_follow_no_link(tmp_path: Path) -> None:
    """In a folder that others may write to."""
    installation, victim = Installation(tmp_path / "app"), tmp_path / "victim"
    victim.write_bytes(b"precious")
    installation.apply(downloaded(tmp_path, app("1.0"), "1.0"))
    for name in ("current.txt.draft", "rolled-back.txt.draft"):
        (tmp_path / "app" / name).symlink_to(victim)
    installation.apply(downloaded(tmp_path, app("1.1"), "1.1"))
    installation.roll_back()
    assert victim.read_bytes() == b"precious"
    assert installation.current is not None
    assert installation.current.version == "1.0"
