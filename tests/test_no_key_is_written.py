"""A license key is a credential: the last test of a run searches everything that the run has written."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from licserver.rules import draw_key

KEY = re.compile(rb"CP-[A-Z0-9]{6}(?:(?:-|%2[Dd])[A-Z0-9]{6}){4}")
LARGEST = 64 << 20


def test_the_search_would_find_a_key() -> None:
    """The pattern knows every key that can be drawn, also inside a URL."""
    key = draw_key().encode()
    assert KEY.search(b"GET /api/v1/update-check?license_key=" + key + b"&slug=x")
    assert KEY.search(key.replace(b"-", b"%2D").replace(b"CP%2D", b"CP-"))


def test_no_key_is_written_anywhere(
    written: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No output, log, failure text, file or file name of the whole run holds a license key."""
    found = [where for where, text in written if KEY.search(text.encode("utf-8", "surrogatepass"))]
    found += [
        f"the file {path}" for path, content in _files(tmp_path_factory.getbasetemp()) if KEY.search(content)
    ]
    assert found == []


def _files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below a folder, its name first; release files of gigabytes are zeros of our own making.

    Without the one kind that is there to hold a key: what `LicenseClient.activate` remembers where there is
    no keyring (D-57). Its name is searched like others, and nobody but the user may read it.
    """
    for path in folder.rglob("*"):
        if path.name.startswith("activation-") and path.name.endswith(".state"):
            assert os.name == "nt" or path.stat().st_mode & 0o077 == 0
            yield path, str(path).encode("utf-8", "surrogateescape")
        elif path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST:
            yield path, str(path).encode("utf-8", "surrogateescape") + b"\n" + path.read_bytes()
