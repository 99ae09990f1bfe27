"""What `nox -s windows` counts, and what it needs."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools.windows import __main__ as lanes
from tools.windows import build
from tools.windows.__main__ import (
    PARTS,
    PROGRAMS,
    SHARE,
    Counts,
    add,
    choose,
    is_share_reached,
    merge,
    print_table,
    read_report,
    run_tests,
)
from tools.windows.build import MissingError, find_standard_library
from tools.windows.wine import INNO, INNO_COMPILER, NEEDED, Done, Windows

ROOT = Path(__file__).parents[1]
REPORT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><failure message="x"/></testcase>
<testcase name="c"><skipped message="needs modes of Unix"/></testcase>
<testcase name="d"><skipped message="needs modes of Unix"/></testcase>
<testcase name="e"><error message="x"/></testcase>
</testsuite></testsuites>"""


def test_outcomes_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reasons of what was skipped; the table names what did not run as well."""
    (tmp_path / "suite.xml").write_text(REPORT, encoding="utf-8")
    counts = read_report(tmp_path / "suite.xml", "suite")
    assert counts.outcomes == {"passed": 1, "failure": 1, "skipped": 2, "error": 1}
    print_table("3.11", [counts], ["apps"])
    printed = capsys.readouterr().out
    assert "1 passed, 2 skipped, 1 failure, 1 error" in printed
    assert "skipped: 2 × needs modes of Unix" in printed
    assert "not run: apps" in printed
    assert "not shown: " in printed


def test_what_passes_at_the_second_try_has_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And is named in the table; what fails twice has failed."""
    (tmp_path / "suite.xml").write_text(REPORT, encoding="utf-8")
    first, second = read_report(tmp_path / "suite.xml", "suite"), Counts("suite", is_failed=True)
    second.outcomes.update({"passed": 1, "error": 1})
    counts = merge(first, second)
    assert counts.is_failed
    print_table("3.11", [counts], [])
    assert "2 passed, 2 skipped, 1 error, 1 at the second try" in capsys.readouterr().out


@pytest.mark.parametrize(("passed", "skipped"), [(0, 0), (96, 4), (97, 3)])
def test_too_few_tests_that_run_are_a_failure(passed: int, skipped: int) -> None:
    """A skipped test has shown nothing."""
    counts = Counts("suite")
    counts.outcomes.update({"passed": passed, "skipped": skipped})
    assert is_share_reached(counts) == (passed >= SHARE * 100)


@pytest.mark.parametrize(
    ("named", "lanes"),
    [
        ([], [[["suite", "conformance"], ["apps"], ["setups"]], [["dialogs"]]]),
        (["apps"], [[["apps"]]]),
        (["apps", "dialogs", "suite"], [[["suite"], ["apps"]], [["dialogs"]]]),
        ([*PARTS], [[["suite", "conformance", "slow"], ["apps"], ["setups"]], [["dialogs"]]]),
    ],
    ids=["none", "one", "several", "all"],
)
def test_parts_run_in_lanes(named: list[str], lanes: list[list[list[str]]]) -> None:
    """None of them twice, dialogs alone, and those that take long only if they are named."""
    assert choose(named) == lanes


def test_every_file_is_in_a_part() -> None:
    """A new one would not run."""
    files = sorted(path.stem for path in (ROOT / "tests" / "wine").glob("test_*.py"))
    named = [subject for subjects in PROGRAMS.values() for subject in subjects]
    assert sorted(f"test_windows_{subject}" for subject in named) == files


def test_every_list_has_all_packages() -> None:
    """Those of the workflow, of `.ci/run` and of the session are those that the tool looks for."""
    wanted = {*" ".join(NEEDED.values()).split()}
    for name in (".ci/run", ".github/workflows/ci.yml", "noxfile.py"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert wanted <= set(re.findall(r"[\w.-]+", text)), name
    assert INNO in (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")


def test_what_wine_has_or_cannot_load_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The C runtime is wine's own, and `_wmi` ended Python 3.13 when keyring was imported."""
    wheel, python = tmp_path / "wheel", tmp_path / "python"
    python.mkdir()

    def install(target: Path, *_: object) -> None:
        (target / "deploy_libs").mkdir(parents=True)
        for name in ("python313.dll", "_ssl.pyd", "_wmi.pyd", "api-ms-win-crt-heap-l1-1-0.dll"):
            (target / "deploy_libs" / name).touch()

    monkeypatch.setattr(build, "_install", install)
    build._copy_interpreter(python, wheel, "3.13")
    assert {path.name for path in python.rglob("*") if path.is_file()} == {"python313.dll", "_ssl.pyd"}


def test_a_python_that_is_not_here() -> None:
    """It is named, with the command that installs it."""
    with pytest.raises(MissingError, match=r"uv python install 3\.99"):
        find_standard_library("3.99")


def test_names_of_files(tmp_path: Path) -> None:
    """Drive C is in the prefix, and all others are below Z."""
    windows = Windows(tmp_path)
    assert windows.path(windows.drive / "temp" / "a b") == r"C:\temp\a b"
    assert windows.path(Path("/usr/share")) == r"Z:\usr\share"


def test_what_set_ups_of_inno_setup_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs of 32 bits, then the compiler; the table says how to get what is missing."""
    windows, compiler = Windows(tmp_path), tmp_path / "ISCC.exe"
    monkeypatch.setenv(INNO_COMPILER, str(compiler))
    assert "apt-get install wine32:i386" in windows.lacks_for_inno
    library = windows.drive / "windows" / "syswow64" / "kernel32.dll"
    library.parent.mkdir(parents=True)
    library.touch()
    assert INNO in windows.lacks_for_inno
    print_table("3.11", [], [], windows.lacks_for_inno)
    assert f"not run: set-ups of Inno Setup (no {INNO_COMPILER}" in capsys.readouterr().out
    compiler.touch()
    assert windows.lacks_for_inno == ""
    print_table("3.11", [], [], windows.lacks_for_inno)
    assert "Inno" not in capsys.readouterr().out


def test_pieces_are_added(tmp_path: Path) -> None:
    """One that failed makes the part fail."""
    (tmp_path / "suite.xml").write_text(REPORT, encoding="utf-8")
    counts = add([read_report(tmp_path / "suite.xml", "suite"), Counts("suite", 3.0, is_failed=True)])
    assert counts.outcomes == {"passed": 1, "failure": 1, "skipped": 2, "error": 1}
    assert (counts.part, counts.seconds, counts.is_failed) == ("suite", 3.0, True)
    assert counts.reasons == {"needs modes of Unix": 2}


@pytest.mark.skipif(sys.platform != "linux", reason="wine runs there, and /proc tells its programs")
def test_what_runs_in_a_windows_is_killed(tmp_path: Path) -> None:
    """By the environment of its programs; others go on."""
    programs = [
        subprocess.Popen(
            ["/bin/sleep", "60"], env={**os.environ, "WINEPREFIX": str(tmp_path / name / "prefix")}
        )
        for name in ("ours", "another")
    ]
    try:
        Windows(tmp_path / "ours").kill()
        assert programs[0].wait(30) == -9
        assert programs[1].poll() is None
    finally:
        for program in programs:
            program.kill()
            program.wait()


class Played(Windows):
    """A Windows in which runs of pytest are played: an exit status, and a report if there is one."""

    def __init__(self, folder: Path, *runs: tuple[int, str]) -> None:
        super().__init__(folder)
        self.drive.mkdir(parents=True)
        self.runs = [*runs]

    def stream(self, write: Callable[[str], object], *arguments: str, cwd: Path, **environ: str) -> int:
        """Write the next report where pytest was told to."""
        status, report = self.runs.pop(0)
        (xml,) = (word.removeprefix("--junitxml=C:") for word in arguments if word.startswith("--junitxml"))
        if report:
            self.drive.joinpath(*xml.strip("\\").split("\\")).write_text(report, encoding="utf-8")
        return status

    def run(
        self,
        *arguments: str,
        program: Path | None = None,
        cwd: Path | None = None,
        timeout: float = 600,
        **environ: str,
    ) -> Done:
        """Say which Python it is."""
        return subprocess.CompletedProcess([], 0, "Python")


PASSED, FAILED = '<testcase name="a"/>', '<testcase name="a"><failure message="x"/></testcase>'
UNREAD = '<testcase name="a"><error message="collection failure"/></testcase>'


@pytest.mark.parametrize(
    ("runs", "is_failed", "passed"),
    [
        ([(0, PASSED)], False, 1),
        ([(1, FAILED), (0, PASSED)], False, 1),
        ([(1, FAILED), (1, FAILED)], True, 0),
        ([(1, UNREAD), (1, FAILED), (0, PASSED)], False, 1),
        ([(2, UNREAD), (1, FAILED), (0, PASSED)], False, 1),
        ([(2, UNREAD), (2, UNREAD)], True, 0),
        ([(3, PASSED), (3, PASSED)], True, 1),
        ([(0, ""), (0, PASSED)], False, 1),
        ([(0, ""), (0, "")], True, 0),
        ([(5, "<empty/>"), (5, "<empty/>")], True, 0),
    ],
)
def test_what_is_broken_off_runs_once_more(
    tmp_path: Path, runs: list[tuple[int, str]], is_failed: bool, passed: int
) -> None:
    """Whole: an import that failed once, or wine's end, must not leave tests out and succeed."""
    played = [(status, report and f"<testsuites>{report}</testsuites>") for status, report in runs]
    windows = Played(tmp_path, *played)
    counts = run_tests(windows, lambda _: None, "suite")
    assert (counts.is_failed, counts.outcomes["passed"], windows.runs) == (is_failed, passed, [])


def test_a_lane_that_ends_early_has_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What ran before counts, and the parts that did not run are named."""

    @contextmanager
    def installed(folder: Path, version: str) -> Iterator[Windows]:
        yield Played(folder)

    def hang(*_: object) -> Counts:
        raise subprocess.TimeoutExpired("wine", 60)

    monkeypatch.setattr(lanes, "installed", installed)
    monkeypatch.setitem(PARTS, "suite", lambda *_: Counts("suite"))
    monkeypatch.setitem(PARTS, "conformance", hang)
    results = lanes.run_lane(tmp_path, "3.11", ["suite", "conformance", "dialogs"], is_named=True)
    failed = {counts.part: counts.is_failed for counts in results}
    assert failed == {"suite": False, "conformance": True, "dialogs": True}
