"""A server and a client in another language, written from the specification alone."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "independent"
NODE = shutil.which("node")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NODE is None, reason="Node is not installed (apt install nodejs)"),
]


def licconform(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program."""
    command = [sys.executable, "-m", "licconform", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture
def server() -> Iterator[str]:
    """The independent server; its address."""
    command = [str(NODE), str(FOLDER / "server.mjs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.match("listening on (http://.*)", process.stdout.readline())
            assert found is not None
            yield found[1]
        finally:
            process.terminate()


def test_the_server_conforms(server: str) -> None:
    """All literal rules hold, and the file of expected failures is exact."""
    seed = shlex.join([str(NODE), str(FOLDER / "seed.mjs"), server])
    xfails = str(FOLDER / "server.xfails")
    done = licconform("server", "--base-url", server, "--seed", seed, "--kind", "all", "--xfails", xfails)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"literal (\d+)/\1, reading", done.stdout)
    assert passed is not None, done.stdout


def test_the_client_conforms() -> None:
    """All literal rules hold, and the file of expected failures is exact."""
    options = ["--clock", "--kind", "all", "--xfails", str(FOLDER / "client.xfails")]
    done = licconform("client", *options, "--", str(NODE), str(FOLDER / "client.mjs"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"literal (\d+)/\1, reading", done.stdout), done.stdout
