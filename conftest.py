"""For all suites: remember what the run writes, so that its last test can search it for license keys."""

import signal
from importlib.util import find_spec

import pytest
from hypothesis import settings

# No test of ours is about how long an example takes, and a busy machine stands still for longer than 200 ms.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

pytest_plugins = ["harness.engines", "harness.redis_server", "harness.screen"]
if find_spec("licserver"):  # the client is also tested where there is none
    pytest_plugins += ["harness.admin", "harness.bucket", "harness.commands", "harness.console"]

WRITTEN = pytest.StashKey[list[tuple[str, str]]]()
LAST = "test_no_key_is_written_anywhere"


def pytest_configure(config: pytest.Config) -> None:
    """Begin with nothing remembered."""
    # A run that a shell began in the background ignores Ctrl-C, and so would all programs that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[WRITTEN] = []
    config.pluginmanager.register(_Recorder(config), "written-recorder")


@pytest.fixture
def written(request: pytest.FixtureRequest) -> list[tuple[str, str]]:
    """What the tests so far have written: where, and the text."""
    return request.config.stash[WRITTEN]


class _Recorder:
    """Keeps each test's captured output, log and failure text."""

    def __init__(self, config: pytest.Config) -> None:
        self._written = config.stash[WRITTEN]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what a phase of a test has written."""
        texts = [report.nodeid, *(text for _, text in report.sections), report.longreprtext]
        self._written.append((f"{report.nodeid} ({report.when})", "\n".join(texts)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Play the search last, when all others have written what they write."""
    items.sort(key=lambda item: item.name == LAST)
