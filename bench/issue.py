"""How fast the command line issues keys: `python -m bench.issue [COUNT] [ENGINE]…`."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench import databases

WANTED: Final = 20_000
"""Keys a second."""


def measure(folder: Path, environ: dict[str, str], count: int) -> float:
    """Issue keys into an empty shop; keys a second, from the interpreter's start to its end."""
    program = [sys.executable, "-m", "licserver"]
    environ = {**os.environ, **environ, "LICSERVER_DATA_DIR": str(folder)}
    if "LICSERVER_DATABASE_URL" in environ:
        subprocess.run([*program, "db", "upgrade"], env=environ, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(
        [*program, "product", "add", "p", "--name", "P"], env=environ, check=True, stdout=subprocess.DEVNULL
    )
    keys = folder / "keys.txt"
    with keys.open("wb") as file:
        began = time.perf_counter()
        command = [*program, "license", "issue", "p", "--count", str(count)]
        subprocess.run(command, env=environ, check=True, stdout=file)
        took = time.perf_counter() - began
    with keys.open("rb") as file:
        assert len(set(file)) == count
    return count / took


def main() -> None:
    """Measure, and print a line for each engine."""
    parser = argparse.ArgumentParser(prog="bench.issue", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=1_000_000)
    parser.add_argument("engines", nargs="*", default=["sqlite", "postgresql"])
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-issue-")))
        for engine, environ in _places(options.engines, stack):
            (place := folder / engine).mkdir()
            speed = measure(place, environ, options.count)
            short = "" if speed >= WANTED else f", wanted are {WANTED:,}"
            print(f"{engine}: {options.count:,} keys, {speed:,.0f} a second{short}", flush=True)


def _places(engines: list[str], stack: ExitStack) -> Iterator[tuple[str, dict[str, str]]]:
    for engine in engines:
        if engine == "sqlite":
            yield engine, {}
            continue
        server = stack.enter_context(databases.postgresql(None))
        yield engine, {"LICSERVER_DATABASE_URL": server.empty("issue")}


if __name__ == "__main__":
    main()
