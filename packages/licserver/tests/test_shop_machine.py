"""A shop that does what shops do, with deliveries in any order, repeated and late: the licenses are right."""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from harness.dodo_shop import DodoShop
from harness.gumroad_shop import GumroadShop
from harness.lemonsqueezy_shop import LemonSqueezyShop
from harness.polar_shop import PolarShop
from harness.shop_machine import Machine
from harness.shop_model import (
    OwnShop,
    PaddleShop,
    ShopModel,
    StripeShop,
    WooShop,
    WooShopWithoutSubscriptions,
)

SHOPS = [
    *(StripeShop, WooShop, WooShopWithoutSubscriptions, PaddleShop, OwnShop),
    *(DodoShop, GumroadShop, LemonSqueezyShop, PolarShop),
]

LONGER = int(os.environ.get("LICENSING_LONGER", "1"))
"""`nox -s crash` asks for 10."""


@pytest.mark.parametrize("make", SHOPS)
@pytest.mark.parametrize(
    ("examples", "steps"),
    [(5, 20), pytest.param(60 * LONGER, 40, marks=pytest.mark.slow)],
    ids=["sample", "all"],
)
def test_a_shop(make: Callable[[], ShopModel], examples: int, steps: int) -> None:
    """Whatever it does, and whenever that is delivered."""
    machine = type("ShopMachine", (Machine,), {"make": staticmethod(make)})
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=options)
