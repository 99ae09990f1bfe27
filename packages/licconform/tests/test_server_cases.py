"""The server cases: they pass for a right server, and each fault of a wrong one is found."""

import pytest
from wrong_server import BASE, FAULTS, PUBLIC_KEY, WrongServer

from licconform.cases import Kind
from licconform.runner import BAD, Outcome
from licconform.server.run import CASES, run_server_cases


def failed(*faults: str) -> set[str]:
    """Return the names of the cases that a server with faults fails."""
    server = WrongServer(*faults)
    results = run_server_cases(BASE, server, public_key=PUBLIC_KEY, transport=server.transport())
    return {result.case.name for result in results if result.outcome in BAD}


def test_a_right_server_passes() -> None:
    """No case fails or is skipped."""
    server = WrongServer()
    results = run_server_cases(BASE, server, public_key=PUBLIC_KEY, transport=server.transport())
    assert [result for result in results if result.outcome is not Outcome.PASSED] == []


@pytest.fixture(scope="module")
def found() -> dict[str, set[str]]:
    """Fault → the cases that find it."""
    return {fault: failed(fault) for fault in FAULTS}


@pytest.mark.slow
def test_each_fault_is_found(found: dict[str, set[str]]) -> None:
    """By at least one case."""
    assert [fault for fault in FAULTS if not found[fault]] == []


@pytest.mark.slow
def test_each_case_finds_a_fault(found: dict[str, set[str]]) -> None:
    """No case passes whatever the server does."""
    seen = set().union(*found.values())
    assert [case.name for case in CASES if case.name not in seen] == []


def test_there_are_enough_literal_cases() -> None:
    """60 of the specification itself, and 30 faults, at least."""
    assert sum(case.kind is Kind.LITERAL for case in CASES) >= 60
    assert len(FAULTS) >= 30
