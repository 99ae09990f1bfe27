"""What is measured by hand still works: each tool in its smallest form, whatever its figures are."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.engines import Postgres

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (["beside", "quick"], "| licserver, SQLite | **median** |"),
        (["console", "5000", "sqlite"], "| `/console/products/{slug}/releases/{version}` |"),
        (["upgrade", "100", "sqlite"], "| SQLite | 0026 to 0027 |"),
        (["issue", "100", "sqlite"], "sqlite: 100 keys"),
        (["events", "quick", "--rate", "100"], "| licserver, SQLite | 1 |"),
        (["checkouts", ".", "--size", "100", "--rounds", "1", "--seconds", "0.2"], "update-url   throughput"),
        (["client"], "an answer from the cache"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_tool_measures_to_its_end(tool: list[str], expected: str) -> None:
    """With a handful of licenses: a page or a schema that it does not know would end it."""
    name, *arguments = tool
    command = [sys.executable, "-m", f"bench.{name}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    # On a machine that is busy with tests.
    slow = name == "client" or (name == "console" and "longer than 150 ms" in done.stderr)
    assert done.returncode == 0 or slow, done.stdout + done.stderr
    assert expected in done.stdout


def test_what_last_seen_costs_is_measured_to_its_end(own_postgres: Postgres) -> None:
    """It writes rows as the server does, column by column."""
    command = [sys.executable, "-m", "bench.seen", own_postgres.url(own_postgres.make()), "7000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "new activations: " in done.stdout
