"""The real client against the real server: a license is moved in the app, and taken back."""

from datetime import timedelta

import pytest

from harness.shop import SLUG, Open
from harness.world import MovableClock, World
from licclient import Source
from licclient.errors import LicenseRefusedError, MoveError


def test_a_third_computer_takes_the_license_over_and_gives_it_back(
    shop: World, open_client: Open, clock: MovableClock
) -> None:
    """It sees the names of the others; the one that lost its slot sees where it went, and takes it back."""
    key = shop.new_key(SLUG, slots=2)
    old, desk, new = (open_client(label=label) for label in ("Old laptop", "Desk", "New laptop"))
    old.activate(key)
    clock.forward(minutes=1)
    desk.activate(key)
    with pytest.raises(LicenseRefusedError):
        new.activate(key)
    listed = new.computers.list(key)
    assert [(computer.name, computer.is_this) for computer in listed.computers] == [
        ("Desk", False),
        ("Old laptop", False),
    ]
    assert (listed.slots, listed.used, listed.moves_left, listed.moved_to) == (2, 2, 3, None)
    assert new.computers.move_here(listed.computers[1], key).source is Source.SERVER
    assert new.require().product
    with pytest.raises(LicenseRefusedError):
        old.verify(key, force=True)
    lost = old.computers.list(key)
    assert lost.moved_to is not None
    assert (lost.moved_to.name, lost.moved_to.on) == ("New laptop", clock().date())
    (source,) = [computer for computer in lost.computers if computer.name == "New laptop"]
    old.computers.move_here(source, key)
    assert old.computers.list(key).moved_to is None
    assert desk.verify(key, force=True).source is Source.SERVER


def test_the_client_reports_when_the_license_can_be_moved_again(
    shop: World, open_client: Open, clock: MovableClock
) -> None:
    """After the moves of the product are used up: in the list, and in the refusal."""
    shop.services.products.change(SLUG, customer_moves=1)
    key = shop.new_key(SLUG)
    first, second, third = open_client(), open_client(), open_client()
    first.activate(key)
    second.computers.move_here(second.computers.list(key).computers[0], key)
    (source,) = third.computers.list(key).computers
    with pytest.raises(MoveError) as refused:
        third.computers.move_here(source, key)
    assert refused.value.retry_at == clock() + timedelta(days=30)
    assert third.computers.list(key).retry_at == clock() + timedelta(days=30)


def test_a_new_computer_gets_the_slot_of_one_that_is_no_longer_used(
    shop: World, open_client: Open, clock: MovableClock
) -> None:
    """By a product's rule, without a question; the former computer sees where the license went."""
    shop.services.products.change(SLUG, idle_days=60)
    shop.services.retention.sweep_daily()  # from here on computers are watched
    key = shop.new_key(SLUG)
    former, new = open_client(), open_client(label="New laptop")
    former.activate(key)
    clock.forward(days=59)
    with pytest.raises(LicenseRefusedError):
        new.activate(key)
    clock.forward(days=1)
    new.activate(key)
    with pytest.raises(LicenseRefusedError):
        former.verify(key, force=True)
    moved_to = former.computers.list(key).moved_to
    assert moved_to is not None
    assert moved_to.name == "New laptop"
