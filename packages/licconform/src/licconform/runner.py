"""Run cases, compare the results with the expected failures, and report progress."""

import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from licconform.cases import Case, DeviationError, NotApplicableError, SetupError, mask_secrets, printable

Subject = TypeVar("Subject")


class Outcome(StrEnum):
    """The outcome of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    EXPECTED_FAILURE = "expected failure"
    UNEXPECTED_PASS = "unexpected pass"


BAD = {Outcome.FAILED, Outcome.UNEXPECTED_PASS}


@dataclass(frozen=True, slots=True)
class Result:
    """A case that was run."""

    case: Case[Any]
    outcome: Outcome
    message: str
    seconds: float


def run_cases(
    cases: Iterable[Case[Subject]],
    open_subject: Callable[[Case[Subject]], AbstractContextManager[Subject]],
    xfails: Mapping[str, str],
    *,
    jobs: int = 1,
    report: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Run each case against a subject of its own; `SetupError` ends the run."""

    def run(case: Case[Subject]) -> Result:
        started = time.perf_counter()
        outcome, message = _run_one(case, open_subject)
        if outcome is Outcome.FAILED and case.name in xfails:
            outcome, message = Outcome.EXPECTED_FAILURE, f"{xfails[case.name]}: {message}"
        elif outcome is Outcome.PASSED and case.name in xfails:
            outcome, message = Outcome.UNEXPECTED_PASS, "It passes: remove it from the expected failures."
        return Result(case, outcome, printable(mask_secrets(message)), time.perf_counter() - started)

    results = []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for result in pool.map(run, cases):
                report(result)
                results.append(result)
        except SetupError:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def _run_one(
    case: Case[Subject], open_subject: Callable[[Case[Subject]], AbstractContextManager[Subject]]
) -> tuple[Outcome, str]:
    try:
        with open_subject(case) as subject:
            case.run(subject)
    except NotApplicableError as reason:
        return Outcome.SKIPPED, str(reason)
    except DeviationError as deviation:
        return Outcome.FAILED, str(deviation)
    except SetupError:
        raise
    except Exception:  # noqa: BLE001 - an unforeseen response is a deviation, not the end of the run
        return Outcome.FAILED, traceback.format_exc(limit=-2)
    return Outcome.PASSED, ""


def read_xfails(path: Path, names: Collection[str]) -> dict[str, str]:
    """Read a file with a line `NAME: REASON` for each expected failure; `#` begins a comment.

    Raises:
        SetupError: A line has no reason, or names no case.
    """
    reasons = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        name, _, reason = (part.strip() for part in text.partition(":"))
        if not reason:
            raise SetupError(f"{path}:{number}: write NAME: REASON")
        if name not in names:
            raise SetupError(f"{path}:{number}: there is no case {name}")
        reasons[name] = reason
    return reasons
