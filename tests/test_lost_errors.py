"""A test fails when an exception was only logged or printed."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SETTINGS = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
FILTERS = "\n".join(SETTINGS["tool"]["pytest"]["ini_options"]["filterwarnings"])
HEAD = "import asyncio, concurrent.futures, logging, sys, threading\n"
TESTS_OF = {
    "callback": (
        "async def main():\n    asyncio.get_running_loop().call_soon(lambda: 1 / 0)\n"
        "    await asyncio.sleep(0)\n\ndef test_it():\n    asyncio.run(main())\n"
    ),
    "task": (
        "async def fail():\n    1 / 0\n\nasync def main():\n    task = asyncio.create_task(fail())\n"
        "    await asyncio.sleep(0)\n\ndef test_it():\n    asyncio.run(main())\n"
    ),
    "executor": (
        "def test_it():\n    with concurrent.futures.ThreadPoolExecutor() as executor:\n"
        "        executor.submit(int).add_done_callback(lambda _: 1 / 0)\n"
    ),
    "request": "def test_it():\n    logging.getLogger('aiohttp.server').error('Error handling request')\n",
    "logging": (
        "class Broken:\n    def __str__(self):\n        return 1 / 0\n\ndef test_it():\n"
        "    logging.StreamHandler(sys.stdout).handle(logging.makeLogRecord({'msg': Broken()}))\n"
    ),
    "window": "def test_it():\n    sys.excepthook(ValueError, ValueError('from a handler of Qt'), None)\n",
    "hook": "def test_it():\n    threading.excepthook = print\n",
    "thread": (
        "def test_it():\n    thread = threading.Thread(target=lambda: 1 / 0)\n"
        "    thread.start()\n    thread.join()\n"
    ),
    "finalizer": ("class Late:\n    def __del__(self):\n        1 / 0\n\ndef test_it():\n    Late()\n"),
}
EXPECTED = (
    "def test_it(lost_errors):\n    logging.getLogger('asyncio').error('on purpose')\n"
    "    assert 'on purpose' in lost_errors.pop()\n"
)


def run(folder: Path, content: str) -> subprocess.CompletedProcess[str]:
    """Run one test, with the setting of `pyproject.toml` for warnings."""
    (folder / "test_it.py").write_text(HEAD + content, encoding="utf-8")
    options = ("-p", "harness.lost_errors", "-p", "no:cacheprovider", "-o", f"filterwarnings={FILTERS}")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, "test_it.py"],
        cwd=folder,
        env={"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", TESTS_OF)
def test_an_exception_that_nobody_receives_fails_its_test(name: str, tmp_path: Path) -> None:
    """Each kind, of ours and of pytest's own."""
    done = run(tmp_path, TESTS_OF[name])
    assert done.returncode == 1, done.stdout + done.stderr


def test_a_test_of_such_an_exception_names_it(tmp_path: Path) -> None:
    """What the fixture hands out does not fail the test."""
    done = run(tmp_path, EXPECTED)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_ends_the_run_itself_is_printed(tmp_path: Path) -> None:
    """After the last test nothing fails, and nothing would show why the run ended."""
    (tmp_path / "conftest.py").write_text("def pytest_sessionfinish():\n    raise OSError('a dead mount')\n")
    done = run(tmp_path, "def test_it():\n    pass\n")
    assert done.returncode == 1
    assert "OSError: a dead mount" in done.stderr, done.stdout + done.stderr


def test_an_old_folder_that_cannot_be_removed_is_no_failure(tmp_path: Path) -> None:
    """A program that a test has started, and that ends later, has a file or a mount in it."""
    warning = "pytest.PytestWarning('(rm_rf) error removing /tmp/x')"
    hook = f"import pytest, warnings\ndef pytest_sessionfinish():\n    warnings.warn({warning})\n"
    (tmp_path / "conftest.py").write_text(hook)
    done = run(tmp_path, "def test_it():\n    pass\n")
    assert done.returncode == 0, done.stdout + done.stderr
