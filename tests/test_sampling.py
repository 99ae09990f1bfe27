"""A sample of cases is the same everywhere, and has each kind."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.sampling import LEFT_OUT, sample

CASES = [(f"{shop}-{event}", [("shop", shop)]) for shop in "abcd" for event in range(20)]


def test_each_kind_is_in_the_sample() -> None:
    """Also where fewer cases are wanted than there are kinds."""
    assert {case[0] for case in sample(CASES, 1)} == set("abcd")
    assert len(sample(CASES, 1)) == 4
    assert len(sample(CASES, 10)) == 10
    assert sorted(sample(CASES, 1000)) == sorted(case for case, _ in CASES)


def test_the_choice_is_made_by_the_ids() -> None:
    """In whatever order the cases come, and not by the first of them."""
    assert sample(CASES, 7) == sample(CASES[::-1], 7)
    assert sample([(case, []) for case, _ in CASES], 3) != [case for case, _ in CASES[:3]]


def test_the_marks_are_those_of_the_default_selection(pytestconfig: pytest.Config) -> None:
    """The two lists of them name the same."""
    assert pytestconfig.getini("addopts")[-1] == f"not ({' or '.join(LEFT_OUT)})"


CONFTEST = """
from harness.sampling import mark_beyond_samples
def pytest_collection_modifyitems(items):
    mark_beyond_samples(items)
"""
TESTS = """
import pytest
@pytest.mark.sampled(3, "shop")
@pytest.mark.parametrize("event", [pytest.param(1, marks=pytest.mark.window), *range(2, 9)])
@pytest.mark.parametrize(("shop", "details"), [("a", {}), ("b", [])])
def test_it(shop, event, details):
    pass
"""


def test_the_cases_beyond_the_sample_are_slow(tmp_path: Path) -> None:
    """The default selection and the rest have each case once; a case that is out already does not count."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)

    def collect(expression: str) -> list[str]:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--collect-only",
                "-p",
                "no:cacheprovider",
                "-m",
                expression,
            ],
            cwd=tmp_path,
            env={"PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]

    default, rest = collect("not (slow or window)"), collect("slow or window")
    assert (len(default), len(rest)) == (3, 13)
    assert {case[-2] for case in default} <= set("2345678]")
    assert not set(default) & set(rest)
    assert {"[a-" in case or "-a-" in case for case in default} == {True, False}
