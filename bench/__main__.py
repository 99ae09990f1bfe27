"""Run the benchmark: ``uv run nox -s bench``, or ``python -m bench --help``."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import databases, report, servers
from bench.databases import Stocked
from bench.rounds import LOADS, Result, measure
from bench.servers import Target

Stocking = Callable[[int], Stocked]


def main() -> None:
    """Measure what the arguments ask for, and write the table and the plot."""
    options = _options()
    results: list[tuple[int, Result]] = []
    with ExitStack() as stack:
        folder = Path(options.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        making: list[Stocking] = []
        if "sqlite" in options.databases:
            making.append(partial(databases.sqlite, folder))
        if "postgresql" in options.databases:
            kept = Path(options.folder) / "postgresql" if options.folder else None
            postgres = stack.enter_context(databases.postgresql(kept))
            making.append(partial(postgres.stocked, folder))
        floor = stack.enter_context(servers.floor())
        for size in options.sizes:
            results += [(size, result) for result in _measure_size(options, floor, size, making)]
    page = report.markdown(results, rounds=options.rounds, seconds=options.seconds)
    print(page)
    if options.write:
        out = Path(options.write)
        (out / "performance-table.md").write_text(page, encoding="utf-8")
        (out / "performance.svg").write_text(report.plot(results), encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="licserver beside a bare aiohttp handler.")
    parser.add_argument("mode", nargs="?", choices=["full", "quick"], default="full")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="licenses in the database")
    parser.add_argument("--rounds", type=int, help="at least five for figures that are to be believed")
    parser.add_argument("--seconds", type=float, help="how long a round counts")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument(
        "--databases", nargs="+", choices=["sqlite", "postgresql"], default=["sqlite", "postgresql"]
    )
    parser.add_argument("--workers", type=int, default=1, help="processes of licserver")
    parser.add_argument(
        "--loads", nargs="+", metavar="LOAD", help="known, known-close, signed, update, update-url, mix, new"
    )
    parser.add_argument(
        "--beside", nargs="+", default=[], metavar="NAME=URL", help="other servers on loopback"
    )
    parser.add_argument("--keys", type=Path, help="keys that those know, one a line")
    parser.add_argument("--folder", help="where the databases are kept between runs")
    parser.add_argument("--write", help="folder for performance-table.md and performance.svg")
    options = parser.parse_args()
    quick = options.mode == "quick"
    options.sizes = options.sizes or ([10_000] if quick else [1_000, 100_000, 1_000_000])
    options.rounds = options.rounds or (3 if quick else 5)
    options.seconds = options.seconds or (1.0 if quick else 4.0)
    return options


def _measure_size(
    options: argparse.Namespace, floor: Target, size: int, databases: list[Stocking]
) -> Iterator[Result]:
    with ExitStack() as stack:
        known: dict[str, list[str]] = {}
        others: list[Target] = []
        for make in databases:
            print(f"{size:,} licenses: filling …", file=sys.stderr)
            stocked = make(size)
            others.append(stack.enter_context(servers.product(stocked, options.workers)))
            known[stocked.name] = stocked.keys
        besides = [_beside(text) for text in options.beside]
        if options.keys:
            known |= {target.name: options.keys.read_text().split() for target in besides}
        for load in LOADS:
            if options.loads and load.name not in options.loads:
                continue
            timed = load.lasting(options.seconds, options.connections)
            print(f"{size:,} licenses, {load.name} …", file=sys.stderr)
            yield from measure(floor, [*others, *besides], timed, known, options.rounds)


def _beside(text: str) -> Target:
    name, _, url = text.partition("=")
    if not url.startswith(("http://127.0.0.1", "http://localhost", "http://[::1]")):
        raise SystemExit(
            f"{text!r}: only servers on this machine are put under load; write NAME=http://127.0.0.1:PORT"
        )
    return Target(name, url)


if __name__ == "__main__":
    os.environ.pop("LICSERVER_DATABASE_URL", None)
    main()
