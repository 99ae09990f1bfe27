"""How often a customer frees a slot (D-218), and how that is answered."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from licserver.domain.extensions import counted_moves, next_move
from licserver.domain.records import Environment
from licserver.protocol.public_api import (
    DeactivateRequest,
    InvalidRequest,
    deactivated_response,
    parse_deactivate,
    too_many_moves_response,
    unknown_key_response,
)

NOW = datetime(2026, 6, 15, tzinfo=UTC)
A, B, C = (Environment(f"{name}.example", "192.0.2.1") for name in "abc")


def days_ago(days: int):
    """Return an instant before `NOW`."""
    return NOW - timedelta(days=days)


def test_what_has_a_slot_again_does_not_count():
    """Going back to a computer takes its move off; 30 days do the same."""
    freed = {A: days_ago(3), B: days_ago(29), C: days_ago(30)}
    assert counted_moves(freed, {A}, NOW) == [days_ago(29)]
    assert counted_moves(freed, set(), NOW) == [days_ago(29), days_ago(3)]


@pytest.mark.parametrize(
    ("counted", "allowed", "expected"),
    [
        ([], 0, None),
        ([], 1, NOW),
        ([days_ago(29)], 2, NOW),
        ([days_ago(29)], 1, NOW + timedelta(days=1)),
        ([days_ago(29), days_ago(10)], 1, NOW + timedelta(days=20)),  # the vendor allows fewer by now
    ],
)
def test_the_next_move_is_possible_when_an_earlier_one_is_30_days_old(counted, allowed, expected):
    """Too many moves name the day on which there is one again."""
    assert next_move(counted, allowed, NOW) == expected


def test_a_request_names_key_and_domain():
    """The domain in its normal form, as in a verify; the key is in no repr."""
    found = parse_deactivate(b'{"license_key": "CP-X", "domain": "https://A.example/"}')
    assert found == DeactivateRequest("CP-X", "a.example")
    assert "CP-X" not in repr(found)
    wrong = parse_deactivate(b'{"license_key": ""}')
    assert isinstance(wrong, InvalidRequest)
    assert [*wrong.errors] == ["license_key", "domain"]


def test_an_app_gets_the_state_of_its_slot():
    """How many were freed, when one can be again, or that only support frees them."""
    too_soon = too_many_moves_response("No.", NOW.astimezone(timezone(timedelta(hours=2))))
    answers = [
        deactivated_response(1),
        unknown_key_response(),
        too_soon,
        too_many_moves_response("No.", None),
    ]
    assert [(one.status, json.loads(one.content)) for one in answers] == [
        (200, {"deactivated": 1}),
        (401, {"error": "invalid_license", "message": "The license key is not valid."}),
        (403, {"error": "too_many_moves", "message": "No.", "retry_at": "2026-06-15T00:00:00Z"}),
        (403, {"error": "not_allowed", "message": "No.", "retry_at": None}),
    ]
