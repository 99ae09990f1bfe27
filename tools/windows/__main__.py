"""Run the client's tests on Windows by wine; `nox -s windows` calls it."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from harness.screen import virtual_screen
from tools.windows.build import ROOT, MissingError, build, find_standard_library
from tools.windows.wine import Windows, missing

SHARE: Final = 0.97
"""Of the client's default tests, this part at least must run and pass."""

PIECES: Final = 4
"""In so many runs the suite is run."""

PROGRAMS: Final = {"apps": ("apps", "frameworks", "starts"), "setups": ("detection", "setups")}
"""Part → the files of `tests/wine`."""

OUTCOMES: Final = ("passed", "skipped", "failure", "error")

Write = Callable[[str], object]
"""Prints a line of what a part says."""

NOT_SHOWN: Final = {
    "rights of users: UAC, access control lists, files of others": "wine gives every program all rights",
    "SmartScreen, Defender, a scanner that holds a file open": "wine has none; tests hold files open instead",
    "the Microsoft Store and MSIX": "wine has no packages of that kind",
    "a folder whose program runs is not renamed": "wine lets it be renamed, and Windows mostly does not",
    "signed programs and installers": "wine's WinVerifyTrust accepts what Windows does not",
    "whether a certificate is trusted": "wine 8 trusts every authority, and knows no IP addresses",
    "PySide6 newer than 6.8": "it needs icuuc.dll, which wine 8 lacks",
    "NTFS and ReFS": "drives of wine are folders of Linux, whose names tell case apart on request",
}
"""What the tests here do not show, and the reason."""


@dataclass
class Counts:
    """What came of the tests of a part, for the table at the end."""

    part: str
    seconds: float = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    is_failed: bool = False
    is_broken_off: bool = False
    """Whether tests may have been left out."""


def read_report(path: Path, part: str) -> Counts:
    """Count the outcomes of a report in JUnit's format, and the reasons of what was skipped."""
    counts = Counts(part)
    if not path.exists():
        return counts
    for case in ET.parse(path).iter("testcase"):  # noqa: S314 - pytest wrote it
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        outcome = next((kind for kind in ("error", "failure", "skipped") if kind in kinds), "passed")
        counts.outcomes[outcome] += 1
        for skipped in case.iter("skipped"):
            counts.reasons[skipped.get("message", "")] += 1
        counts.is_broken_off |= any(error.get("message") == "collection failure" for error in case)
    return counts


def run_tests(windows: Windows, write: Write, part: str, *arguments: str, workers: int = 3) -> Counts:
    """Run pytest under wine, and what fails once more, by itself: wine is not what is tested.

    Each run has a temporary folder of its own, which is removed from outside.
    """
    began = time.monotonic()
    windows.drive.joinpath("temp").mkdir(exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=windows.drive / "temp"))

    def run(number: int, *options: str) -> Counts:
        report = temporary / f"{number}.xml"
        options += ("-o", f"cache_dir={windows.path(temporary / 'cache')}")
        options += ("--basetemp", windows.path(temporary / f"run-{number}"))
        xml = f"--junitxml={windows.path(report)}"
        status = windows.stream(write, "-m", "pytest", "-q", *options, xml, *arguments, cwd=ROOT)
        return judge(read_report(report, part), status)

    counts = run(1, "-n", str(workers))
    if counts.is_broken_off:
        write("this was broken off: everything once more")
        counts = run(2, "-n", str(workers))
    if counts.is_failed and not counts.is_broken_off:
        counts = merge(counts, run(3, "-n", "0", "--last-failed", "--last-failed-no-failures", "none"))
    shutil.rmtree(temporary, ignore_errors=True)
    counts.seconds = time.monotonic() - began
    return counts


def judge(counts: Counts, status: int) -> Counts:
    """Add what pytest's exit status says: 1 are failures; with any other number the run was broken off."""
    counts.is_broken_off |= status not in (0, 1) or not counts.outcomes
    counts.is_failed = status != 0 or counts.is_broken_off
    return counts


def add(pieces: Sequence[Counts]) -> Counts:
    """Return the counts of a part that ran in pieces."""
    outcomes = sum((piece.outcomes for piece in pieces), Counter[str]())
    reasons = sum((piece.reasons for piece in pieces), Counter[str]())
    seconds, is_failed = sum(piece.seconds for piece in pieces), any(piece.is_failed for piece in pieces)
    is_broken_off = any(piece.is_broken_off for piece in pieces)
    return Counts(pieces[0].part, seconds, outcomes, reasons, is_failed, is_broken_off)


def merge(first: Counts, second: Counts) -> Counts:
    """Return the counts of a run of which all that failed was run again."""
    kept = {name: first.outcomes[name] for name in ("passed", "skipped")}
    outcomes = Counter({**kept, "at the second try": second.outcomes["passed"]})
    outcomes.update(second.outcomes)
    reasons = first.reasons + second.reasons
    return Counts(first.part, outcomes=outcomes, reasons=reasons, is_failed=second.is_failed)


def run_suite(windows: Windows, write: Write) -> Counts:
    """Run what the README's test command selects of the client's tests.

    In pieces: what wine itself breaks off is repeated, and that must not be all of it.
    """
    files = sorted(map(str, Path("packages/licclient/tests").glob("test_*.py")))
    pieces = [run_tests(windows, write, "suite", *files[first::PIECES]) for first in range(PIECES)]
    counts = add(pieces)
    passed, total = counts.outcomes["passed"], count_tests(counts)
    write(f"{passed} of {total} of the client's default tests ran and passed; {SHARE:.0%} must")
    counts.is_failed |= not is_share_reached(counts)
    return counts


def is_share_reached(counts: Counts) -> bool:
    """Return whether enough of the tests ran and passed."""
    return counts.outcomes["passed"] >= SHARE * max(count_tests(counts), 1)


def count_tests(counts: Counts) -> int:
    """Return how many tests there were, those counted once that ran twice."""
    return sum(counts.outcomes[name] for name in OUTCOMES)


def run_conformance(windows: Windows, write: Write) -> Counts:
    """Run the tests of licconform's client side."""
    return run_tests(windows, write, "conformance", "packages/licconform/tests")


def run_dialogs(windows: Windows, write: Write) -> Counts:
    """Run the tests that open windows."""
    return run_tests(windows, write, "dialogs", "-m", "window", "packages/licclient/tests", workers=0)


def run_apps(windows: Windows, write: Write) -> Counts:
    """Freeze an app with PyInstaller, and use it, the command line and the vault with the real service."""
    return run_programs(windows, write, "apps")


def run_setups(windows: Windows, write: Write) -> Counts:
    """Install an app by set-ups of each kind, and update it by them."""
    return run_programs(windows, write, "setups")


def run_programs(windows: Windows, write: Write, part: str) -> Counts:
    """Run tests that start programs in a Windows, from outside; what fails once more, as in `run_tests`."""
    began, report = time.monotonic(), windows.folder / f"{part}.xml"
    report.unlink(missing_ok=True)
    tests = [f"tests/wine/test_windows_{subject}.py" for subject in PROGRAMS[part]]
    options = ["-q", "-m", "", "-n", "0", "--timeout=0", "--failed-alone", f"--junitxml={report}"]
    with subprocess.Popen(  # noqa: S603 - ours
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        env=os.environ | {"LICENSING_WINDOWS": str(windows.folder), "DISPLAY": windows.display},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout or ():
            write(line)
    counts = judge(read_report(report, part), process.returncode)
    if not counts.is_failed:
        repeated = counts.outcomes.pop("failure", 0) + counts.outcomes.pop("error", 0)
        counts.outcomes.update({"passed": repeated, "at the second try": repeated})
    counts.seconds = time.monotonic() - began
    return counts


def run_slow(windows: Windows, write: Write) -> Counts:
    """Run the client's tests that take longer: full products, many processes."""
    return run_tests(windows, write, "slow", "-m", "slow or crash", "packages/licclient/tests")


PARTS: Final[dict[str, Callable[[Windows, Write], Counts]]] = {
    "suite": run_suite,
    "conformance": run_conformance,
    "dialogs": run_dialogs,
    "apps": run_apps,
    "setups": run_setups,
    "slow": run_slow,
}
PHASES: Final = ((("suite", "conformance", "slow"), ("apps",), ("setups",)), (("dialogs",),))
"""The lanes of a phase run at the same time, each in a Windows of its own: apps and set-ups mostly wait.

Dialogs come last and alone: their tests measure how long a click takes.
"""
ON_REQUEST: Final = {"slow"}
"""Parts that run only if they are named."""


@contextmanager
def installed(folder: Path, version: str) -> Iterator[Windows]:
    """Build a Windows with a Python, with a screen, for a block."""
    windows = build(folder, version)
    try:
        with virtual_screen(folder) as screen:
            windows.display = screen.display
            yield windows
    finally:
        windows.close()


def print_table(
    version: str, results: Sequence[Counts], not_run: Sequence[str], lacks_for_inno: str = ""
) -> None:
    """Print what ran, what was skipped and why, and what wine does not show."""
    columns = (*OUTCOMES, "at the second try")
    print(f"\nWindows under wine, Python {version}")
    for counts in results:
        numbers = ", ".join(f"{counts.outcomes[name]} {name}" for name in columns if counts.outcomes[name])
        numbers += ", broken off" if counts.is_broken_off else ""
        print(f"  {counts.part:12} {numbers or 'did not run'}; {counts.seconds / 60:.1f} minutes")
    reasons = sum((counts.reasons for counts in results), Counter[str]())
    for reason, number in reasons.most_common():
        print(f"  skipped: {number} × {reason}")
    if not_run:
        print(f"  not run: {', '.join(not_run)}")
    if lacks_for_inno:
        print(f"  not run: set-ups of Inno Setup ({lacks_for_inno})")
    for subject, reason in NOT_SHOWN.items():
        print(f"  not shown: {subject} ({reason})")


def describe_missing(version: str) -> str:
    """Return what this machine lacks, and how to get it; empty if nothing."""
    lacks = [f"`apt-get install {' '.join(packages)}`"] if (packages := missing()) else []
    try:
        find_standard_library(version)
    except MissingError as problem:
        lacks.append(str(problem))
    return "; ".join(lacks)


def run_lane(folder: Path, version: str, parts: Sequence[str], *, is_named: bool) -> list[Counts]:
    """Build a Windows and run parts in it, one after the other; what an error left out has failed.

    Args:
        is_named: Whether each line begins with the part that has printed it.
    """
    began, results = time.monotonic(), list[Counts]()
    try:
        with installed(folder, version) as windows:
            print(f"built in {time.monotonic() - began:.0f} seconds: {windows.run('-VV').stdout.strip()}")
            for part in parts:
                write = partial(print_line, f"{part:11} | " if is_named else "")
                results.append(PARTS[part](windows, write))
    except (subprocess.SubprocessError, MissingError, OSError, ET.ParseError) as problem:
        print(f"{', '.join(parts)}: {problem}\n{getattr(problem, 'stdout', None) or ''}", file=sys.stderr)
    return results + [Counts(part, is_failed=True) for part in parts[len(results) :]]


def print_line(beginning: str, line: str) -> None:
    """Print a line at once."""
    print(beginning + line.rstrip("\r\n"), flush=True)


def choose(parts: Sequence[str]) -> list[list[list[str]]]:
    """Return the lanes of each phase that has some; all parts that are not on request if none is named."""
    chosen = parts or PARTS.keys() - ON_REQUEST
    phases = ([[part for part in lane if part in chosen] for lane in lanes] for lanes in PHASES)
    return [lanes for phase in phases if (lanes := [lane for lane in phase if lane])]


def main() -> int:
    """Build it, run the chosen parts, and print what came of them; 0 if all tests passed."""
    parser = argparse.ArgumentParser(prog="python -m tools.windows", description=__doc__)
    folder = ROOT / ".nox" / ".windows"
    parser.add_argument("--folder", type=Path, default=folder, help="where to build it")
    left_out = ", ".join(sorted(ON_REQUEST))
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all but {left_out} by default"
    )
    parser.add_argument("--missing", action="store_true", help="print what this machine lacks, and end")
    parser.add_argument("--python", default="3.11", help="its version; default: %(default)s")
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if options.missing:
        print(describe_missing(options.python))
        return 0
    folder, results = options.folder.absolute() / options.python, list[Counts]()
    for lanes in choose(options.parts):
        folders = [folder, *(folder.with_name(f"{options.python}-{lane[0]}") for lane in lanes[1:])]
        pool, run = ThreadPoolExecutor(len(lanes)), partial(run_lane, is_named=len(lanes) > 1)
        try:
            for lane in pool.map(run, folders, repeat(options.python), lanes):
                results += lane
        except KeyboardInterrupt:
            for place in folders:
                Windows(place).kill()
            os._exit(130)  # threads that go on would begin the next part
    not_run = [part for part in PARTS if part not in {counts.part for counts in results}]
    print_table(options.python, results, not_run, Windows(folder).lacks_for_inno)
    return int(any(counts.is_failed for counts in results))


if __name__ == "__main__":
    sys.exit(main())
