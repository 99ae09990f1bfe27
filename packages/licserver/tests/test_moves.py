"""How often a customer frees or moves a slot (D-218, D-332), and how that is answered."""

import json
import random
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest

from licserver.domain.moves import (
    KEPT_RECORDS,
    UNKNOWN_KEY,
    Computer,
    ComputerList,
    Move,
    MoveRecord,
    MoveRefusal,
    RefusedMove,
    counted_moves,
    evaluate_license,
    evaluate_move,
    find_idle,
    find_moved_to,
    group_computers,
    is_probably_shared,
    least_idle_days,
    mask_domain,
    next_move,
    superseded_records,
)
from licserver.domain.records import Activation, Environment, EnvironmentPolicy, LicenseState, Machine
from licserver.protocol.moves import (
    ListRequest,
    MoveRequest,
    list_response,
    move_response,
    parse_list,
    parse_move,
)
from licserver.protocol.public_api import (
    DeactivateRequest,
    InvalidRequest,
    deactivated_response,
    parse_deactivate,
    too_many_moves_response,
    unknown_key_response,
)

STRICT = EnvironmentPolicy.STRICT
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
    assert counted_moves([first, second, third], {A}, NOW, STRICT) == ([second], [third, first])
    assert counted_moves([first, second, third], set(), NOW, STRICT) == ([second, first], [third])


@pytest.mark.parametrize("computers", [2, 3, 4, 7])
@pytest.mark.parametrize("allowed", [1, 2, 3, 5, 9])
def test_only_two_computers_may_take_turns(computers, allowed):
    """Without an end if the product allows two moves; three are refused after as many as it allows."""
    environments = [Environment(f"{number}.example", "192.0.2.1") for number in range(computers)]
    moves: list[Move] = []
    done = 0
    for turn in range(60):
        active = {environments[turn % computers]}
        counted, _ = counted_moves(moves, active, NOW, STRICT)
        if next_move(counted, allowed, NOW) != NOW:
            break
        moves, done = [*counted, Move(NOW - timedelta(hours=60 - turn), frozenset(active))], turn + 1
        assert len(moves) <= allowed
    assert done == (60 if computers == 2 and allowed > 1 else allowed)


def test_a_computer_with_many_addresses_is_one_move():
    """It is back when all of them have a slot again: those that have none may be other computers' by now."""
    laptop = [Environment("laptop", f"192.0.2.{number}") for number in range(8)]
    moves = [move(1, *laptop)]
    assert counted_moves(moves, {A}, NOW, STRICT) == (moves, [])
    assert counted_moves(moves, {laptop[5]}, NOW, STRICT) == (moves, [])
    assert counted_moves(moves, {*laptop[1:], A}, NOW, STRICT) == (moves, [])
    assert counted_moves(moves, {*laptop, A}, NOW, STRICT) == ([], moves)


@pytest.mark.parametrize("policy", [EnvironmentPolicy.DOMAIN, EnvironmentPolicy.EITHER])
def test_a_computer_is_back_at_another_address(policy):
    """Its domain identifies it, unless the address does; of several slots it needs as many (D-336)."""
    here, elsewhere, third = (Environment("laptop", f"192.0.2.{number}") for number in range(3))
    moves = [move(1, here)]
    assert counted_moves(moves, {elsewhere, A}, NOW, policy) == ([], moves)
    assert counted_moves(moves, {elsewhere, A}, NOW, STRICT) == (moves, [])
    assert counted_moves(moves, {A}, NOW, policy) == (moves, [])
    several = [move(1, here, third)]
    assert counted_moves(several, {elsewhere}, NOW, policy) == (several, [])


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


@pytest.mark.parametrize("seed", range(60))
def test_moves_bound_the_computers_of_30_days(seed):
    """Whatever is freed and taken, at any address: as many as there are slots, and one for each move."""
    chance = random.Random(seed)
    slots, allowed = chance.randint(1, 3), chance.randint(1, 3)
    active: list[Environment] = []
    moves: list[Move] = []
    computers = set[str]()
    for step in range(80):
        now = NOW + timedelta(minutes=step)
        name = chance.choice("abcdefg")
        freed = [environment for environment in active if environment.domain == name]
        counted, _ = counted_moves(moves, active, now, EnvironmentPolicy.DOMAIN)
        if freed and next_move(counted, allowed, now) == now:
            active.remove(*freed)
            moves = [*counted, Move(now, frozenset(freed))]
        elif not freed and len(active) < slots:
            active.append(Environment(name, f"192.0.2.{chance.randrange(256)}"))
            computers.add(name)
    assert len(computers) <= slots + allowed


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


# --- computers (D-332) ------------------------------------------------------------------------


def activation(environment, seen=None, label=None, held=None):
    """Return an activation of two days ago, last seen some days ago."""
    last_seen_at = None if seen is None else days_ago(seen)
    return Activation(environment, days_ago(2), last_seen_at, label, None, held and days_ago(held))


def computer(domain="a", held=None):
    """Return a computer."""
    return Computer(domain, None, NOW, held and days_ago(held), frozenset({Environment(domain, "192.0.2.1")}))


def test_environments_of_one_domain_are_one_computer():
    """Its newest label, its last day, and the end of its last file; the newest computer is first."""
    at_home, abroad = Environment("laptop", "192.0.2.1"), Environment("laptop", "192.0.2.2")
    laptop = [activation(at_home, 5, "old", held=-3), activation(abroad, 1, held=-1)]
    assert group_computers([activation(A), *laptop]) == [
        Computer("laptop", "old", days_ago(1), days_ago(-3), frozenset({at_home, abroad})),
        Computer("a.example", None, days_ago(2), None, frozenset({A})),
    ]
    assert group_computers([activation(B, 1, "B"), activation(A, 1)])[0].domain == "b.example"
    assert group_computers([activation(B, 1.5), activation(A, 1)])[0].domain == "a.example"
    (moved,) = group_computers([activation(abroad, 5, "old"), activation(at_home, 1, "new")])
    assert (moved.label, moved.last_seen_at) == ("new", days_ago(1))
    assert group_computers([]) == []


def test_a_license_file_holds_its_computer_until_its_end():
    """Not at that instant any more."""
    held = computer()._replace(held_until=NOW)
    assert [held.is_held(NOW - timedelta(seconds=1)), held.is_held(NOW), computer().is_held(NOW)] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("state", "allowed", "reason"),
    [
        (LicenseState.REVOKED, 0, MoveRefusal.REVOKED),
        (LicenseState.EXPIRED, 0, MoveRefusal.EXPIRED),
        (LicenseState.ACTIVE, 0, MoveRefusal.NOT_ALLOWED),
        (LicenseState.ACTIVE, 1, None),
    ],
)
def test_only_a_valid_license_is_listed_and_moved(state, allowed, reason):
    """And not if the product leaves it to support."""
    assert evaluate_license(state, allowed) == (reason and RefusedMove(reason))


def test_a_move_needs_a_computer_without_a_file_and_a_move_that_is_left():
    """Each refusal names when it is possible, if that is known."""
    used_up = [move(29, B)]
    assert evaluate_move(None, used_up, 1, NOW) == RefusedMove(MoveRefusal.COMPUTER_NOT_FOUND)
    held = computer(held=-3)
    assert evaluate_move(held, used_up, 1, NOW) == RefusedMove(MoveRefusal.FILE_HELD, days_ago(-3))
    over = computer(held=3)
    assert evaluate_move(over, used_up, 1, NOW) == RefusedMove(MoveRefusal.TOO_MANY, days_ago(-1))
    assert evaluate_move(over, used_up, 2, NOW) == over


def record(at, domain, to_domain):
    """Return the record of a move, some days ago."""
    return MoveRecord(days_ago(at), domain, None, to_domain, None)


def test_a_computer_learns_of_the_newest_move_that_took_its_slot():
    """Not of moves of others."""
    first, second = record(9, "a", "b"), record(2, "a", "c")
    assert find_moved_to([second, first, record(1, "b", "a")], "a") == second
    assert find_moved_to([first], "b") is None


def test_two_computers_in_turns_leave_few_records():
    """A third one still learns where its slot went, which was before all of these."""
    records = [record(29, "c", "a")]
    for turn in range(100):
        records.append(record(20 - turn / 10, *("ab" if turn % 2 else "ba")))
        gone = superseded_records(records)
        records = [kept for kept in records if kept not in gone]
    assert len(records) == KEPT_RECORDS + 1
    assert record(29, "c", "a") in records
    assert superseded_records([record(day, f"{day}", "x") for day in range(29)]) == []


@pytest.mark.parametrize(
    ("watched", "idle", "expected"),
    [(60, 30, "older"), (60, 50, None), (60, 49, None), (29, 30, None), (None, 30, None), (30, 30, "older")],
)
def test_the_computer_seen_longest_ago_is_idle_after_some_days(watched, idle, expected):
    """Not one with a license file that has just ended; none before computers were watched for so long."""
    seen = {"older": 40, "newer": 35, "offline": 48}
    computers = [
        computer(domain, 20 if domain == "offline" else None)._replace(last_seen_at=days_ago(days))
        for domain, days in seen.items()
    ]
    watched_since = None if watched is None else days_ago(watched)
    chosen = find_idle(computers, days_ago(idle), watched_since)
    assert (chosen and chosen.domain) == expected
    assert find_idle(computers[1:2], days_ago(35), days_ago(60)) == computers[1]
    ended = computers[2]
    assert find_idle([ended], days_ago(21), days_ago(60)) is None
    assert find_idle([ended], days_ago(20), days_ago(60)) == ended


@pytest.mark.parametrize(("last_seen_days", "least"), [(1, 3), (7, 9)])
def test_a_computer_in_use_is_never_idle(last_seen_days, least):
    """It is stored as seen every so many days, and not before the next day."""
    assert least_idle_days(last_seen_days) == least


@pytest.mark.parametrize(
    ("path", "days", "is_shared"),
    [
        ("abababa", 1, True),
        ("ababab", 1, False),
        ("abcabcab", 1, True),
        ("abcdefghijkl", 1, False),
        ("abababa", 6, False),
        ("abababa", 5, False),  # the first one was exactly 30 days ago
        ("aba" * 3, 3, True),
    ],
)
def test_a_license_that_goes_to_and_fro_is_probably_shared(path, days, is_shared):
    """Six moves between two computers in 30 days; those of one to ever new computers are not sharing."""
    steps = list(pairwise(path))
    records = [record((len(steps) - at) * days, *step) for at, step in enumerate(steps)]
    assert is_probably_shared(records[::-1], NOW) == is_shared


@pytest.mark.parametrize(
    ("domain", "masked"),
    [("9f1c2b3a4d5e6f708192a3b4c5d6d7e8", "9f1c…d7e8"), ("sixteen-chars.eu", "sixt…s.eu"), ("laptop", "l…")],
)
def test_a_masked_domain_cannot_be_called_with(domain, masked):
    """Half of a short one would be enough to guess the rest."""
    assert mask_domain(domain) == masked


def test_a_list_request_is_as_one_to_deactivate():
    """The key is in no repr."""
    request = parse_list(b'{"license_key": "CP-X", "domain": "https://A.example/"}')
    assert request == ListRequest("CP-X", "a.example")
    assert "CP-X" not in repr(request)
    wrong = parse_list(b"{}")
    assert isinstance(wrong, InvalidRequest)
    assert [*wrong.errors] == ["license_key", "domain"]


def test_a_move_request_names_the_computer_and_may_name_its_own():
    """An unusable label is ignored, as in a verify."""
    body = {
        "license_key": "CP-X",
        "domain": "A.example",
        "ip": "192.0.2.1",
        "from": "ab" * 16,
        "label": " L ",
    }
    request = parse_move(json.dumps(body).encode())
    assert request == MoveRequest("CP-X", "a.example", b"\xab" * 16, Machine("L"))
    assert "CP-X" not in repr(request)
    unnamed = parse_move(json.dumps(body | {"label": 5}).encode())
    assert isinstance(unnamed, MoveRequest)
    assert unnamed.machine is None
    wrong = parse_move(json.dumps(body | {"from": "AB" * 16, "ip": "x"}).encode())
    assert isinstance(wrong, InvalidRequest)
    assert wrong.errors == {
        "ip": ["The ip field must be a valid IP address."],
        "from": ["The from field must be 32 lower-case hexadecimal digits."],
    }


def test_a_list_has_what_a_person_recognises():
    """Neither domains nor addresses; a file that is over does not count."""
    computers = [
        (b"\1" * 16, computer("laptop")._replace(label="Anna's")),
        (b"\2" * 16, computer("9f1c2b3a4d5e6f70", held=-3)),
        (b"\3" * 16, computer("old", held=3)),
    ]
    moved = MoveRecord(days_ago(2), "old", None, "laptop", "Anna's")
    response = list_response(ComputerList(3, 3, computers, 0, days_ago(-1), moved), "laptop", NOW)
    row = {"last_seen": "2026-06-15", "is_this": False, "can_move": True, "retry_at": None}
    file = {"can_move": False, "retry_at": "2026-06-18T00:00:00Z"}
    assert (response.status, json.loads(response.content)) == (
        200,
        {
            "slots": 3,
            "used": 3,
            "moves_left": 0,
            "retry_at": "2026-06-16T00:00:00Z",
            "computers": [
                {"id": "01" * 16, "name": "Anna's", "masked": "l…", **row, "is_this": True},
                {"id": "02" * 16, "name": None, "masked": "9f1c…6f70", **row, **file},
                {"id": "03" * 16, "name": None, "masked": "o…", **row},
            ],
            "moved_to": {"name": "Anna's", "masked": "l…", "on": "2026-06-13"},
        },
    )
    alone = json.loads(list_response(ComputerList(None, 0, [], 3, None, None), "laptop", NOW).content)
    assert (alone["slots"], alone["retry_at"], alone["moved_to"]) == (None, None, None)
    assert list_response(UNKNOWN_KEY, "laptop", NOW) == unknown_key_response()


def test_an_app_learns_whether_the_license_was_moved():
    """And why not, and when it can be."""
    moved = move_response(computer("laptop"))
    assert json.loads(moved.content) == {"moved": True, "from": {"name": None, "masked": "l…"}}
    assert json.loads(move_response(None).content) == {"moved": False}
    refusals = {}
    for reason in MoveRefusal:
        is_timed = reason in {MoveRefusal.FILE_HELD, MoveRefusal.TOO_MANY}
        response = move_response(RefusedMove(reason, days_ago(-1) if is_timed else None))
        body = json.loads(response.content)
        assert ("2026-06-16" in body["message"]) == is_timed
        refusals[body["error"]] = response.status, body.get("retry_at", "absent")
    assert refusals == {
        "invalid_license": (401, "absent"),
        "license_revoked": (403, "absent"),
        "license_expired": (401, "absent"),
        "not_allowed": (403, None),
        "computer_not_found": (404, "absent"),
        "file_held": (403, "2026-06-16T00:00:00Z"),
        "too_many_moves": (403, "2026-06-16T00:00:00Z"),
    }
