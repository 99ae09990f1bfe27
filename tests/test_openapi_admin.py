"""The admin API's OpenAPI document is that of the code.

`LICENSING_WRITE_OPENAPI=1 pytest tests/test_openapi_admin.py` writes it anew.
"""

import json
import os
from pathlib import Path

from licserver.protocol.webhooks import EventType
from licserver.web.admin.openapi import describe_api

FILE = Path(__file__).parents[1] / "docs/openapi-admin.json"


def test_the_document_describes_every_operation() -> None:
    """Paths, parameters, bodies and answers are those of the code, and it is sound."""
    from openapi_core import OpenAPI  # noqa: PLC0415 - a quarter of a second, in each worker

    if os.environ.get("LICENSING_WRITE_OPENAPI"):
        FILE.write_text(json.dumps(describe_api(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    document = json.loads(FILE.read_text(encoding="utf-8"))
    assert document == describe_api()
    OpenAPI.from_dict(document)


def test_every_event_that_is_sent_is_described() -> None:
    """In the section `webhooks`, by its type."""
    assert {*describe_api()["webhooks"]} == {*EventType}


def test_a_change_has_no_defaults() -> None:
    """A program made of the document would send them: `slots: null` gives a license any number of slots."""
    schemas = describe_api()["components"]["schemas"]
    for name in ("LicenseChange", "ProductChange"):
        assert schemas[name]["properties"]
        assert not [
            field for field, property_ in schemas[name]["properties"].items() if "default" in property_
        ]


def test_every_example_is_valid() -> None:
    """A field without an example is named here; `openapi._EXAMPLES` has them."""
    from openapi_schema_validator import OAS31Validator  # noqa: PLC0415 - as above

    components = describe_api()["components"]
    for name, webhook in describe_api()["webhooks"].items():
        (content,) = webhook["post"]["requestBody"]["content"].values()
        assert [
            wrong.message for wrong in OAS31Validator(content["schema"]).iter_errors(content["example"])
        ] == [], name
    for name, shape in components["schemas"].items():
        if "example" in shape:
            schema = {"$ref": f"#/components/schemas/{name}", "components": components}
            assert [error.message for error in OAS31Validator(schema).iter_errors(shape["example"])] == [], (
                name
            )
