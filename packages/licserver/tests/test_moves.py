"""How often a customer frees a slot (D-218), and how that is answered."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from licserver.domain.moves import Move, counted_moves, next_move
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


def move(days: float, *environments: Environment):
    """Return a move of some days ago."""
    return Move(days_ago(days), frozenset(environments))


def test_what_has_a_slot_again_does_not_count():
    """Going back to a computer takes its move off; 30 days do the same."""
    first, second, third = move(3, A), move(29, B), move(30, C)
    assert counted_moves([first, second, third], {A}, NOW) == ([second], [third, first])
    assert counted_moves([first, second, third], set(), NOW) == ([second, first], [third])


@pytest.mark.parametrize("computers", [2, 3, 4, 7])
@pytest.mark.parametrize("allowed", [1, 2, 3, 5, 9])
def test_only_two_computers_may_take_turns(computers, allowed):
    """Without an end if the product allows two moves; three are refused after as many as it allows."""
    environments = [Environment(f"{number}.example", "192.0.2.1") for number in range(computers)]
    moves: list[Move] = []
    done = 0
    for turn in range(60):
        active = {environments[turn % computers]}
        counted, _ = counted_moves(moves, active, NOW)
        if next_move(counted, allowed, NOW) != NOW:
            break
        moves, done = [*counted, Move(NOW - timedelta(hours=60 - turn), frozenset(active))], turn + 1
        assert len(moves) <= allowed
    assert done == (60 if computers == 2 and allowed > 1 else allowed)


def test_a_computer_with_many_addresses_is_one_move():
    """It is back when all of them have a slot again: those that have none may be other computers' by now."""
    laptop = [Environment("laptop", f"192.0.2.{number}") for number in range(8)]
    moves = [move(1, *laptop)]
    assert counted_moves(moves, {A}, NOW) == (moves, [])
    assert counted_moves(moves, {laptop[5]}, NOW) == (moves, [])
    assert counted_moves(moves, {*laptop[1:], A}, NOW) == (moves, [])
    assert counted_moves(moves, {*laptop, A}, NOW) == ([], moves)


@pytest.mark.parametrize(
    ("counted", "allowed", "expected"),
    [
        ([], 0, None),
        ([], 1, NOW),
        ([29], 2, NOW),
        ([29], 1, NOW + timedelta(days=1)),
        ([29, 10], 1, NOW + timedelta(days=20)),  # the vendor allows fewer by now
    ],
)
def test_the_next_move_is_possible_when_an_earlier_one_is_30_days_old(counted, allowed, expected):
    """Too many moves name the day on which there is one again."""
    assert next_move([move(days, A) for days in counted], allowed, NOW) == expected


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
    assert [(answer.status, json.loads(answer.content)) for answer in answers] == [
        (200, {"deactivated": 1}),
        (401, {"error": "invalid_license", "message": "The license key is not valid."}),
        (403, {"error": "too_many_moves", "message": "No.", "retry_at": "2026-06-15T00:00:00Z"}),
        (403, {"error": "not_allowed", "message": "No.", "retry_at": None}),
    ]
