"""What a customer notices of the vendor's work: ``python -m bench.beside [quick]``.

Five hundred verifies a second, sent when they are due and not when the last one is answered: first alone,
then while two people use the console, keys are imported and a backup is written, all at the same time and
over and over as long as the window lasts. The two windows take turns; of each pair, the 99th percentile of
the second is divided by that of the first. It is to stay within three.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from pydantic import SecretStr

from bench import databases
from bench.clicks import People
from bench.databases import Stocked
from bench.servers import Target, product
from bench.steady import Watched
from bench.stock import DOMAIN, SLUG
from licserver.services.installation import open_services
from licserver.settings import StandaloneSettings

PASSWORD: Final = "four words of a sentence"
_CONNECTIONS: Final = 32
_PEOPLE: Final = 2
WARM_UP: Final = 1.0
_BACKUP_AFTER: Final = 1.0
"""Seconds from the import's beginning to the backup's: an import begins with what is its own."""

PAGES: Final = (
    "/console",
    "/console/licenses/{license}",
    "/console/products",
    f"/console/products/{SLUG}",
    f"/console/products/{SLUG}/releases/1.1.0",
    "/console/audit",
    "/console/audit?kind=cli",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A quiet window and the busy one after it.

    Args:
        quiet: Milliseconds, median and 99th percentile.
        busy: The same.
        ratio: Of the 99th percentiles, busy to quiet.
        seconds: How long the busy one was.
        imports: How many imports were finished in it.
        backups: The same of backups.
        pages: The same of pages of the console.
        page_ms: The median of these.
    """

    quiet: tuple[float, float]
    busy: tuple[float, float]
    ratio: float
    seconds: float
    imports: int
    backups: int
    pages: int
    page_ms: float


def main() -> None:
    """Measure what the arguments ask for, and print a table."""
    options = _options()
    lines = [_conditions(options), "", *_HEAD]
    with ExitStack() as stack:
        folder = Path(options.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        for name in options.databases:
            print(f"{name}: filling {options.licenses:,} licenses …", file=sys.stderr)
            if name == "sqlite":
                stocked = databases.sqlite(folder, options.licenses)
            else:
                kept = Path(options.folder) / "postgresql" if options.folder else None
                server = stack.enter_context(databases.postgresql(kept))
                stocked = server.stocked(folder, options.licenses)
            pairs = _measure(stocked, folder, options)
            lines += [_row(stocked.name, str(number), pair) for number, pair in enumerate(pairs, 1)]
            lines.append(_row(stocked.name, "**median**", _median(pairs)))
    page = "\n".join(lines) + "\n"
    print(page)
    if options.write:
        (Path(options.write) / "beside-table.md").write_text(page, encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.beside", description=__doc__)
    parser.add_argument("mode", nargs="?", choices=["full", "quick"], default="full")
    parser.add_argument("--rate", type=int, default=500, help="verifies a second")
    parser.add_argument("--licenses", type=int, help="in the database")
    parser.add_argument("--keys", type=int, help="keys of an import")
    parser.add_argument("--rounds", type=int, help="pairs of windows")
    parser.add_argument("--seconds", type=float, help="of a window, at least")
    parser.add_argument("--databases", nargs="+", choices=["sqlite", "postgresql"])
    parser.add_argument("--without", nargs="+", default=[], choices=["console", "import", "backup"])
    parser.add_argument("--folder", help="where the databases are kept between runs")
    parser.add_argument("--write", help="folder for beside-table.md")
    options = parser.parse_args()
    quick = options.mode == "quick"
    options.licenses = options.licenses or (2_000 if quick else 1_000_000)
    options.keys = options.keys or (500 if quick else 100_000)
    options.rounds = options.rounds or (1 if quick else 5)
    options.seconds = options.seconds or (1.0 if quick else 20.0)
    options.databases = options.databases or (["sqlite"] if quick else ["sqlite", "postgresql"])
    return options


def _measure(stocked: Stocked, folder: Path, options: argparse.Namespace) -> list[Pair]:
    url = stocked.environ.get("LICSERVER_DATABASE_URL")
    services = open_services(
        StandaloneSettings(data_dir=stocked.data_dir, database_url=None if url is None else SecretStr(url))
    )
    name = f"bench-{time.time_ns()}"  # the folder may have been used before
    services.users.add(name, PASSWORD)
    signed_in = services.logins.sign_in(name, PASSWORD)
    assert signed_in is not None
    license_id = services.licenses.search(limit=1).items[0].id.hex()
    services.close()
    pages = [page.format(license=license_id) for page in PAGES]
    cookie = f"licserver={signed_in.token}"
    pairs = []
    with product(stocked) as server, tempfile.TemporaryDirectory(dir=folder) as scratch:
        work = _Work(stocked, Path(scratch), options)
        port = int(server.url.rpartition(":")[2])
        for number in range(options.rounds):
            with watching(server, stocked, options.rate, 2 * number) as quiet:
                time.sleep(WARM_UP + options.seconds)
            people = People(port, cookie, pages, 0 if "console" in options.without else _PEOPLE)
            with people, work, watching(server, stocked, options.rate, 2 * number + 1) as busy:
                work.go_on_for(WARM_UP + options.seconds)
            pairs.append(_pair(quiet, busy, work, people))
            print(_row(stocked.name, str(number + 1), pairs[-1]), file=sys.stderr)
    return pairs


def _pair(quiet: Watched, busy: Watched, work: "_Work", people: People) -> Pair:
    alone, beside = quantiles(quiet), quantiles(busy)
    return Pair(
        alone,
        beside,
        beside[1] / alone[1],
        busy.seconds,
        work.finished["import"],
        work.finished["backup"],
        len(people.seconds),
        statistics.median(people.seconds or [0.0]) * 1000,
    )


def quantiles(seen: Watched) -> tuple[float, float]:
    """Return the median and the 99th percentile, in milliseconds."""
    if seen.bad:
        raise RuntimeError(f"{seen.bad} bad answers, the first: {seen.first_bad}")
    cut = statistics.quantiles(seen.latencies, n=100)
    return cut[49] * 1000, cut[98] * 1000


@contextmanager
def watching(server: Target, stocked: Stocked, rate: int, seed: int) -> Iterator[Watched]:
    """Send verifies while the block lasts; what was seen of them is there after it."""
    plan = {"url": server.url, "keys": stocked.keys, "domain": DOMAIN, "rate": rate, "seed": seed}
    plan |= {"connections": _CONNECTIONS, "warm_up": WARM_UP}
    seen = Watched()
    with subprocess.Popen(
        [sys.executable, "-m", "bench.steady"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(plan) + "\n")
        process.stdin.flush()
        if process.stdout.readline() != "begun\n":
            raise RuntimeError("the verifies did not begin")
        try:
            yield seen
        finally:
            process.stdin.close()
        raw: dict[str, Any] = json.loads(process.stdout.read())
    for name, value in raw.items():
        setattr(seen, name, value)


class _Work:
    """Imports and backups, as a vendor starts them: by the command line, beside the server.

    Args:
        stocked: The installation.
        folder: For the files.
        options: Of the command line.
    """

    def __init__(self, stocked: Stocked, folder: Path, options: argparse.Namespace) -> None:
        self._environ = {"LICSERVER_DATA_DIR": str(stocked.data_dir), **stocked.environ}
        self.finished = {"import": 0, "backup": 0}
        self._commands: dict[str, list[str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        if "import" not in options.without:
            keys = folder / "new.jsonl"
            with keys.open("w") as file:
                for number in range(options.keys):
                    mail = f"user{number}@shop{number % 5000}.example"
                    note = f"customer {number}, invoice 2026-{number}"
                    line = {
                        "product": SLUG,
                        "slots": 3,
                        "lifetime": False,
                        "customer_email": mail,
                        "note": note,
                    }
                    file.write(json.dumps(line) + "\n")
            self._commands["import"] = ["import", str(keys)]
        if "backup" not in options.without:
            self._commands["backup"] = ["backup", "--replace", str(folder / "all.backup")]

    def __enter__(self) -> Self:
        """Count from nothing."""
        self.finished = dict.fromkeys(self.finished, 0)
        return self

    def __exit__(self, *_: object) -> None:
        """End what runs."""
        for process in self._running.values():
            process.terminate()
            process.wait(60)
        self._running.clear()

    def go_on_for(self, seconds: float) -> None:
        """Let each of them run over and over for so long, and then until each was finished once."""
        begin = time.monotonic()
        while self._running or time.monotonic() - begin < seconds:
            for name, command in self._commands.items():
                process = self._running.get(name)
                if process is not None and process.poll() is not None:
                    if process.returncode:
                        raise RuntimeError(f"{name} ended with {process.returncode}")
                    self.finished[name] += 1
                    del self._running[name]
                    process = None
                since = time.monotonic() - begin
                is_wanted = since < seconds or not self.finished[name]
                if process is None and is_wanted and (name != "backup" or since > _BACKUP_AFTER):
                    self._running[name] = self._start(command)
            time.sleep(0.05)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "licserver", *command],
            env={**os.environ, **self._environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


_HEAD: Final = (
    "| database | round | quiet: p50 / p99 ms | beside | p99 ratio | imports, backups, pages | page |",
    "|---|---|---:|---:|---:|---|---:|",
)


def _row(name: str, number: str, pair: Pair) -> str:
    did = f"{pair.imports}, {pair.backups}, {pair.pages} in {pair.seconds:.0f} s"
    quiet, busy = ("{:.2f} / {:.2f}".format(*window) for window in (pair.quiet, pair.busy))
    return f"| {name} | {number} | {quiet} | {busy} | {pair.ratio:.1f} | {did} | {pair.page_ms:.0f} ms |"


def _conditions(options: argparse.Namespace) -> str:
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}: {options.rate} "
        f"verifies a second, {options.licenses:,} licenses to begin with, imports of {options.keys:,}; "
        f"processes {_grouping()}."
    )


def _grouping() -> str:
    """Return how Linux shares the processors, which decides what a database's processes take from others."""
    setting = Path("/proc/sys/kernel/sched_autogroup_enabled")
    is_grouped = setting.exists() and setting.read_text(encoding="ascii").strip() == "1"
    return "grouped by session (`sched_autogroup_enabled`)" if is_grouped else "not grouped by session"


def _median(pairs: list[Pair]) -> Pair:
    """Take the median of each column; that of the ratios is not the ratio of the others."""
    middle = statistics.median
    return Pair(
        (middle(pair.quiet[0] for pair in pairs), middle(pair.quiet[1] for pair in pairs)),
        (middle(pair.busy[0] for pair in pairs), middle(pair.busy[1] for pair in pairs)),
        middle(pair.ratio for pair in pairs),
        middle(pair.seconds for pair in pairs),
        round(middle(pair.imports for pair in pairs)),
        round(middle(pair.backups for pair in pairs)),
        round(middle(pair.pages for pair in pairs)),
        middle(pair.page_ms for pair in pairs),
    )


if __name__ == "__main__":
    main()
