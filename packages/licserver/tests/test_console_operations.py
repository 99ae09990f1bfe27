"""The console's pages for imports and backups: previews, confirmations, and work in the background."""

import html
import io
import re
from typing import Any

import pytest

from licserver.domain.decisions import generate_license_key, mask_key
from licserver.domain.records import Role
from licserver.errors import InvalidInputError
from licserver.services.backup_folder import BackupFolder
from licserver.services.restore import restore_backup
from licserver.settings import StandaloneSettings
from licserver.web.console import app
from licserver.web.console.pages import files

ANOTHER = "five words of another sentence"


async def upload(browser: Any, text: bytes, name: str = "licenses.csv", **options: str) -> str:
    """Upload a file as the page for imports does, and return the response's text."""
    await browser.get("/console/imports")
    form = {"csrf": browser.csrf, **dict.fromkeys(files.FIELDS, ""), **options}
    return html.unescape(await browser.upload("/console/imports/preview", form, name=name, content=text))


def ticket_of(text):
    """Return the ticket of a preview."""
    return re.search(r'name="ticket" value="([^"]+)"', text)[1]


def uploads_of(world):
    """Return the names and the bytes of what is kept on the disk."""
    return {path.name: path.read_bytes() for path in (world.settings.data_dir / "uploads").glob(".*")}


async def test_an_import_is_previewed_and_confirmed(world, alice):
    """The preview has masked keys and changes nothing; the confirmation imports, and nothing is left."""
    key = generate_license_key()
    text = f"license_key,product,slots,lifetime\n{key},app,3,no\n,app,1,no\n".encode()
    page = await upload(alice, text)
    assert alice.status == 200, page
    assert "2 new licenses" in page
    assert "1 line has no key: each import issues a new license for it." in page
    assert mask_key(key) in page
    assert key not in page
    assert world.services.licenses.search(limit=9).items == []
    ((_, kept),) = uploads_of(world).items()
    assert key.encode() not in kept
    await alice.post("/console/imports/confirm", ticket=ticket_of(page))
    assert "Imported: 2 new licenses" in alice.notice
    found = world.services.licenses.search(limit=9).items
    keys = {world.services.licenses.decrypt_key(copy) for copy in found}
    assert key in keys
    assert re.search(r"<output[^>]*>([^<]+)", alice.text)[1] in keys - {key}
    assert uploads_of(world) == {}
    (entry,) = [line for line in world.services.audit.list_page().items if line.action == "license.import"]
    assert entry.actor.name == "alice"


async def test_a_cancelled_import_leaves_nothing(world, alice):
    """The file is removed at once, and cannot be imported any more."""
    page = await upload(alice, b"product,slots,lifetime\napp,1,no\n")
    await alice.post("/console/imports/cancel", ticket=ticket_of(page))
    assert "cancelled" in alice.notice
    assert uploads_of(world) == {}
    await alice.post("/console/imports/confirm", ticket=ticket_of(page))
    assert "not kept any more" in alice.alert
    assert world.services.licenses.search(limit=9).items == []


async def test_lines_with_errors_are_shown_and_cannot_be_confirmed(world, alice):
    """All of them are listed with their lines; no file is kept, and the options stay in the form."""
    page = await upload(alice, b"product,slots,lifetime\napp,1,\napp,many,\nother,1,\n")
    assert "1 new" not in page
    assert "slots: must be a whole number" in page
    assert "there is no 'other'" in page
    assert 'name="ticket"' not in page
    await upload(alice, b"x", name="x.pdf", products="app")
    assert "format of the file is not known" in alice.alert
    assert "app</textarea>" in alice.text
    await upload(alice, b"\xff\xfe", products="app")
    assert "not UTF-8" in alice.alert
    assert uploads_of(world) == {}


async def test_the_options_of_the_command_are_in_the_form(world, alice):
    """A preset, other columns, the default for slots, and what happens to keys that are here already."""
    key = world.key(slots=1)
    text = f"Key,Seats\n{key},4\n".encode()
    options = {"columns": "Key=license_key\nSeats=slots", "products": "app"}
    assert "fill in “Last day of lines without an end”" in await upload(alice, text, **options)
    options["expires"] = "never"
    assert "already, with other terms: slots" in await upload(alice, text, **options)
    page = await upload(alice, text, **options, existing="change")
    assert "1 changed" in page
    await alice.post("/console/imports/confirm", ticket=ticket_of(page))
    assert world.services.licenses.get(key).slots == 4
    assert "nothing to do" in await upload(alice, text, **options, existing="change")
    await upload(alice, b"License Key\n", preset="gumroad")
    assert "has no activation limits" in alice.alert


async def test_a_ticket_is_of_one_user(world, users, alice, open_browser):
    """Another owner cannot confirm it, and a ticket that is made up is refused like an old one."""
    page = await upload(alice, b"product,slots,lifetime\napp,1,no\n")
    users.users.add("bob", ANOTHER)
    bob = await open_browser()
    await bob.sign_in("bob", ANOTHER)
    for ticket in (ticket_of(page), "../x", "0" * 32 + "." + "A" * 43):
        await bob.post("/console/imports/confirm", ticket=ticket)
        assert "not kept any more" in bob.alert
    assert world.services.licenses.search(limit=9).items == []


async def test_a_file_that_is_too_large_or_has_too_many_new_keys(world, alice, monkeypatch):
    """Both are refused with the command that takes them."""
    monkeypatch.setattr(files, "MAX_ISSUED", 2)
    await upload(alice, b"product,slots,lifetime\n" + b"app,1,no\n" * 3)
    assert "licserver import" in alice.alert
    monkeypatch.setattr("licserver.web.uploads.MAX_UPLOAD_TEXT_BYTES", 100)
    await upload(alice, b"product,slots,lifetime\n" + b"app,1,no\n" * 100)
    assert "use licserver import" in alice.alert


@pytest.mark.slow
async def test_a_backup_is_made_in_the_background(world, alice, tmp_path):
    """The page shows its result and the command that restores it; the file is a whole backup."""
    key = world.key()
    await alice.get("/console/backups")
    await alice.post("/console/backups/make")
    assert "being written" in alice.notice
    world.services.context.threads.wait()
    page = html.unescape(await alice.get("/console/backups"))
    (file,) = (world.settings.data_dir / "backups").glob("*.backup")
    assert f"licserver restore {file} --force" in page
    assert 'class="state good">done' in page
    assert file.stat().st_mode & 0o777 == 0o600
    assert not re.search(r'href="[^"]*\.backup', page)
    other = StandaloneSettings(data_dir=tmp_path / "other")
    assert restore_backup(io.BytesIO(file.read_bytes()), other).rows["licenses"] == 1
    assert key not in page


async def test_a_backup_is_deleted_once_that_is_confirmed(world, alice):
    """It asks first, and only a file that the page lists can be named."""
    folder = world.settings.data_dir / "backups"
    folder.mkdir()
    (folder / "old.backup").write_bytes(b"x")
    await alice.get("/console/backups")
    await alice.post("/console/backups/delete", file="old.backup")
    assert "Delete this backup?" in alice.text
    await alice.post("/console/backups/delete", file="../secrets.json", sure="yes")
    assert "deleted already" in alice.text
    await alice.post("/console/backups/delete", file="old.backup", sure="yes")
    assert "The backup is deleted." in alice.text
    assert not any(folder.glob("*.backup"))
    assert (world.settings.data_dir / "secrets.json").exists()


async def test_one_backup_at_a_time(world, alice, monkeypatch):
    """While one is written the page says so, in every process, and another one is refused."""
    seen = []

    def ask_meanwhile(services, _target, _now):
        seen.append(services.actor.name)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("licserver.services.backup_folder.write_backup", ask_meanwhile)
    await alice.get("/console/backups")
    await alice.post("/console/backups/make")
    world.services.context.threads.wait()
    assert seen == ["alice"]
    assert "No space left on device" in await alice.get("/console/backups")
    lock = BackupFolder(world.services)._lock()
    await alice.post("/console/backups/make")
    assert "is being made already" in alice.alert
    lock.release()


def test_a_server_that_stops_interrupts_its_backup(world, monkeypatch):
    """No part of the file is left, and the page says what to do."""

    def write(_services, target, _now):
        target.write(b"a part")
        world.services.context.threads._stopping.set()
        target.write(b"the rest")

    monkeypatch.setattr("licserver.services.backup_folder.write_backup", write)
    folder = BackupFolder(world.services)
    folder.start()
    world.services.context.threads.close()
    assert "Make another one" in folder.latest_run().problem
    assert not list(folder.path.glob("*licserver-*"))


def test_a_killed_server_leaves_no_running_backup(world, monkeypatch):
    """Its backup counts as interrupted, and the next one removes what it left."""
    folder = BackupFolder(world.services)
    monkeypatch.setattr(folder, "_run", lambda _run, lock: lock.release())
    folder.start()
    left = folder.path / ".licserver-left.backup-x"
    left.write_bytes(b"a part")
    assert "Make another one" in folder.latest_run().problem
    monkeypatch.undo()
    folder.start()
    world.services.context.threads.wait()
    assert (folder.latest_run().problem, left.exists()) == (None, False)


def test_secrets_that_are_kept_elsewhere(world, make_world, tmp_path):
    """A backup holds them: none goes into the data folder, but into a folder that is named for it."""
    secrets = (world.settings.data_dir / "secrets.json").read_text()
    elsewhere = make_world(secrets=secrets).services
    with pytest.raises(InvalidInputError, match="LICSERVER_BACKUP_DIR"):
        BackupFolder(elsewhere).start()
    named = make_world(secrets=secrets, backup_dir=tmp_path / "named").services
    BackupFolder(named).start()
    named.context.threads.wait()
    assert [file.path.parent for file in BackupFolder(named).list_files()] == [tmp_path / "named"]


@pytest.mark.slow
@pytest.mark.parametrize("role", [Role.SUPPORT, Role.READ_ONLY])
async def test_only_owners_import_and_back_up(world, users, open_browser, role):
    """Neither page, form nor upload: the role is checked before anything is read."""
    users.users.add("bob", ANOTHER, role)
    bob = await open_browser()
    await bob.sign_in("bob", ANOTHER)
    for path in ("/console/imports", "/console/backups"):
        await bob.get(path)
        assert bob.status == 403, path
    paths = [f"{path}/{name}" for path in ("/imports", "/backups") for name in app.ROUTES[path].actions]
    for path in paths:
        await bob.get("/console/account")
        await bob.send("POST", f"/console{path}", data=b"x" * 70_000, headers={"Origin": bob.url})
        assert bob.status == 403, path
        assert "Your role is" in bob.text
    await bob.get("/console/account")
    await bob.upload("/console/imports/preview", {"csrf": bob.csrf}, name="", content=b"x")
    assert (bob.status, "Your role is" in bob.text) == (403, True)
    assert uploads_of(world) == {}
