"""The server's command line: in this process, and as a process of its own."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from harness.engines import create_sqlite
from licserver.cli import main
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.services.installation import open_services
from licserver.settings import Settings


class Cli:
    """The command line in this process, on an empty data folder."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = folder
        self.errors = ""  # what the last command printed on standard error
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.setenv("LICSERVER_DATA_DIR", str(folder))
        # What steps back for a server does so for good, and here it would be the whole run that does.
        monkeypatch.setattr("os.nice", lambda step: step, raising=False)
        monkeypatch.setattr("os.sched_setscheduler", lambda *_: None, raising=False)
        # `serve` and `demo` replace the root logger's handlers and level, for all later tests as well.
        for command in ("serve", "demo"):
            monkeypatch.setattr(f"licserver.cli.{command}.set_up_logging", lambda *_: None)

    def use(self, url: str | None) -> None:
        """Name another database than the file in the folder."""
        if url is not None:
            self._monkeypatch.setenv("LICSERVER_DATABASE_URL", url)

    def __call__(self, *arguments: str, stdin: str = "", expect: int = 0) -> str:
        """Run a command; gives what it printed, or what it complained of when it is to fail."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = self._capsys.readouterr()
        self.errors = err
        assert ended.value.code == expect, out + err
        return str(out if expect == 0 else err)


@pytest.fixture
def bare_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line with nothing set up."""
    return Cli(tmp_path / "vendor", monkeypatch, capsys)


@pytest.fixture
def cli(bare_cli: Cli, make_database_url: Callable[[], str | None]) -> Cli:
    """The command line on either engine, with a database in which nothing is."""
    url = make_database_url()
    bare_cli.use(url)
    if url is None:
        create_sqlite(bare_cli.folder)
    return bare_cli


def list_processes(server: subprocess.Popen[str]) -> tuple[set[int], set[int]]:
    """Return the processes that a server has started: its workers, and the one that does its jobs."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    found: tuple[set[int], set[int]] = set(), set()
    for pid in map(int, children.read_text(encoding="ascii").split() if children.exists() else ()):
        with suppress(FileNotFoundError, ProcessLookupError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if command:  # else it has ended
                found[b"licserver.jobs.process" in command].add(pid)
    return found


def kill_all(server: subprocess.Popen[str]) -> None:
    """Kill a server together with the process that does its jobs, as a machine does that loses its power."""
    for pid in {server.pid}.union(*list_processes(server)):
        os.kill(pid, signal.SIGKILL)


class Program:
    """The installed command line as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {**os.environ, "LICSERVER_DATA_DIR": str(folder), "PYTHONUNBUFFERED": "1"}
        # gunicorn leaves a socket to the collector
        self.command = [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-m", "licserver"]

    def run(self, *arguments: str, check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        more.setdefault("env", self.environ)
        done = subprocess.run(
            [*self.command, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,  # some commands stand aside for whatever else is running
            encoding="utf-8",
            **more,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def stock(
        self, *, count: int = 1, file: Path | None = None, policy: str = "strict", **terms: Any
    ) -> list[str]:
        """Create the product `app`, publish a file as 1.0 and issue keys, without starting a process.

        Args:
            count: How many keys.
            file: What to publish; None for no release.
            policy: The product's environment policy.
            terms: Of the keys, as `LicenseTerms` takes them.
        """
        url = self.environ.get("LICSERVER_DATABASE_URL")
        settings = Settings(data_dir=self.folder, database_url=SecretStr(url) if url else None)
        if settings.database_url is None:
            create_sqlite(self.folder)
        with closing(open_services(settings)) as services:
            services.products.add("app", "App", EnvironmentPolicy(policy))
            if file is not None:
                services.releases.publish("app", "1.0", file)
            return [
                key
                for batch in services.licenses.issue_batches("app", LicenseTerms(**terms), count)
                for key in batch
            ]

    @contextmanager
    def start(self, *arguments: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
        """Start a command; it is ended, if need be, with the test."""
        more.setdefault("env", self.environ)
        process = subprocess.Popen(
            [*self.command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=60)  # a child of it that hangs would hold the pipes for ever

    @contextmanager
    def serve(self, *arguments: str, **more: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Start `licserver serve` on a free port; gives the process and its address once it answers."""
        with self.start("serve", "--port", "0", *arguments, **more) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on http://"), (line, process.stderr and process.stderr.read())
            yield process, line.removeprefix("listening on ").strip()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The command line on an empty data folder."""
    return Program(tmp_path / "vendor")
