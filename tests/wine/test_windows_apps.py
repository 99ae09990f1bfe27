"""A frozen app, its launcher, the command line and the vault of keys on Windows, with the real service.

`nox -s windows`; elsewhere these tests are skipped.
"""

import json
import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tools.windows.wine import Done, Windows

import licclient
from harness.customer import EXAMPLES
from harness.frozen import Shop
from harness.shop import SLUG

pytestmark = pytest.mark.slow

FROZEN = Path(__file__).parents[1] / "frozen"
UPDATES_PAGE = FROZEN.parents[1] / "docs" / "app" / "updates.md"
NO_VAULT = "keyring.backends.fail.Keyring"
STORED = "import keyring; print(keyring.get_keyring().name, keyring.get_password('licclient', {!r}) == {!r})"

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def built(windows: Windows) -> Path:
    """Freeze the app and the launcher that the documentation shows, once; return what came of it."""
    folder = windows.drive / "frozen"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("photo_lab.py", "photo_lab.spec"):
        shutil.copy(FROZEN / name, folder)
    shown = re.search(r"<!-- launcher -->\n```python\n(.*?)```", UPDATES_PAGE.read_text("utf-8"), re.DOTALL)
    assert shown is not None
    (folder / "launcher.py").write_text(shown[1], "utf-8")
    (folder / "version.txt").write_text("1.0.0")
    arguments = ("--noconfirm", "--log-level", "ERROR", "photo_lab.spec")
    done = windows.run("-m", "PyInstaller", *arguments, cwd=folder, timeout=900)
    assert done.returncode == 0, done.stdout
    return folder / "dist"


@pytest.fixture
def start(windows: Windows, shop: Shop, drive: Path) -> Callable[..., Done]:
    """Start a frozen program."""

    def start(program: Path, *arguments: str, keyring: str = "") -> Done:
        variables = {
            "PHOTO_LAB_SERVICE": shop.url,
            "PHOTO_LAB_KEY": shop.pinned,
            "PHOTO_LAB_DOWNLOADS": windows.path(drive / "downloads"),
            "PYTHON_KEYRING_BACKEND": keyring or NO_VAULT,
        }
        if keyring == "vault":
            del variables["PYTHON_KEYRING_BACKEND"]
        return windows.run(*arguments, program=program, cwd=drive, timeout=120, **variables)

    return start


@pytest.fixture
def run(start: Callable[..., Done]) -> Run:
    """Run a frozen program; return what it prints."""

    def run(program: Path, *arguments: str, **options: str) -> dict[str, Any]:
        done = start(program, *arguments, **options)
        assert done.returncode == 0, done.stdout
        result = json.loads(done.stdout)
        assert isinstance(result, dict)
        return result

    return run


def test_one_file(windows: Windows, built: Path, shop: Shop, run: Run, drive: Path, local_data: Path) -> None:
    """Activates over TLS, knows its version, and remembers in the user's folder for data."""
    program = built / "photo-lab-one-file.exe"
    result = run(program, "folder", "activate", shop.key)
    assert result == {
        "app": "1.0.0",
        "licclient": licclient.__version__,
        "frozen": True,
        "program": windows.path(program),
        "product": "Photo Lab",
    }
    result = run(program, "folder", "verify")
    assert (result["source"], result["authenticated"]) == ("cache", True)
    states = {path.name.partition("-")[0] for path in (local_data / "licclient").rglob("*.state")}
    assert states >= {"activation", "installation", "signed"}
    assert list(drive.iterdir()) == []
    report = run(program, "folder", "doctor")["report"]
    assert "frozen" in report
    assert "ok tls:" in report


def test_the_vault_keeps_the_key(
    windows: Windows, built: Path, shop: Shop, run: Run, local_data: Path
) -> None:
    """No file has it, another process finds it there, and so does another program of the user."""
    program = built / "photo-lab-one-file.exe"
    run(program, "folder", "activate", shop.key, keyring="vault")
    (activation,) = (local_data / "licclient").rglob("activation-*.state")
    assert shop.key.encode() not in activation.read_bytes()
    assert run(program, "folder", "verify", keyring="vault")["source"] == "cache"
    assert run(program, "folder", "update", keyring="vault")["update"] is None
    done = windows.run("-c", STORED.format(activation.stem, shop.key))
    assert done.stdout.split() == ["Windows", "WinVaultKeyring", "True"]


def test_an_app_in_a_folder_replaces_itself(
    windows: Windows,
    built: Path,
    shop: Shop,
    run: Run,
    start: Callable[..., Done],
    drive: Path,
) -> None:
    """As docs/app/updates.md describes it: laid down, updated over TLS, started anew, rolled back."""
    zips = {}
    for version in ("1.0.0", "1.1.0"):
        (built / "one-folder" / "_internal" / "version.txt").write_text(version)
        packed = shutil.make_archive(str(drive / f"photo-lab-{version}"), "zip", built / "one-folder")
        zips[version] = Path(packed)
        shop.world.services.releases.publish(SLUG, version, zips[version])
    root = drive / "Photo Lab"
    digest = sha256(zips["1.0.0"].read_bytes()).hexdigest()
    options = ("--version", "1.0.0", "--sha256", digest, "--to", windows.path(root))
    command = windows.scripts / "licclient.exe"
    done = windows.run("apply", windows.path(zips["1.0.0"]), *options, program=command, cwd=drive)
    assert done.returncode == 0, done.stdout
    launcher = root / "photo-lab.exe"
    shutil.copy(built / "launcher.exe", launcher)

    result = run(launcher, "activate", shop.key)
    assert (result["app"], result["product"]) == ("1.0.0", "Photo Lab")
    assert run(launcher, "update")["update"] == "1.1.0"
    result = run(launcher, "verify")
    assert (result["app"], result["source"]) == ("1.1.0", "cache")
    assert result["program"].startswith(windows.path(root / "versions"))
    assert run(launcher, "update")["update"] is None
    assert run(launcher, "roll-back")["before"] == "1.0.0"
    assert run(launcher, "verify")["app"] == "1.0.0"
    refused = start(launcher, "no-such-command")
    assert (refused.returncode, "no such command" in refused.stdout) == (1, True)


def test_the_command_line(windows: Windows, shop: Shop, drive: Path) -> None:
    """The program that pip has made verifies, checks and downloads, with the exit statuses of its page."""
    (drive / "app.txt").write_text("1.1.0")
    packed = shutil.make_archive(str(drive / "photo-lab"), "zip", drive, "app.txt")
    shop.world.services.releases.publish(SLUG, "1.1.0", Path(packed))
    place = ("--server", shop.url, "--state-dir", windows.path(drive / "state"))

    def licclient_exe(*arguments: str) -> Done:
        program = windows.scripts / "licclient.exe"
        return windows.run(*arguments, program=program, cwd=drive, PYTHON_KEYRING_BACKEND=NO_VAULT)

    done = licclient_exe(*place, "verify", shop.key)
    assert (done.returncode, "Photo Lab" in done.stdout) == (0, True), done.stdout
    done = licclient_exe(*place, "download", shop.key, SLUG, "1.0.0", "--to", windows.path(drive / "Größe"))
    assert done.returncode == 0, done.stdout
    assert [path.suffix for path in (drive / "Größe").iterdir() if not path.name.startswith(".")] == [".zip"]
    done = licclient_exe(*place, "verify", shop.key[:-1])
    assert done.returncode == 1, done.stdout


def test_licclient_conforms(windows: Windows, drive: Path) -> None:
    """`licconform client` as its page has it: all rules, readings and extensions."""
    shutil.copy(EXAMPLES / "conform_licclient.py", drive)
    client = (windows.path(windows.python), windows.path(drive / "conform_licclient.py"))
    done = windows.run(
        *("client", "--clock", "--kind", "all", "--", *client),
        program=windows.scripts / "licconform.exe",
        cwd=drive,
        PYTHON_KEYRING_BACKEND=NO_VAULT,
    )
    assert done.returncode == 0, done.stdout
    assert "skipped: " not in done.stdout, done.stdout
    for kind in ("literal", "reading", "extension"):
        assert re.search(rf"{kind} (\d+)/\1\b", done.stdout), done.stdout
