"""A server that takes the deliveries of a shop, and an app that verifies the key that is issued."""

import hashlib
import json
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from harness import shops
from harness.customer import eventually
from harness.world import World
from licclient import LicenseClient, Reason
from licclient.errors import LicenseRefusedError
from licserver.domain.records import EnvironmentPolicy
from licserver.services.license_search import LicenseFilter
from licserver.shops import ShopKind

Open = Callable[..., "Shop"]
"""Makes a `Shop` of a kind for an id of its product; `secret` and what `sources.add` takes by name."""


class Shop:
    """A server with a source and a product, and an app."""

    def __init__(self, world: World, url: str, app: LicenseClient, kind: str) -> None:
        self.services, self.clock, self.kind = world.services, world.clock, kind
        self.address, self._app = f"{url}/events/in/{kind}", app

    def deliver(self, body: bytes, headers: dict[str, str] | None = None) -> str:
        """Deliver, signed as the shop documents it; return the status that the shop is given."""
        delivery = hashlib.sha256(body).hexdigest()
        signed = shops.sign(self.kind, body, self.clock(), None, delivery) if headers is None else headers
        secret = signed.pop(":path-secret", None)  # what signs nothing has it in the address
        address = self.address if secret is None else f"{self.address}?secret={secret}"
        request = urllib.request.Request(address, body, signed)  # noqa: S310 - our own loopback address
        with urllib.request.urlopen(request) as response:  # noqa: S310 - the same
            return str(json.load(response)["status"])

    def key(self, email: str | None = "ann@example.com") -> str:
        """Wait for a license of two slots; return its key, once the app has verified it."""
        found = self.services.licenses.search
        eventually(lambda: found(LicenseFilter()).items)
        (license_,) = found(LicenseFilter()).items
        assert (license_.customer_email, license_.slots) == (email, 2)
        key = self.services.licenses.reveal(license_.id.hex())
        assert self._app.activate(key).product == "App"
        return key

    def refused(self, key: str, deliveries: int = 2) -> Reason:
        """Wait until so many deliveries have changed something; return why the app is refused then."""
        eventually(lambda: self.states()["done"] >= deliveries)
        self.clock.forward(minutes=1)  # it has stood still since the test began
        reasons = list[Reason]()

        def is_refused() -> bool:
            try:
                self._app.verify(key, force=True)
            except LicenseRefusedError as refusal:
                reasons.append(refusal.reason)
            return bool(reasons)

        eventually(is_refused)  # a shop may report an end in more deliveries than it needs
        return reasons[0]

    def states(self) -> Counter[str]:
        """Count the deliveries by their states."""
        return Counter(event.state for event in self.services.sources.list_events(self.kind, limit=100).items)


@pytest.fixture
def open_shop(make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Makes shops; their servers and apps end with the test."""
    with ExitStack() as stack:

        def make(kind: str, external_id: str, secret: str | None = None, **source: Any) -> Shop:
            monkeypatch.setenv("SHOP_SECRET", secret or shops.SECRETS[kind])
            world = make_world()
            world.services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
            world.services.sources.add(kind, ShopKind(kind), "SHOP_SECRET", **source)
            # Some deliveries do not contain how many were bought.
            world.services.sources.map(kind, external_id, "app", slots=2, quantity=1)
            server = stack.enter_context(world.serving())
            app = LicenseClient(server.url, storage=world.folder / "app", clock=world.clock)
            return Shop(world, server.url, stack.enter_context(app), kind)

        yield make
