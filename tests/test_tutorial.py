"""The tutorial, line by line, as a newcomer pastes it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.commands import Program

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"^```(?P<kind>\S+)(?: python\n:caption: (?P<file>\S+)\n)?\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL
)


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """Each command runs, and prints what the page shows; the last ones leave nothing behind."""
    home = {
        "XDG_STATE_HOME": str(tmp_path / ".local/state"),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
    }
    program, key, printed = Program(tmp_path / ".local/share/licserver"), "", ""
    removals: list[str] = []
    with program.serve() as (_, address):
        for block in BLOCK.finditer(PAGE):
            text = block["text"].replace("http://127.0.0.1:8080", address).replace("KEY", key or "KEY")
            if block["file"]:
                (tmp_path / block["file"]).write_text(text)
            elif block["kind"] == "text":
                assert printed.endswith(text)
            elif text.startswith("rm "):
                removals += text.replace("~", str(tmp_path)).splitlines()
            else:
                for line in text.splitlines():
                    printed += _run(program, line, tmp_path, home)
                if "license issue" in text:
                    key = printed.split()[-1]
    assert key.startswith("CP-")
    assert removals
    assert (tmp_path / "downloads").exists()
    for line in removals:
        _run(program, line, tmp_path, home)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


def _run(program: Program, line: str, folder: Path, home: dict[str, str]) -> str:
    """Run a line of a block; what installs or serves was done by the test."""
    if line.startswith(("pip install", "licserver serve")):
        return ""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**program.environ, **home, "PATH": tools}
    done = subprocess.run(
        shlex.split(line), capture_output=True, text=True, check=False, timeout=60, cwd=folder, env=environ
    )
    assert done.returncode == 0, (line.split()[:2], done.stderr)
    return done.stdout
