"""A shop that does what shops do, against services on a SQLite file that are killed amid any statement."""

import hashlib
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Engine, event

from harness import shops
from harness.dodo_shop import DodoShop
from harness.gumroad_shop import GumroadShop
from harness.lemonsqueezy_shop import LemonSqueezyShop
from harness.polar_shop import PolarShop
from harness.shop_machine import Machine
from harness.shop_model import BEGINNING, PLANS, OwnShop, ShopModel, StripeShop, WooShop
from licserver.domain.records import IssuedLicense
from licserver.errors import BuryJobError
from licserver.services.installation import Services, open_services
from licserver.settings import StandaloneSettings
from licserver.shops import ShopKind
from licserver.shops.contract import ProblemKind

pytestmark = pytest.mark.usefixtures("shop_secrets")
MOST_STATEMENTS = (
    90  # of a delivery, as far as it matters: a kill comes before, amid or after its transaction
)


class KilledError(BaseException):
    """The process dies: nothing catches it, and what was not committed is gone."""


@contextmanager
def killing(statements: int) -> Iterator[None]:
    """Die before a statement, as often as that many were sent."""
    left = [statements]

    def count(*_: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError

    event.listen(Engine, "before_cursor_execute", count)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", count)


@cache
def prepare(kind: str, *names: tuple[str, str]) -> Path:
    """Set up an installation with a source that has mapped all that the shop sells: plans and their names."""
    folder = Path(tempfile.mkdtemp(prefix="shop-server-"))
    with closing(open_services(StandaloneSettings(data_dir=folder), lambda: BEGINNING)) as services:
        for product in sorted(set(PLANS.values())):
            services.products.add(product, product.capitalize())
        services.sources.add(kind, ShopKind(kind), f"{kind.upper()}_SECRET")
        for plan, product in PLANS.items():
            services.plans.add(product, plan, {})
        for plan, name in names:
            services.sources.map(kind, name, PLANS[plan], plan=plan, slots=3)
    return folder


class Server:
    """The services of a vendor, which are opened again after each kill."""

    def __init__(self, shop: ShopModel) -> None:
        self._shop, self._random, self._count = shop, random.Random(7), 0
        self._folder = Path(tempfile.mkdtemp(prefix="shop-server-"))
        names = [(plan, name) for plan in PLANS for name in shop.list_names(plan)]
        shutil.copytree(prepare(shop.kind, *names), self._folder, dirs_exist_ok=True)
        self._services: Services | None = None
        self.kills = 0

    def _now(self) -> datetime:
        # The leases of killed processes are over when the next one begins.
        return self._shop.now + timedelta(minutes=2 * self.kills)

    def open(self) -> Services:
        """Return the services."""
        if self._services is None:
            self._services = open_services(StandaloneSettings(data_dir=self._folder), self._now)
        return self._services

    def close(self) -> None:
        """Close them, and delete the installation."""
        if self._services is not None:
            self._services.close()
        shutil.rmtree(self._folder)

    def _or_die(self, operation: Callable[[], Any]) -> bool:
        """Do something, or a part of it; return False if the process was killed amid it."""
        if self._random.random() < 0.2:
            operation()
            return True
        try:
            with killing(self._random.randrange(MOST_STATEMENTS)):
                operation()
        except KilledError:
            self.kills += 1
            self.open().close()
            self._services = None
            return False
        return True

    def receive(self, *bodies: bytes) -> None:
        """Take deliveries, which a shop repeats until they are stored, and process what waits."""
        for body in bodies:
            # Now and then as another delivery: a person has sent it again by hand.
            again = self._random.choice(["", "", str(self._random.random())])
            id_ = hashlib.sha256(body + again.encode()).hexdigest()
            for _ in range(50):
                if self._or_die(lambda body=body, id_=id_: self._deliver(body, id_)):
                    break
        self.reconcile()

    def _deliver(self, body: bytes, id_: str) -> None:
        services, kind = self.open(), self._shop.kind
        headers = shops.sign(kind, body, self._now(), None, id_)
        lower = {name.lower(): value for name, value in headers.items()}
        services.sources.receive(kind, lower, body)

    def reconcile(self) -> None:
        """Process what waits, in any order, until nothing does."""
        for _ in range(1_000):
            waiting = self.open().sources.list_events(self._shop.kind, "waiting").items
            if not waiting:
                return
            chosen = self._random.choice(waiting)
            with suppress(BuryJobError):
                self._or_die(lambda chosen=chosen: self.open().sales.process(chosen.id))
        raise AssertionError("deliveries wait for ever")

    @property
    def valid(self) -> list["Valid"]:
        """The licenses that are not revoked."""
        return [
            Valid(license_) for license_ in self.open().licenses.list_all() if license_.revoked_at is None
        ]

    @property
    def licenses(self) -> list["Valid"]:
        """All licenses of orders."""
        return [Valid(license_) for license_ in self.open().licenses.list_all()]

    @property
    def asked(self) -> list[str]:
        """What a person has to look at."""
        found = self.open().sale_problems.list_open().items
        return sorted(ProblemKind(problem.kind).name for problem in found)


class Valid:
    """A license, as the machine compares it."""

    def __init__(self, license_: IssuedLicense) -> None:
        self.terms, self.ends_at = self, license_.subscription_ended_at
        self.product, self.plan = license_.product_slug, license_.plan
        self.order_id = (license_.note or "").removeprefix("Order ").partition(" ")[0]


class ServerMachine(Machine):
    """The same shop, with a server."""

    def open_vendor(self, shop: ShopModel) -> Server:
        """Open an installation, which has no key of the shop's API."""
        shop.names_lines &= not isinstance(shop, WooShop)
        return Server(shop)

    def _ask_api(self) -> int:
        return 0

    def teardown(self) -> None:
        """Compare at last."""
        try:
            super().teardown()
        finally:
            self.vendor.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [StripeShop, WooShop, OwnShop, LemonSqueezyShop, PolarShop, DodoShop, GumroadShop]
)
@pytest.mark.parametrize(
    ("examples", "steps"),
    [(4, 8), (12 * int(os.environ.get("LICENSING_LONGER", "1")), 25)],  # `nox -s crash` asks for 10
    ids=["sample", "all"],
)
def test_a_shop_and_a_server_that_is_killed(make: type[ShopModel], examples: int, steps: int) -> None:
    """The licenses are those of the oracle, whatever arrives, in any order, repeated, across kills."""
    machine = type("KilledMachine", (ServerMachine,), {"make": staticmethod(make)})
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=options)
