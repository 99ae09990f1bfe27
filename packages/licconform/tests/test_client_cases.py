"""The client cases: they pass for a right client, and each fault of a wrong one is found."""

import http.client
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import urlsplit

import pytest
from finding import match
from wrong_client import FAULTS, WrongClient

from licconform.cases import Kind
from licconform.client.run import CASES, run_client_cases
from licconform.client.service import Services
from licconform.runner import BAD, Outcome, Result


def run(*faults: str, only: Collection[str] = ()) -> list[Result]:
    """Run all cases, or some, against a client with faults, in this process."""
    return run_client_cases(WrongClient(*faults), has_clock=True, only=only, jobs=4)


def failed(fault: str, only: Collection[str]) -> set[str]:
    """Return the names of the cases that a client with a fault fails."""
    return {result.case.name for result in run(fault, only=only) if result.outcome in BAD}


@pytest.mark.slow
def test_a_right_client_passes() -> None:
    """No case fails or is skipped."""
    assert [result for result in run() if result.outcome is not Outcome.PASSED] == []


@pytest.fixture(scope="module")
def found() -> dict[str, set[str]]:
    """Fault → cases that find it."""
    return match(FAULTS, [case.name for case in CASES], failed)


@pytest.mark.slow
def test_each_fault_is_found(found: dict[str, set[str]]) -> None:
    """By at least one case."""
    assert [fault for fault in FAULTS if not found[fault]] == []


@pytest.mark.slow
def test_each_case_finds_a_fault(found: dict[str, set[str]]) -> None:
    """No case passes whatever the client does."""
    seen = set().union(*found.values())
    assert [case.name for case in CASES if case.name not in seen] == []


class SilentClient:
    """A client that sends no request, whatever it is asked for."""

    def __init__(self, status: int) -> None:
        self._status = status

    def run(self, _arguments: Sequence[str], _environ: Mapping[str, str]) -> int:
        """Return the exit status."""
        return self._status


@pytest.mark.sampled(2)
@pytest.mark.parametrize("status", [0, 1, 3, -9])
def test_a_client_that_asks_nothing_is_named_in_sentences(status: int) -> None:
    """The kit shows no traceback of its own."""
    results = run_client_cases(SilentClient(status), has_clock=True, jobs=4)
    assert [result.message for result in results if "Traceback" in result.message] == []
    if status == 0:
        (result,) = [result for result in results if result.case.name == "download-get"]
        assert result.message == (
            "expected a request of {base_url}/api/v1/update-download, but the client sent none"
        )


def test_there_are_enough_literal_cases() -> None:
    """60 of the specification itself, and 30 faults, at least."""
    assert sum(case.kind is Kind.LITERAL for case in CASES) >= 60
    assert len(FAULTS) >= 30


def test_without_a_clock_the_cases_of_later_hours_are_skipped() -> None:
    """Each names the reason."""
    results = run_client_cases(WrongClient(), only=["cache-23-hours"])
    assert [(result.outcome, "--clock" in result.message) for result in results] == [(Outcome.SKIPPED, True)]


def test_a_body_may_come_in_chunks() -> None:
    """As HTTP libraries send one of unknown length; the connection can be used again."""
    with Services().serving() as services:
        service = services.open("chunks")
        base = urlsplit(service.base_url)
        connection = http.client.HTTPConnection(base.netloc, timeout=10)
        for chunks in ([b'{"domain"', b': "a.example"}'], [b"{}"]):
            url = f"{base.path}/api/v1/licenses/verify"
            connection.request(
                "POST", url, iter(chunks), {"Transfer-Encoding": "chunked"}, encode_chunked=True
            )
            assert connection.getresponse().read()
        connection.close()
    assert [request.json() for request in service.requests] == [{"domain": "a.example"}, {}]
