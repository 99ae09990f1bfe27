"""`client.install_update` of a folder, of an AppImage, and of what another program updates (D-350, D-351)."""

import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from stage.archives import app, downloaded
from stage.scripts import digest

from licclient import AsyncLicenseClient, LicenseClient
from licclient._core.computer import list_app_folders
from licclient._core.kinds import InstallationKind
from licclient._core.model import InstallObstacle
from licclient.errors import (
    DownloadCancelledError,
    InstallationError,
    ServiceUnavailableError,
    UntrustedResponseError,
    UnusableArchiveError,
)
from licclient.install import DetectedInstallation, Installation, _appimage, _beside, _restart
from licclient.testing import MemoryStorage

needs_unix = pytest.mark.skipif(os.name == "nt", reason="needs modes and shells of Unix")
both = pytest.mark.parametrize("flavour", [LicenseClient, AsyncLicenseClient], indirect=True)


def appimage(version: str, *, machine: bytes = b"\x3e\x00") -> bytes:
    """Return a file that begins as an AppImage; it cannot be started."""
    return b"\x7fELF\x02\x01\x01\x00AI\x02" + b"\x00" * 5 + b"\x02\x00" + machine + version.encode() * 1000


def installation_of(kind, folder, program, *, is_writable=True, updater=None, command=None):
    """Return what `detect` would."""
    return DetectedInstallation(kind, folder, program, is_writable, updater, command, True)  # noqa: FBT003


@pytest.fixture
def update_of(client, store, key):
    """Publish a file, and return the update that is offered."""

    async def publish(content: bytes):
        store.content, store.digest = content, digest(content)
        return (await client.check_for_update(key)).update

    return publish


@pytest.fixture
def image(tmp_path):
    """An AppImage of version 1.0 that may be run by its owner and group."""
    path = tmp_path / "apps" / "Photo Lab.AppImage"
    path.parent.mkdir()
    path.write_bytes(appimage("1.0"))
    path.chmod(0o754)
    return installation_of(InstallationKind.APPIMAGE, path.parent, path)


@pytest.mark.sampled(1)
@both
async def test_a_folder_gets_its_next_version(client, update_of, root, lay, key):
    """Beside the one that runs; progress is reported as of a download."""
    program = Installation(root).apply(lay("1.0")).folder / "photo-lab"
    update, seen = await update_of(app("2.0")), []
    plan = await client.plan_update(installation=installation_of("folder", root, program))
    assert plan.is_possible
    assert not plan.has_to_quit
    here = installation_of(InstallationKind.FOLDER, root, program)
    done = await client.install_update(
        update, lambda *numbers: seen.append(numbers), key=key, installation=here
    )
    assert (done.version, done.has_to_quit, done.is_reopened) == ("2.0", False, False)  # there is no launcher
    assert Installation(root).current.version == "2.0"
    assert seen[-1][0] == seen[-1][1]


async def test_the_folder_is_known_by_the_running_version(client, update_of, root, lay, key):
    """A version's folder lies two levels below it."""
    version = Installation(root).apply(lay("1.0")).folder
    update = await update_of(app("2.0"))
    here = installation_of(InstallationKind.FOLDER, version, version / "photo-lab")
    await client.install_update(update, key=key, installation=here, restart=False)
    assert Installation(root).current.version == "2.0"


async def test_receipts_of_a_folder(client, make_client, update_of, root, lay, key, monkeypatch):
    """None says that it was interrupted: it was installed, and went back, or waits for the next start."""
    installation = Installation(root)
    first = installation.apply(lay("1.0")).folder / "photo-lab"
    here = installation_of(InstallationKind.FOLDER, root, first)

    async def receipt(program, version):
        monkeypatch.setattr("sys.argv", [str(program)])
        result = await make_client(version=version).installation_receipt()
        return None if result is None else result.obstacle or "installed"

    await client.install_update(await update_of(app("2.0")), key=key, installation=here, restart=False)
    second = installation.current.folder / "photo-lab"
    assert await receipt(first, "1.0") == "newer_installed", "an instance that was started before"
    assert await receipt(second, "2.0") == "installed"
    assert await receipt(second, "1.9") == "installed", "its number is wrong"
    assert await receipt(root / "elsewhere" / "photo-lab", "2.1") == "installed", "it came another way"
    copy = root.with_name("copy")
    other = Installation(copy).apply(lay("1.0")).folder / "photo-lab"
    assert await receipt(other, "1.0") is None, "another copy with the same state"
    installation.roll_back()
    assert await receipt(first, "1.0") == "rolled_back"


@needs_unix
async def test_the_receipt_of_an_appimage(client, make_client, update_of, image, key, monkeypatch):
    """An instance that was started before says so; another copy has none."""
    await client.install_update(await update_of(appimage("2.0")), key=key, installation=image, restart=False)
    detected = image
    monkeypatch.setattr("licclient.install._receipts.detect", lambda: detected)
    assert (await client.installation_receipt()).obstacle is InstallObstacle.NEWER_INSTALLED
    assert (await make_client(version="2.0").installation_receipt()).is_installed
    detected = replace(image, program=image.program.with_name("copy.AppImage"))
    assert await client.installation_receipt() is None


async def test_the_most_certain_reason_for_no_offer_is_named(client, update_of, root, lay, key, monkeypatch):
    """The developer sees the mistake of a release at once, not when the day of its installation is over."""
    installation = Installation(root)
    first = installation.apply(lay("1.0")).folder / "photo-lab"
    here = installation_of(InstallationKind.FOLDER, root, first)
    monkeypatch.setattr("sys.argv", [str(first)])
    await client.install_update(await update_of(app("2.0")), key=key, installation=here, restart=False)
    assert "was to be installed here today" in (await client.check_for_update(key)).message
    monkeypatch.setattr("sys.argv", [str(installation.current.folder / "photo-lab")])
    assert "The vendor has published the wrong file" in (await client.check_for_update(key)).message
    monkeypatch.setattr("sys.argv", [str(first)])
    installation.roll_back()
    assert "was rolled back here" in (await client.check_for_update(key)).message


def test_a_frozen_app_lists_its_folder_once(root, lay, monkeypatch):
    """Its program is `sys.executable` as well as the first argument."""
    program = str(Installation(root).apply(lay("1.0")).folder / "photo-lab")
    monkeypatch.setattr("sys.argv", [program])
    monkeypatch.setattr("sys.executable", program)
    assert list_app_folders() == [root]


@pytest.mark.parametrize("place", ["two levels up", "beside", "above a version", "in another folder"])
async def test_a_file_of_the_persons_is_no_pointer(client, update_of, tmp_path, root, lay, key, place):
    """Notes called `current.txt` stay, and no version is put beside them."""
    home = tmp_path / "home"
    program = home / "apps" / "photo-lab" / "photo-lab"
    if place == "above a version":
        program = home / "versions" / "1.0-6b1f3c2a90d1e4f7" / "photo-lab"
    program.parent.mkdir(parents=True)
    program.touch()
    notes = (program.parent if place == "beside" else home) / "current.txt"
    notes.write_text("what is current: do not lose\n")
    folder = program.parent
    if place == "in another folder":  # of an app that this one does not run from
        folder = Installation(root).apply(lay("1.0")).folder
    update = await update_of(app("2.0"))
    here = replace(installation_of(InstallationKind.UNKNOWN, folder, program), is_certain=False)
    for kind in (InstallationKind.UNKNOWN, InstallationKind.FOLDER):
        assert not (await client.plan_update(installation=replace(here, kind=kind))).is_possible
        with pytest.raises(InstallationError):
            await client.install_update(update, key=key, installation=replace(here, kind=kind))
    assert notes.read_text() == "what is current: do not lose\n"
    assert place == "above a version" or not (home / "versions").exists()
    assert place != "in another folder" or Installation(root).current.version == "1.0"


async def test_a_pointer_that_cannot_be_read(client, root, lay, monkeypatch):
    """Nothing is installed over it."""

    def fail(_path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    program = Installation(root).apply(lay("1.0")).folder / "photo-lab"
    monkeypatch.setattr("licclient.install._detection_files.read_with_retries", fail)
    here = installation_of(InstallationKind.FOLDER, root, program)
    assert (await client.plan_update(installation=here)).obstacle is InstallObstacle.NOT_REPLACEABLE


@pytest.mark.sampled(1)
@both
async def test_what_another_program_updates_is_not_downloaded(client, store, update_of, tmp_path, key):
    """The error has its name, and what to type."""
    update = await update_of(app("2.0"))
    before = len(store.service.requests)
    here = installation_of(
        InstallationKind.PIPX, tmp_path, tmp_path / "app", updater="pipx", command="pipx upgrade notes"
    )
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=here)
    assert caught.value.obstacle is InstallObstacle.OTHER_UPDATER
    assert str(caught.value) == "pipx updates this app. To update it, run: pipx upgrade notes"
    assert len(store.service.requests) == before
    assert (await client.plan_update(installation=here)).command == "pipx upgrade notes"


async def test_what_was_not_set_up_is_not_downloaded(client, store, update_of, tmp_path, key):
    """A program that runs from its source has no place for a second version."""
    update = await update_of(app("2.0"))
    before = len(store.service.requests)
    here = installation_of(InstallationKind.UNKNOWN, tmp_path, tmp_path / "app.py")
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=here)
    assert caught.value.obstacle is InstallObstacle.NOT_REPLACEABLE
    assert len(store.service.requests) == before


@needs_unix
@pytest.mark.sampled(1)
@both
async def test_an_appimage_is_replaced_with_its_mode(client, update_of, image, key):
    """Under the name that the user gave it, also behind a link; nothing else is left beside it."""
    link = image.program.with_name("photo-lab")
    link.symlink_to(image.program)
    update = await update_of(appimage("2.0"))
    here = replace(image, program=link)
    done = await client.install_update(update, key=key, installation=here, restart=False)
    assert (done.version, done.kind, done.is_reopened) == ("2.0", InstallationKind.APPIMAGE, False)
    assert image.program.read_bytes() == appimage("2.0")
    assert image.program.stat().st_mode & 0o7777 == 0o754
    assert link.is_symlink()
    assert {path.name for path in image.folder.iterdir()} == {"Photo Lab.AppImage", "photo-lab"}


@needs_unix
@pytest.mark.sampled(1)
@both
async def test_the_file_of_a_dialog_is_not_downloaded_again(client, store, update_of, image, key, folder):
    """It is compared with its digest once more."""
    update = await update_of(appimage("2.0"))
    file = await client.download(update, folder, key=key)
    before = len(store.service.requests)
    await client.install_update(update, key=key, downloaded=file, installation=image, restart=False)
    assert image.program.read_bytes() == appimage("2.0")
    assert len(store.service.requests) == before
    with pytest.raises(TypeError, match="downloaded must be what download returned"):
        await client.install_update(update, key=key, downloaded=file.path, installation=image)


@needs_unix
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("content", "obstacle"),
    [(app("2.0"), "wrong_file"), (appimage("2.0", machine=b"\xb7\x00"), "wrong_file"), (b"", "wrong_file")],
    ids=["a zip", "of another machine", "empty"],
)
async def test_another_file_does_not_replace_an_appimage(client, update_of, image, key, content, obstacle):
    """It would not start any more."""
    update = await update_of(content)
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=image)
    assert caught.value.obstacle == obstacle
    assert image.program.read_bytes() == appimage("1.0")
    assert [path.name for path in image.folder.iterdir()] == ["Photo Lab.AppImage"]


@needs_unix
async def test_a_damaged_file_replaces_nothing(client, store, update_of, image, key):
    """The download's digest differs: it is never named, and no byte of it is beside the app."""
    update = await update_of(appimage("2.0"))
    store.content = appimage("2.0")[:-1] + b"?"
    with pytest.raises(UntrustedResponseError):
        await client.install_update(update, key=key, installation=image)
    assert image.program.read_bytes() == appimage("1.0")
    assert [path.name for path in image.folder.iterdir()] == ["Photo Lab.AppImage"]


@needs_unix
async def test_a_file_that_is_replaced_after_its_download_is_not_installed(
    client, update_of, image, key, monkeypatch
):
    """The copy is hashed as it is written."""
    update = await update_of(appimage("2.0"))

    def swap(_folder, _needed, _purpose):
        [file] = client.client.state_folder.glob("updates/notes*")
        file.write_bytes(appimage("6.6"))

    monkeypatch.setattr("licclient.install._appimage.require_space", swap)
    with pytest.raises(UntrustedResponseError):
        await client.install_update(update, key=key, installation=image)
    assert image.program.read_bytes() == appimage("1.0")
    assert [path.name for path in image.folder.iterdir()] == ["Photo Lab.AppImage"]


@needs_unix
async def test_a_full_disk_leaves_the_old_one(client, update_of, image, key, monkeypatch):
    """Whether it is known before, or only at the last block."""
    update = await update_of(appimage("2.0"))

    def fail(_file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("licclient.install._verified.sync_file", fail)
    with pytest.raises(OSError, match="No space") as caught:
        await client.install_update(update, key=key, installation=image)
    assert caught.value.errno == errno.ENOSPC
    assert image.program.read_bytes() == appimage("1.0")
    assert [path.name for path in image.folder.iterdir()] == ["Photo Lab.AppImage"]


@needs_unix
@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSYS])
async def test_a_place_that_cannot_be_written_is_named(client, update_of, image, key, monkeypatch, number):
    """Also where that shows only when it is written, as in AppImageLauncher's file system."""
    update = await update_of(appimage("2.0"))

    def fail(_source, _target):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("licclient.install._appimage.replace_file", fail)
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=image)
    assert caught.value.obstacle is InstallObstacle.NOT_WRITABLE
    assert [path.name for path in image.folder.iterdir()] == ["Photo Lab.AppImage"]
    with pytest.raises(InstallationError):
        await client.install_update(update, key=key, installation=replace(image, is_writable=False))


@needs_unix
async def test_the_leftovers_of_a_killed_process_are_removed(client, update_of, image, key):
    """Only what is surely of such a process."""
    killed = image.folder / ".licclient-ab12_x9z.draft"
    killed.mkdir()
    (killed / "new").write_bytes(b"half")
    others = [".licclient-mine.draft", ".licclient-ab12_x9y.draft", ".licclient-ab12_x9w"]
    (image.folder / others[0]).mkdir()
    (image.folder / others[1]).write_bytes(b"a file")
    (image.folder / others[2]).mkdir()
    update = await update_of(appimage("2.0"))
    await client.install_update(update, key=key, installation=image, restart=False)
    assert image.program.read_bytes() == appimage("2.0")
    assert {path.name for path in image.folder.iterdir()} == {"Photo Lab.AppImage", *others}


@needs_unix
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["x" * 246 + ".AppImage", "ä" * 120 + ".AppImage"])
async def test_the_name_of_an_appimage_may_be_as_long_as_any(client, update_of, image, key, name):
    """It is no part of the draft's name."""
    program = image.program.rename(image.folder / name)
    here = replace(image, program=program)
    await client.install_update(await update_of(appimage("2.0")), key=key, installation=here, restart=False)
    assert program.read_bytes() == appimage("2.0")


def second_installer(file, target, monkeypatch):
    """Return a thread that stops amid its copy, and the two events that say so and let it go on."""
    midway, go_on = threading.Event(), threading.Event()
    errors = []

    def judge(_head):
        midway.set()
        go_on.wait(30)
        raise OSError(errno.EIO, "the disk of the second one fails")

    def run():
        monkeypatch.setattr(_appimage, "is_appimage", judge)
        try:
            _appimage.replace_appimage(file, target)
        except (OSError, InstallationError) as problem:
            errors.append(problem)

    return threading.Thread(target=run), midway, go_on, errors


@needs_unix
@pytest.mark.parametrize("has_locks", [True, False])
def test_two_installers_of_an_appimage_leave_a_whole_file(image, tmp_path, monkeypatch, has_locks):
    """As of two users: the second waits for the first, or is amid its copy when that is done."""
    file, target = downloaded(tmp_path, appimage("2.0"), "2.0"), image.program
    second, midway, go_on, errors = second_installer(file, target, monkeypatch)
    replace_file = _appimage.replace_file

    def replace_late(draft, path):
        second.start()
        assert midway.wait(30) if not has_locks else not midway.wait(0.3)
        replace_file(draft, path)

    monkeypatch.setattr(_appimage, "replace_file", replace_late)
    if not has_locks:
        monkeypatch.setattr(_beside, "_lock", lambda _: None)
    _appimage.replace_appimage(file, target)
    assert target.read_bytes() == appimage("2.0")
    go_on.set()
    second.join()
    assert len(errors) == 1
    assert target.read_bytes() == appimage("2.0")
    assert [path.name for path in image.folder.iterdir()] == ["Photo Lab.AppImage"]


@needs_unix
def test_an_installer_does_not_wait_forever_for_another_one(image, tmp_path, monkeypatch):
    """It says that another one is at work."""
    monkeypatch.setattr(_beside, "LOCK_SECONDS", 0.05)
    file = downloaded(tmp_path, appimage("2.0"), "2.0")
    with _beside.private_folder(image.folder), pytest.raises(InstallationError) as caught:
        _appimage.replace_appimage(file, image.program)
    assert caught.value.obstacle is InstallObstacle.BUSY
    assert image.program.read_bytes() == appimage("1.0")


@needs_unix
@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_openable", [True, False])
def test_a_folder_without_locks_keeps_what_may_belong_to_another_installer(
    image, tmp_path, monkeypatch, is_openable
):
    """As on NFS, whose folders cannot be locked; what has not changed for a day belongs to none."""
    other = image.folder / ".licclient-ab12_x9z.draft"
    other.mkdir()
    old = image.folder / ".licclient-ab12_x9y.draft"
    old.mkdir()
    os.utime(old, (time.time() - 90_000,) * 2)
    open_file = os.open

    def fail(*_: object):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def open_files_alone(path, *flags: int, **more: object):
        return fail() if path == image.folder else open_file(path, *flags, **more)

    if is_openable:
        monkeypatch.setattr("fcntl.flock", fail)
    else:
        monkeypatch.setattr(os, "open", open_files_alone)
    _appimage.replace_appimage(downloaded(tmp_path, appimage("2.0"), "2.0"), image.program)
    assert image.program.read_bytes() == appimage("2.0")
    assert other.exists()
    assert not old.exists()


@needs_unix
def test_a_folder_whose_names_cannot_be_listed_is_no_obstacle(image, tmp_path, monkeypatch):
    """Its mode may grant writing alone."""

    def fail(_path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "iterdir", fail)
    _appimage.replace_appimage(downloaded(tmp_path, appimage("2.0"), "2.0"), image.program)
    assert image.program.read_bytes() == appimage("2.0")


@needs_unix
async def test_a_cancelled_download_installs_nothing(client, update_of, image, key):
    """And can be resumed."""
    update, stop = await update_of(appimage("2.0")), threading.Event()
    stop.set()
    with pytest.raises(DownloadCancelledError):
        await client.install_update(update, None, stop, key=key, installation=image)
    assert image.program.read_bytes() == appimage("1.0")


async def test_a_zip_that_is_none_leaves_the_folder(client, update_of, root, lay, key):
    """As of `apply`."""
    program = Installation(root).apply(lay("1.0")).folder / "photo-lab"
    update = await update_of(b"MZ this is a set-up")
    here = installation_of(InstallationKind.FOLDER, root, program)
    with pytest.raises(UnusableArchiveError):
        await client.install_update(update, key=key, installation=here)
    assert Installation(root).current.version == "1.0"


@needs_unix
async def test_a_file_without_a_digest_is_never_installed(client, store, update_of, image, key):
    """Not even over https."""
    update = await update_of(appimage("2.0"))
    store.digest = ""
    with pytest.raises(UntrustedResponseError, match="not verified"):
        await client.install_update(update, key=key, installation=image)
    assert image.program.read_bytes() == appimage("1.0")


@needs_unix
async def test_an_outage_installs_nothing(client, store, update_of, image, key, dead_url):
    """The download goes on another day."""
    update = replace(await update_of(appimage("2.0")), download_url=f"{dead_url}/api/v1/update-download")
    with pytest.raises((ServiceUnavailableError, UntrustedResponseError)):
        await client.install_update(update, key=key, installation=image)
    assert image.program.read_bytes() == appimage("1.0")


# --- an old instance of the app (D-398) -----------------------------------------------------------


async def test_an_old_instance_does_not_lower_the_version_of_a_folder(client, update_of, root, lay, key):
    """Its dialog was open when another one installed 3.0. One that was rolled back may be installed again."""
    installation = Installation(root)
    program = installation.apply(lay("1.0")).folder / "photo-lab"
    update = await update_of(app("2.0"))
    installation.apply(lay("3.0"))
    here = installation_of(InstallationKind.FOLDER, root, program)
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=here, restart=False)
    assert caught.value.obstacle is InstallObstacle.NEWER_INSTALLED
    assert str(caught.value).startswith("A newer version is installed already.")
    assert installation.current.version == "3.0"
    assert installation.previous.version == "1.0"
    installation.roll_back()
    await client.install_update(update, key=key, installation=here, restart=False)
    assert installation.current.version == "2.0"


@needs_unix
async def test_an_old_instance_does_not_lower_the_version_of_an_appimage(
    client, make_client, update_of, image, key, tmp_path, clock, monkeypatch
):
    """One that was started later knows what it is: a person may have gone back by hand, or the vendor."""
    update = await update_of(appimage("2.0"))
    clock.move(seconds=1)
    newer = downloaded(tmp_path, appimage("3.0"), "3.0")
    await make_client().install_update(update, key=key, downloaded=newer, installation=image, restart=False)
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=image, restart=False)
    assert caught.value.obstacle is InstallObstacle.NEWER_INSTALLED
    assert image.program.read_bytes() == appimage("3.0")
    assert not list((tmp_path / "state" / "updates").glob("notes*"))  # nothing was downloaded for it
    clock.move(seconds=30)
    monkeypatch.setattr("licclient.install._receipts.process_age", lambda: timedelta(seconds=29))
    await client.install_update(update, key=key, installation=image, restart=False)
    assert image.program.read_bytes() == appimage("2.0")


@needs_unix
async def test_a_clock_that_was_set_back_keeps_nobody_from_an_update(
    client, update_of, image, key, tmp_path, clock
):
    """The attempt of another clock is not of this time."""
    update = await update_of(appimage("2.0"))
    newer = downloaded(tmp_path, appimage("3.0"), "3.0")
    await client.install_update(update, key=key, downloaded=newer, installation=image, restart=False)
    clock.move(seconds=-1)
    await client.install_update(update, key=key, installation=image, restart=False)
    assert image.program.read_bytes() == appimage("2.0")


@needs_unix
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("version", "is_installed"), [("0.9", False), ("1.5", True), ("2.1", True)])
async def test_a_file_of_another_version_than_the_offered_one(
    client, update_of, image, key, tmp_path, version, is_installed
):
    """A download may bring a lower one, where the offered one was withdrawn; never below what runs."""
    update = await update_of(appimage("2.0"))
    file = downloaded(tmp_path, appimage(version), version)
    if is_installed:
        done = await client.install_update(
            update, key=key, downloaded=file, installation=image, restart=False
        )
        assert done.version == version
    else:
        with pytest.raises(InstallationError) as caught:
            await client.install_update(update, key=key, downloaded=file, installation=image)
        assert caught.value.obstacle is InstallObstacle.NEWER_INSTALLED
    assert image.program.read_bytes() == appimage(version if is_installed else "1.0")


@needs_unix
async def test_a_file_of_another_kind_is_not_even_downloaded(client, store, update_of, image, key):
    """As an AppImage that names the kind of another installation in its settings."""
    update = await update_of(appimage("2.0"))
    before = len(store.service.requests)
    for kind in ("folder", "inno"):
        with pytest.raises(InstallationError) as caught:
            await client.install_update(
                replace(update, kind=InstallationKind(kind)), key=key, installation=image
            )
        assert caught.value.obstacle is InstallObstacle.WRONG_FILE
    assert len(store.service.requests) == before
    await client.install_update(
        replace(update, kind=InstallationKind.APPIMAGE), key=key, installation=image, restart=False
    )
    assert image.program.read_bytes() == appimage("2.0")


async def test_a_zip_is_the_kind_of_every_folder(client, update_of, root, lay, key):
    """Also of one whose program has no signs, but a pointer above it."""
    program = Installation(root).apply(lay("1.0")).folder / "photo-lab"
    here = installation_of(InstallationKind.UNKNOWN, root, program)
    update = replace(await update_of(app("2.0")), kind=InstallationKind.FOLDER)
    await client.install_update(update, key=key, installation=here, restart=False)
    assert Installation(root).current.version == "2.0"


@needs_unix
async def test_without_a_state_folder_nothing_stays_in_the_temporary_one(
    make_client, store, image, key, tmp_path, monkeypatch
):
    """The download is removed when it is installed, and when it is not."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    client = make_client(storage=MemoryStorage())
    store.content, store.digest = appimage("2.0"), digest(appimage("2.0"))
    update = (await client.check_for_update(key)).update
    await client.install_update(update, key=key, installation=image, restart=False)
    assert image.program.read_bytes() == appimage("2.0")
    store.content = b"other"
    with pytest.raises(UntrustedResponseError):
        await client.install_update(update, key=key, installation=image, restart=False)
    assert list(temporary.iterdir()) == []


OPEN_AGAIN = """
import sys
from pathlib import Path
from licclient.install._restart import start_after_end
start_after_end(sys.argv[1:], Path("."), {"PATH": "/usr/bin:/bin"})
print(flush=True)
input()
"""


FORK = """
import os, signal, time
if os.fork() == 0:
    os.closerange(0, 3)
    signal.alarm(20)
    time.sleep(30)
"""


@needs_unix
def test_the_app_opens_again_while_a_worker_of_it_lives_on(tmp_path):
    """A process that the app has forked off keeps no pipe open."""
    program = tmp_path / "photo-lab"
    program.write_text("#!/bin/sh\n: > opened\n")
    program.chmod(0o755)
    command = [sys.executable, "-c", OPEN_AGAIN.replace("input()", FORK), str(program)]
    subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, check=True, timeout=15)
    deadline = time.monotonic() + 15
    while not (tmp_path / "opened").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@needs_unix
def test_a_working_folder_that_is_gone(tmp_path, monkeypatch):
    """The app is opened again elsewhere."""
    monkeypatch.delenv("OWD", raising=False)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert _restart.starting_folder() is None
    monkeypatch.setenv("OWD", str(tmp_path))
    assert _restart.starting_folder() == tmp_path


@needs_unix
def test_the_app_opens_again_once_it_has_ended(tmp_path):
    """Not before, and with the words of its name that a shell would read as a command."""
    program = tmp_path / "Photo $(touch hacked) Lab; exit"
    program.write_text("#!/bin/sh\necho $$ > opened\n")
    program.chmod(0o755)
    command = [sys.executable, "-c", OPEN_AGAIN, str(program)]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        running.stdout.readline()
        assert not (tmp_path / "opened").exists()
        running.kill()
    deadline = time.monotonic() + 20
    while not (tmp_path / "opened").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize("value", ["appimage", InstallationKind.PIP, 1])
async def test_an_installation_is_what_detect_returned(client, update_of, value, key):
    """And nothing else is taken for one."""
    update = await update_of(app("2.0"))
    with pytest.raises(TypeError, match="installation must be what"):
        await client.install_update(update, key=key, installation=value)
