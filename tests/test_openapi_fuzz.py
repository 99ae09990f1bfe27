"""Made-up requests, good and bad, get documented answers only.

schemathesis makes them from the OpenAPI document: a handful for each operation in every run; with
`nox -s fuzz` 2,000, good and bad ones both on each engine.
"""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import product
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.core.result import Ok

from harness.shop import PRODUCT, SLUG
from harness.world import World
from licserver.domain.records import Scope
from licserver.web.console.pages.access import documents

pytestmark = pytest.mark.slow
SCHEMAS = [schemathesis.openapi.from_dict(document) for document in documents().values()]
OPERATIONS = {
    found.ok().label: found.ok()
    for schema in SCHEMAS
    for found in schema.get_all_operations()
    if isinstance(found, Ok)
}
MARKS = {"sqlite": [], "postgresql": [pytest.mark.postgresql]}
IS_CAMPAIGN = "LICENSING_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("LICENSING_EXAMPLES", "40"))
ADMIN = "/admin/"
CONFORMS = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    ]
)


def _cases() -> Iterator[Any]:
    """Each operation with good and with bad requests, and on each engine; a campaign has all three together.

    In other runs the good ones go to one engine and the bad ones to the other, in turn from operation to
    operation.
    """
    for number, (label, operation) in enumerate(OPERATIONS.items()):
        # Without a body and a query nothing can be asked wrongly.
        modes = list(GenerationMode) if operation.body or operation.query else [GenerationMode.POSITIVE]
        for (mode_number, mode), (engine_number, engine) in product(enumerate(modes), enumerate(MARKS)):
            if IS_CAMPAIGN or len(modes) == 1 or (number + mode_number + engine_number) % 2 == 0:
                name = f"{label}-{mode.name.lower()}-{engine}"
                yield pytest.param(label, mode, engine, marks=MARKS[engine], id=name)


RARELY = st.sampled_from([True, *[False] * 3])
MOSTLY = st.sampled_from([False, *[True] * 3])


@pytest.fixture
def good(make_world: Callable[..., World]) -> tuple[World, dict[str, str]]:
    """A vendor with something to find, no limits in the way, and values that lead to it."""
    world = make_world(miss_limit=0, flood_limit=0)
    world.stock({"products": [PRODUCT, {**PRODUCT, "slug": "empty", "releases": []}], "licenses": []})
    key = world.new_key(SLUG, slots=None, subscription_id="s-1")
    _, token = world.services.tokens.create("fuzz", Scope.WRITE)
    return world, {
        "license_key": key,
        "slug": SLUG,
        "product": SLUG,
        "id": world.services.licenses.get(key).id.hex(),
        "version": "1.0",
        "token": token,
    }


@pytest.mark.parametrize(("label", "mode", "engine_name"), [*_cases()], indirect=["engine_name"])
def test_every_answer_to_whatever_is_sent_is_documented(
    label: str, mode: GenerationMode, good: tuple[World, dict[str, str]]
) -> None:
    """No 5xx, no status, header or body that the document does not have; some of the values are real ones."""
    world, values = good
    operation = OPERATIONS[label]
    if "/subscriptions/" in label:
        values["id"] = "s-1"
    examples = max(1, EXAMPLES // 4) if ADMIN in label else EXAMPLES  # there are so many of them
    token = {"Authorization": f"Bearer {values.pop('token')}"} if ADMIN in label else {}
    with world.serving() as server, requests.Session() as session:
        link = _link(session, server.url, values)

        @given(st.data(), operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        def send(data: st.DataObject, case: Any) -> None:
            for place in (case.body, case.query, case.path_parameters):
                often = MOSTLY if place is case.path_parameters else RARELY
                for name, value in (values | link).items():
                    if isinstance(place, dict) and name in place and data.draw(often):
                        place[name] = value
            if data.draw(MOSTLY) and token:
                case.headers = {**(case.headers or {}), **token}
            response = case.call(base_url=server.url, session=session, timeout=10)
            case.validate_response(response, checks=CONFORMS)

        send()
        assert requests.get(f"{server.url}/readyz", timeout=10).status_code == 200


def _link(session: requests.Session, url: str, values: dict[str, str]) -> dict[str, str]:
    """The parameters of a good link."""
    query = {**values, "current_version": "0", "domain": "a.example"}
    answer = session.get(f"{url}/api/v1/update-check", params=query, timeout=timedelta(seconds=10).seconds)
    return dict(parse_qsl(urlsplit(answer.json()["download_url"]).query))
