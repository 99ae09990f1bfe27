"""`licconform` against our own server and client: the commands of docs/conformance.md run as they stand."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest

from harness.customer import EXAMPLES
from harness.programs import SCRIPTS, environment, licserver, run, serving_process
from licconform.recipes.licserver import Seed as Recipe
from licconform.server.seeds import STATES, Seed

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
INDEPENDENT = ROOT / "packages" / "licconform" / "tests" / "independent"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed (apt install nodejs)")
PRELUDE = """
set -e
pip() { :; }
pipx() { :; }
trap 'status=$?; kill $(jobs -p) 2>/dev/null || true; wait; exit $status' EXIT
"""


def block(language: str, *words: str) -> str:
    """Return the page's block of code that has all these words."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (found,) = (code for code in blocks if all(word in code for word in words))
    return str(found)


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bash(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block in a folder; pip installs nothing, and what was started is stopped at the end."""
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", PRELUDE + script],
        cwd=folder,
        env={**environment(folder / "home"), "PATH": path},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def expect_all(done: subprocess.CompletedProcess[str], *kinds: str) -> None:
    """Check that all cases of these kinds passed, and that none was skipped."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped: " not in done.stdout, done.stdout
    for kind in kinds:
        assert re.search(rf"{kind} (\d+)/\1\b", done.stdout), done.stdout


def write_program(path: Path, *command: str) -> None:
    """Write a program that runs a command with its own arguments added."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


@contextmanager
def answering(program: list[str], port: int) -> Iterator[None]:
    """Run a server for a block, which begins when it listens."""
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert f":{port}" in process.stdout.readline()
            yield
        finally:
            process.terminate()


def test_licserver_conforms(tmp_path: Path) -> None:
    """All rules, readings and extensions, a link of the past included."""
    port = str(free_port())
    script = block("sh", "licserver serve").replace("8080", port)
    expect_all(
        bash(script.replace("licserver serve", f"licserver serve --port {port}"), tmp_path),
        *("literal", "reading", "extension"),
    )


def test_licclient_conforms(tmp_path: Path) -> None:
    """All rules, readings and extensions."""
    (tmp_path / "conform_licclient.py").symlink_to(EXAMPLES / "conform_licclient.py")
    done = bash(block("sh", "conform_licclient.py"), tmp_path)
    expect_all(done, "literal", "reading", "extension")


@needs_node
def test_a_server_and_a_client_of_somebody_else(tmp_path: Path) -> None:
    """The two commands at the top of the page; the programs are those of the independent pair."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    write_program(tmp_path / "seed.sh", str(NODE), str(INDEPENDENT / "seed.mjs"), url)
    write_program(tmp_path / "my-client", str(NODE), str(INDEPENDENT / "client.mjs"))
    script = block("sh", "./my-client").replace("https://licenses.example.com", url)
    with answering([str(NODE), str(INDEPENDENT / "server.mjs"), str(port)], port):
        done = bash(script, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^literal (\d+)/\1$", done.stdout, re.MULTILINE)) == 2, done.stdout


@needs_node
def test_a_workflow(tmp_path: Path) -> None:
    """The steps that are programs, with the known gap of the page: no product without a file."""
    port = free_port()
    steps = re.findall(r"- run: (>-\n(?: {10}.*\n)+|.*\n)", block("yaml", "conformance"))
    start, install, test = (
        textwrap.dedent(step.removeprefix(">-\n")).replace("8080", str(port)) for step in steps
    )
    write_program(tmp_path / "start-server.sh", str(NODE), str(INDEPENDENT / "server.mjs"), str(port))
    seed = shlex.join([str(NODE), str(INDEPENDENT / "seed.mjs"), f"http://127.0.0.1:{port}"])
    text = f'#!/bin/sh\n[ "$2" = no-versions ] && exit 77\nexec {seed} "$@"\n'
    (tmp_path / "seed.sh").write_text(text, encoding="utf-8")
    (tmp_path / "seed.sh").chmod(0o755)
    (tmp_path / "known.xfails").write_text(block("text", "update-no-versions"), encoding="utf-8")
    with answering([str(tmp_path / start.partition("&")[0].strip())], port):
        done = bash(f"{install}\n{' '.join(test.split())}", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all((tmp_path / name).stat().st_size for name in ("report.xml", "report.html", "conformance.svg"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder, which has the server's data folder."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[str]:
    """A server without a limit of guesses; its address."""
    with serving_process(["serve", "--port", "0"], home, LICSERVER_MISS_LIMIT="0") as (_, printed):
        yield printed.partition("listening on ")[2].split()[0]


@pytest.fixture(scope="module")
def token(home: Path, server: str) -> str:
    """A token for the recipe."""
    return licserver(home, "token", "create", "conform", "--scope", "write")


def test_the_seed_command_prints_what_the_page_shows(home: Path, server: str, token: str) -> None:
    """The recipe has all fields of the example, and those that are optional."""
    shown = json.loads(block("console", "./seed.sh key expired").partition("\n")[2])
    command = [sys.executable, "-m", "licconform.recipes.licserver", server, "key", "expired"]
    made = json.loads(run(command, home, None, LICCONFORM_TOKEN=token).stdout)
    assert shown.keys() <= made.keys() <= {field.name for field in fields(Seed)}
    refused = run([*command[:-1], "old-link"], home, None, LICCONFORM_TOKEN=token)
    assert (refused.returncode, "LICSERVER_DATA_DIR" in refused.stderr) == (77, True)


def test_a_server_that_was_filled_by_hand(server: str, token: str, tmp_path: Path) -> None:
    """As many keys as the page says are enough for the literal rules."""
    shown = json.loads(block("json", '"valid"'))
    recipe = Recipe(server, token)
    by_hand = [state for state in STATES if state not in ("valid", "old-link")]
    keys = {
        "valid": [recipe.key("valid") for _ in range(11)],
        **{state: [recipe.key(state)] for state in by_hand},
    }
    assert shown["valid"][0].keys() <= keys["valid"][0].keys()
    (tmp_path / "keys.json").write_text(json.dumps(keys), encoding="utf-8")
    script = block("sh", "licconform.recipes.prepared").replace("https://licenses.example.com", server)
    done = bash(script, tmp_path)
    (tmp_path / "keys.json").unlink()  # no test leaves keys behind
    assert done.returncode == 0, done.stdout + done.stderr
    reasons = re.findall(r"^skipped: .*\n    (.*)", done.stdout, re.MULTILINE)
    assert set(reasons) <= {
        "`revoke` is not possible by hand.",
        "`release` is not possible by hand.",
        "No prepared key is left for `key old-link`.",
    }, done.stdout
