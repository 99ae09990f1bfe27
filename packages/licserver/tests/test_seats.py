"""Floating seats: who gets one, until when, and that there are never more than were sold."""

import json
import os
import random
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from threading import Barrier

import pytest

from harness.engines import both_engines
from licserver.domain.seats import GrantedSeat, NoSeat, Seat, SeatRefusal, SeatRequest
from licserver.errors import InvalidInputError, NotFoundError
from licserver.services.installation import open_services
from licserver.settings import Settings

PATH = "/api/v1/licenses/seat"
LEASE = timedelta(minutes=2)
MINE = b"\1" * 16


@pytest.fixture
def office(world):
    """A license with two seats and a single slot."""
    key = world.key(floating_seats=2)
    return world, key, world.services.licenses.get(key)


def take(world, key, seat_id=None, slug=None):
    """Ask for a seat."""
    request = SeatRequest(seat_id or secrets.token_bytes(16), "a.example", slug)
    return world.services.seats.hold(key, request)


@both_engines
def test_a_seat_is_held_until_it_is_released_taken_back_or_not_renewed(office):
    """A renewal keeps the seat, and what is taken back is refused although a seat is free."""
    world, key, license_ = office
    seats = world.services.seats
    mine, other = (take(world, key).seat for _ in range(2))
    assert take(world, key) == NoSeat(2, mine.expires_at)
    world.clock.forward(seconds=100)
    assert take(world, key, mine.id).seat.taken_at == mine.taken_at
    world.clock.forward(seconds=20)
    assert [seat.id for seat in seats.list_held(license_)] == [mine.id]
    third = take(world, key).seat
    assert isinstance(take(world, key, other.id), NoSeat)  # it woke up too late
    seats.take_back(key, mine.id.hex())
    assert take(world, key, mine.id) is SeatRefusal.LOST
    assert seats.release(key, third.id)
    assert not seats.release(key, third.id)
    assert take(world, key, third.id) is SeatRefusal.LOST  # a renewal that was on its way
    assert seats.list_held(license_) == []
    for wrong in (mine.id.hex(), "nonsense"):
        with pytest.raises(NotFoundError):
            seats.take_back(key, wrong)
    assert world.services.audit.list_page().items[0].action == "license.take_back"
    assert world.held(key) == []


def test_ended_seats_are_swept(office):
    """The domain of a machine is not kept for longer than its seat matters."""
    world, key, license_ = office
    first = take(world, key).seat
    world.clock.forward(seconds=120)
    world.services.retention.sweep()
    assert world.repositories.seats.find(license_.id, first.id) is None
    second = take(world, key).seat
    world.clock.forward(seconds=120)
    take(world, key)
    assert world.repositories.seats.find(license_.id, second.id) is None


@pytest.mark.parametrize("seats", [0, -1, 10_001])
def test_a_number_of_seats_is_checked(world, seats):
    """A license has from one to ten thousand seats."""
    with pytest.raises(InvalidInputError, match="from 1 to 10000"):
        world.key(floating_seats=seats)


@pytest.fixture
def race(world):
    """Let threads ask for five seats in turns, drop out and jump in time; check the log of holders."""

    def run(racers: int, turns: int) -> int:
        key = world.key(floating_seats=5)
        license_id = world.services.licenses.get(key).id
        start = Barrier(racers)

        def ask(_: int) -> list[Seat]:
            held, dice = [], random.Random()
            start.wait()
            for _ in range(turns):
                verdict = take(world, key, held[-1].id if held and dice.random() < 0.3 else None)
                if isinstance(verdict, GrantedSeat):
                    held.append(verdict.seat)
                    if dice.random() < 0.3:
                        world.services.seats.release(key, verdict.seat.id)
                assert len(world.repositories.seats.list_held([license_id], world.clock())[license_id]) <= 5
                if dice.random() < 0.05:
                    world.clock.forward(seconds=dice.choice((-90, 50, 130)))
            return held

        with ThreadPoolExecutor(racers) as threads:
            return sum(len(held) for held in threads.map(ask, range(racers)))

    return run


@pytest.mark.slow
@both_engines
def test_racers_never_hold_more_than_were_sold(race):
    """64 threads, some of whose renewals never come, and a clock that jumps: five seats at most."""
    for _ in range(int(os.environ.get("LICENSING_RACES", "1"))):  # `nox -s crash` asks for 200
        assert race(64, 2) >= 5


async def ask(site, key, **fields: object):
    """Send a request for a seat."""
    body = {"license_key": key, "domain": "a.example", "seat": "0" * 32, **fields}
    status, _, answer = await site.call("POST", PATH, data=json.dumps(body).encode())
    return status, answer


async def test_an_app_takes_renews_and_releases_a_seat(site, world):
    """The answer has the lease in seconds; a malformed request names its fields."""
    key = world.key(floating_seats=1)
    for label in ("Desk 3", "Desk 4", None, 7, key):
        status, answer = await ask(site, key, label=label)
        assert (status, answer) == (
            200,
            {
                "seat": "0" * 32,
                "expires_at": f"{world.clock() + LEASE:%Y-%m-%dT%H:%M:%SZ}",
                "lease_seconds": 120,
                "seats": 1,
                "used": 1,
            },
        )
    (held,) = world.services.seats.list_held(world.services.licenses.get(key))
    assert held.label is not None
    assert key not in held.label
    status, refusal = await ask(site, key, seat="1" * 32)
    assert (status, refusal["error"], refusal["retry_after"], refusal["seats"]) == (403, "no_seat", 120, 1)
    assert await ask(site, key, release=True) == (200, {"released": True})
    assert await ask(site, key, release=True) == (200, {"released": False})
    for more in ({}, {"release": True}):
        status, refusal = await ask(site, "sold-elsewhere", **more)
        assert (status, refusal["error"]) == (401, "invalid_license")
    status, refusal = await ask(site, "", seat="0" * 31)
    assert (status, [*refusal["errors"]]) == (422, ["license_key", "seat"])


@pytest.mark.slow
async def test_support_takes_a_seat_back(office, alice):
    """The page shows who holds which seat, and asks before it is taken back."""
    world, key, license_ = office
    held = world.services.seats.hold(key, SeatRequest(MINE, "desk.example", label="Desk <3>")).seat
    page = f"/console/licenses/{license_.id.hex()}"
    assert "Desk &lt;3&gt;" in await alice.get(page)
    form = {"seat": held.id.hex(), "holder": "Desk <3>"}
    await alice.post(f"{page}/take-back", **form)
    assert "Take back the seat of Desk &lt;3&gt;?" in alice.text
    assert len(world.services.seats.list_held(license_)) == 1
    await alice.post(f"{page}/take-back", **form, sure="yes")
    assert "The seat is taken back." in alice.notice
    assert "No seat is in use." in await alice.get(page)
    await alice.post(f"{page}/take-back", **form, sure="yes")
    assert (alice.status, "this seat is not in use" in alice.alert.lower()) == (422, True)


def test_the_command_line_lists_seats_and_takes_one_back(cli):
    """With the number that the license was changed to; none removes them."""
    cli("product", "add", "app", "--name", "App")
    key = cli("license", "issue", "app", "--floating-seats", "5").strip()
    assert "no seat is in use" in cli("license", "seats", key)
    with closing(open_services(Settings(data_dir=cli.folder))) as services:
        services.seats.hold(key, SeatRequest(MINE, "a.example", label="Desk 3"))
    (row,) = json.loads(cli("license", "seats", key, "--json"))
    assert (row["seat"], row["label"]) == (MINE.hex(), "Desk 3")
    assert MINE.hex() in cli("license", "take-back", key, MINE.hex())
    cli("license", "take-back", key, MINE.hex(), expect=2)
    cli("license", "change", key, "--floating-seats", "none")
    cli("license", "change", key, "--floating-seats", "many", expect=2)
    assert json.loads(cli("license", "show", key, "--json"))["floating_seats"] is None
