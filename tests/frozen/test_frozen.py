"""A frozen app, built by PyInstaller and run as a customer would: certificates, version, state, updates.

`nox -s frozen`; where PyInstaller is not installed, as in the plain test run, these tests are skipped. The
service is the real one, over TLS, with a certificate of an authority that is known to a file alone.
"""

import json
import re
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import licclient
from harness.frozen import Shop, freeze, shop_over_tls
from harness.programs import SCRIPTS, environment
from harness.shop import PRODUCT, SLUG

pytest.importorskip("PyInstaller", reason="PyInstaller is not installed here: nox -s frozen")

HERE = Path(__file__).parent
CLIENT_PAGE = HERE.parents[1] / "docs" / "app" / "updates.md"

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Freeze the app and the launcher that the documentation shows, once; returns what came of it."""
    folder = tmp_path_factory.mktemp("frozen")
    for name in ("photo_lab.py", "photo_lab.spec"):
        shutil.copy(HERE / name, folder)
    shown = re.search(r"<!-- launcher -->\n```python\n(.*?)```", CLIENT_PAGE.read_text("utf-8"), re.DOTALL)
    assert shown is not None
    (folder / "launcher.py").write_text(shown[1], "utf-8")
    (folder / "version.txt").write_text("1.0.0")
    return freeze(folder, "photo_lab.spec")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop without releases."""
    with shop_over_tls(tmp_path, PRODUCT | {"releases": []}) as shop:
        yield shop


@pytest.fixture
def run(shop: Shop, tmp_path: Path) -> Run:
    """Run a frozen program as a customer does, in a home of its own; returns what it prints."""
    (tmp_path / "temporary").mkdir()

    def run(program: Path, *arguments: str, trusting: bool = True) -> dict[str, Any]:
        variables = {
            "PHOTO_LAB_SERVICE": shop.url,
            "PHOTO_LAB_KEY": shop.pinned,
            "PHOTO_LAB_DOWNLOADS": str(tmp_path / "downloads"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
            "TMPDIR": str(tmp_path / "temporary"),
        }
        if trusting:
            variables["SSL_CERT_FILE"] = str(shop.authority)
        done = subprocess.run(
            [program, *arguments],
            env=environment(tmp_path / "home", **variables),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        result = json.loads(done.stdout)
        assert isinstance(result, dict)
        return result

    return run


def test_one_file(built: Path, shop: Shop, run: Run, tmp_path: Path) -> None:
    """Activates over TLS, knows its version, remembers in the right folder, and leaves nothing elsewhere."""
    program = built / "photo-lab-one-file"
    result = run(program, "folder", "activate", shop.key)
    assert result == {
        "app": "1.0.0",
        "licclient": licclient.__version__,
        "frozen": True,
        "program": str(program),
        "product": "Photo Lab",
    }
    result = run(program, "folder", "verify")
    assert (result["source"], result["authenticated"]) == ("cache", True)
    result = run(program, "folder", "detect")
    assert (result["kind"], result["is_certain"]) == ("unknown", False)
    home = tmp_path / "home"
    state = home / ".local" / "state" / "licclient"
    assert {path.name.partition("-")[0] for path in state.rglob("*.state")} >= {
        "activation",
        "installation",
        "signed",
    }
    assert [path for path in home.rglob("*") if path.is_file() and state not in path.parents] == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_certificates_are_the_systems(built: Path, shop: Shop, run: Run) -> None:
    """Who trusts the authority is answered, who does not is not; the system's own are known as ever."""
    program = built / "photo-lab-one-file"
    result = run(program, "folder", "activate", shop.key, trusting=False)
    assert result["error"] == "ServiceUnavailableError"
    report = run(program, "folder", "doctor", trusting=False)["report"]
    assert "certificate" in report.partition("!! tls:")[2].splitlines()[0]
    assert run(program, "folder", "activate", shop.key)["product"] == "Photo Lab"
    report = run(program, "folder", "doctor")["report"]
    assert "ok tls:" in report
    assert "frozen" in report
    ours = ssl.create_default_context().cert_store_stats()
    assert run(program, "folder", "authorities", trusting=False)["authorities"] == ours


def test_an_app_in_a_folder_replaces_itself(built: Path, shop: Shop, run: Run, tmp_path: Path) -> None:
    """As docs/app/updates.md describes it: laid down, updated over TLS, started anew, rolled back."""
    zips = {}
    for version in ("1.0.0", "1.1.0"):
        (built / "one-folder" / "_internal" / "version.txt").write_text(version)
        packed = shutil.make_archive(str(tmp_path / f"photo-lab-{version}"), "zip", built / "one-folder")
        zips[version] = Path(packed)
        shop.world.services.releases.publish(SLUG, version, zips[version])
    root = tmp_path / "Photo Lab"
    digest = sha256(zips["1.0.0"].read_bytes()).hexdigest()
    options = ["--version", "1.0.0", "--sha256", digest, "--to", str(root)]
    lay_down = [str(SCRIPTS / "licclient"), "apply", str(zips["1.0.0"]), *options]
    subprocess.run(lay_down, check=True, capture_output=True)
    launcher = root / "photo-lab"
    shutil.copy(built / "launcher", launcher)

    result = run(launcher, "activate", shop.key)
    assert (result["app"], result["product"]) == ("1.0.0", "Photo Lab")
    result = run(launcher, "detect")
    assert (result["kind"], result["folder"], result["is_certain"]) == ("folder", str(root), True)
    result = run(built / "one-folder" / "photo-lab", "folder", "detect")
    assert (result["kind"], result["is_certain"]) == ("folder", False)
    assert run(launcher, "update")["update"] == "1.1.0"
    result = run(launcher, "verify")
    assert (result["app"], result["source"]) == ("1.1.0", "cache")
    assert Path(result["program"]).is_relative_to(root / "versions")
    assert run(launcher, "update")["update"] is None
    assert run(launcher, "roll-back")["before"] == "1.0.0"
    assert run(launcher, "verify")["app"] == "1.0.0"
    assert list((tmp_path / "temporary").iterdir()) == []
