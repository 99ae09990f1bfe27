"""How much memory a process has needed at most, as the kernel counts it (VmHWM)."""

import re
import sys
from pathlib import Path
from subprocess import Popen
from typing import Any, Final

import pytest

_TELLING: Final = """
import atexit, runpy, sys
atexit.register(lambda: print(open("/proc/self/status").read()))
sys.argv[0] = "licserver"
runpy.run_module("licserver", run_name="__main__", alter_sys=True)
"""

needs_proc: Final = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="there is no /proc to read memory from"
)


def peak_of(process: Popen[str]) -> int:
    """Return the peak of a running process, in bytes."""
    return _peak(Path(f"/proc/{process.pid}/status").read_text())


def run_and_peak(program: Any, *arguments: str, check: bool = True) -> tuple[str, int]:
    """Run a licserver command; return its output (standard error first if it may fail) and its peak."""
    usual, program.command = program.command, [sys.executable, "-c", _TELLING]
    try:
        done = program.run(*arguments, check=check)
        output = done.stdout if check else done.stderr + done.stdout
    finally:
        program.command = usual
    return output, _peak(output)


def _peak(status: str) -> int:
    found = re.search(r"VmHWM:\s+([0-9]+) kB", status)
    assert found is not None, status
    return int(found[1]) * 1024
