"""A run that writes a key or a secret fails: the search at the end of each run (`harness.leaks`) works."""

import json
import os
import subprocess
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from secrets import token_urlsafe

import pytest

from harness.leaks import PATTERNS, find_patterns
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


@pytest.mark.parametrize(
    ("statement", "workers", "found"),
    [
        ("print(KEY)", 2, "a license key in test_it.py::test_it (call)"),
        ("(tmp_path / 'log').write_text(KEY)", 2, "a license key in the file "),
        ("pass", 0, None),
    ],
)
def test_a_run_that_writes_a_key_fails(statement: str, workers: int, found: str | None) -> None:
    """Every test passes, and the run fails all the same: on whichever worker."""
    with tempfile.TemporaryDirectory() as name:  # not in this run's own folder, which is searched as well
        folder = Path(name)
        lines = ["KEY = '-'.join(['CP', *['ABC123'] * 5])", "def test_it(tmp_path):", f"    {statement}"]
        (folder / "test_it.py").write_text("\n".join(lines), encoding="utf-8")
        plugins = ["--disable-plugin-autoload", "-p", "xdist", "-p", "harness.leaks"]
        command = [sys.executable, "-m", "pytest", *plugins, "-n", str(workers)]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", "--rootdir=.", "--basetemp=temporary"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == (0 if found is None else 1)
    assert found is None or found in done.stdout
