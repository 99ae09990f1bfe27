"""This checkout beside another one: ``python -m bench.checkouts ../other``.

The other one has its own ``.venv``, and fills its own database. Both servers run all the time and take turns:
of each round the throughput here is divided by the one there, and so is the processor time of a request.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench import stock
from bench.rounds import LOADS, Load, play
from bench.servers import Target, free_port, running

ROOT: Final = Path(__file__).parent.parent
_FILL: Final = """
import sys
from pathlib import Path
from bench import databases

databases.sqlite(Path(sys.argv[1]), int(sys.argv[2]))
"""


def main() -> None:
    """Print a line for each load: medians of the ratios, and their spread."""
    options = _options()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        _serve(options.other.resolve(), Path(folder) / "there", options.size) as there,
        _serve(ROOT, Path(folder) / "here", options.size) as here,
    ):
        for load in LOADS:
            if load.name in options.loads:
                print(_compare(here, there, load.lasting(options.seconds, 32), options.rounds), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.checkouts", description="This checkout beside another, on SQLite."
    )
    parser.add_argument("other", type=Path, help="its folder")
    parser.add_argument("--size", type=int, default=100_000, help="licenses in each database")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.5, help="how long each counts in a round")
    names = [load.name for load in LOADS if load.name != "mix"]
    parser.add_argument(
        "--loads", nargs="+", metavar="LOAD", choices=names, default=names, help=", ".join(names)
    )
    return parser.parse_args()


@contextmanager
def _serve(checkout: Path, folder: Path, size: int) -> Iterator[tuple[Target, list[str]]]:
    """Run a checkout's server; yields it with keys that it knows."""
    python = sys.executable if checkout == ROOT else str(checkout / ".venv" / "bin" / "python")
    subprocess.run([python, "-c", _FILL, str(folder), str(size)], cwd=checkout, check=True)
    data_dir = folder / f"sqlite-{size}"
    port = free_port()
    command = [python, "-m", "licserver", "serve", "--port", str(port)]
    with running(folder.name, command, port, "/healthz", {"LICSERVER_DATA_DIR": str(data_dir)}) as target:
        yield target, stock.read_sample(data_dir)


def _compare(
    here: tuple[Target, Sequence[str]], there: tuple[Target, Sequence[str]], load: Load, rounds: int
) -> str:
    speeds: list[float] = []
    costs: list[float] = []
    for number in range(rounds):
        speed, cost = {}, {}
        for target, keys in [here, there] if number % 2 else [there, here]:
            before = target.cpu_seconds()
            seen = play(target, load, list(keys), number)
            speed[target.name] = seen.requests / seen.seconds
            cost[target.name] = (target.cpu_seconds() - before) / seen.requests
        speeds.append(speed["here"] / speed["there"])
        costs.append(cost["here"] / cost["there"])
    return f"{load.name:12} throughput {_spread(speeds)}, processor time of a request {_spread(costs)}"


def _spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
