"""Fail a run of which every test was skipped: it has shown nothing.

A pytest plugin. Otherwise `nox -s failover` would succeed on a machine that lacks its tools.
"""

from typing import Any

import pytest

RAN = ("passed", "failed", "error", "xfailed", "xpassed")


def _has_run_nothing(config: pytest.Config) -> bool:
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")  # workers have none
    return reporter is not None and "skipped" in reporter.stats and not reporter.stats.keys() & set(RAN)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End as a run that found no tests does."""
    if session.exitstatus == pytest.ExitCode.OK and _has_run_nothing(session.config):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print why the run fails."""
    if _has_run_nothing(config):
        terminalreporter.write_line("every test was skipped: this run fails, as it shows nothing", red=True)
