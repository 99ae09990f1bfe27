"""Run tests that failed beside other work once more, each alone: `--failed-alone`.

A pytest plugin. On a busy machine a bound of time may fail although the code is right. Such a test is named
at the end of the run, with the message of its first failure. A test that fails again, or is skipped, fails
the run.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

MOST: Final = 10
"""More failures than this are not caused by a busy machine: they are not repeated."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Repeat only on request: at work on a test, its failure is wanted at once."""
    explained = (
        f"run up to {MOST} failed tests once more, each alone; the run fails if one of them fails again"
    )
    parser.addoption("--failed-alone", action="store_true", help=explained)


def pytest_configure(config: pytest.Config) -> None:
    """Repeat in the controller of workers, which knows all failures."""
    if config.option.failed_alone:  # some tests start a pytest without this plugin
        options = os.environ.get("PYTEST_ADDOPTS", "").replace("--failed-alone", "")
        os.environ["PYTEST_ADDOPTS"] = options
    if config.option.failed_alone and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailedAlone(), "failed-alone")


class FailedAlone:
    """Collect the failures of a run, and repeat them at its very end."""

    def __init__(self) -> None:
        self._failures: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the first message of each failed test."""
        if report.failed:
            self._failures.setdefault(report.nodeid, _message(report))

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # after all others: workers and summary have ended
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Let the run succeed if its only fault are tests that pass alone."""
        yield
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not self._failures:
            return
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        if len(self._failures) > MOST:
            reporter.write_line(f"not repeated alone: {len(self._failures)} tests failed, more than {MOST}")
            return
        outcomes = {test: _run_alone(session.config, test, reporter) for test in self._failures}
        for test, passed in outcomes.items():
            reporter.write_line(f"  {self._failures[test]}")
            reporter.write_line(f"failed beside other work, {'passed' if passed else 'FAILED'} alone: {test}")
        leaks = session.config.pluginmanager.get_plugin("leak-search")
        if all(outcomes.values()) and not (leaks and leaks.found):
            session.exitstatus = pytest.ExitCode.OK


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).splitlines()
    return f"{report.when}: {lines[0] if lines else 'no message'}"


def _run_alone(config: pytest.Config, test: str, reporter: Any) -> bool:
    """Run one test in a new process; return whether it passed. A skipped test has not: see `nothing_ran`."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")
    }
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "", test]
    done = subprocess.run(
        command,
        cwd=config.rootpath,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != pytest.ExitCode.OK:
        reporter.write_line(done.stdout)
    return done.returncode == pytest.ExitCode.OK
