"""Whether a machine may have a trial, and how requests and answers are written."""

import json
from datetime import UTC, date, datetime

import pytest

from licserver.domain.records import IssuedLicense
from licserver.domain.trials import TrialRefusal, evaluate_new, evaluate_started
from licserver.protocol.public_api import InvalidRequest
from licserver.protocol.trials import TrialRequest, parse_trial, trial_refusal_response, trial_response

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
LAST_DAY = date(2026, 6, 29)  # 14 days after that
MACHINE = "0123456789abcdef" * 4


def trial(**terms: object):
    """Return the license of a trial, unless the terms differ."""
    record = {"id": b"", "encrypted_key": b"", "product_id": 1, "product_slug": "app", "product_name": "App"}
    return IssuedLicense(**{**record, "issued_at": NOON, "trial": True, "expires_on": LAST_DAY, **terms})


@pytest.mark.parametrize(
    ("days", "started", "limits", "expected"),
    [
        (0, (0, 0), (9, 9), TrialRefusal.NOT_OFFERED),
        (14, (8, 4), (9, 5), LAST_DAY),
        (14, (9, 4), (9, 5), TrialRefusal.TOO_MANY),
        (14, (8, 5), (9, 5), TrialRefusal.TOO_MANY),
        (14, (1, 0), (1, 9), TrialRefusal.TOO_MANY),
        (14, (1, 1), (9, 1), TrialRefusal.TOO_MANY),
        (14, (99, 99), (0, 0), LAST_DAY),
    ],
)
def test_a_new_trial_needs_a_product_that_offers_them_and_room_in_both_limits(
    days, started, limits, expected
):
    """Zero days are no trials, and a limit of zero is none."""
    assert evaluate_new(days, NOON.date(), started, limits) == expected


@pytest.mark.parametrize(
    "license_",
    [None, trial(trial=False), trial(revoked_at=NOON), trial(expires_on=date(2026, 6, 14))],
    ids=["deleted", "converted", "revoked", "expired"],
)
def test_a_trial_that_is_over_does_not_begin_again(license_):
    """Nor does a machine get the key of a license that somebody bought."""
    assert evaluate_started(license_, NOON) is TrialRefusal.ENDED
    assert evaluate_started(trial(), NOON) == trial()


WRONG = ["", MACHINE[:-1], MACHINE.upper(), "g" * 64, MACHINE + "\n", 7, None, ["a"], "a\0"]


@pytest.mark.parametrize("machine", WRONG, ids=repr)
def test_a_machine_is_named_by_a_digest(machine):
    """Anything else is malformed; what is no JSON object lacks both fields."""
    found = parse_trial(json.dumps({"slug": "app", "machine": machine}).encode())
    assert isinstance(found, InvalidRequest)
    assert [*found.errors] == ["machine"]
    if machine == "g" * 64:
        assert found.errors["machine"] == [
            "The machine field must be a SHA-256 digest, in 64 hexadecimal digits."
        ]
    nothing = parse_trial(b"[]")
    assert isinstance(nothing, InvalidRequest)
    assert [*nothing.errors] == ["slug", "machine"]


def test_a_request_is_read():
    """With both fields; the installation's domain is optional, and one that cannot be is none."""
    for more, domain in (
        ({}, None),
        ({"domain": "https://A.example/"}, "a.example"),
        ({"domain": 7}, None),
        ({"domain": "a\0"}, None),
    ):
        body = json.dumps({"slug": "app", "machine": MACHINE, **more}).encode()
        assert parse_trial(body) == TrialRequest("app", MACHINE, domain)


@pytest.mark.parametrize(
    ("terms", "expiry", "lifetime"),
    [
        ({}, "2026-06-29", False),
        ({"expires_on": None}, None, False),
        ({"lifetime": True}, None, True),
    ],
)
def test_a_trial_is_answered_with_its_key(terms, expiry, lifetime):
    """And with what a verify says of it."""
    answer = trial_response(trial(**terms), "CP-X")
    shown = {"license_key": "CP-X", "product": "App", "expiry": expiry, "lifetime": lifetime, "trial": True}
    assert (answer.status, json.loads(answer.content)) == (200, shown)


@pytest.mark.parametrize(
    ("refusal", "status", "code", "message"),
    [
        (TrialRefusal.PRODUCT_NOT_FOUND, 404, "product_not_found", "There is no product with this slug."),
        (TrialRefusal.NOT_OFFERED, 403, "trials_not_offered", "There are no trials of this product."),
        (TrialRefusal.ENDED, 403, "trial_ended", "This machine has had its trial of this product."),
        (
            TrialRefusal.TOO_MANY,
            403,
            "too_many_trials",
            "No more trials can be started today, or not from this network.",
        ),
    ],
)
def test_each_refusal_has_a_code(refusal, status, code, message):
    """Apps branch on the code, people read the sentence."""
    answer = trial_refusal_response(refusal)
    assert (answer.status, json.loads(answer.content)) == (status, {"error": code, "message": message})
