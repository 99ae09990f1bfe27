"""A run that writes a key or a secret fails: the search at the end of each run (`harness.leaks`) works."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from secrets import token_urlsafe

import pytest

from harness.leaks import PATTERNS, find_patterns, search_folder
from harness.world import utc
from licserver.domain.decisions import generate_license_key
from licserver.protocol.downloads import LinkSecret, LinkSubject, sign_link
from licserver.security.redaction import TOKEN_PREFIX
from licserver.security.secrets_file import new_secrets


def test_the_search_finds_what_it_looks_for() -> None:
    """The patterns match every generated key, every secret, every link, also inside a URL."""
    key = generate_license_key().encode()
    secrets = json.dumps(new_secrets()).encode()
    subject, secret = LinkSubject(b"x" * 16, 1), LinkSecret("a", b"x" * 32)
    link = sign_link("https://x/api/v1/update-download", subject, secret, utc(2026, 1, 1))
    assert find_patterns(b"GET /api/v1/update-check?license_key=" + key + b"&slug=x") == ["a license key"]
    assert find_patterns(key.replace(b"-", b"%2D")) == ["a license key"]
    assert len(PATTERNS["a secret"].findall(secrets)) == 3
    assert find_patterns(f'{{"download_url": "{link}"}}'.encode()) == ["a signed link"]
    assert find_patterns(f"Bearer {TOKEN_PREFIX}{token_urlsafe(32)}".encode()) == ["a token"]
    assert find_patterns(b"-----BEGIN PRIVATE KEY-----\nMC4CAQAw") == ["a private key"]
    assert find_patterns(b"Repr-Digest: sha-256=:" + b64encode(b"x" * 32) + b":") == []


def test_a_file_that_cannot_be_read_does_not_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of a test has gone, and left its mount; or deletes what is being searched."""
    read = Path.read_bytes
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(f"CP{'-ABC123' * 5}")

    def read_some(path: Path) -> bytes:
        if path.name == "b":
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_some)
    found = sorted(search_folder(tmp_path))
    for path in tmp_path.iterdir():
        path.unlink()  # or this run would have written a key
    assert found == [f"a license key in the file {tmp_path / name}" for name in ("a", "c")]


LEAKING = """
KEY = "-".join(["CP", *["ABC123"] * 5])
def test_output(): print(KEY)
def test_file(tmp_path): (tmp_path / "log").write_text(KEY)
"""


def run_pytest(test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a test file with the search, in a folder of its own: this run's is searched as well."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_it.py").write_text(test, encoding="utf-8")
        plugins = [
            "--disable-plugin-autoload",
            "-p",
            "xdist",
            "-p",
            "harness.leaks",
            "-p",
            "no:cacheprovider",
        ]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *plugins, *options, "--rootdir=.", "--basetemp=temporary"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_writes_a_key_fails(workers: int) -> None:
    """Every test passes, and the run fails all the same: on whichever worker; each find is reported once."""
    done = run_pytest(LEAKING, "-n", str(workers))
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
    assert done.stdout.count("a license key in test_it.py::test_output (call)") == 1
    assert done.stdout.count("a license key in the file ") == 1


def test_a_run_that_writes_none_passes() -> None:
    """In one process, as files and single tests run."""
    assert run_pytest("def test_it(): pass").returncode == 0


@pytest.mark.slow
def test_the_files_of_a_worker_that_crashes_are_searched() -> None:
    """It has searched nothing itself."""
    crash = LEAKING + "def test_crash(): import os; os._exit(1)"
    assert "a license key in the file " in run_pytest(crash, "-n", "1", "--max-worker-restart=0").stdout
