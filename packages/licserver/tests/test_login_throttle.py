"""Who guesses closes the sign-in for nobody else: shares of networks, known users' reserve."""

import asyncio

import pytest
from sqlalchemy import select

from harness.console import NAME, PASSWORD
from harness.engines import sqlite_only
from licserver.database.tables.access import known_addresses
from licserver.services.users import (
    KNOWN_NETWORK_TRIES,
    KNOWN_TRIES,
    NETWORK_NAME_TRIES,
    NETWORK_TRIES,
    TRIES,
)

pytestmark = sqlite_only
HOME, ELSEWHERE = "192.0.2.1", "198.51.100.7"


@pytest.fixture
def world(make_world):
    """A world behind a proxy, so that callers come from anywhere."""
    return make_world(trusted_proxies="127.0.0.1")


def come_from(browser, address):
    """Let the proxy say where a browser is."""
    browser.session.headers["X-Forwarded-For"] = address


@pytest.mark.slow
async def test_a_network_of_guessers_closes_the_sign_in_for_nobody(users, open_browser):
    """512 networks /64 of one /48 guess at alice: she signs in where she has before, and others anywhere."""
    users.users.add("bob", PASSWORD)
    alice, bob, guesser = [await open_browser() for _ in range(3)]
    come_from(alice, HOME)
    come_from(bob, ELSEWHERE)
    await alice.sign_in()
    assert alice.status == 200
    refused = asyncio.Event()

    async def guess(numbers):
        for number in numbers:
            form = {"name": (NAME, "bob", "carol")[number % 3], "password": "wrong"}
            headers = {"X-Forwarded-For": f"2001:db8:1:{number:x}::1"}
            async with guesser.session.post(
                guesser.url + "/console/sign-in", data=form, headers=headers
            ) as answer:
                if answer.status == 429:
                    refused.set()

    guessing = asyncio.gather(*(guess(range(at, 512, 32)) for at in range(32)))
    await asyncio.wait_for(refused.wait(), 60)
    await alice.sign_in()
    assert (alice.status, alice.alert) == (200, "")
    await bob.sign_in("bob")
    assert (bob.status, bob.alert) == (200, "")
    await guessing
    await alice.sign_in()
    assert alice.status == 200


async def test_a_known_user_signs_in_while_everybody_guesses_at_the_name(world, users, open_browser):
    """The name is used up for all who are not known there; alice at home is not asked to wait."""
    alice = await open_browser()
    come_from(alice, HOME)
    await alice.sign_in()
    world.clock.forward(minutes=2)
    networks = [f"203.0.{number}.9" for number in range(TRIES + 1)]
    assert [users.logins.count_attempt(address, NAME) for address in networks] == [True] * TRIES + [False]
    come_from(alice, ELSEWHERE)
    await alice.sign_in()
    assert alice.status == 429
    come_from(alice, HOME)
    await alice.sign_in()
    assert alice.status == 200


def may_try(world, addresses, name, *, is_known=False):
    """Count who of many is let."""
    return sum(world.services.logins.count_attempt(address, name, is_known=is_known) for address in addresses)


@pytest.mark.slow
def test_what_is_let_is_bounded(world):
    """An address, a network, a name, a network at a name; and the reserve of known users by itself."""
    assert may_try(world, ["192.0.2.9"] * 50, "a") == NETWORK_NAME_TRIES
    assert may_try(world, [f"192.0.3.{at}" for at in range(50)], "b") == NETWORK_NAME_TRIES
    assert may_try(world, [f"10.{at}.0.1" for at in range(50)], "c") == TRIES
    assert sum(may_try(world, ["192.0.4.9"], f"d{at}") for at in range(50)) == TRIES
    assert sum(may_try(world, [f"2001:db8:9:{at:x}::"], f"e{at}") for at in range(99)) == NETWORK_TRIES
    assert may_try(world, [HOME] * 50, "c", is_known=True) == KNOWN_TRIES
    assert sum(may_try(world, [HOME], f"f{at}", is_known=True) for at in range(99)) == (
        KNOWN_NETWORK_TRIES - KNOWN_TRIES
    )


async def test_known_addresses_are_few_and_forgotten(world, users, open_browser):
    """Eight of a user, as keyed digests, the oldest replaced; none by a wrong password or after 90 days."""

    def held():
        with world.services.database.reading() as connection:
            return connection.execute(select(known_addresses)).all()

    users.logins.sign_in(NAME, "wrong", HOME)
    assert held() == []
    for at in range(10):
        users.logins.sign_in(NAME, PASSWORD, f"192.0.2.{at}")
        world.clock.forward(seconds=1)
    assert len(held()) == 8
    assert all(len(row.address) == 16 for row in held())
    known = [users.logins.is_known_address(f"192.0.2.{at}", f" {NAME.upper()} ") for at in range(10)]
    assert known == [False] * 2 + [True] * 8
    world.clock.forward(days=91)
    world.services.retention.sweep()
    assert held() == []
