"""Commands that root runs act as the owner of the data folder, and files in it are no links (D-157)."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from licserver.artifacts import ArtifactFolder
from licserver.domain.records import Artifact
from licserver.errors import ArtifactsError, SecretsError, StoreError
from licserver.services.installation import open_services
from licserver.settings import Settings

SERVER = 65534  # nobody
TABLES = {"secrets.json": SecretsError, "licserver.sqlite3": StoreError}

needs_root = pytest.mark.skipif(
    os.name == "nt" or os.geteuid() != 0, reason="needs root, which alone can act as another user"
)

# Root's Python may lie where no other user can read it, so all modules are imported first.
PROGRAM = """
import importlib, pkgutil, sys
from contextlib import suppress
import licserver, os
os.nice = os.sched_setscheduler = lambda *_: None  # or a busy machine keeps a backup waiting
for one in pkgutil.walk_packages(licserver.__path__, "licserver."):
    if not one.name.endswith("__main__") and ".migrations" not in one.name:
        importlib.import_module(one.name)
from licserver.cli import main
with suppress(SystemExit):
    main(["db", "upgrade", "--data-dir", sys.argv[1]])
with suppress(SystemExit):
    main(["product", "list", "--data-dir", sys.argv[1]])
print("--- now", flush=True)
main(sys.argv[2:])
"""


@pytest.fixture
def place():
    """A folder that all users can enter, with a data folder of the server's user."""
    folder = Path(tempfile.mkdtemp(prefix="licserver-owner-"))
    folder.chmod(0o755)
    data = folder / "data"
    data.mkdir(mode=0o755)
    os.chown(data, SERVER, SERVER)
    yield folder
    shutil.rmtree(folder)


def run(place: Path, *arguments: str, **more: Any) -> tuple[int, bytes, str]:
    """Run a command as root, on the data folder of the server's user."""
    (place / "of-root").mkdir(mode=0o700, exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "LICSERVER_DATA_DIR": str(place / "data"), "LOGNAME": "operator"}
    command = [sys.executable, "-c", PROGRAM, str(place / "of-root"), *arguments]
    done = subprocess.run(
        command, capture_output=True, check=False, timeout=60, cwd=place, **{"env": environ, **more}
    )
    return done.returncode, done.stdout.rpartition(b"--- now\n")[2], done.stderr.decode()


def owners(folder):
    """Who owns what in a folder."""
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in (folder, *folder.rglob("*"))}


@pytest.mark.slow
@needs_root
def test_what_root_makes_belongs_to_the_owner_and_is_private(place):
    """Database, log, secrets and artifacts, whatever umask and folder allow; the audit log names root."""
    data, zipped = place / "data", place / "app.zip"
    zipped.write_bytes(b"zip")
    for arguments in (
        ("product", "add", "app", "--name", "App"),
        ("release", "publish", "app", "1.0", str(zipped)),
        ("secret", "rotate", "--leaked"),
    ):
        code, _, err = run(place, *arguments, umask=0)
        assert code == 0, err
    assert owners(data) == {(SERVER, SERVER)}
    private = [path for path in data.iterdir() if path.is_file()]
    assert {path.name: path.stat().st_mode & 0o777 for path in private} == {
        path.name: 0o600 for path in private
    }
    assert {"licserver.sqlite3", "secrets.json"} <= {path.name for path in private}
    assert b"operator" in run(place, "audit")[1]


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("licserver.sqlite3-x", marks=pytest.mark.slow),
        pytest.param("licserver.sqlite3-wal", marks=pytest.mark.slow),
        pytest.param("licserver.sqlite3", marks=pytest.mark.slow),
        "secrets.json",
    ],
)
def test_a_planted_link_gives_no_file_away(place, name):
    """A link to a file of root's, planted where commands write: the file stays root's, and as it was."""
    shadow = place / "shadow"
    shadow.write_bytes(b"root:secret")
    shadow.chmod(0o600)
    (place / "data" / name).symlink_to(shadow)
    code, _, err = run(place, "product", "list")
    assert (shadow.stat().st_uid, shadow.stat().st_mode & 0o777, shadow.read_bytes()) == (
        0,
        0o600,
        b"root:secret",
    )
    assert ("is a symbolic link" in err, code) == ((False, 0) if name.endswith("-x") else (True, 1)), err


@pytest.mark.slow
@needs_root
def test_a_folder_that_does_not_exist_yet(place):
    """It is created by the owner of the one above it; below a folder of root's it is root's."""
    for above, owner in ((place / "data", SERVER), (place, 0)):
        folder = above / "deep" / "new"
        code, _, err = run(place, "product", "list", "--data-dir", str(folder))
        assert (code, err) == (0, f"created the data folder {folder}\n")
        assert (folder / "secrets.json").stat().st_uid == owner


@pytest.mark.slow
@needs_root
def test_files_that_only_root_may_use(place):
    """They are refused with the reason and the way out, which works: standard input and output."""
    home, data = place / "home", place / "data"
    home.mkdir(mode=0o700)
    secret = home / "app.zip"
    secret.write_bytes(b"zip")
    assert run(place, "product", "add", "app", "--name", "App")[0] == 0
    for arguments in (
        ("release", "publish", "app", "1.0", secret),
        ("backup", home / "x"),
        ("restore", secret),
    ):
        code, _, err = run(place, *map(str, arguments))
        assert code == 1, err
        assert "Permission denied" in err
        assert "root's commands act as nobody, the owner of the data folder" in err
    code, held, err = run(place, "backup", "-")
    assert code == 0, err
    shutil.rmtree(data)
    data.mkdir()
    os.chown(data, SERVER, SERVER)
    code, _, err = run(place, "restore", "-", input=held)
    assert code == 0, err
    assert owners(data) == {(SERVER, SERVER)}


@pytest.mark.slow
@needs_root
def test_serve_binds_as_root_and_answers_as_the_owner(place):
    """A port below 1024 is bound before root is given up, with all of its groups."""
    (place / "of-root").mkdir(mode=0o700)
    environ = {"PATH": os.environ["PATH"], "LICSERVER_DATA_DIR": str(place / "data"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", PROGRAM, str(place / "of-root"), "serve", "--port"]
    for port in ("1023", "1022", "1021"):
        with subprocess.Popen([*command, port], env=environ, stdout=subprocess.PIPE, text=True) as process:
            lines = iter(process.stdout.readline, "")
            first_line = next((line for line in lines if line.startswith("listening")), None)
            if first_line is None:  # somebody else has this port
                continue
            status = Path(f"/proc/{process.pid}/status").read_text()
            process.terminate()
            break
    assert first_line is not None
    status_fields = {line.partition(":")[0]: line.split()[1:] for line in status.splitlines()}
    assert (set(status_fields["Uid"]), set(status_fields["Gid"])) == ({str(SERVER)}, {str(SERVER)})
    assert "0" not in status_fields["Groups"]
    assert status_fields["CapEff"] == ["0" * 16]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("name", TABLES)
def test_a_linked_file_is_refused(tmp_path, name, link):
    """Database and secrets have one name, in the data folder; the sentence says what to do."""
    settings = Settings(data_dir=tmp_path / "data")
    open_services(settings).close()
    elsewhere = tmp_path / "elsewhere"
    (settings.data_dir / name).rename(elsewhere)
    link(elsewhere, settings.data_dir / name)
    with pytest.raises(TABLES[name], match=r"in its place"):
        open_services(settings)
    elsewhere.unlink()  # the search for leaked secrets would find it


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_linked_artifact_is_refused_and_replaced(tmp_path):
    """It is not served, whatever it leads to; publishing the file again puts it in the link's place."""
    folder, other = ArtifactFolder(tmp_path / "artifacts"), tmp_path / "other"
    other.write_bytes(b"zip")
    with other.open("rb") as source:
        stored = folder.store(source, "app.zip")
    folder.path(stored).unlink()
    folder.path(stored).symlink_to(other)
    with pytest.raises(ArtifactsError, match="symbolic link"):
        folder.open(stored)
    assert not folder.holds(stored)
    with other.open("rb") as source:
        folder.store(source, "app.zip")
    assert folder.holds(Artifact("app.zip", 3, stored.sha256))


@needs_root
def test_an_owner_who_cannot_be_kept_keeps_the_file(tmp_path):
    """Secrets of another user than the folder's stay as they are: that user could not read new ones."""
    from licserver.security.secrets_file import SECRETS_FILE, change_secrets, open_vault  # noqa: PLC0415 - for this story

    settings = Settings(data_dir=tmp_path)
    open_vault(settings)
    os.chown(path := tmp_path / SECRETS_FILE, SERVER, SERVER)
    before = path.read_bytes()
    with pytest.raises(SecretsError, match="belongs to another user"):
        change_secrets(settings, lambda held: held.update(of_another_version=1))
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".secrets-*"))


def test_who_publishes_need_not_be_who_serves(tmp_path):
    """A file is readable for the folder's group, and for nobody else."""
    folder = ArtifactFolder(tmp_path / "artifacts")
    (tmp_path / "app.zip").write_bytes(b"zip")
    with (tmp_path / "app.zip").open("rb") as source:
        stored = folder.store(source, "app.zip")
    assert os.name == "nt" or folder.path(stored).stat().st_mode & 0o777 == 0o640
