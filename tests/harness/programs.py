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


def run(
    command: list[str], home: Path, cwd: Path | None = None, *, stdin: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        command,
        env=environment(home, **environ),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def licserver(home: Path, *arguments: str, stdin: str = "", **environ: str) -> str:
    """Run a command of ``licserver``, which must succeed; return what it printed."""
    done = run([str(SCRIPTS / "licserver"), *arguments], home, None, stdin=stdin, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def serving_process(
    arguments: list[str], home: Path, cwd: Path | None = None, **environ: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``licserver`` for a block; yield the process, and what it printed up to its address."""
    process = subprocess.Popen(
        [str(SCRIPTS / "licserver"), *arguments],
        env=environment(home, **environ),
        cwd=cwd,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if re.match(r"listening on (http://\S+)", line):
                break
        else:
            raise AssertionError(f"it never listened: {printed}")
        yield process, printed.strip()
    finally:
        process.terminate()
        try:
            process.communicate(timeout=30)
        except BaseException:
            process.kill()  # a server that does not end must not outlive its test
            process.communicate()
            raise


@contextmanager
def serving(arguments: list[str], home: Path, cwd: Path | None = None) -> Iterator[tuple[str, str]]:
    """Run ``licserver`` for a block; it must exit with 0. Yield its address and what it printed."""
    with serving_process(arguments, home, cwd) as (process, printed):
        yield printed.rpartition(" ")[2], printed
    assert process.returncode == 0
