"""A floating seat: what the service may answer, and how it is held, given up and lost."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from licclient import LicenseClient, Reason, Trust, explain
from licclient._core.clock import uptime
from licclient._core.responses import Reply
from licclient._seats.fake import FakeSeats
from licclient._seats.protocol import HeldSeat, read_seat
from licclient._seats.renewal import Lost, Pause, Renew, next_step, retry_at
from licclient.errors import (
    InvalidRequestError,
    LicenseRefusedError,
    NoSeatError,
    NotActivatedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)
from licclient.testing import LicenseService, MemoryStorage
from licclient.types import Seat

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HELD = {"seat": "0" * 32, "expires_at": "2026-11-20T12:02:00Z", "lease_seconds": 120, "seats": 5, "used": 3}
FULL = {"error": "no_seat", "message": f"All are in use with {KEY}.", "seats": 5, "retry_after": 70}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, HELD, HeldSeat(120, 5, 3)),
        (200, {**HELD, "lease_seconds": 0}, ServiceUnavailableError),
        (200, {**HELD, "lease_seconds": True}, ServiceUnavailableError),
        (200, {**HELD, "lease_seconds": 10**9}, ServiceUnavailableError),
        (200, {"valid": True}, ServiceUnavailableError),
        (403, FULL, (5, NOW + timedelta(seconds=70))),
        (403, {**FULL, "retry_after": -1}, ServiceUnavailableError),
        (403, {"error": "Forbidden", "message": "no"}, ServiceUnavailableError),
        (403, {"error": "seat_lost", "message": "lost"}, (None, None)),
        (403, {"error": "not_floating", "message": "none"}, (0, None)),
        (403, {"error": "license_revoked", "message": "revoked"}, LicenseRefusedError),
        (401, {"error": "license_expired", "message": "expired"}, LicenseRefusedError),
        (403, "<html>", ServiceUnavailableError),
        (404, {"error": "not_found", "message": "no"}, ServiceUnavailableError),  # a server of somebody else
        (405, "", ServiceUnavailableError),
        (422, {"message": "no", "errors": {"seat": ["no"]}}, InvalidRequestError),
        (503, "", ServiceUnavailableError),
    ],
)
def test_what_the_service_answers(status, body, expected):
    """Only the service's own words count."""
    found = read_seat(Reply(status, json.dumps(body).encode()), KEY, NOW)
    if isinstance(expected, tuple):
        assert isinstance(found, NoSeatError)
        assert (found.seats, found.retry_at) == expected
        assert KEY not in found.message
    else:
        assert found == expected if isinstance(expected, HeldSeat) else isinstance(found, expected)


@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "ja", "zh"])
def test_people_see_what_is_wrong(language):
    """How many seats there are and when to try again; that it was taken back; that there are none."""
    full = explain(NoSeatError("", 5, NOW), language)
    assert "5" in full
    assert f"{NOW.astimezone():%H:%M}" in full
    other = {explain(NoSeatError("", seats), language) for seats in (None, 0, 5)}
    assert len({full, *other}) == 4


@pytest.fixture
def office(license_service: LicenseService):
    """A service with a license of one seat, and its key."""
    return license_service, license_service.issue("App", seats=1, activated=True)


async def test_a_seat_is_held_for_a_block(office, eventually):
    """Another computer gets it afterwards, and no sooner; it is renewed without being asked."""
    service, key = office
    other = service.client(storage=MemoryStorage())
    with service.client().seats.take() as seat:
        assert (seat.is_held, seat.seats, seat.used) == (True, 1, 1)
        with pytest.raises(RuntimeError):
            seat.take()
        with pytest.raises(NoSeatError) as refused:
            other.seats.take(key)
        assert refused.value.retry_at == service.clock() + timedelta(minutes=2)
        for renewals in (1, 2, 3):
            service.clock.move(seconds=41)
            await eventually(lambda count=renewals: service.count("seat") >= 2 + count)
        assert seat.is_held
    assert not seat.is_held
    with other.seats.take(key) as mine:
        assert mine.is_held
    assert {request.fields["domain"] for request in service.requests} != {""}


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (lambda service, key: service.take_back_seats(key), NoSeatError),
        (lambda service, key: service.revoke(key), LicenseRefusedError),
    ],
)
async def test_an_app_is_notified_that_its_seat_is_lost(office, happens, reason, eventually):
    """At the next renewal, once, with the reason; then it can take another one."""
    service, key = office
    errors = []
    seat = service.client().seats.take(on_lost=errors.append, deliver=lambda call: call())
    happens(service, key)
    service.clock.move(seconds=41)
    await eventually(lambda: errors)
    assert not seat.is_held
    assert [type(error) for error in errors] == [reason]
    service.reinstate(key)
    service.clock.move(minutes=2)
    assert seat.take().is_held
    seat.release()


async def test_an_outage_is_reported_at_the_end_of_the_lease_and_no_sooner(office, eventually):
    """Until then the seat is held; what happens to it afterwards is the app's decision."""
    service, _ = office
    errors = []
    with service.client().seats.take(on_lost=errors.append) as seat:
        service.go_offline()
        service.clock.move(seconds=119)
        await eventually(lambda: service.count("seat") > 1)
        assert (seat.is_held, errors) == (True, [])
        service.clock.move(seconds=1)
        assert not seat.is_held
        await eventually(lambda: errors)
    assert [type(error) for error in errors] == [ServiceUnavailableError]


async def test_a_seat_that_ended_while_the_app_slept_is_taken_again(office, eventually):
    """If it is free; no callback is called then."""
    service, _ = office
    errors = []
    with service.client().seats.take(on_lost=errors.append) as seat:
        service.clock.move(hours=9)
        await eventually(lambda: seat.is_held)
    assert errors == []


def test_closing_the_client_gives_its_seats_up(office):
    """A seat that was taken without a block ends with the client; nobody is called back any more."""
    service, key = office
    errors = []
    client = service.client()
    client.seats.take(on_lost=errors.append)
    client.close()
    service.client(storage=MemoryStorage()).seats.take(key)
    service.take_back_seats(key)
    assert errors == []


def test_a_seat_without_an_answer_is_asked_for_again(office):
    """By the same id: the service may have granted it."""
    service, _ = office
    seat = service.client().seats.take()
    seat.release()
    service.requests.clear()
    with service.offline(), pytest.raises(ServiceUnavailableError):
        seat.take()
    with seat:
        assert len({request.fields["seat"] for request in service.requests}) == 1
    with pytest.raises(NotActivatedError):
        service.client(storage=MemoryStorage()).seats.take()


def test_a_seat_that_was_taken_is_not_taken_again_by_the_block(office):
    """By one request; the seat is released at the end, and a second block takes it anew."""
    service, _ = office
    seat = service.client().seats.take()
    assert seat.is_held
    with seat as same:
        assert (same, service.count("seat")) == (seat, 1)
    assert not seat.is_held
    with seat:
        assert seat.is_held
        with pytest.raises(RuntimeError, match="held already"):
            seat.take()


async def test_a_task_holds_a_seat(office, eventually):
    """The asynchronous client does the same: taken, renewed, lost, given up."""
    service, key = office
    errors = []
    client = service.async_client()
    async with client.seats.take(on_lost=errors.append) as seat:
        service.clock.move(seconds=41)
        await eventually(lambda: service.count("seat") >= 2)
        assert seat.is_held
        service.take_back_seats(key)
        service.clock.move(seconds=41)
        await eventually(lambda: errors)
        assert not seat.is_held
    await client.seats.take()
    await client.aclose()
    assert service.requests[-1].fields["release"] is True


async def test_a_callback_that_fails_is_reported_at_once(office, eventually):
    """To the loop's exception handler, as that of a worker: the task of the seat is never awaited."""
    service, key = office
    exceptions = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: exceptions.append(context["exception"])
    )
    client = service.async_client()
    async with client.seats.take(on_lost=lambda _: 1 / 0):
        service.take_back_seats(key)
        service.clock.move(seconds=41)
        await eventually(lambda: exceptions)
        assert [type(problem) for problem in exceptions] == [ZeroDivisionError]
    await client.aclose()


def test_a_jump_of_the_real_clock_changes_nothing(tmp_path, monkeypatch):
    """Leases are counted by a clock that nobody sets, and that goes on while the computer is suspended."""
    now = [NOW]
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json={**HELD, "released": True}))
    times = {"clock": lambda: now[0], "transport": transport, "storage": tmp_path}
    with LicenseClient("https://licenses.example", **times) as client, client.seats.take(KEY) as seat:
        for years in (-30, 30):
            now[0] = NOW + timedelta(days=365 * years)
            assert seat.is_held
        monkeypatch.setattr(seat._lease, "clock", lambda: uptime() + 121)
        assert not seat.is_held
    assert abs(uptime() - uptime()) < 60 < time.time()


@pytest.mark.parametrize("status", [200, 404])
def test_pinned_keys_are_for_seats_as_well(office, status):
    """An unsigned seat is not believed; a service that does not know seats is no attack."""
    service, key = office
    public_key = service.public_key
    transport = httpx.MockTransport(lambda _: httpx.Response(status, json=HELD))
    own = {"trust": Trust(public_keys=[public_key]), "storage": MemoryStorage()}
    client = LicenseClient("https://licenses.example", transport=transport, **own)
    with client, pytest.raises(UntrustedResponseError if status == 200 else NoSeatError):
        client.seats.take(key)
    with service.client(**own).seats.take(key) as seat:
        assert isinstance(seat, Seat)
        assert seat.is_held


def test_the_fake_service_has_no_negative_number_of_seats(license_service):
    """And it frees a seat that is released."""
    with pytest.raises(ValueError, match="seats must not be negative"):
        license_service.issue("Notes", seats=-1)
    key = license_service.issue("Notes", seats=1, activated=True)
    client = license_service.client(product="Notes")
    for _ in range(2):
        with client.seats.take(key) as seat:
            assert seat.is_held


def test_seats_of_the_fake_service_are_taken_back(license_service):
    """The next renewal learns so; a new seat can be taken."""
    key = license_service.issue("Notes", seats=1, activated=True)
    client = license_service.client(product="Notes")
    seat = client.seats.take(key)
    license_service.take_back_seats(key)
    with client.seats.take(key):
        assert seat.seats == 1
    seat.release()


@pytest.mark.parametrize(
    ("now", "problem", "step"),
    [
        (0, None, Pause(10.0)),
        (35, None, Pause(5.0)),
        (40, None, Renew(10.0)),
        (115, ServiceUnavailableError(), Renew(5.0)),
        (119.5, ServiceUnavailableError(), Renew(0.5)),
        (120, ServiceUnavailableError(), Renew(10.0)),
        (125, ServiceUnavailableError(), Renew(10.0)),
    ],
)
def test_a_seat_is_renewed_in_time(now, problem, step):
    """After a third of its lease; a failure is repeated until the seat ends, or its grace."""
    assert next_step(120, 40, 130, problem, now, 10.0) == step


@pytest.mark.parametrize(
    ("problem", "is_lost"),
    [
        (NoSeatError("", None), True),
        (NoSeatError("", 0), False),
        (LicenseRefusedError(Reason.REVOKED, ""), True),
        (InvalidRequestError({}), True),
        (ServiceUnavailableError(), False),
    ],
)
def test_a_refusal_loses_a_seat_at_once(problem, is_lost):
    """An outage does only when the time is over."""
    assert isinstance(next_step(120, 40, 120, problem, 60, 10.0), Lost) == is_lost
    assert next_step(120, 40, 120, problem, 120, 10.0) == Lost(problem)


def test_a_renewal_that_failed_is_repeated_before_the_seat_ends():
    """Eight times between two renewals."""
    assert [retry_at(120, 40, now) for now in (50, 118, 120, 130)] == [55, 120, 125, 135]


def test_the_fake_service_has_licenses_without_seats():
    """As a service does: no seat is there to be taken."""
    assert FakeSeats().respond({"seat": "0" * 32}, NOW) == (
        403,
        {"error": "not_floating", "message": "This license has no floating seats."},
    )
