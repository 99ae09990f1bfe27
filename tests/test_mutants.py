"""How mutation testing is judged, and that the modules and tests it names are there."""

import os
import time
from pathlib import Path

import pytest

import mutants

MODULES = [
    (package, module, tests)
    for package, modules in mutants.PACKAGES.items()
    for module, tests in modules.items()
]


@pytest.mark.parametrize(("package", "module", "tests"), MODULES)
def test_what_is_named_is_there(package: str, module: str, tests: tuple[str, ...]) -> None:
    """A module or test that was renamed is not left out in silence."""
    paths = [f"packages/{package}/src/{package}/{module}.py"]
    paths += [mutants.path_of_test(package, test) for test in tests]
    assert [path for path in paths if not (mutants.ROOT / path).exists()] == []


def test_changes_that_were_not_tried_do_not_count() -> None:
    """They are reported in a line of their own."""
    verdicts = dict.fromkeys("abcdefghijklmnopqr", "killed") | {
        "s": "timeout",
        "t": "survived",
        "u": "not checked",
    }
    result = mutants.judge(verdicts)
    assert result == mutants.Result(killed=19, survivors=("t",), total=21)
    assert result.is_enough  # 95 %
    assert mutants.report_untried("orders", result) == (
        "!!! mutants: of orders, 1 of 21 changes were not tried in the time"
    )


@pytest.mark.parametrize("verdict", ["survived", "no tests", "suspicious", "segfault"])
def test_a_change_that_no_test_notices(verdict: str) -> None:
    """Fewer than enough are killed."""
    result = mutants.judge(dict.fromkeys("abcdefghijklmnopqr", "killed") | {"s": verdict})
    assert not result.is_enough
    assert mutants.report_untried("orders", result) == ""


def test_no_change_was_tried() -> None:
    """The time was up before mutmut had listed the changes."""
    assert mutants.report_untried("orders", mutants.judge({})) == (
        "!!! mutants: of orders, no change was tried in the time"
    )


@pytest.mark.skipif(os.name == "nt", reason="mutmut forks")
def test_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutmut is stopped with all its children."""
    left = tmp_path / "left"
    program = tmp_path / "mutmut"
    program.write_text(f"#!/bin/sh\n(sleep 0.5; touch {left}) &\nwait\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert mutants.try_changes(tmp_path, 0.2) is None
    time.sleep(0.6)
    assert not left.exists()
