"""Uses of metered entitlements as requests and answers, and the periods that they are counted in."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from licserver.domain.entitlements import MAX_NUMBER, current_period
from licserver.protocol.public_api import InvalidRequest
from licserver.protocol.uses import (
    ConsumeRefusal,
    ConsumeRequest,
    consumed_response,
    parse_consume,
    quota_exceeded_response,
    use_conflict_response,
    use_refusal_response,
)

USE = {
    "license_key": "CP-X",
    "domain": "https://A.example/",
    "name": "exports",
    "amount": 3,
    "use_id": "use-0001",
}
NEXT = datetime(2026, 7, 1, 2, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("per", "at", "name", "ends"),
    [
        ("day", datetime(2026, 12, 31, 23, 59, tzinfo=UTC), "2026-12-31", datetime(2027, 1, 1, tzinfo=UTC)),
        ("month", datetime(2028, 1, 31, 12, tzinfo=UTC), "2028-01", datetime(2028, 2, 1, tzinfo=UTC)),
        ("month", datetime(2026, 12, 1, tzinfo=UTC), "2026-12", datetime(2027, 1, 1, tzinfo=UTC)),
        ("year", datetime(2028, 2, 29, tzinfo=UTC), "2028", datetime(2029, 1, 1, tzinfo=UTC)),
        ("day", NEXT - timedelta(microseconds=1), "2026-06-30", datetime(2026, 7, 1, tzinfo=UTC)),
    ],
)
def test_periods(per, at, name, ends):
    """Calendar days, months and years in UTC; at their end the next one has begun."""
    assert current_period(per, at) == (name, ends)
    assert current_period(per, ends).name != name


def parse(**fields: object):
    """Parse a request that differs from a good one in these fields."""
    return parse_consume(json.dumps({**USE, **fields}).encode())


@pytest.mark.parametrize("amount", [1, MAX_NUMBER])
@pytest.mark.parametrize("use_id", ["A-z_0123", "x" * 64])
def test_a_use_is_read(amount, use_id):
    """The domain in its normal form; the key is in no repr."""
    found = parse(amount=amount, use_id=use_id)
    assert found == ConsumeRequest("CP-X", "a.example", "exports", amount, use_id)
    assert "CP-X" not in repr(found)


NAME = {"name": ["The name field must be the name of an entitlement."]}
AMOUNT = {"amount": ["The amount field must be a whole number from 1."]}
USE_ID = {"use_id": ["The use id field must have 8 to 64 letters, digits, - and _."]}


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        *(({"name": name}, NAME) for name in ("", "A b", 7, None)),
        *(({"amount": amount}, AMOUNT) for amount in (0, -1, MAX_NUMBER + 1, True, 1.0, "1", None)),
        *(({"use_id": use_id}, USE_ID) for use_id in ("x" * 7, "x" * 65, "1234567!", 12345678, None)),
        ({"license_key": ""}, {"license_key": ["The license key field is required."]}),
        ({"domain": None, "amount": 0}, {"domain": ["The domain field is required."], **AMOUNT}),
    ],
)
def test_all_faulty_fields_are_named_at_once(fields, errors):
    """Those of every request, and its own."""
    found = parse(**fields)
    assert isinstance(found, InvalidRequest)
    assert found.errors == errors


@pytest.mark.parametrize("body", [b"[]", b"{", b"[" * 16384, b"\xff"])
def test_a_body_that_is_no_json_object_lacks_every_field(body):
    """And is no exception."""
    found = parse_consume(body)
    assert isinstance(found, InvalidRequest)
    assert [*found.errors] == [*USE]


def test_a_use_is_answered_with_what_is_left():
    """A limit that was lowered leaves nothing, and not less; instants are in UTC."""
    body = {"name": "exports", "used": 3, "limit": 10, "remaining": 7, "resets_at": "2026-07-01T00:00:00Z"}
    answer = consumed_response("exports", 3, 10, NEXT)
    assert (answer.status, json.loads(answer.content)) == (200, body)
    assert json.loads(consumed_response("exports", 12, 10, NEXT).content)["remaining"] == 0


def test_refusals_have_codes():
    """Apps branch on them."""
    used_up = quota_exceeded_response("No more exports.", 10, 10, NEXT)
    assert (used_up.status, json.loads(used_up.content)) == (
        403,
        {
            "error": "quota_exceeded",
            "message": "No more exports.",
            "used": 10,
            "limit": 10,
            "remaining": 0,
            "resets_at": "2026-07-01T00:00:00Z",
        },
    )
    others = map(
        use_refusal_response,
        (ConsumeRefusal.NOT_METERED, ConsumeRefusal.NOT_ACTIVATED, ConsumeRefusal.EXPIRED),
    )
    assert [(response.status, *json.loads(response.content).values()) for response in others] == [
        (403, "not_entitled", "The license has no quota of this name."),
        (403, "not_activated", "The license is not activated here; verify it first."),
        (401, "license_expired", "The license has expired."),
    ]


def test_an_id_that_counts_another_use_is_refused():
    """With 409: the client has used it twice."""
    refused = use_conflict_response("The use_id was used for another use.")
    assert (refused.status, json.loads(refused.content)["error"]) == (409, "use_id_conflict")
