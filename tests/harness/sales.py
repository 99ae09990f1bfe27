"""Sales without a socket: sources of each kind, what they deliver, and the work that follows."""

import asyncio
import hashlib
from datetime import timedelta
from typing import Any

import pytest

from harness import shops
from licserver.domain.records import IssuedLicense
from licserver.errors import BuryJobError
from licserver.services.license_search import LicenseFilter
from licserver.services.sources import Receipt
from licserver.shops import ShopKind

EXTERNAL = {
    "stripe": "plink_1",
    "paddle": "pri_1",
    "lemonsqueezy": "11",
    "woocommerce": "APP",
    "polar": "prod_1",
    "dodo": "pdt_1",
    "gumroad": "app",
    "standard": "app",
}
BOUGHT = {
    "stripe": shops.stripe("checkout.session.completed", shops.stripe_session()),
    "paddle": shops.paddle("transaction.completed", shops.paddle_transaction()),
    "lemonsqueezy": shops.lemon("order_created", "5", shops.lemon_order()),
    "woocommerce": shops.woo("processing"),
    "polar": shops.polar("order.paid", **shops.polar_order()),
    "dodo": shops.dodo("payment.succeeded", **shops.dodo_payment()),
    "gumroad": shops.gumroad(),
    "standard": shops.standard(
        "purchase.completed", order_id="1042", external_id="app", customer_email="ann@example.com"
    ),
}
REFUNDED = {
    "stripe": shops.stripe("charge.refunded", {"payment_intent": "pi_1", "refunded": True}, id_="evt_2"),
    "paddle": shops.paddle(
        "adjustment.updated",
        {"action": "refund", "status": "approved", "transaction_id": "txn_1", "type": "full"},
        id_="evt_2",
    ),
    "lemonsqueezy": shops.lemon("order_refunded", "5", shops.lemon_order(status="refunded")),
    "woocommerce": shops.woo("refunded"),
    "polar": shops.polar(
        "order.refunded",
        "2026-06-16T12:00:00Z",
        **shops.polar_order(status="refunded"),
    ),
    "dodo": shops.dodo(
        "refund.succeeded", refund_id="ref_1", payment_id="pay_1", status="succeeded", amount=2_000
    ),
    "gumroad": shops.gumroad("refund", refunded="true"),
    "standard": shops.standard("purchase.refunded", order_id="1042"),
}
ORDER = {
    "stripe": "pi_1",
    "paddle": "txn_1",
    "lemonsqueezy": "5",
    "woocommerce": "727",
    "polar": "ord_1",
    "dodo": "pay_1",
    "gumroad": "sale_1==",
    "standard": "1042",
}


@pytest.fixture
def shop_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the environment a secret for each kind of shop."""
    for kind, secret in shops.SECRETS.items():
        monkeypatch.setenv(f"{kind.upper()}_SECRET", secret)


def add(world: Any, kind: str, *, mapped: bool = True, **more: Any) -> None:
    """Add a source named after its kind, and map its product."""
    world.services.sources.add(kind, ShopKind(kind), f"{kind.upper()}_SECRET", **more)
    if mapped:
        # The event of a Stripe payment link does not contain how many were bought.
        quantity = 1 if kind == "stripe" else None
        world.services.sources.map(kind, EXTERNAL[kind], "app", slots=3, quantity=quantity)


def receive(world: Any, kind: str, body: bytes, delivery: str = "msg_1") -> Receipt:
    """Take a delivery."""
    headers = shops.sign(kind, body, world.clock(), None, delivery)
    lower = {name.lower(): value for name, value in headers.items()}
    receipt: Receipt = world.services.sources.receive(kind, lower, body)
    return receipt


def work(world: Any) -> None:
    """Process what waits, as the background does."""
    queue = world.repositories.queue
    for job in queue.claim("sale", world.clock(), timedelta(minutes=1), 100):
        try:
            world.services.sales.process(job.payload["event"])
        except BuryJobError as problem:
            queue.bury(job, world.clock(), str(problem))
        else:
            queue.finish(job, world.clock())


async def finish(world: Any) -> None:
    """Process what waits, beside the background of a server that runs: what that has claimed ends as well."""
    work(world)
    async with asyncio.timeout(20):
        while world.repositories.queue.measure({"sale"}, world.clock())["sale"].waiting:  # noqa: ASYNC110 - a database
            await asyncio.sleep(0.01)


def process(world: Any, kind: str, *bodies: bytes) -> None:
    """Take deliveries, and process them."""
    for body in bodies:
        receive(world, kind, body, hashlib.sha256(body).hexdigest())
    work(world)


def licenses(world: Any) -> list[IssuedLicense]:
    """All licenses, the latest first."""
    return list(world.services.licenses.search(LicenseFilter()).items)


def states(world: Any, kind: str) -> list[str]:
    """The states of what was delivered, the first first."""
    return [event.state for event in world.services.sources.list_events(kind).items][::-1]
