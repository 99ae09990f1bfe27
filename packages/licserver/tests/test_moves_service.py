"""What customers do themselves: free a slot, from the app or the account page, a few times in 30 days."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from harness.engines import both_engines
from licserver.domain.moves import MoveRefusal, mask_domain
from licserver.domain.records import Environment
from licserver.errors import NotFoundError, TooManyMovesError
from licserver.services.context import CUSTOMER

PATH = "/api/v1/licenses/deactivate"
A, B, C = (Environment(f"{name}.example", "192.0.2.1") for name in "abc")


@pytest.fixture
def shop(world, activate):
    """A license with three computers, of which its customer may free two in 30 days."""
    world.services.products.change("app", customer_moves=2)
    key = world.key("app", slots=3)
    for environment in (A, B, C):
        activate(key, *environment)
    return world, world.services.licenses.get(key)


def test_a_customer_frees_as_many_slots_as_the_product_allows(shop, activate):
    """The third one is refused with the day on which it is possible, and nothing is freed."""
    world, license_ = shop
    mine = world.services.moves
    mine.free_slot(license_, A)
    with pytest.raises(NotFoundError):
        mine.free_slot(license_, A)
    mine.free_slot(license_, B)
    product = world.services.products.get("app")
    assert mine.list_moves_left([(license_, product)]) == [(0, world.clock() + timedelta(days=30))]
    assert mine.list_moves_left([(license_, product._replace(customer_moves=1))])[0][0] == 0
    with pytest.raises(TooManyMovesError, match="2 times in 30 days") as refused:
        mine.free_slot(license_, C)
    assert refused.value.retry_at == world.clock() + timedelta(days=30)
    assert [
        activation.environment
        for activation in world.services.licenses.list_activations(license_.id.hex()).items
    ] == [C]
    world.clock.forward(days=30)
    mine.free_slot(license_, C)


@both_engines
def test_customers_at_the_same_moment_free_no_more(shop):
    """Three threads free a computer each, and two moves are allowed."""
    world, license_ = shop
    start = Barrier(3)

    def free(environment: Environment) -> bool:
        start.wait()
        try:
            world.services.moves.free_slot(license_, environment)
        except TooManyMovesError:
            return False
        return True

    with ThreadPoolExecutor(3) as threads:
        assert sorted(threads.map(free, (A, B, C))) == [False, True, True]
    ((left, _),) = world.services.moves.list_moves_left([(license_, world.services.products.get("app"))])
    assert left == 0


def test_a_product_may_leave_it_to_support(shop):
    """With no moves the response names whom to ask."""
    world, license_ = shop
    world.services.products.change("app", customer_moves=0)
    with pytest.raises(TooManyMovesError, match="support") as refused:
        world.services.moves.free_slot(license_, A)
    assert refused.value.retry_at is None


def test_moves_are_swept_after_30_days(shop):
    """Domains of customers' computers are not kept for longer than they count."""
    world, license_ = shop
    world.services.moves.free_slot(license_, A)
    world.clock.forward(days=31)
    world.services.retention.sweep()
    assert world.services.repositories.moves.list_all([license_.id]) == {license_.id: []}


async def ask(site, key: str, domain: str):
    """Ask for the slots of a domain."""
    body = json.dumps({"license_key": key, "domain": domain})
    status, _, answer = await site.call("POST", PATH, data=body.encode())
    return status, answer


async def test_an_installation_gives_up_its_slot(site, world, activate):
    """Again it frees nothing, an unknown key is refused, and so is a body without fields."""
    key = world.key(slots=1)
    activate(key, *A)
    assert await ask(site, key, "https://A.example/") == (200, {"deactivated": 1})
    assert await ask(site, key, A.domain) == (200, {"deactivated": 0})
    id_ = world.services.licenses.get(key).id.hex()
    for wrong in ("CP-AAAAAA-AAAAAA-AAAAAA-AAAAAA-AAAAAA", "nonsense", id_):
        status, refusal = await ask(site, wrong, A.domain)
        assert (status, refusal["error"]) == (401, "invalid_license")
    status, refusal = await ask(site, "", "")
    assert (status, [*refusal["errors"]]) == (422, ["license_key", "domain"])


async def test_the_response_says_when_an_installation_can_be_moved_again(shop, site):
    """The refusal has a code, a sentence and an instant."""
    world, license_ = shop
    key = world.services.licenses.decrypt_key(license_)
    assert [(await ask(site, key, environment.domain))[0] for environment in (A, B)] == [200, 200]
    status, refusal = await ask(site, key, C.domain)
    assert (status, refusal["error"]) == (403, "too_many_moves")
    assert refusal["retry_at"] == f"{world.clock() + timedelta(days=30):%Y-%m-%dT%H:%M:%SZ}"


async def test_a_computer_with_many_addresses_is_freed_by_one_move(site, world, activate):
    """It had used up the moves of a month."""
    world.services.products.change("app", policy="strict", customer_moves=2)
    key = world.key(slots=8)
    for number in range(8):
        activate(key, "laptop.example", f"192.0.2.{number}")
    assert await ask(site, key, "laptop.example") == (200, {"deactivated": 8})
    license_, product = world.services.licenses.get(key), world.services.products.get("app")
    assert world.services.moves.list_moves_left([(license_, product)]) == [(1, world.clock())]


async def test_three_computers_that_take_turns_are_refused(site, world, activate):
    """Two may: that is going back and forth."""
    world.services.products.change("app", customer_moves=3)
    for computers, allowed in (([A, B], 12), ([A, B, C], 3)):
        key, statuses = world.key(slots=1), []
        for turn in range(12):
            computer = computers[turn % len(computers)]
            if 403 not in statuses:
                activate(key, *computer)
            statuses.append((await ask(site, key, computer.domain))[0])
            world.clock.forward(hours=1)
        assert statuses.count(200) - statuses[allowed:].count(200) == allowed
        assert (403 in statuses) == (allowed < 12)


def test_a_license_is_taken_back_after_the_last_move(world, activate):
    """A return uses nothing up, as changing between two computers does not; a third one has to wait."""
    world.services.products.change("app", customer_moves=1)
    key, moves = world.key(slots=1), world.services.acting_as(CUSTOMER).moves
    activate(key, *A)
    holder = A

    def move(to):
        (((id_, _),), left) = (listed := moves.list_computers(key, to)).computers, listed.moves_left
        return moves.move(key, to, id_), left

    for target in (B, A, B, A, B):
        world.clock.forward(minutes=1)
        moved, left = move(target)
        assert (moved.domain, left) == (holder.domain, 1)
        holder = target
    refused, left = move(C)
    assert (refused.reason, left) == (MoveRefusal.TOO_MANY, 0)
    assert world.held(key) == [B]
    lines = [
        entry.details for entry in world.services.audit.list_page().items if entry.action == "license.move"
    ]
    names = [mask_domain(computer.domain) for computer in (A, B)]
    both = [{"freed": 1, "computer": from_, "to": to} for from_, to in (names[::-1], names)]
    assert lines == both, "once a day for each"


async def test_computers_of_one_domain_do_not_pass_their_slots_on(site, world, activate):
    """Under `strict` one move frees them all: the first one came back, and a further one took its turn."""
    world.services.products.change("app", policy="strict", customer_moves=3)
    key, statuses = world.key(slots=2), []
    for number in range(9):
        if 403 not in statuses:
            activate(key, "office.example", "192.0.2.1")
            activate(key, "office.example", f"192.0.2.{number + 2}")
        statuses.append((await ask(site, key, "office.example"))[0])
        world.clock.forward(minutes=1)
    assert statuses == [200] * 3 + [403] * 6


async def test_a_computer_that_frees_itself_twice_does_not_hide_a_move(site, world, activate):
    """No other one had a slot the second time, and the move before it was taken for a return."""
    world.services.products.change("app", policy="strict", customer_moves=3)
    key, addresses, is_refused = world.key(slots=2), {"192.0.2.1"}, False
    for number in range(9):
        for other in ([f"192.0.2.{number + 2}"], []):
            if not is_refused:
                for address in ["192.0.2.1", *other]:
                    activate(key, "office.example", address)
                addresses.update(other)
            is_refused |= (await ask(site, key, "office.example"))[0] == 403
            world.clock.forward(minutes=1)
    assert is_refused
    assert len(addresses) <= 2 + 3


async def test_a_computer_whose_address_changes_goes_back_for_free(site, world, activate):
    """Two computers in turns at ever new addresses use up nothing, unless addresses identify them."""
    for policy, refused in (("domain", False), ("either", False), ("strict", True)):
        world.services.products.change("app", policy=policy, customer_moves=2)
        key, statuses = world.key(slots=1), []
        for turn in range(8):
            if 403 not in statuses:
                activate(key, ("desktop", "laptop")[turn % 2], f"192.0.2.{turn + 1}")
            statuses.append((await ask(site, key, ("desktop", "laptop")[turn % 2]))[0])
            world.clock.forward(hours=1)
        assert (403 in statuses) == refused
