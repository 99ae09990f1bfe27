"""Set-ups of Windows up to the script that runs them, and receipts (D-352, D-353); `tests/wine` runs them."""

import errno
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from stage.archives import downloaded
from stage.scripts import digest

from licclient import AsyncLicenseClient, LicenseClient, Trust, Updates, explain
from licclient._core.kinds import InstallationKind
from licclient._core.model import InstallObstacle
from licclient.errors import InstallationError, UntrustedResponseError
from licclient.install import DetectedInstallation, _publisher, _windows_setups
from licclient.testing import MemoryStorage

both = pytest.mark.parametrize("flavour", [LicenseClient, AsyncLicenseClient], indirect=True)
SETUP = b"MZ\x90\x00 a set-up of version 2.0" * 100
OLE = bytes.fromhex("d0cf11e0a1b11ae1")


@pytest.fixture
def spawned(monkeypatch):
    """Pretend to be on Windows, and record what would be started there."""
    calls = []
    monkeypatch.setattr("licclient.install._flow._SYSTEM", "win32")
    monkeypatch.setattr(_windows_setups, "spawn_on_windows", lambda *call: calls.append(call))
    monkeypatch.setattr(_windows_setups, "_held", [])
    yield calls
    end_app()


def end_app() -> None:
    """Let go of the files that tell scripts whether the app runs: Windows removes none that is open."""
    for file in _windows_setups._held:
        file.close()


@pytest.fixture
def here(tmp_path):
    """An app that NSIS has installed."""
    folder = tmp_path / "Photo Lab"
    folder.mkdir()
    kind = InstallationKind.NSIS
    return DetectedInstallation(kind, folder, folder / "photo-lab.exe", True, None, None, True)  # noqa: FBT003


@pytest.fixture
def update_of(client, store, key):
    """Publish a file, and return the update that is offered."""

    async def publish(content: bytes):
        store.content, store.digest = content, digest(content)
        return (await client.check_for_update(key)).update

    return publish


@both
async def test_a_set_up_runs_when_the_app_has_ended(client, update_of, here, key, spawned, tmp_path):
    """From a private folder, under a name of its own; one script installs, and the other opens the app."""
    update = await update_of(SETUP)
    assert (await client.plan_update(installation=here)).has_to_quit
    done = await client.install_update(update, key=key, installation=here)
    assert (done.version, done.has_to_quit, done.is_reopened) == ("2.0", True, True)
    [attempt] = (tmp_path / "state" / "updates").glob("attempt-*")
    [setup] = attempt.glob("update-*.exe")
    assert setup.read_bytes() == SETUP
    if os.name != "nt":
        assert attempt.stat().st_mode & 0o777 == 0o700
    assert [command.endswith(" open") for command, _, _ in spawned] == [True, False]
    environment = spawned[0][1]
    assert environment["LICCLIENT_COMMAND"] == f'"{setup}" /S /D={here.folder}'
    assert environment["LICCLIENT_PROGRAM"] == str(here.program)
    assert str(tmp_path) not in (attempt / "update.cmd").read_text("ascii"), (
        "a path would be read as commands"
    )
    assert (attempt / "running").exists()


async def test_without_a_restart_nothing_is_opened(client, update_of, here, key, spawned):
    """The person opens it."""
    done = await client.install_update(await update_of(SETUP), key=key, installation=here, restart=False)
    assert (done.has_to_quit, done.is_reopened, len(spawned)) == (True, False, 1)


@pytest.mark.parametrize(
    ("note", "obstacle", "code"),
    [("0\r\n", "no_effect", 0), ("5", "failed", 5), ("1223", "refused", 1223), (None, "interrupted", None)],
)
async def test_the_receipt_of_a_set_up_in_vain(
    client, update_of, here, key, spawned, tmp_path, note, obstacle, code
):
    """The version that runs counts; the version is offered on request only, for a day."""
    assert await client.installation_receipt() is None
    await client.install_update(await update_of(SETUP), key=key, installation=here)
    [attempt] = (tmp_path / "state" / "updates").glob("attempt-*")
    if note is not None:
        (attempt / "code.txt").write_text(note)
    receipt = await client.installation_receipt()
    assert (receipt.version, receipt.obstacle, receipt.code) == ("2.0", obstacle, code)
    assert explain(receipt, "en")
    assert len(spawned) == 2


@both
async def test_an_exit_code_that_cannot_be_read(
    make_client, store, here, key, spawned, tmp_path, monkeypatch
):
    """Nothing is known of it yet: no call raises, nothing is reported, and a later one reads it."""
    client = make_client(updates=Updates(report_rollbacks=True))
    store.content, store.digest = SETUP, digest(SETUP)
    await client.install_update((await client.check_for_update(key)).update, key=key, installation=here)
    [attempt] = (tmp_path / "state" / "updates").glob("attempt-*")
    (attempt / "code.txt").write_text("5")

    def fail(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patched:
        for module in ("licclient._updates.check", "licclient.install._windows_setups"):
            patched.setattr(f"{module}.read_with_retries", fail)
        assert (await client.check_for_update(key, force=True)).error is None
        assert await client.installation_receipt() is None
        receipt = await make_client(version="2.0").installation_receipt()
        assert (receipt.is_installed, receipt.code) == (True, None)
    assert not [request for request in store.service.requests if "rolled-back" in request.path]
    assert (await client.installation_receipt()).code == 5


@both
async def test_the_receipt_of_a_success(client, make_client, update_of, here, key, spawned, tmp_path):
    """Read by the new version; its folder stays until the next update, which removes it."""
    await client.install_update(await update_of(SETUP), key=key, installation=here)
    [first] = (tmp_path / "state" / "updates").glob("attempt-*")
    (first / "code.txt").write_text("0")
    for file in _windows_setups._held:  # that process has ended
        file.close()
    newer = make_client(version="2.0.0")
    receipt = await newer.installation_receipt()
    assert receipt.is_installed
    assert explain(receipt, "en") == "The update to version 2.0 is installed."
    update = (await client.check_for_update(key, force=True)).update
    await client.install_update(update, key=key, installation=here)
    assert len(list((tmp_path / "state" / "updates").glob("attempt-*"))) == 1
    assert not first.exists()
    assert spawned


async def test_an_app_that_installs_by_itself_cannot_loop(client, update_of, here, key, spawned, clock):
    """A set-up that fails is offered once a day, and on request; a newer version at once."""
    update = await update_of(SETUP)
    await client.install_update(update, key=key, installation=here)
    check = await client.check_for_update(key)
    assert not check
    assert check.message == "Version 2.0 was to be installed here today, so it is offered only on request."
    assert await client.check_for_update(key, force=True)
    clock.move(hours=24)
    assert await client.check_for_update(key)
    assert spawned


@pytest.mark.parametrize(
    ("note", "is_installed"),
    [("5", True), ("still-running", True), ("timed-out", True), ("0", False), (None, False)],
)
async def test_an_old_instance_does_not_lower_the_version(
    client, update_of, here, key, spawned, tmp_path, note, is_installed
):
    """Another one has installed 3.0, or is about to; what failed is in nobody's way."""
    update = await update_of(SETUP)
    newer = downloaded(tmp_path, SETUP, "3.0")
    await client.install_update(update, key=key, downloaded=newer, installation=here)
    [attempt] = (tmp_path / "state" / "updates").glob("attempt-*")
    if note is not None:
        (attempt / "code.txt").write_text(note)
    end_app()
    if is_installed:
        await client.install_update(update, key=key, installation=here)
    else:
        with pytest.raises(InstallationError) as caught:
            await client.install_update(update, key=key, installation=here)
        assert caught.value.obstacle is InstallObstacle.NEWER_INSTALLED
    assert len(spawned) == (4 if is_installed else 2)
    assert attempt.exists() == (not is_installed)


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_set_up_that_runs_keeps_its_folder(
    client, update_of, here, key, spawned, tmp_path, monkeypatch, is_restarted
):
    """Its script reads on there, and opens the app; after its time, or a restart, it has been killed."""
    update = await update_of(SETUP)
    await client.install_update(update, key=key, installation=here)
    [attempt] = (tmp_path / "state" / "updates").glob("attempt-*")
    end_app()
    (attempt / "running").unlink()  # as the script does when the app has ended
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=here)
    assert caught.value.obstacle is InstallObstacle.BUSY
    assert len(spawned) == 2
    assert (attempt / "update.cmd").exists()
    if is_restarted:
        monkeypatch.setattr(_windows_setups, "uptime", lambda: 0.0)
    else:
        os.utime(attempt / "update.cmd", (1, 1))
    await client.install_update(update, key=key, installation=here)
    assert len(spawned) == 4
    assert not attempt.exists()


async def test_without_a_state_folder_the_next_set_up_removes_the_last_one(
    make_client, store, here, key, spawned, tmp_path, monkeypatch
):
    """It runs from there when the app has ended; another app's stays."""
    temporary = tmp_path / "temporary"
    (temporary / "licclient-attempt-other").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    client = make_client(storage=MemoryStorage())
    store.content, store.digest = SETUP, digest(SETUP)
    update = (await client.check_for_update(key)).update
    for number in range(2):
        end_app()
        await client.install_update(update, key=key, installation=here)
        assert len(list(temporary.iterdir())) == 2, number
        assert len(list(temporary.glob("licclient-attempt-*/update-*.exe"))) == 1
    assert len(spawned) == 4


async def test_a_set_up_of_another_kind_gets_no_command_line(client, update_of, here, key, spawned):
    """Both are programs, and one of Inno Setup does not know the words of NSIS."""
    update = replace(await update_of(SETUP), kind=InstallationKind.INNO)
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=here)
    assert caught.value.obstacle is InstallObstacle.WRONG_FILE
    assert spawned == []


@pytest.mark.parametrize("content", [b"PK\x03\x04", OLE + b"an MSI", b"<html>", b""])
async def test_a_file_of_another_kind_is_never_started(
    client, update_of, here, key, spawned, content, tmp_path
):
    """Nothing of it is left, and nothing is remembered."""
    with pytest.raises(InstallationError) as caught:
        await client.install_update(await update_of(content), key=key, installation=here)
    assert caught.value.obstacle is InstallObstacle.WRONG_FILE
    assert not list((tmp_path / "state" / "updates").glob("attempt-*"))
    assert spawned == []
    assert await client.installation_receipt() is None


async def test_a_set_up_that_cannot_be_started_leaves_no_mark(
    client, update_of, here, key, spawned, monkeypatch
):
    """Or a version that was never tried would not be offered."""

    def fail(*_: object):
        raise PermissionError(13, "Access is denied")

    monkeypatch.setattr(_windows_setups, "spawn_on_windows", fail)
    with pytest.raises(PermissionError):
        await client.install_update(await update_of(SETUP), key=key, installation=here)
    assert await client.installation_receipt() is None
    assert spawned == []


def test_a_file_that_was_exchanged_is_never_started(tmp_path):
    """Its digest is computed again from the bytes that are copied."""
    file = downloaded(tmp_path, SETUP)
    file.path.write_bytes(SETUP[:-1] + b"?")
    folder = tmp_path / "attempt"
    folder.mkdir()
    with pytest.raises(UntrustedResponseError):
        _windows_setups.stage(file, InstallationKind.NSIS, folder)
    assert _windows_setups.stage(
        replace(downloaded(tmp_path, SETUP)), InstallationKind.INNO, folder
    ).is_file()


@pytest.mark.parametrize("publisher", [None, "Another GmbH", "Example GmbH"])
async def test_only_the_publisher_of_the_app_is_started(
    make_client, store, here, key, spawned, monkeypatch, publisher
):
    """By the name in the certificate, to the letter; without a valid signature there is none."""
    client = make_client(trust=Trust(publisher="Example GmbH"))
    store.content, store.digest = SETUP, digest(SETUP)
    update = (await client.check_for_update(key)).update
    monkeypatch.setattr(_publisher, "read_publisher", lambda _: publisher)
    if publisher == "Example GmbH":
        await client.install_update(update, key=key, installation=here)
        assert len(spawned) == 2
        return
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=here)
    assert caught.value.obstacle is InstallObstacle.WRONG_PUBLISHER
    assert spawned == []


@pytest.mark.skipif(os.name == "nt", reason="needs a system that is not Windows")
def test_only_windows_verifies_its_signatures(tmp_path):
    """An app that names a publisher installs nothing where that cannot be known."""
    with pytest.raises(OSError, match="verified by Windows"):
        _publisher.read_publisher(Path(tmp_path))


@pytest.mark.parametrize(
    ("is_on", "note", "codes"),
    [
        (True, "5\r\n", [5]),
        (True, "-2147023673", [0x800704C7]),
        (True, "timed-out", [None]),
        (False, "5", []),
        (True, None, []),
    ],
)
async def test_a_set_up_in_vain_is_reported_once_if_the_app_has_asked_for_it(
    make_client, store, here, key, spawned, tmp_path, clock, is_on, note, codes
):
    """As a version that was rolled back, with its exit code; not while it is still under way."""
    client = make_client(updates=Updates(report_rollbacks=is_on))
    store.content, store.digest = SETUP, digest(SETUP)
    await client.install_update((await client.check_for_update(key)).update, key=key, installation=here)
    [attempt] = (tmp_path / "state" / "updates").glob("attempt-*")
    if note is not None:
        (attempt / "code.txt").write_text(note)
    reply = store.service.script

    def script(request):
        is_report = request.path.endswith("rolled-back")
        return store.answer(200, {"counted": True}) if is_report else reply(request)

    store.service.script = script
    for _ in range(2):
        await client.check_for_update(key, force=True)
    sent = [json.loads(request.body) for request in store.service.requests if "rolled-back" in request.path]
    assert [report.get("exit_code") for report in sent] == codes
    assert all(("exit_code" in report) == (report.get("exit_code") is not None) for report in sent)
    assert spawned
