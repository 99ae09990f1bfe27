"""One file with everything: taken while customers activate, proven by restoring it."""

import gc
import io
import json
import os
import random
import tarfile
import threading
import tracemalloc
from contextlib import closing
from typing import Any

import pyotp
import pytest

from harness.engines import ENGINES, both_engines
from licserver.database import dump
from licserver.database.hot_path.store import BatchStore
from licserver.database.tables import metadata
from licserver.domain.records import LicenseTerms
from licserver.errors import ArtifactsError, BackupError, InvalidInputError
from licserver.services.backup import write_backup
from licserver.services.installation import Services, open_services
from licserver.services.restore import restore_backup
from licserver.settings import Settings


def rows_of(services: Services) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, sorted."""
    with services.database.reading() as connection:
        return {
            name: sorted(map(tuple, connection.execute(table.select())), key=repr)
            for name, table in metadata.tables.items()
        }


def backed_up(services: Services, clock: Any, **more: Any) -> io.BytesIO:
    """A backup, in memory."""
    held = io.BytesIO()
    write_backup(services, held, clock(), **more)
    held.seek(0)
    return held


@pytest.fixture
def stocked(world):
    """A world in which something of everything has happened."""
    world.product("other", "domain", has_support_policy=True)
    world.publish("1.0", b"the first", changelog="News")
    world.publish("2.0", random.Random(1).randbytes(3_000_000))
    world.publish("2.0", b"for macos", platform="macos-arm64")
    world.services.releases.withdraw("app", "1.0")
    for number in range(20):
        world.key(slots=number, allowed=("*.example.org",), subscription_id=f"sub-{number}")
    key = world.key(lifetime=True)
    world.services.licenses.revoke(key, "=cmd()\u2028 ünicode")
    world.kept = key
    return world


@both_engines
@pytest.mark.parametrize("into", ENGINES)
def test_what_comes_back_is_what_was_there(stocked, into, clock, tmp_path, request):
    """Every row of every table, the files and the secrets, from either engine into either."""
    held = backed_up(stocked.services, clock)
    url = request.getfixturevalue("empty_database") if into == "postgresql" else None
    settings = Settings(data_dir=tmp_path / "anew", database_url=url)
    summary = restore_backup(held, settings)
    assert (summary.rows["licenses"], summary.rows["releases"], summary.artifacts) == (21, 3, 3)
    restored = open_services(settings, clock)
    try:
        assert rows_of(restored) == rows_of(stocked.services)
        assert restored.licenses.decrypt_key(restored.licenses.get(stocked.kept)) == stocked.kept
        for release in restored.releases.list_all("app"):
            assert b"".join(restored.artifacts.read(release.artifact))
        restored.products.add("next", "Next")  # numbered after those that came
        if os.name != "nt":
            assert settings.data_dir.joinpath("secrets.json").stat().st_mode & 0o077 == 0
    finally:
        restored.close()


@pytest.mark.slow
def test_a_table_is_written_piece_by_piece(stocked, monkeypatch, clock, tmp_path):
    """However many rows a piece holds, and however few the database is asked for at a time, all are there."""
    monkeypatch.setattr(dump, "ROWS", 8)
    monkeypatch.setattr(dump, "_FETCHED", 3)
    with dump.take_snapshot(stocked.services.database) as snapshot:
        (licenses,) = (layout for layout in snapshot.layouts if layout.name == "licenses")
        assert [count for count, _ in snapshot.pieces(licenses)] == [8, 8, 5]
    settings = Settings(data_dir=tmp_path / "anew")
    restore_backup(backed_up(stocked.services, clock), settings)
    restored = open_services(settings, clock)
    assert rows_of(restored) == rows_of(stocked.services)
    restored.close()


@pytest.mark.slow
@pytest.mark.parametrize("into", ENGINES)
def test_nobody_is_signed_in_after_a_restore(world, into, clock, tmp_path, request):
    """A session of the backup's day may have been ended since; name and password are the backup's."""
    password = "correct horse battery"
    world.services.users.add("alice", password)
    who = world.services.logins.sign_in("alice", password, "192.0.2.1")
    world.services.users.add("bob", password)
    bob = world.services.logins.sign_in("bob", password)
    world.services.second_factors.begin_enrolment(bob, password)
    code = pyotp.TOTP(world.services.second_factors.find_enrolment(bob).secret).at(clock())
    recovery_code = world.services.second_factors.confirm_enrolment(bob, code).recovery_codes[0]
    held = backed_up(world.services, clock)
    url = request.getfixturevalue("empty_database") if into == "postgresql" else None
    settings = Settings(data_dir=tmp_path / "anew", database_url=url)
    restore_backup(held, settings)
    restored = open_services(settings, clock)
    try:
        assert world.services.logins.authenticate(who.token)
        assert restored.logins.authenticate(who.token) is None
        assert restored.logins.is_known_address("192.0.2.1", "alice")
        assert restored.logins.sign_in("alice", password)
        assert restored.second_factors.sign_in(restored.logins.sign_in("bob", password), recovery_code)
    finally:
        restored.close()


@pytest.mark.slow
@both_engines
def test_a_backup_is_one_moment_while_customers_activate(world, site_thread, clock, tmp_path, request):
    """It holds all that was activated before it began, and of what came meanwhile one moment's state."""
    keys = [world.key(slots=None) for _ in range(20)]
    stop = threading.Event()
    taken: dict[str, int] = dict.fromkeys(keys, 0)
    claims = threading.Thread(target=site_thread, args=(keys, taken, stop))
    claims.start()
    try:
        while sum(taken.values()) < 100:
            assert claims.is_alive()
        before = dict(taken)
        held = backed_up(world.services, clock)
        after = sum(taken.values())
    finally:
        stop.set()
        claims.join()
    settings = Settings(data_dir=tmp_path / "anew")
    summary = restore_backup(held, settings)
    restored = open_services(settings, clock)
    try:
        counts = {key: restored.licenses.get(key).slots_used for key in keys}
        assert sum(counts.values()) == summary.rows["activations"]
        assert all(counts[key] >= before[key] for key in keys)
        # claims are made in turn: one moment means that no key is more than one turn ahead of another
        assert max(counts.values()) - min(counts.values()) <= 1
        assert sum(before.values()) <= sum(counts.values()) <= after + len(keys)
    finally:
        restored.close()


@pytest.fixture
def site_thread(world):
    """What activates new environments, a key after the other, each durable, until it is stopped."""

    def run(keys: list[str], taken: dict[str, int], stop: threading.Event) -> None:
        store, turn = BatchStore(world.services.database), 0
        while not stop.is_set():
            turn += 1
            for key in keys:
                store.activate([world.request_slot(key, f"host-{turn}.example")])
                taken[key] += 1
        store.close()

    return run


def damaged(held: bytes, kind: str) -> bytes:
    """A backup with which something has happened."""
    middle = len(held) // 2
    match kind:
        case "cut off":
            return held[: len(held) - 15_000]
        case "cut off in a file":
            return held[:middle]
        case "a bit of a file":
            return held[:middle] + bytes([held[middle] ^ 1]) + held[middle + 1 :]
        case "no backup":
            return b"PK\x03\x04" + bytes(2000)
        case "empty":
            return b""
        case "another tar":
            other = io.BytesIO()
            with tarfile.open(fileobj=other, mode="w") as tar:
                tar.addfile(tarfile.TarInfo("../../etc/passwd"))
            return other.getvalue()
        case "from the future":
            return held.replace(b'"format": 1', b'"format": 2')
        case _:
            at = held.index(b"database/licenses/") + 550  # behind the header, which is padded
            return held[:at] + bytes([held[at] ^ 1]) + held[at + 1 :]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "kind",
    [
        "cut off",
        "cut off in a file",
        "a bit of a file",
        "a bit of a row",
        "no backup",
        "empty",
        "another tar",
        "from the future",
    ],
)
def test_a_damaged_backup_changes_nothing(stocked, kind, clock, tmp_path):
    """It is refused in one sentence, and the folder can be restored into by a whole one afterwards."""
    held = backed_up(stocked.services, clock).getvalue()
    settings = Settings(data_dir=tmp_path / "anew")
    with pytest.raises(BackupError) as refused:
        restore_backup(io.BytesIO(damaged(held, kind)), settings)
    assert "\n" not in str(refused.value)
    assert not [path for path in tmp_path.glob("anew/*") if path.name != "artifacts"]
    is_begun = kind not in {"no backup", "empty", "another tar", "from the future"}
    assert settings.data_dir.exists() == is_begun
    restore_backup(io.BytesIO(held), settings)


@pytest.mark.slow
@both_engines
def test_never_over_an_installation(stocked, clock, tmp_path, make_world):
    """Without --force an installation stays as it is; with it, it is replaced as a whole."""
    held = backed_up(stocked.services, clock)
    other = make_world()
    key = other.key()
    with pytest.raises(InvalidInputError, match="--force"):
        restore_backup(held, other.settings)
    assert other.services.licenses.get(key).slots_used == 0
    other.services.close()
    held.seek(0)
    restore_backup(held, other.settings, force=True)
    restored = open_services(other.settings, clock)
    try:
        assert rows_of(restored) == rows_of(stocked.services)
    finally:
        restored.close()
    if other.settings.database_url is None:
        assert (other.settings.data_dir / "licserver.sqlite3.before-restore").exists()
    kept = other.settings.data_dir / "secrets.json.before-restore"
    old = {"index_secret", "seal_secret", "link_secrets", "has_database"}
    assert json.loads(kept.read_text()).keys() == old
    kept.unlink()


@pytest.mark.slow
def test_each_restore_keeps_what_it_replaces(stocked, clock, make_world):
    """Who restores again, because the first backup was the wrong one, still has what was there before."""
    held = backed_up(stocked.services, clock)
    other = make_world()
    other.key()
    before = rows_of(other.services)
    other.services.close()
    folder = other.settings.data_dir
    for _ in range(3):
        held.seek(0)
        restore_backup(held, other.settings, force=True)
    assert {path.name for path in folder.glob("*.before-restore")} == {
        *(f"licserver.sqlite3{number}.before-restore" for number in ("", ".2", ".3")),
        "secrets.json.before-restore",  # later ones found the secrets of the backup already
    }
    for name in ("licserver.sqlite3", "secrets.json"):
        (folder / f"{name}.before-restore").replace(folder / name)
    with closing(open_services(other.settings, clock)) as there:
        assert rows_of(there) == before


@pytest.mark.slow
@both_engines
def test_an_installation_whose_secrets_cannot_be_replaced_stays_as_it_was(stocked, clock, make_world):
    """New books beside old secrets would open nothing: when the last step fails, the first is taken back."""
    held = backed_up(stocked.services, clock)
    other = make_world()
    key = other.key()
    before, folder = rows_of(other.services), other.settings.data_dir
    other.services.close()
    folder.joinpath("secrets.json.before-restore").mkdir()  # a file cannot get this name
    with pytest.raises(OSError):  # noqa: PT011 - each system has another one
        restore_backup(held, other.settings, force=True)
    there = open_services(other.settings, clock)
    try:
        assert rows_of(there) == before
        assert there.licenses.decrypt_key(there.licenses.get(key)) == key
    finally:
        there.close()
    assert not {".secrets-", ".restore-"} & {path.name[:9] for path in folder.iterdir()}


def test_a_file_that_a_server_has_open_is_not_replaced(stocked, clock, make_world):
    """A running server would go on writing into the old file: it must be stopped first."""
    held = backed_up(stocked.services, clock)
    other = make_world()
    key = other.key()
    with pytest.raises(InvalidInputError, match="stop the server"):
        restore_backup(held, other.settings, force=True)
    assert other.services.licenses.get(key).slots_used == 0


def test_secrets_of_the_environment_must_be_those_of_the_backup(stocked, clock, tmp_path):
    """With LICSERVER_SECRETS a backup of other secrets would open nothing, and is refused."""
    from licserver.security.secrets_file import new_secrets  # noqa: PLC0415 - for this story

    held = backed_up(stocked.services, clock)
    settings = Settings(data_dir=tmp_path / "anew", secrets=json.dumps(new_secrets()))
    with pytest.raises(InvalidInputError, match="LICSERVER_SECRETS"):
        restore_backup(held, settings)
    assert not (tmp_path / "anew" / "licserver.sqlite3").exists()


def test_a_lost_or_changed_file_of_a_release_is_reported(stocked, clock):
    """A backup that lacks something is none; without the files there is one."""
    release = stocked.services.releases.list_all("app")[1]
    path = stocked.services.artifacts.path(release.artifact)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"?")
    with pytest.raises(ArtifactsError, match="other bytes"):
        backed_up(stocked.services, clock)
    path.unlink()
    with pytest.raises(ArtifactsError):
        backed_up(stocked.services, clock)
    assert backed_up(stocked.services, clock, artifacts=False).getvalue()


@pytest.mark.slow
def test_a_bucket_comes_along(make_world, bucket, clock, tmp_path):
    """Files of a bucket are in the backup, and go into whatever place the new settings name."""
    world = make_world(artifacts_url=bucket)
    world.publish("1.0", random.Random(2).randbytes(2_500_000))
    held = backed_up(world.services, clock)
    settings = Settings(data_dir=tmp_path / "anew")
    assert restore_backup(held, settings).artifacts == 1
    restored = open_services(settings, clock)
    (release,) = restored.releases.list_all("app")
    assert len(b"".join(restored.artifacts.read(release.artifact))) == 2_500_000
    restored.close()
    held.seek(0)
    there = Settings(data_dir=tmp_path / "there", artifacts_url=f"{bucket}/elsewhere")
    assert restore_backup(held, there).artifacts == 1


@pytest.mark.slow
def test_memory_stays_flat(world, clock, tmp_path):
    """A file of 24 MiB and 5,000 licenses take less than 12 MiB, out and in (measured: 4.8 and 8.7)."""
    world.publish("1.0", random.Random(3).randbytes(24 << 20))
    for _ in world.services.licenses.issue_batches("app", LicenseTerms(), 5_000):
        pass
    file = tmp_path / "all.backup"
    open_services(Settings(data_dir=tmp_path / "before")).close()  # modules are loaded: not a backup's memory
    tracemalloc.start()
    with file.open("wb") as target:
        write_backup(world.services, target, clock())
    out = tracemalloc.get_traced_memory()[1]
    gc.collect()  # what writing it, and other tests of this process, have left
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with file.open("rb") as source:
        restore_backup(source, Settings(data_dir=tmp_path / "anew"))
    into = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert max(out, into) < 12 << 20, (out, into)


@pytest.mark.slow
def test_the_commands(cli, program, tmp_path):
    """`backup` beside a running server, `restore` into another folder; the file is private."""
    cli("product", "add", "app", "--name", "App")
    key = cli("license", "issue", "app").strip()
    file = tmp_path / "all.backup"
    with program.serve():
        assert "1 product, 1 license" in cli("backup", str(file))
    assert os.name == "nt" or file.stat().st_mode & 0o777 == 0o600
    assert "backup.write" in cli("audit")
    assert cli("backup", str(file), expect=2) == f"licserver: the file {file} exists already\n"
    there = str(tmp_path / "there")
    restored = program.run("restore", str(file), "--data-dir", there, "--json")
    assert "what was revoked or changed since then is valid again" in restored.stderr
    answer = json.loads(restored.stdout)
    assert (answer["licenses"], answer["artifacts"]) == (1, 0)
    assert key in cli("license", "show", key, "--reveal", "--data-dir", there)
    assert "--force" in cli("restore", str(file), "--data-dir", there, expect=2)
    nothing = tmp_path / "nothing"
    assert cli("restore", str(nothing), expect=2) == f"licserver: there is no file {nothing}\n"
