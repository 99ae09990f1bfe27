"""For all suites: which tests are selected, on how many processes, and the search for leaked keys."""

import gc
import os
import re
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from harness.sampling import mark_beyond_samples

# No test may touch the keyring of the user that runs it; one that is made for a test counts when it is set.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"

# No test of ours is about how long an example takes, and a busy machine stands still for longer than 200 ms.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

pytest_plugins = [
    "harness.cluster",
    "harness.engines",
    "harness.failed_alone",
    "harness.leaks",
    "harness.lost_errors",
    "harness.nothing_ran",
    "harness.pooler",
    "harness.redis_server",
    "harness.screen",
]
if find_spec("licclient"):  # each package is also tested without the other
    pytest_plugins += ["licclient.pytest_plugin", "harness.hands"]
if find_spec("licserver"):
    pytest_plugins += ["licserver.pytest_plugin"]
    pytest_plugins += [
        "harness.admin",
        "harness.bucket",
        "harness.clocks",
        "harness.commands",
        "harness.console",
        "harness.mailbox",
        "harness.sales",
    ]
if find_spec("licclient") and find_spec("licserver"):
    pytest_plugins += ["harness.shop_app"]
# Nothing of what is loaded goes away again: the collector would look at it hundreds of times, a second for
# each worker. It begins when all tests are known, and never on the controller of workers.
gc.disable()

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
WHOLLY_MARKED = re.compile(
    r"^pytestmark = (\[\s+)?pytest\.mark\.(browser|crash|slow|system_tools)\b", re.MULTILINE
)
"""In a file of which the default selection has no test."""


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C end the run, and each worker begin to collect in another folder.

    In a fresh clone all test files are compiled first: five seconds, in each worker.
    """
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % len(config.args)
        config.args = config.args[number:] + config.args[:number]
    # A run that a shell began in the background ignores Ctrl-C, and so would all programs that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Run files and single tests in this process: they start at once, and print. Folders run in parallel.

    One worker more than there are cores: a third of the time a test waits (3:07 with two on two cores, 2:17
    with three); marked tests take as long with four.
    """
    paths = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    if all(map(Path.is_file, paths)):
        return 0
    if number := os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return int(number)
    return _count_cores() + 1


def _count_cores() -> int:
    """Return how many cores this process may use; a container may have fewer than its machine."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over files all of whose tests are left out: each worker would load a browser's library and others.

    A file that is named is not passed over.
    """
    is_default = config.option.markexpr == config.getini("addopts")[-1]
    if not is_default or collection_path.suffix != ".py":
        return None
    return WHOLLY_MARKED.search(collection_path.read_text(encoding="utf-8")) is not None or None


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Mark tests by the fixtures they use; all workers must have them in the same order."""
    folders = config.getini("testpaths")
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        items.sort(key=lambda item: [not item.nodeid.startswith(folder) for folder in folders])
    for item in items:
        for name in MARKS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(MARKS[name])
    mark_beyond_samples(items)


def pytest_collection_finish() -> None:
    """Let the collector pass over what stays until the end, a twentieth of all processor time."""
    gc.collect()
    gc.freeze()
    gc.enable()
