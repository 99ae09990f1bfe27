"""Errors of requests, files and deliveries name fields as they were sent, not as they are validated."""

import json
import re
from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from licserver.protocol.license_files import FIELDS, InvalidLine, read_rows
from licserver.shops.reading import ShopObject, UnreadableDeliveryError, parse
from licserver.web.admin.operations import OPERATIONS
from licserver.web.responses import to_api_error

WRONG: list[Any] = [
    *(1.5, "27.02.2027", True, None, [1], [{"x": 1}], {"x": 1}),
    *({"a": {"limit": "x"}}, {"a": [1]}, {"a": 1.5}, {"a": {"limit": 1, "per": "week"}}, {"a": -1}),
]
NAME = re.compile(r"[a-z_]+(\.[ax0-9])?")


def errors_of(model: type[BaseModel], content: Any) -> dict[str, list[str]]:
    """Return the errors of the admin API's response; empty if the content is valid."""
    try:
        model.model_validate_json(json.dumps(content))
    except ValidationError as invalid:
        return dict(to_api_error(invalid).errors or {})
    return {}


BODIES = sorted({operation.body for operation in OPERATIONS if operation.body is not None}, key=repr)


@pytest.mark.parametrize("body", BODIES)
def test_the_admin_api_names_fields_with_one_message_each(body: type[BaseModel]) -> None:
    """An entitlement of a wrong type had four messages, of which three misled."""
    count = 0
    for name in body.model_fields:
        for value in WRONG:
            for field, messages in errors_of(body, {name: value}).items():
                assert NAME.fullmatch(field), field
                assert len(messages) == 1, messages
                assert "function" not in messages[0]
                count += 1
    assert count or not body.model_fields


def test_a_file_of_licenses_names_its_fields() -> None:
    """Each sentence begins with a field of the file, or one in it."""
    count = 0
    for name in FIELDS:
        for value in WRONG:
            lines = [json.dumps({"product": "app", name: value}) + "\n"]
            for _, row in read_rows("jsonl", lines):
                if isinstance(row, InvalidLine):
                    field, colon, _ = row.message.partition(": ")
                    assert colon, row.message
                    assert field.split(".")[0] in FIELDS, row.message
                    assert "function" not in row.message
                    count += 1
    assert count > len(FIELDS)


class Sale(ShopObject):
    """An object with a field that has two types."""

    variants: dict[str, str] | str
    line_items: list[dict[str, int]] = Field([])


@pytest.mark.parametrize(
    ("sent", "place"),
    [
        ({"variants": [1]}, "variants"),
        ({"variants": {"tier": [1]}}, "variants.tier"),
        ({"variants": {"str": [1]}}, "variants.str"),
        ({}, "variants"),
        ({"variants": "a", "line_items": [{}, {"quantity": "x"}]}, "line_items.1.quantity"),
        ({"variants": "a", "line_items": {"quantity": 1}}, "line_items"),
    ],
)
def test_a_delivery_is_unreadable_at_a_field_that_was_sent(sent: dict[str, Any], place: str) -> None:
    """It was `variants.dict[str,str].tier`."""
    with pytest.raises(UnreadableDeliveryError, match=f"^{place}: "):
        parse(Sale, sent)
