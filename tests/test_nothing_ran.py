"""A run that has tested nothing does not succeed."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SKIPPED = "def test_tool():\n    import pytest\n    pytest.skip('there is no haproxy here')\n"
PASSED = "def test_other():\n    pass\n"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(("content", "status"), [(SKIPPED, 5), (SKIPPED + PASSED, 0), (PASSED, 0)])
def test_a_run_of_skipped_tests_fails(content: str, status: int, workers: str, tmp_path: Path) -> None:
    """With the reason of each at its end; one test that ran is enough."""
    (tmp_path / "test_it.py").write_text(content, encoding="utf-8")
    plugins = ("-p", "xdist", "-p", "harness.nothing_ran", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-ra", "-n", workers, *plugins, "test_it.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert ("every test was skipped" in done.stdout) == (status == 5)
    assert ("there is no haproxy here" in done.stdout) == (content != PASSED)
