"""The server cases: they pass for a right server, and each fault of a wrong one is found."""

import hashlib
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

import httpx
import pytest
from finding import match
from wrong_server import BASE, FAULTS, PUBLIC_KEY, WrongServer
from wrong_states import Key

from licconform.cases import Kind, SetupError
from licconform.runner import BAD, Outcome
from licconform.server.run import CASES, run_server_cases


def failed(fault: str, only: Collection[str] = ()) -> set[str]:
    """Return the names of the cases, of all or some, that a server with a fault fails."""
    server = WrongServer(fault)
    results = run_server_cases(BASE, server, only=only, public_key=PUBLIC_KEY, transport=server.transport())
    return {result.case.name for result in results if result.outcome in BAD}


def test_a_right_server_passes() -> None:
    """No case fails or is skipped."""
    server = WrongServer()
    results = run_server_cases(BASE, server, public_key=PUBLIC_KEY, transport=server.transport())
    assert [result for result in results if result.outcome is not Outcome.PASSED] == []


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
    """No case passes whatever the server does."""
    seen = set().union(*found.values())
    assert [case.name for case in CASES if case.name not in seen] == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("status", [200, 204, 401, 403, 404, 500])
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b'{"valid": true}', b"\xff<p>"], ids=repr)
def test_a_server_that_answers_anything_is_named_in_sentences(status: int, body: bytes) -> None:
    """The kit shows no traceback of its own."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=body)

    results = run_server_cases(
        BASE, WrongServer(), public_key=PUBLIC_KEY, transport=httpx.MockTransport(answer)
    )
    assert [result.message for result in results if "Traceback" in result.message] == []


def test_there_are_enough_literal_cases() -> None:
    """60 of the specification itself, and 30 faults, at least."""
    assert sum(case.kind is Kind.LITERAL for case in CASES) >= 60
    assert len(FAULTS) >= 30


class TokenServer(WrongServer):
    """A server whose links have one parameter, which is made by a function of their number."""

    def __init__(self, token_of: Callable[[int], str]) -> None:
        super().__init__()
        self._token_of = token_of
        self._queries: dict[str, str] = {}

    def link(self, key: Key, now: float, slug: str | None = None) -> str:
        """Return a download link made at `now`."""
        address, _, query = super().link(key, now, slug).partition("?")
        token = self._token_of(len(self._queries))
        self._queries[token] = query
        return f"{address}?token={token}"

    def _download(self, request: httpx.Request) -> httpx.Response:
        token = urlsplit(str(request.url)).query.removeprefix("token=")
        url = request.url.copy_with(query=self._queries.get(token, "").encode())
        return super()._download(httpx.Request(request.method, url, headers=request.headers))


@pytest.mark.parametrize(
    ("token_of", "outcome"),
    [
        (lambda number: hashlib.sha256(str(number).encode()).hexdigest(), Outcome.SKIPPED),
        (lambda number: f"{number + 10}", Outcome.FAILED),
    ],
    ids=["unguessable", "counted"],
)
def test_a_link_may_be_one_parameter(token_of: Callable[[int], str], outcome: Outcome) -> None:
    """There is nothing to mix in it then, unless it can be guessed."""
    server = TokenServer(token_of)
    results = run_server_cases(BASE, server, transport=server.transport(), only=["link-mixed"])
    assert [result.outcome for result in results] == [outcome]


def test_what_never_answers_ends_the_run() -> None:
    """It is no server of the protocol at all; one that hangs up now and then fails these cases."""

    def hang_up(_: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("Server disconnected.")

    with pytest.raises(SetupError, match="No response"):
        run_server_cases(BASE, WrongServer(), transport=httpx.MockTransport(hang_up))
