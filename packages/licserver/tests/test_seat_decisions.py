"""Who gets a floating seat, and how requests and answers are written."""

import json
from datetime import UTC, date, datetime, timedelta

import pytest

from licserver.domain.records import IssuedLicense
from licserver.domain.seats import (
    GrantedSeat,
    HeldSeats,
    NoSeat,
    Seat,
    SeatRefusal,
    SeatRequest,
    evaluate_seat,
)
from licserver.protocol.public_api import InvalidRequest
from licserver.protocol.seats import SeatCall, parse_seat, released_response, seat_response

NOW = datetime(2026, 6, 15, tzinfo=UTC)
LEASE = timedelta(minutes=2)
MINE, NOBODY = b"\1" * 16, HeldSeats(0, None)
FULL = HeldSeats(5, NOW + timedelta(seconds=7))
ASKED = {"license_key": "CP-X", "domain": "https://A.example/", "seat": MINE.hex()}


def license_(**terms: object):
    """Return a license with five seats, unless the terms differ."""
    record = {"id": b"", "encrypted_key": b"", "product_id": 1, "product_slug": "app", "product_name": "App"}
    return IssuedLicense(**{**record, "issued_at": NOW, "floating_seats": 5, **terms})


def seat(*, seconds_left=60, is_ended=False):
    """Return my seat, which was taken an hour ago."""
    end = NOW + timedelta(seconds=seconds_left)
    return Seat(MINE, "a.example", None, NOW - timedelta(hours=1), end, is_ended)


@pytest.mark.parametrize(
    ("terms", "slug", "known", "others", "expected"),
    [
        ({"revoked_at": NOW, "floating_seats": None}, "no", None, FULL, SeatRefusal.REVOKED),
        ({"expires_on": date(2026, 6, 14)}, "no", None, FULL, SeatRefusal.EXPIRED),
        ({"floating_seats": None}, "no", None, FULL, SeatRefusal.PRODUCT_MISMATCH),
        ({"floating_seats": None}, None, None, NOBODY, SeatRefusal.NOT_FLOATING),
        ({}, "app", seat(is_ended=True), NOBODY, SeatRefusal.LOST),
        ({}, None, None, FULL, NoSeat(5, NOW + timedelta(seconds=7))),
        ({}, None, seat(seconds_left=0), FULL, NoSeat(5, NOW + timedelta(seconds=7))),
        ({}, None, seat(seconds_left=0, is_ended=True), HeldSeats(4, NOW), (NOW, 5)),
        ({}, "app", None, NOBODY, (NOW, 1)),
        ({"floating_seats": 1}, None, seat(), FULL, (NOW - timedelta(hours=1), 6)),
        ({"floating_seats": 0}, None, None, NOBODY, NoSeat(0, NOW)),
    ],
)
def test_who_gets_a_seat(terms, slug, known, others, expected):
    """The license is judged as in a verify, then the seats; what is held already is renewed."""
    request = SeatRequest(MINE, "a.example", slug, "Desk 3")
    verdict = evaluate_seat(license_(**terms), request, known, others, NOW, LEASE)
    if isinstance(expected, SeatRefusal | NoSeat):
        assert verdict == expected
    else:
        since, used = expected
        held = Seat(MINE, "a.example", "Desk 3", since, NOW + LEASE)
        assert verdict == GrantedSeat(held, license_(**terms).floating_seats, used)


def parse(**fields: object):
    """Parse a request that differs from a good one in these fields."""
    return parse_seat(json.dumps({**ASKED, **fields}).encode())


@pytest.mark.parametrize(
    ("fields", "slug", "label", "is_release"),
    [
        ({}, None, None, False),
        ({"slug": "app", "label": " Desk 3 ", "release": True}, "app", "Desk 3", True),
        ({"slug": 7, "label": 7, "release": None}, None, None, False),
        ({"slug": "", "label": "x" * 81, "release": False}, None, None, False),
    ],
)
def test_a_request_is_read(fields, slug, label, is_release):
    """An unusable slug or label counts as none; the key is in no repr."""
    request = SeatRequest(MINE, "a.example", slug, label)
    call = parse(**fields)
    assert isinstance(call, SeatCall)
    assert (call.license_key, call.request, call.is_release) == ("CP-X", request, is_release)
    assert "CP-X" not in repr(call)


@pytest.mark.parametrize("wrong", ["0" * 31, "0" * 33, "G" * 32, "A" * 32, "0" * 32 + "\n"])
def test_a_seat_has_32_digits(wrong):
    """In lower case, so that one seat has one name."""
    found = parse(seat=wrong)
    assert isinstance(found, InvalidRequest)
    assert found.errors == {"seat": ["The seat field must be 32 lower-case hexadecimal digits."]}


def test_all_fields_are_required():
    """Each one that is missing is named."""
    found = parse_seat(b"[]")
    assert isinstance(found, InvalidRequest)
    assert [*found.errors] == ["license_key", "domain", "seat"]


REFUSALS = {
    SeatRefusal.INVALID_LICENSE: (401, "invalid_license", "The license key is not valid."),
    SeatRefusal.REVOKED: (403, "license_revoked", "The license has been revoked."),
    SeatRefusal.EXPIRED: (401, "license_expired", "The license has expired."),
    SeatRefusal.PRODUCT_MISMATCH: (403, "product_mismatch", "The license was issued for another product."),
    SeatRefusal.NOT_FLOATING: (403, "not_floating", "This license has no floating seats."),
    SeatRefusal.LOST: (403, "seat_lost", "This seat was released or taken back; take another one."),
}


@pytest.mark.parametrize("refusal", SeatRefusal)
def test_each_refusal_has_a_code(refusal):
    """To take a seat and to release one."""
    status, code, message = REFUSALS[refusal]
    for answer in (seat_response(refusal, NOW, LEASE), released_response(refusal)):
        assert (answer.status, json.loads(answer.content)) == (status, {"error": code, "message": message})


def test_a_seat_is_answered_with_its_lease():
    """The lease in seconds is for apps whose clock is wrong."""
    answer = seat_response(GrantedSeat(seat(), 5, 3), NOW, LEASE)
    assert (answer.status, json.loads(answer.content)) == (
        200,
        {
            "seat": MINE.hex(),
            "expires_at": "2026-06-15T00:01:00Z",
            "lease_seconds": 120,
            "seats": 5,
            "used": 3,
        },
    )
    released = released_response(released=True)
    assert (released.status, json.loads(released.content)) == (200, {"released": True})


@pytest.mark.parametrize(("seconds", "after"), [(70, 70), (69.1, 70), (0, 1), (-5, 1)])
def test_all_seats_in_use_say_when_to_ask_again(seconds, after):
    """In whole seconds, and never at once."""
    answer = seat_response(NoSeat(5, NOW + timedelta(seconds=seconds)), NOW, LEASE)
    body = json.loads(answer.content)
    assert (answer.status, body["retry_after"], body.pop("retry_at")[-1]) == (403, after, "Z")
    assert body == {
        "error": "no_seat",
        "message": "All 5 seats of this license are in use.",
        "seats": 5,
        "retry_after": after,
    }
