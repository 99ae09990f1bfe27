"""For all suites: which tests are selected, on how many processes, and the search for leaked keys."""

import gc
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

# No test of ours is about how long an example takes, and a busy machine stands still for longer than 200 ms.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

pytest_plugins = [
    "harness.cluster",
    "harness.engines",
    "harness.leaks",
    "harness.pooler",
    "harness.redis_server",
    "harness.screen",
]
if find_spec("licclient"):  # each package is also tested without the other
    pytest_plugins += ["licclient._pytest_plugin", "harness.hands"]
if find_spec("licserver"):
    pytest_plugins += ["licserver.pytest_plugin"]
    pytest_plugins += [
        "harness.admin",
        "harness.bucket",
        "harness.commands",
        "harness.console",
        "harness.sales",
    ]

# Hundreds of processes are started, and each would compile all modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

MARKS = {
    "postgres": "postgresql",
    "own_postgres": "postgresql",
    "empty_database": "postgresql",
    "primary_and_standby": "postgresql",
    "screen": "window",
    "hands": "window",
}
"""Fixture → the mark of each test that uses it."""


def pytest_configure() -> None:
    """Let Ctrl-C end the run."""
    # A run that a shell began in the background ignores Ctrl-C, and so would all programs that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Run files and single tests in this process: they start at once, and print. Folders run in parallel.

    One worker more than there are cores: a third of the time a test waits (3:07 with two on two cores, 2:17
    with three).
    """
    paths = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    return 0 if all(map(Path.is_file, paths)) else (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures they use."""
    for item in items:
        for name in MARKS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(MARKS[name])


def pytest_collection_finish() -> None:
    """Let the collector pass over what stays until the end, a twentieth of all processor time."""
    gc.collect()
    gc.freeze()
