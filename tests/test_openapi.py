"""The OpenAPI document says what the running server does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openapi_core import Config, OpenAPI
from openapi_core.testing import MockRequest, MockResponse

from harness.vectors import Case, load, parameters
from harness.world import MovableClock, World
from test_vectors_server import BASE, play

DOCUMENT: dict[str, Any] = json.loads(
    Path(__file__).parents[1].joinpath("docs/openapi.json").read_text(encoding="utf-8")
)
DESCRIBED = [case for case in load() if case.answer["status"] not in {404, 405} or "routes" not in case.file]


@pytest.fixture(scope="module")
def openapi() -> OpenAPI:
    """The document, itself checked against the OpenAPI 3.1 schema when it is loaded."""
    return OpenAPI.from_dict(
        DOCUMENT, config=Config(extra_media_type_deserializers={"application/jose+json": json.loads})
    )


@pytest.mark.parametrize("case", parameters(DESCRIBED))
def test_every_answer_of_the_server_is_described(
    case: Case, openapi: OpenAPI, clock: MovableClock, make_world: Callable[..., World]
) -> None:
    """What the server answers to a vector has a status, headers and a body that the document describes."""
    played = play(case, clock, make_world)
    request = MockRequest(
        "http://localhost", case.request["method"].lower(), case.request["path"], args=played.query
    )
    response = MockResponse(
        played.body,
        status_code=played.status,
        headers=dict(played.headers.items()),
        content_type=str(played.headers["Content-Type"]),
    )
    openapi.validate_response(request, response)


def test_every_described_status_is_answered_in_a_vector_or_is_about_trouble() -> None:
    """The document promises nothing but what vectors show; parts, buckets and trouble are elsewhere."""
    shown = {(case.request["path"], str(case.answer["status"])) for case in load()}
    described = {
        (path, status)
        for path, operations in DOCUMENT["paths"].items()
        for operation in operations.values()
        for status in operation["responses"]
    }
    elsewhere = {status for _, status in described - shown}
    assert elsewhere == {"206", "307", "400", "408", "415", "416", "429", "503"}


def test_the_document_names_no_server() -> None:
    """A vendor serves under an address of its own: the document is the same for all."""
    assert DOCUMENT["servers"] == [{"url": "/"}]
    assert BASE not in json.dumps(DOCUMENT)
