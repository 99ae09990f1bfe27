"""Run the tests on a machine that stands still now and then, as a busy host lets its guests: `nox -s stalls`.

Every few seconds all processes of the run are stopped for up to a second, wherever they are. A test that
turns red by it waits for a time where it should wait for what must have happened.
"""

import random
import signal
import subprocess
import sys
import time
from typing import Final

import psutil

BETWEEN_SECONDS: Final = (2.0, 7.0)
STANDS_SECONDS: Final = (0.3, 0.8)


def running(root: psutil.Process) -> list[psutil.Process]:
    """Give a process and all below it; without those that a test has stopped itself, and goes on with."""
    found = []
    for widget in (root, *root.children(recursive=True)):
        try:
            if widget.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                found.append(widget)
        except psutil.NoSuchProcess:
            continue
    return found


def send(processes: list[psutil.Process], number: signal.Signals) -> None:
    """Signal those that are still there."""
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def main(arguments: list[str]) -> int:
    """Run pytest with the arguments given; returns its exit code."""
    stalls = 0
    with subprocess.Popen([sys.executable, "-m", "pytest", *arguments]) as tests:
        root = psutil.Process(tests.pid)
        while tests.poll() is None:
            time.sleep(random.uniform(*BETWEEN_SECONDS))
            stopped = running(root) if tests.poll() is None else []
            try:
                send(stopped, signal.SIGSTOP)
                time.sleep(random.uniform(*STANDS_SECONDS))
            finally:
                send(stopped, signal.SIGCONT)
            stalls += 1
        sys.stdout.write(f"stood still {stalls} times\n")
        return tests.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
