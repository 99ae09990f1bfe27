"""Run the cases against a client."""

import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from licconform.cases import Case, Kind
from licconform.client import cache_cases, download_cases, update_cases, verify_cases  # noqa: F401 - add cases
from licconform.client.service import Services
from licconform.client.subject import CASES, Client, Program
from licconform.runner import Result, run_cases

__all__ = ["CASES", "run_client_cases"]


def run_client_cases(
    program: Program,
    *,
    has_clock: bool = False,
    kinds: Collection[Kind] = tuple(Kind),
    only: Collection[str] = (),
    xfails: Mapping[str, str] | None = None,
    jobs: int | None = None,
    report: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Run the cases, several at once: each has a service and a folder of its own.

    Raises:
        SetupError: The client cannot be started.
    """
    with Services().serving() as services:

        @contextmanager
        def open_client(case: Case[Client]) -> Iterator[Client]:
            with tempfile.TemporaryDirectory(prefix="licconform-") as folder:
                service = services.open(case.name)
                yield Client(program, service, Path(folder, "client"), has_clock=has_clock)

        cases = CASES.select(kinds, only)
        jobs = jobs or 2 * (os.cpu_count() or 1)
        return run_cases(cases, open_client, xfails or {}, jobs=jobs, report=report)
