"""Each archive of a release, alone in an empty environment, and used. `nox -s dist` builds and runs it.

Wheels are installed by uv, sdists by pip, as their users do.
"""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import httpx
import pytest

from harness.programs import environment

if os.getenv("LICENSING_DIST") != "built":
    pytest.skip("there are no archives of this commit: nox -s dist", allow_module_level=True)
pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]
ARCHIVES: Final = ROOT / "dist" / "packages"
RELEASE: Final = ROOT / "dist" / "release"
PACKAGES: Final = ("licclient", "licconform", "licserver")
KINDS: Final = {"wheel": "*-py3-none-any.whl", "sdist": "*.tar.gz"}
LOWEST: Final = "lowest"
"""The wheel with the lowest versions of the libraries that it allows."""
SCRIPTS: Final = "Scripts" if os.name == "nt" else "bin"
APP: Final = """
import sys
from licclient import LicenseClient, LicclientError
client = LicenseClient(sys.argv[1], product="Demo Notes", slug="demo-notes", version="1.0.0")
@client.licensed
def export():
    print("exported")
try:
    client.activate(sys.argv[2])
    export()
    print(client.check_for_update().update.version)
except LicclientError as error:
    sys.exit(error.message)
"""
CASES: Final = ("verify-valid", "verify-expired", "verify-revoked")
"""Cases that the demo has keys for. It limits guesses, so that a run of all cases would wait for minutes."""
PLUGIN_TESTS: Final = {
    "licclient": """
def test_app(license_service):
    key = license_service.issue("Notes")
    client = license_service.client(product="Notes")
    assert client.activate(key).product == "Notes"
""",
    "licserver": """
from urllib.request import urlopen
def test_server(license_server):
    license_server.add_product("notes", "Notes")
    assert license_server.issue("notes").startswith("CP-")
    assert urlopen(license_server.url + "/readyz").status == 200
""",
}


def archive(package: str, kind: str) -> Path:
    """Return the only archive of a package and kind."""
    (path,) = (path for path in ARCHIVES.glob(KINDS[kind]) if path.name.startswith(f"{package}-"))
    return path


@dataclass
class Installed:
    """An environment with one of the packages, and a home folder."""

    folder: Path
    home: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / SCRIPTS / "python"

    def run(
        self,
        program: str,
        *arguments: str | Path,
        cwd: Path | None = None,
        code: int = 0,
        environ: dict[str, str] | None = None,
    ) -> str:
        """Run one of its programs, which must end with a code; return what it prints."""
        done = subprocess.run(
            [self.folder / SCRIPTS / program, *arguments],
            env=self.environ(**environ or {}),
            cwd=cwd or self.home,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, (program, arguments, done.stdout, done.stderr)
        return done.stdout

    def environ(self, **more: str) -> dict[str, str]:
        """Return a bare environment whose programs are found first, and that knows no other folder."""
        bare = environment(self.home, **more)
        return bare | {"PATH": f"{self.folder / SCRIPTS}{os.pathsep}{bare['PATH']}"}

    @contextmanager
    def serving(self, *arguments: str, **environ: str) -> Iterator[tuple[str, str]]:
        """Run licserver for a block; yield its address, and what it printed before."""
        process = subprocess.Popen(
            [self.folder / SCRIPTS / "licserver", *arguments, "--port", "0"],
            env=self.environ(**environ),
            cwd=self.home,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            printed = ""
            for line in process.stdout:
                printed += line
                if address := re.match(r"listening on (\S+)", line):
                    yield address[1], printed
                    break
            else:
                pytest.fail(printed)
        finally:
            process.terminate()
            process.communicate(timeout=60)


Install = Callable[[str, str], Installed]


@pytest.fixture(scope="session")
def install() -> Iterator[Install]:
    """Install a package's archive, once for all tests.

    Not below pytest's folder, whose files are searched for keys: documents and libraries contain examples.
    """

    @cache
    def install(package: str, kind: str) -> Installed:
        folder = Path(base, f"{package}-{kind}")
        folder.mkdir()
        made = Installed(folder / "environment", folder / "home")
        made.home.mkdir()
        uv = ("uv", "--quiet", "--no-config")
        seed = ("--seed",) if kind == "sdist" else ()
        create = [*uv, "venv", *seed, "--python", sys.executable, str(made.folder)]
        subprocess.run(create, check=True, cwd=folder)
        if kind != "sdist":
            lowest = ["--resolution", "lowest-direct"] if kind == LOWEST else []
            wheel = str(archive(package, "wheel"))
            command = [*uv, "pip", "install", *lowest, "--python", str(made.python), wheel]
        else:
            pip = [str(made.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            command = [*pip, str(archive(package, kind))]
        subprocess.run(command, check=True, cwd=folder)
        return made

    with tempfile.TemporaryDirectory(prefix="archives-") as base:
        yield install


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("package", PACKAGES)
def test_an_archive_installs_alone(package: str, kind: str, install: Install) -> None:
    """Its program runs, its license and types are there, and neither of the other packages is."""
    installed = install(package, kind)
    code = (
        f"import importlib.metadata as m, importlib.util as u, {package} as p, pathlib\n"
        f"others = [name for name in {PACKAGES} if name != {package!r} and u.find_spec(name)]\n"
        "folder = pathlib.Path(p.__file__).parent\n"
        f"files = [str(file) for file in m.files({package!r})]\n"
        "assert 'site-packages' in str(folder)\n"
        f"print(p.__version__ == m.version({package!r}), others, (folder / 'py.typed').exists(),\n"
        "      any(file.endswith('licenses/LICENSE') for file in files))"
    )
    assert installed.run("python", "-c", code) == "True [] True True\n"
    assert installed.run(package, "--help")


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_of_the_readme(kind: str, install: Install, tmp_path: Path) -> None:
    """A product, a release, a key; the files for a deployment come out of the archive."""
    installed = install("licserver", kind)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if block.startswith("licserver product add"))
    assert block.endswith("licserver serve\n")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "photo-lab-1.0.0.zip").write_bytes(b"zip")
    data = {"LICSERVER_DATA_DIR": str(tmp_path / "data")}
    for line in block.splitlines()[:-1]:
        installed.run(*shlex.split(line), cwd=tmp_path, environ=data)
    with installed.serving("serve", **data) as (address, _):
        assert httpx.get(f"{address}/readyz", timeout=10).status_code == 200
    installed.run("licserver", "deploy-files", tmp_path / "deploy")
    written = {path.name for path in (tmp_path / "deploy").iterdir()}
    assert written >= {"Containerfile", "compose.yaml", "licserver.service", "nginx.conf", "examples"}


@pytest.mark.parametrize("kind", [*KINDS, LOWEST])
def test_the_demo_an_app_and_licconform(kind: str, install: Install, tmp_path: Path) -> None:
    """Three environments, of one package each: the app is licensed by the demo, and licconform tests it."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    with install("licserver", kind).serving("demo") as (address, printed):
        keys = dict(
            zip(("valid", "expired", "revoked"), re.findall(r"verify (CP-\S+)", printed), strict=True)
        )
        app = install("licclient", kind)
        state = {"XDG_STATE_HOME": str(tmp_path / "state")}
        assert (
            app.run("python", tmp_path / "app.py", address, keys["valid"], environ=state)
            == "exported\n1.1.0\n"
        )
        assert "License expired." in app.run(
            "licclient", "--server", address, "verify", keys["expired"], code=1, environ=state
        )
        entry = {"slug": "demo-notes", "product": "Demo Notes", "expiry": None, "version": "1.1.0"}
        prepared = {name: [entry | {"license_key": key}] for name, key in keys.items()}
        conform = install("licconform", kind)
        file = conform.home / "keys.json"  # not below pytest's folder, which is searched for keys
        file.write_text(json.dumps(prepared), encoding="utf-8")
        seed = f"{conform.python} -m licconform.recipes.prepared {file}"
        only = [word for name in CASES for word in ("--only", name)]
        report = conform.run("licconform", "server", "--base-url", address, "--seed", seed, *only)
        assert report.endswith(f"literal {len(CASES)}/{len(CASES)}\n"), report


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("package", PLUGIN_TESTS)
def test_the_pytest_plugin(package: str, kind: str, install: Install, tmp_path: Path) -> None:
    """A test of another project uses the fixture, with nothing configured, or the plugin named."""
    installed = install(package, kind)
    adding = ["uv", "--quiet", "--no-config", "pip", "install", "--python", str(installed.python), "pytest"]
    subprocess.run(adding, check=True, cwd=tmp_path)
    (tmp_path / "test_it.py").write_text(PLUGIN_TESTS[package], encoding="utf-8")
    assert "1 passed" in installed.run("python", "-m", "pytest", "-q", tmp_path, cwd=tmp_path)
    (tmp_path / "conftest.py").write_text(f"pytest_plugins = ['{package}.pytest_plugin']", encoding="utf-8")
    assert "1 passed" in installed.run("python", "-m", "pytest", "-q", tmp_path, cwd=tmp_path)


def test_bills_of_materials_and_pinned_libraries() -> None:
    """Each component has a version and a license, and each library of licserver is pinned by digest."""
    for package in PACKAGES:
        bill = json.loads((RELEASE / f"{package}.cdx.json").read_text(encoding="utf-8"))
        assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", package)
        components = bill.get("components", [])
        assert package == "licconform" or components
        lacking = [
            component["name"]
            for component in components
            if not (component.get("version") and component.get("licenses"))
        ]
        assert lacking == []
        assert {component["name"].lower() for component in components}.isdisjoint(PACKAGES)
    pinned = (RELEASE / "requirements.txt").read_text(encoding="utf-8")
    names = {
        re.sub(r"[-_.]+", "-", item["name"]).lower() for item in bill["components"]
    }  # the last one is licserver's
    for name in names:
        assert re.search(rf"^{re.escape(name)}==\S+.*\\\n +--hash=sha256:", pinned, re.MULTILINE), name


def test_the_notes_are_the_section_of_the_changelog() -> None:
    """Without its heading and without that of another version."""
    notes = (RELEASE / "notes.md").read_text(encoding="utf-8")
    assert notes.strip() in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert not re.search(r"^## ", notes, re.MULTILINE)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index on loopback, which accepts uploads."""
    if find_spec("pypiserver") is None:  # importing it warns
        pytest.skip("pypiserver is not installed here: nox -s dist")
    folder = tmp_path / "index"
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pypiserver", "run", "-i", "127.0.0.1", "-p", str(port)]
    anonymous = ["-P", ".", "-a", ".", "--disable-fallback", str(folder)]
    process = subprocess.Popen([*command, *anonymous], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                httpx.get(f"{address}/simple/", timeout=1)
                break
            except httpx.TransportError:
                time.sleep(0.1)  # until it listens
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_an_upload_to_an_index(index: str, tmp_path: Path) -> None:
    """All archives, as `nox -s publish` uploads them; a second upload passes over what is there."""
    files = sorted(map(str, ARCHIVES.iterdir()))
    assert len(files) == 2 * len(PACKAGES)
    known = ("--publish-url", f"{index}/", "--check-url", f"{index}/simple/")
    uploading = ["uv", "--no-config", "publish", "--username", "any", "--password", "any", *known, *files]
    bare = environment(tmp_path / "home")
    for expected in ("Uploading", "already exists"):
        done = subprocess.run(
            uploading, env=bare, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert expected in done.stderr
    assert sorted(path.name for path in (tmp_path / "index").iterdir()) == [Path(file).name for file in files]
    target = tmp_path / "downloaded"
    getting = ["uv", "--no-config", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
    only = ["--default-index", f"{index}/simple/", "--no-cache", "--python", sys.executable, "licclient"]
    subprocess.run([*getting, *only], check=True, cwd=tmp_path, timeout=120)
    assert (target / "licclient" / "py.typed").exists()
