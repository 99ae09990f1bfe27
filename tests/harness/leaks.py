"""Fail a run that has written a license key, a secret or a signed link: as output, in a log, or to a file.

A pytest plugin. With xdist the controller searches all output, and each worker its own files.
"""

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

PATTERNS = {
    "a license key": re.compile(rb"CP(?:-|%2[Dd])[A-Z0-9]{6}(?:(?:-|%2[Dd])[A-Z0-9]{6}){4}"),
    # 32 bytes in base64, as secrets are stored, and no digest (RFC 9530). The pattern begins at the end: one
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
ALLOWED = {
    SECRETS: {"a secret", "a private key"},
    ".before-restore": {"a secret", "a private key"},
    ".pem": {"a private key"},
    ".backup": {"a secret"},
}
"""File name or suffix → what the file is made for."""

FOUND = "leaks"
"""In what a worker hands to the controller."""

LARGEST = 64 << 20
"""Bytes. Larger files are release files full of zeros."""


class LeakSearch:
    """Search the reports of tests as they arrive, and all temporary files at the end of the session."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._searched: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Note what a worker has found in its folder; that of one that crashed is searched at the end."""
        if found := getattr(node, "workeroutput", {}).get(FOUND):
            folder, leaks = found
            self._searched.add(folder)
            self.found += leaks

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Search a test's captured output, log and failure text."""
        text = "\n".join([report.nodeid, *(text for _, text in report.sections), report.longreprtext])
        leaks = find_patterns(text.encode("utf-8", "surrogatepass"))
        self.found += [f"{leak} in {report.nodeid} ({report.when})" for leak in leaks]

    @pytest.hookimpl(trylast=True)  # all workers have ended
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Search the files, and fail the run if anything was found."""
        self.found += search_folder(_base(session), self._searched)
        if self.found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what was found."""
        if self.found:
            terminalreporter.section("license keys or secrets were written", sep="!", red=True, bold=True)
            terminalreporter.write_line("\n".join(self.found))


class WorkerSearch:
    """Search a worker's files, beside the other workers."""

    @pytest.hookimpl(trylast=True)  # all fixtures have ended
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Search, and tell the controller."""
        folder = _base(session)
        session.config.workeroutput[FOUND] = str(folder), search_folder(folder)  # type: ignore[attr-defined]


def _base(session: pytest.Session) -> Path:
    folder: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    return folder


def pytest_configure(config: pytest.Config) -> None:
    """Search in each process."""
    search = WorkerSearch() if hasattr(config, "workerinput") else LeakSearch()
    config.pluginmanager.register(search, "leak-search")


def find_patterns(content: bytes) -> list[str]:
    """Return the names of the patterns that occur in some bytes."""
    return [name for name, pattern in PATTERNS.items() if pattern.search(content)]


def search_folder(folder: Path, searched: Container[str] = ()) -> list[str]:
    """Search all files below a folder, and their names; returns what was found where.

    Args:
        folder: The folder.
        searched: Folders below it to pass over.
    """
    found = []
    for path, content in _contents(folder, searched):
        name = str(path).encode("utf-8", "surrogateescape")
        allowed = ALLOWED.get(path.name, set()) | ALLOWED.get(path.suffix, set())
        if path.match("activation-*.state"):  # `activate` without a keyring (D-57)
            with suppress(OSError):
                if os.name != "nt" and path.stat().st_mode & 0o077:
                    found.append(f"others may read {path}")
            allowed = {"a license key"} - set(find_patterns(name))
        leaks = {*find_patterns(name), *find_patterns(content)}
        found += [f"{leak} in the file {path}" for leak in sorted(leaks - allowed)]
        if path.name == SECRETS:
            found += [f"secrets in {copy}" for copy in _copies(path, content)]
    return found


def _contents(folder: Path, searched: Container[str] = ()) -> Iterator[tuple[Path, bytes]]:
    """Yield what can be read: a process of a test may delete files meanwhile, and leave a dead mount."""
    for parent, folders, names in os.walk(folder):  # passes over folders that are gone
        folders[:] = [name for name in folders if str(Path(parent, name)) not in searched]
        for path in (Path(parent, name) for name in names):
            if (content := _content(path)) is not None:
                yield path, content


def _content(path: Path) -> bytes | None:
    with suppress(OSError):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST:
            return path.read_bytes()
    return None


def _copies(secrets: Path, content: bytes) -> Iterator[Path]:
    """Yield the files beside a secrets file that hold one of its secrets: raw, in hexadecimal or base64."""
    forms = [
        form
        for raw in _raw_secrets(content)
        for form in (raw, raw.hex().encode(), b64encode(raw), b64encode(raw).rstrip(b"="))
    ]
    for path, other in _contents(secrets.parent):
        if path.name != SECRETS and any(form in other for form in forms):
            yield path


def _raw_secrets(content: bytes) -> list[bytes]:
    try:
        texts = _strings(json.loads(content))
    except ValueError:  # broken by a test
        return []
    return [b64decode(text) for text in texts if PATTERNS["a secret"].fullmatch(text.encode())]


def _strings(value: Any) -> list[str]:
    match value:
        case dict():
            return [text for part in value.values() for text in _strings(part)]
        case list():
            return [text for part in value for text in _strings(part)]
        case str():
            return [value]
        case _:
            return []
