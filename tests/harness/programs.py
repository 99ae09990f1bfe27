"""Our two programs as processes, the way that people start them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPTS = Path(sys.executable).parent


def environment(home: Path, **more: str) -> dict[str, str]:
    """A bare environment with an empty home folder."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
    return {**kept, "HOME": str(home), "PYTHONUNBUFFERED": "1", **more}


def run(command: list[str], home: Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        command, env=environment(home), cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


@contextmanager
def serving(arguments: list[str], home: Path, cwd: Path | None = None) -> Iterator[tuple[str, str]]:
    """Run ``licserver`` with arguments that serve, for a block.

    Yields:
        Its address, and everything that it printed before it listened.
    """
    process = subprocess.Popen(
        [str(SCRIPTS / "licserver"), *arguments],
        env=environment(home),
        cwd=cwd,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if found := re.match(r"listening on (http://\S+)", line):
                yield found[1], printed
                break
        else:
            raise AssertionError(f"it never listened: {printed}")
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0
