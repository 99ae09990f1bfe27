"""`licconform`, as a stranger runs it, against our own server and client."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.programs import SCRIPTS, licserver, run, serving_process

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
SEED = f"{sys.executable} -m licconform.recipes.licserver"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder, which has the server's data folder."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[str]:
    """A server with a signing key, and without a limit of guesses; its address."""
    licserver(home, "signing-key", "add")
    with serving_process(["serve", "--port", "0"], home, LICSERVER_MISS_LIMIT="0") as (_, printed):
        yield printed.partition("listening on ")[2].split()[0]


def licconform(home: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the program."""
    return run([str(SCRIPTS / "licconform"), *arguments], home, None, **environ)


def test_licserver_conforms(home: Path, server: str, tmp_path: Path) -> None:
    """All rules, readings and extensions; only a link of the past cannot be made."""
    token = json.loads(licserver(home, "token", "create", "conform", "--scope", "write", "--json"))["token"]
    key = licserver(home, "signing-key", "public").split()[0]
    junit = tmp_path / "report.xml"
    options = ["--base-url", server, "--seed", f"{SEED} {server}", "--public-key", key, "--kind", "all"]
    done = licconform(home, "server", *options, "--junit", str(junit), LICSERVER_TOKEN=token)
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = [line for line in done.stdout.splitlines() if line.startswith("skipped: ")]
    assert [line.split()[1] for line in skipped] == ["link-expired", "link-expired-body"]
    assert junit.stat().st_size


def test_licclient_conforms(home: Path) -> None:
    """All rules, readings and extensions."""
    program = [sys.executable, str(ROOT / "examples" / "conform_licclient.py")]
    done = licconform(home, "client", "--clock", "--kind", "all", "--", *program)
    assert done.returncode == 0, done.stdout + done.stderr
