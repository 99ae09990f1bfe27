"""Faults of an installation on several hosts, under load.

`nox -s failover` causes all of them, longer, and writes the table in `docs/scale.md`; a test run causes some.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from failover import faults, table
from failover.installation import Installation

pytestmark = [pytest.mark.system_tools, pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(900)]
IS_FULL = "LICENSING_FAILOVER" in os.environ
SECONDS = float(os.environ.get("LICENSING_FAILOVER", "2"))  # how long a fault lasts
RATE = 60.0 if IS_FULL else 30.0  # calls a second; a test run has other tests beside it


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """One installation for all faults."""
    with ExitStack() as stack:
        yield Installation(stack, tmp_path, RATE)


# aiohttp leaves the socket of a cancelled attempt to connect to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_fault_makes_an_answer_wrong_loses_a_slot_or_gives_one_too_many(
    installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    """Calls may fail while a fault lasts, where its function allows it; none is answered wrongly."""
    problems = []
    for fault in faults.ALL if IS_FULL else faults.SHORT:
        try:
            fault(installation, SECONDS)
        except Exception as problem:  # noqa: BLE001 - the other faults are caused all the same
            problems.append(f"{fault.__name__}: {problem!r}")
    written = table.make(installation.results)
    if file := os.environ.get("LICENSING_FAILOVER_TABLE"):
        Path(file).write_text(written)
    with capsys.disabled():
        print(f"\n{written}")  # noqa: T201 - the figures are the result
    assert problems == [], written
