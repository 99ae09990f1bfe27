"""Keys and secrets are credentials: the last test of a run searches everything that the run has written."""

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import pytest

from harness.world import utc
from licserver.masking import TOKEN_PREFIX
from licserver.rules import draw_key
from licserver.secrets_file import new_secrets
from licserver.signing import LinkSecret, LinkSubject, sign_link

SHAPES = {
    "a license key": re.compile(rb"CP(?:-|%2[Dd])[A-Z0-9]{6}(?:(?:-|%2[Dd])[A-Z0-9]{6}){4}"),
    # 32 bytes in base64, as secrets are kept; a digest says what it is (RFC 9530). Looked for by its end: one
    # rare byte is found forty times as fast as forty-three of sixty-four.
    "a secret": re.compile(
        rb"=(?![A-Za-z0-9+/=])(?<=[A-Za-z0-9+/]{43}=)"
        rb"(?<![A-Za-z0-9+/=_-][A-Za-z0-9+/]{43}=)(?<!sha-256=:[A-Za-z0-9+/]{43}=)"
    ),
    "a signed link": re.compile(rb"update-download\?[^\s\"']*signature=[A-Za-z0-9_-]{43}"),
    "a token": re.compile(rb"lsv_[A-Za-z0-9_-]{43}"),
    "a private key": re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
}
SECRETS = "secrets.json"
OWN = {
    SECRETS: {"a secret", "a private key"},
    ".before-restore": {"a secret", "a private key"},
    ".pem": {"a private key"},
    ".backup": {"a secret"},
}
"""What belongs into a file of this name, or of this ending."""

LARGEST = 64 << 20


def test_the_search_would_find_what_it_looks_for() -> None:
    """The patterns know every key that can be drawn, every secret, every link, also inside a URL."""
    key = draw_key().encode()
    held = json.dumps(new_secrets()).encode()
    subject, secret = LinkSubject(b"x" * 16, 1), LinkSecret("a", b"x" * 32)
    link = sign_link("https://x/api/v1/update-download", subject, secret, utc(2026, 1, 1))
    assert shapes_in(b"GET /api/v1/update-check?license_key=" + key + b"&slug=x") == ["a license key"]
    assert shapes_in(key.replace(b"-", b"%2D")) == ["a license key"]
    assert len(SHAPES["a secret"].findall(held)) == 3
    assert shapes_in(f'{{"download_url": "{link}"}}'.encode()) == ["a signed link"]
    assert shapes_in(f"Bearer {TOKEN_PREFIX}{token_urlsafe(32)}".encode()) == ["a token"]
    assert shapes_in(b"-----BEGIN PRIVATE KEY-----\nMC4CAQAw") == ["a private key"]
    assert shapes_in(b"Repr-Digest: sha-256=:" + b64encode(b"x" * 32) + b":") == []


def test_no_key_is_written_anywhere(
    written: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No output, log, failure text, file or file name of the whole run holds a key, a secret or a link."""
    found = [
        f"{shape} in {where}"
        for where, text in written
        for shape in shapes_in(text.encode("utf-8", "surrogatepass"))
    ]
    folder = tmp_path_factory.getbasetemp()
    for path in _files(folder):
        content = str(path).encode("utf-8", "surrogateescape") + b"\n" + path.read_bytes()
        allowed = OWN.get(path.name, set()) | OWN.get(path.suffix, set())
        if path.match("activation-*.state"):  # what `activate` remembers where there is no keyring (D-57)
            assert os.name == "nt" or path.stat().st_mode & 0o077 == 0
            assert shapes_in(str(path).encode("utf-8", "surrogateescape")) == []
            allowed = {"a license key"}
        found += [f"{shape} in the file {path}" for shape in shapes_in(content) if shape not in allowed]
    kept = [path for path in folder.rglob(SECRETS) if path.is_file()]
    found += [f"secrets in {path}" for secrets in kept for path in _spilled(secrets)]
    assert found == []


def shapes_in(content: bytes) -> list[str]:
    """What of the forbidden stands in some bytes."""
    return [shape for shape, pattern in SHAPES.items() if pattern.search(content)]


def _files(folder: Path) -> Iterator[Path]:
    """Every file below a folder; release files of gigabytes are zeros of our own making."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST:
            yield path


def _spilled(secrets: Path) -> Iterator[Path]:
    """The files beside some secrets in which one of them stands: as it is, in hexadecimal or in base64."""
    forms = [
        form
        for raw in _raw_secrets(secrets)
        for form in (raw, raw.hex().encode(), b64encode(raw), b64encode(raw).rstrip(b"="))
    ]
    for path in _files(secrets.parent):
        content = b"" if path.name == SECRETS else path.read_bytes()
        if any(form in content for form in forms):
            yield path


def _raw_secrets(secrets: Path) -> list[bytes]:
    try:
        held = json.loads(secrets.read_text(encoding="utf-8"))
    except ValueError:  # one that a test has broken
        return []
    return [b64decode(text) for text in _texts(held) if SHAPES["a secret"].fullmatch(text.encode())]


def _texts(value: Any) -> list[str]:
    match value:
        case dict():
            return [text for part in value.values() for text in _texts(part)]
        case list():
            return [text for part in value for text in _texts(part)]
        case str():
            return [value]
        case _:
            return []
