"""Bodies, signatures and retries of webhooks, read by libraries of others."""

import json
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest

from licserver.protocol.webhooks import (
    DeliveryOutcome,
    EventType,
    data_schema,
    derive_event_id,
    describe_webhooks,
    evaluate_response,
    format_event,
    format_secret,
    next_attempt,
    signed_headers,
)

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)


def test_the_published_vector_is_signed_as_published():
    """The example of Standard Webhooks."""
    secret = b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    at = datetime.fromtimestamp(1614265330, UTC)
    assert signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}', [secret]) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize("module", ["standardwebhooks", "svix.webhooks"])
def test_others_verify_what_is_signed_with_either_secret(module):
    """While a secret rotates, receivers with the new and with the old one accept the same request."""
    library = import_module(module).Webhook  # here: svix takes a quarter of a second
    secrets = [bytes([number]) * 32 for number in range(3)]
    body = format_event(EventType.LICENSE_ISSUED, NOON, {"license_id": "ab"}).encode()
    headers = signed_headers("msg_1", datetime.now(UTC), body, secrets[:2])
    for secret in secrets[:2]:
        library(format_secret(secret)).verify(body, headers)
    data = {"license_id": "ab"}
    assert json.loads(body) == {
        "type": "license.issued",
        "timestamp": "2026-06-15T12:00:00.000Z",
        "data": data,
    }
    with pytest.raises(Exception, match="No matching signature"):
        library(format_secret(secrets[2])).verify(body, headers)


def test_a_secret_is_read_as_it_was_written():
    """With the prefix that receivers know."""
    assert format_secret(b"x" * 32).startswith("whsec_")
    assert b64decode(format_secret(b"x" * 32).removeprefix("whsec_")) == b"x" * 32


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, DeliveryOutcome.DELIVERED),
        (204, DeliveryOutcome.DELIVERED),
        (299, DeliveryOutcome.DELIVERED),
        (199, DeliveryOutcome.FAILED),
        (302, DeliveryOutcome.FAILED),
        (400, DeliveryOutcome.FAILED),
        (410, DeliveryOutcome.GONE),
        (500, DeliveryOutcome.FAILED),
        (None, DeliveryOutcome.FAILED),
    ],
)
def test_a_status_decides_what_follows(status, outcome):
    """Only 2xx is a success; a redirect is not."""
    assert evaluate_response(status) is outcome


def test_ten_attempts_are_made_in_three_days():
    """The schedule that Standard Webhooks recommends, each pause up to a tenth longer."""
    hours = [0, 2, 5, 10, 14, 20, 24]
    wanted = [timedelta(seconds=5), timedelta(minutes=5), timedelta(minutes=30)]
    wanted += [timedelta(hours=hour) for hour in hours[1:]]
    assert [next_attempt(number, NOON, 0) - NOON for number in range(1, 10)] == wanted
    assert next_attempt(1, NOON, 1) - NOON == timedelta(seconds=5.5)
    assert next_attempt(10, NOON, 0) is None


def test_an_event_that_is_found_twice_has_one_id():
    """And another event has another one."""
    assert derive_event_id("a", "b") == derive_event_id("a", "b") != derive_event_id("a", "c")


def test_each_type_of_event_is_described():
    """With the schema of its data."""
    described = describe_webhooks()
    assert set(described) == {type_.value for type_ in EventType}
    for type_ in EventType:
        content = described[type_.value]["post"]["requestBody"]["content"]
        schema = content["application/json"]["schema"]
        assert schema["properties"]["data"] == data_schema(type_)
        assert set(data_schema(type_)["required"]) <= set(data_schema(type_)["properties"])
