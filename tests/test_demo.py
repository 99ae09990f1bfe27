"""What a newcomer does first: start the demo, and paste what it prints."""

import hashlib
import re
import shlex
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.programs import run, serving
from licclient import LicenseClient
from licclient.testing import MemoryStorage

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


def _commands(printed: str) -> dict[str, list[str]]:
    """The commands of the client that the demo prints, each under a comment that says what it is for."""
    found = re.findall(r"^# (\S.*)\n(\S*licclient .*)$", printed, re.MULTILINE)
    return {what.partition(" (")[0]: shlex.split(command) for what, command in found}


def test_the_printed_commands_work_as_pasted(tmp_path: Path) -> None:
    """A license, two refusals, an update, a download, and the cache when the demo has stopped."""
    home = tmp_path / "home"
    with serving(["demo", "--port", "0"], home, cwd=ROOT) as (_, printed):
        commands = _commands(printed)
        assert set(commands) == {
            "a valid license",
            "an expired one",
            "a revoked one",
            "is there an update for version 1.0.0?",
            "download it",
        }
        valid = run(commands["a valid license"], home, cwd=ROOT)
        assert (valid.returncode, "Demo Notes" in valid.stdout) == (0, True), valid
        expired = run(commands["an expired one"], home, cwd=ROOT)
        assert (expired.returncode, "License expired." in expired.stdout + expired.stderr) == (1, True), (
            expired
        )
        revoked = run(commands["a revoked one"], home, cwd=ROOT)
        assert (revoked.returncode, "revoked" in revoked.stdout + revoked.stderr) == (1, True), revoked
        update = run(commands["is there an update for version 1.0.0?"], home, cwd=ROOT)
        assert (update.returncode, "1.1.0" in update.stdout) == (0, True), update
        (call,) = re.findall(r"^client = .*$", printed, re.MULTILINE)
        app: dict[str, Any] = {"LicenseClient": partial(LicenseClient, storage=MemoryStorage())}
        exec(call, app)  # noqa: S102 - ours
        assert app["client"].activate(commands["a valid license"][-1]).product == "Demo Notes"
        assert app["client"].check_for_update().update.version == "1.1.0"
        download = commands["download it"]
        assert download[-2:] == ["--to", "."]
        got = run([*download[:-1], str(tmp_path / "downloads")], home, cwd=ROOT)
        assert got.returncode == 0, got
    for line in printed.partition("A store of your own")[2].splitlines()[2:-2]:
        done = run([*shlex.split(line), *(["--help"] if line.endswith("serve") else [])], home, cwd=ROOT)
        assert done.returncode == 0, done
    (file,) = (tmp_path / "downloads").iterdir()
    assert hashlib.sha256(file.read_bytes()).hexdigest() in got.stdout
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert archive.read("demo_notes.py") == b'print("Demo Notes 1.1.0")\n'
    offline = run(commands["a valid license"], home, cwd=ROOT)
    assert (offline.returncode, "cache" in offline.stdout) == (0, True), offline
