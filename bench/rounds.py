"""Rounds: the floor and the others alternately, and what they come to."""

import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from bench.load import Seen
from bench.servers import Target


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent in a round.

    Args:
        what: As `bench.load.supply` has it. For ``signed`` the floor gets ``known``: it signs nothing.
        close: One connection per request instead of keep-alive.
        connections: How many at a time.
        seconds: How long a round counts.
        warm_up: Seconds before that.
    """

    what: str
    close: bool = False
    connections: int = 32
    seconds: float = 4.0
    warm_up: float = 0.7

    @property
    def name(self) -> str:
        """As the table calls it."""
        return f"{self.what}-close" if self.close else self.what

    def lasting(self, seconds: float, connections: int) -> "Load":
        """The same for another time and another number of connections."""
        return replace(self, seconds=seconds, connections=connections)


LOADS: Final = [
    Load("known"),
    Load("known", close=True),
    Load("signed"),
    Load("update"),
    Load("update-url"),
    Load("mix"),
    Load("new"),  # last: it makes the database grow
]


@dataclass(frozen=True, slots=True)
class Result:
    """What one target made of one load, over all rounds; ratios are to the floor in the same round."""

    target: str
    load: Load
    requests_per_second: float
    ratio: float
    ratio_min: float
    ratio_max: float
    p50_ms: float
    p99_ms: float
    p99_ratio: float
    cpu_us: float
    peak_mib: float
    generator_cpu: float


def measure(
    floor: Target, others: list[Target], load: Load, keys: dict[str, list[str]], rounds: int
) -> list[Result]:
    """Play rounds, each target in its turn, and take medians.

    Args:
        floor: What the others are measured by.
        others: What is measured.
        load: What is sent.
        keys: Target's name → keys that it knows; the floor takes any.
        rounds: How many; each sends to every target once.

    Raises:
        RuntimeError: when any answer was not a 200: a fast refusal is no result.
    """
    seen: dict[str, list[Seen]] = {target.name: [] for target in [floor, *others]}
    cpu: dict[str, list[float]] = {name: [] for name in seen}
    any_keys = next(iter(keys.values()))
    for number in range(rounds):
        for target in [floor, *others]:
            before = target.cpu_seconds()
            adjusted = replace(load, what="known") if target is floor and load.what == "signed" else load
            measured = play(target, adjusted, keys.get(target.name, any_keys), number)
            spent = target.cpu_seconds() - before
            # The warm-up costs as much a second.
            share = measured.seconds / (measured.seconds + load.warm_up)
            cpu[target.name].append(spent * share / max(1, measured.requests) * 1e6)
            seen[target.name].append(measured)
    return [_sum_up(target, load, seen, cpu) for target in [floor, *others]]


def play(target: Target, load: Load, keys: list[str], number: int) -> Seen:
    """Send one round to a target; a `RuntimeError` when any answer was not a 200."""
    plan = {"url": target.url, "keys": keys, "slug": "bench-notes", "seed": number, **asdict(load)}
    done = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=json.dumps(plan).encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{target.name}, {load.what}: {done.stderr.decode()[-500:]}")
    raw: dict[str, Any] = json.loads(done.stdout)
    measured = Seen(**raw)
    if measured.bad:
        raise RuntimeError(
            f"{target.name}, {load.what}: {measured.bad} bad answers, the first: {measured.first_bad}"
        )
    return measured


def _sum_up(target: Target, load: Load, seen: dict[str, list[Seen]], cpu: dict[str, list[float]]) -> Result:
    mine, floors = seen[target.name], seen["floor"]
    speeds = [measured.requests / measured.seconds for measured in mine]
    ratios = [
        speed / (measured.requests / measured.seconds) for speed, measured in zip(speeds, floors, strict=True)
    ]
    p99s = [_percentile(measured, 99) for measured in mine]
    return Result(
        target=target.name,
        load=load,
        requests_per_second=statistics.median(speeds),
        ratio=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        p50_ms=statistics.median(_percentile(measured, 50) for measured in mine) * 1e3,
        p99_ms=statistics.median(p99s) * 1e3,
        p99_ratio=statistics.median(
            own / _percentile(measured, 99) for own, measured in zip(p99s, floors, strict=True)
        ),
        cpu_us=statistics.median(cpu[target.name]),
        peak_mib=target.peak_mebibytes(),
        generator_cpu=max(measured.cpu_seconds / measured.seconds for measured in mine),
    )


def _percentile(measured: Seen, percent: int) -> float:
    return statistics.quantiles(measured.latencies, n=100)[percent - 1]
