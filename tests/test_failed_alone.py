"""A test that failed beside other work is run once more alone, and named."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CONFTEST = 'pytest_plugins = ["harness.failed_alone", "harness.leaks", "harness.nothing_ran"]\n'
HEAD = "import os, pytest\nBUSY = 'BUSY' in os.environ.get('PYTEST_ADDOPTS', '')\n"
TESTS_OF = {
    "busy": "def test_busy():\n    assert not BUSY, 'too late'\n",
    "wrong": "def test_wrong():\n    assert 1 == 2, 'never'\n",
    "skipped": "def test_skipped():\n    BUSY or pytest.skip('gone')\n    raise OSError('lost')\n",
    "setup": "@pytest.fixture\ndef port():\n    assert not BUSY, 'none'\n\ndef test_setup(port):\n    pass\n",
    "passed": "def test_passed():\n    assert 'failed-alone' not in os.environ.get('PYTEST_ADDOPTS', '')\n",
    "leaking": "def test_leaking():\n    print('lsv_' + chr(97) * 43)\n    assert not BUSY\n",
    "many": "@pytest.mark.parametrize('n', range(11))\ndef test_many(n):\n    assert not BUSY\n",
}


def run(folder: Path, *names: str, workers: str = "0") -> tuple[int, str]:
    """Run some of the tests, busy as long as the first run lasts."""
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "test_it.py").write_text(HEAD + "".join(TESTS_OF[name] for name in names), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", workers],
        cwd=folder,
        env={
            "PYTHONPATH": str(TESTS),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "xdist.plugin,xdist.looponfail",
            "PYTEST_ADDOPTS": "--failed-alone -o console_output_style=classic --log-date-format=BUSY",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_passes_alone_is_named_with_its_first_failure(workers: str, tmp_path: Path) -> None:
    """Also where a fixture failed; the run succeeds."""
    status, output = run(tmp_path, "busy", "setup", "passed", workers=workers)
    assert status == 0, output
    lines = output.splitlines()[-4:]
    assert sorted(lines[1::2]) == [
        "failed beside other work, passed alone: test_it.py::test_busy",
        "failed beside other work, passed alone: test_it.py::test_setup",
    ]
    assert any("call: AssertionError: too late" in line for line in lines)
    assert any("setup: AssertionError: none" in line for line in lines)
    assert "def test_busy" in output, "the whole failure stands above"


@pytest.mark.slow
def test_what_fails_twice_fails_the_run(tmp_path: Path) -> None:
    """Both are named."""
    status, output = run(tmp_path, "busy", "wrong")
    assert status == 1
    assert "failed beside other work, passed alone: test_it.py::test_busy" in output
    assert "failed beside other work, FAILED alone: test_it.py::test_wrong" in output
    assert output.count("AssertionError: never") > 2, "both failures are shown"


@pytest.mark.slow
def test_what_is_skipped_alone_has_not_passed(tmp_path: Path) -> None:
    """A run of which all was skipped shows nothing."""
    status, output = run(tmp_path, "skipped", "passed")
    assert status == 1
    assert "failed beside other work, FAILED alone: test_it.py::test_skipped" in output


@pytest.mark.slow
def test_a_leak_fails_the_run_all_the_same(tmp_path: Path) -> None:
    """The test that wrote it may pass alone."""
    status, output = run(tmp_path, "leaking")
    assert status == 1
    assert "license keys or secrets were written" in output


@pytest.mark.slow
def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    """A fault, and no matter of time."""
    status, output = run(tmp_path, "many")
    assert status == 1
    assert "not repeated alone: 11 tests failed, more than 10" in output
    assert "failed beside other work" not in output


@pytest.mark.slow
def test_without_a_failure_nothing_is_said(tmp_path: Path) -> None:
    """And nothing is run twice."""
    status, output = run(tmp_path, "passed")
    assert status == 0
    assert "alone" not in output
