"""Deliveries that others wrote, up to a key that an app verifies; `nox -s payloads` fetches them.

They are delivered as they are, except for the values that are named here: a purchase has to name what is
mapped, what ends it has to name the purchase, and two deliveries have two ids.
"""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.customer import eventually
from harness.shop_app import Open
from harness.world import MovableClock
from licclient import Reason

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("LICENSING_PAYLOADS", ROOT / ".nox/.cache/payloads"))
PINNED = tomllib.loads((ROOT / "tests/foreign.toml").read_text(encoding="utf-8"))
EVENTS = "lib/stripe_mock/webhook_fixtures"
FIXTURES = "tests/Functional/Resources/Simulations/_fixtures"
ENTITIES = f"{FIXTURES}/payload"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="`nox -s payloads` fetches what others wrote")


def git(name: str, *command: str) -> bytes:
    """Ask a repository, which has been fetched at the commit that is pinned."""
    return subprocess.run(
        ["git", "--git-dir", FOLDER / f"{name}.git", *command], check=True, capture_output=True
    ).stdout


def read(name: str, path: str) -> bytes:
    """Return a file of a repository."""
    return git(name, "cat-file", "blob", f"{PINNED[name]['commit']}:{path}")


def read_all(name: str, folder: str) -> dict[str, bytes]:
    """Return the files of a folder by their names without the suffix."""
    paths = git(name, "ls-tree", "--name-only", PINNED[name]["commit"], f"{folder}/").decode().split()
    return {Path(path).stem: read(name, path) for path in paths}


def change(body: bytes, **values: Any) -> bytes:
    """Replace values, named by their places: `data__object__payment_link`."""
    content = json.loads(body)
    for place, value in values.items():
        *folders, name = (int(part) if part.isdecimal() else part for part in place.split("__"))
        inner = content
        for folder in folders:
            inner = inner[folder]
        inner[name] = value
    return json.dumps(content).encode()


class Sale(NamedTuple):
    """Deliveries that issue a license, and those that end it."""

    kind: str
    external_id: str  # of what is bought
    at: str  # when, in UTC
    bought: list[bytes]
    ended: list[bytes]
    reason: Reason = Reason.REVOKED
    email: str | None = None
    ignored: tuple[str, ...] = ()  # ids of what is bought beside it
    source: dict[str, Any] = {}  # noqa: RUF012 - never changed


# --- Stripe -----------------------------------------------------------------------------------


def event(name: str, id_: str, **values: Any) -> bytes:
    """Return an event of the old shape."""
    fields = {f"data__object__{field}": value for field, value in values.items()}
    return change(read("stripe-ruby-mock", f"{EVENTS}/{name}.json"), id=id_, **fields)


PAYMENT, SUBSCRIPTION = "pi_000000000000000000000000", "sub_000000000000000000000000"
OLD: dict[str, Any] = {"kind": "stripe", "at": "2022-03-26T18:45:00", "source": {"is_test": True}}


def old_checkout() -> Sale:
    """A session of a payment link, refunded; the refund is dated ten seconds before the purchase."""
    bought = event("checkout.session.completed", "evt_1", payment_link="plink_1")
    refunded = event("charge.refunded", "evt_2", payment_intent=PAYMENT)
    return Sale(external_id="plink_1", bought=[bought], ended=[refunded], email="stripe@example.com", **OLD)


def old_dispute() -> Sale:
    """The same, disputed; as written it is an inquiry, which takes no money, and before the purchase."""
    bought = event("checkout.session.completed", "evt_1", payment_link="plink_1")
    disputed = event("charge.dispute.created", "evt_2", payment_intent=PAYMENT, status="needs_response")
    disputed = change(disputed, created=json.loads(bought)["created"] + 3600)
    return Sale(external_id="plink_1", bought=[bought], ended=[disputed], email="stripe@example.com", **OLD)


def old_subscription() -> Sale:
    """An invoice, made the first one of the subscription that ends."""
    first = {"subscription": SUBSCRIPTION, "billing_reason": "subscription_create"}
    bought, ended = event("invoice.paid", "evt_1", **first), event("customer.subscription.deleted", "evt_2")
    price = "price_000000000000000000000000"
    return Sale(external_id=price, bought=[bought], ended=[ended], reason=Reason.EXPIRED, **OLD)


def object_event(type_: str, name: str, **values: Any) -> bytes:
    """Return an event about an object of the new shape."""
    resources = json.loads(read("stripe-mock", "embedded/openapi/fixtures3.json"))["resources"]
    fields = json.loads(change(json.dumps(resources[name]).encode(), **values))
    return change(
        json.dumps(resources["event"]).encode(), id=f"evt_{name}", type=type_, data={"object": fields}
    )


NEW: dict[str, Any] = {"kind": "stripe", "at": "2024-07-26T01:00:00", "source": {"is_test": True}}


def new_checkout() -> Sale:
    """A session that was open and unpaid, paid; and a charge, refunded."""
    paid = {"payment_status": "paid", "payment_link": "plink_1", "payment_intent": PAYMENT}
    bought = object_event("checkout.session.completed", "checkout.session", **paid)
    refunded = object_event("charge.refunded", "charge", refunded=True, payment_intent=PAYMENT)
    return Sale(external_id="plink_1", bought=[bought], ended=[refunded], email="example@example.com", **NEW)


def new_subscription() -> Sale:
    """An invoice that names its subscription in `parent`; its price, which is left out, in `pricing`."""
    price = {"lines__data__0__pricing__price_details": {"price": "price_1", "product": "prod_1"}}
    bought = object_event("invoice.paid", "invoice", billing_reason="subscription_create", **price)
    ended = object_event("customer.subscription.deleted", "subscription", id="subscription")
    return Sale(external_id="price_1", bought=[bought], ended=[ended], reason=Reason.EXPIRED, **NEW)


# --- Paddle -----------------------------------------------------------------------------------


def entity_event(type_: str, entity: bytes) -> bytes:
    """Return an event about an object, which stays as it is."""
    about = f'{{"event_id":"evt_{type_}","event_type":"{type_}","occurred_at":"2024-04-12T11:24:55Z","data":'
    return about.encode() + entity + b"}"


def paddle_subscription() -> Sale:
    """Three prices at once, of which two are not for us; the customer has an id alone. Nothing is changed."""
    bought, ended = (
        read("paddle", f"{ENTITIES}/{name}.json")
        for name in ("transaction.completed", "subscription.canceled")
    )
    return Sale(
        "paddle",
        "pri_01h1vjfevh5etwq3rb416a23h2",
        "2024-04-12T11:30:00",
        [entity_event("transaction.completed", bought)],
        [entity_event("subscription.canceled", ended)],
        Reason.EXPIRED,
        ignored=("pri_01gsz8x8sawmvhz1pv30nge1ke", "pri_01gsz98e27ak2tyhexptwc58yk"),
    )


def paddle_adjustment() -> Sale:
    """The same, refunded in part, which waits for approval, and is approved."""
    sale = paddle_subscription()
    waiting = read("paddle", f"{ENTITIES}/adjustment.created.json")
    approved = read("paddle", f"{FIXTURES}/request/adjustment_updated_payload.json")
    of = {"transaction_id": "txn_01hv8wptq8987qeep44cyrewp9"}
    ended = [
        entity_event("adjustment.created", change(waiting, **of)),
        entity_event("adjustment.updated", change(approved, **of)),
    ]
    return sale._replace(ended=ended, reason=Reason.REVOKED, source={"revokes_partial_refunds": True})


# --- Lemon Squeezy and WooCommerce ------------------------------------------------------------

LEMON = "test/fixtures/files/lemon_squeezy"


def lemon_order() -> Sale:
    """An order as it was delivered; refunded, as Lemon Squeezy documents it."""
    bought = read("pay", f"{LEMON}/order_created.json")
    back = {"data__attributes__status": "refunded", "data__attributes__refunded_at": "2023-01-18T12:00:00Z"}
    ended = change(bought, meta={"event_name": "order_refunded"}, **back)
    return Sale("lemonsqueezy", "1", "2023-01-18T12:30:00", [bought], [ended], email="dan@lemonsqueezy.com")


def lemon_subscription() -> Sale:
    """A subscription as it was delivered, of that order, and its change, which is that it has expired."""
    sale, of = lemon_order(), {"data__attributes__order_id": 1, "data__attributes__variant_id": 1}
    of["data__attributes__first_subscription_item__quantity"] = 1
    begun = change(read("pay", f"{LEMON}/subscription_created.json"), **of)
    over = {"data__attributes__status": "expired", "data__attributes__ends_at": "2023-01-18T12:00:00Z"}
    ended = change(read("pay", f"{LEMON}/subscription_updated.json"), **of, **over)
    return sale._replace(bought=[*sale.bought, begun], ended=[ended], reason=Reason.EXPIRED)


def woo_order() -> Sale:
    """Order 727 as it is documented, and refunded; it has two positions, of which one is for us."""
    page = read("woocommerce", "source/includes/wp-api-v3/_orders.md").decode()
    bought = re.findall(r"```json\n(.*?)```", page, re.DOTALL)[1].encode()
    ended = change(bought, refunds=[{"id": 728, "reason": "", "total": "-29.35"}])
    mail = "john.doe@example.com"
    return Sale("woocommerce", "23", "2017-03-22T19:30:00", [bought], [ended], email=mail, ignored=("93",))


# --- Polar and Dodo Payments -------------------------------------------------------------------


def polar_object(name: str, **values: Any) -> bytes:
    """Return an object that is made of Polar's own schema, with fields of a state."""
    text = read("laravel-polar", "tests/Fixtures/PolarFixtures.php").decode()
    found = re.search(rf"^ {{12}}'{name}' => (\[.*?^ {{12}}\]),$", text, re.DOTALL | re.MULTILINE)
    assert found
    fields: dict[str, Any] = _Php(found[1]).read()
    return json.dumps(fields | values).encode()


class _Php:
    """A reader of PHP's arrays of names and values."""

    def __init__(self, text: str) -> None:
        self._tokens = re.findall(r"'[^']*'|=>|[\[\],]|[\w.-]+", text)

    def read(self) -> Any:
        """Return the next value."""
        token = self._tokens.pop(0)
        if token != "[":
            return token[1:-1] if token[0] == "'" else json.loads(token)
        named, listed = dict[str, Any](), list[Any]()
        while self._tokens[0] != "]":
            value = self.read()
            if self._tokens[0] == "=>":
                self._tokens.pop(0)
                named[value] = self.read()
            else:
                listed.append(value)
            if self._tokens[0] == ",":
                self._tokens.pop(0)
        self._tokens.pop(0)
        return named or listed


def polar_event(type_: str, at: str, entity: bytes) -> bytes:
    """Return an event about an object."""
    return f'{{"type":"{type_}","timestamp":"{at}","data":'.encode() + entity + b"}"


ORDERED = {"product_id": "prod_1", "total_amount": 2_000, "status": "paid"}
SUBSCRIBED = "2026-01-01T00:10:00"


def polar_order() -> Sale:
    """An order that is paid, and refunded; the skeleton has neither a product nor an amount."""
    customer = json.loads(polar_object("Order"))["customer"] | {"email": "ann@example.com"}
    bought = polar_object("Order", customer=customer, **ORDERED)
    ended = polar_object("Order", customer=customer, **{**ORDERED, "status": "refunded"})
    events = [
        polar_event("order.paid", "2026-01-01T00:00:01Z", bought),
        polar_event("order.refunded", "2026-01-01T00:01:00Z", ended),
    ]
    return Sale("polar", "prod_1", SUBSCRIBED, events[:1], events[1:], email="ann@example.com")


def polar_subscription() -> Sale:
    """Its first order, and the end."""
    id_ = {"id": "sub_1"}
    first = polar_object("Order", billing_reason="subscription_create", subscription_id="sub_1", **ORDERED)
    period = {"current_period_start": "2026-01-01T00:00:00Z", "current_period_end": "2026-02-01T00:00:00Z"}
    about = {**id_, **period, "product_id": "prod_1"}
    begun = polar_object("Subscription", **about, status="active", ended_at=None, ends_at=None)
    over = polar_object("Subscription", **about, status="canceled", ended_at="2026-01-01T00:05:00Z")
    bought = [
        polar_event("subscription.active", "2026-01-01T00:00:00Z", begun),
        polar_event("order.paid", "2026-01-01T00:00:01Z", first),
    ]
    ended = [polar_event("subscription.revoked", "2026-01-01T00:05:00Z", over)]
    return Sale("polar", "prod_1", SUBSCRIBED, bought, ended, Reason.EXPIRED)


def dodo_event(name: str, type_: str, at: str, **values: Any) -> bytes:
    """Return an event as Dodo's command line sends it; times and arguments are filled in."""
    text = read("dodopayments-cli", f"src/commands/webhook/functions/generate-{name}-data.ts").decode()
    found = re.search(r"return (\{.*?^    \})", text, re.DOTALL | re.MULTILINE)
    assert found
    body = re.sub(r"new Date\(new Date.*?\)\),?$", '"2026-02-01T00:00:00Z",', found[1], flags=re.MULTILINE)
    body = body.replace("new Date().toISOString()", f'"{at}"')
    names = {"qty": "1", "metadata": "{}", "email": '"ann@example.com"'}
    body = re.sub(r": ([a-z_]+)(,?)$", lambda value: _fill(value, names), body, flags=re.MULTILINE)
    event = json.loads(re.sub(r",(\s*})", r"\1", body)) | {"type": type_}
    event["data"] |= values
    return json.dumps(event).encode()


def _fill(found: re.Match[str], names: dict[str, str]) -> str:
    literal = found[1] if found[1] in {"true", "false", "null"} else names.get(found[1], f'"{found[1]}"')
    return f": {literal}{found[2]}"


DODO_AT = "2026-01-01T00:00:00Z"


def dodo_payment() -> Sale:
    """A payment, and its refund."""
    bought = dodo_event("payment", "payment.succeeded", DODO_AT)
    ended = dodo_event("refund", "refund.succeeded", "2026-01-01T00:05:00Z")
    return Sale("dodo", "product_id", SUBSCRIBED, [bought], [ended], email="ann@example.com")


def dodo_subscription() -> Sale:
    """A subscription with its first payment, and the end."""
    paid = {"subscription_id": "subscription_id", "product_cart": None}
    bought = [
        dodo_event("subscription", "subscription.active", DODO_AT),
        dodo_event("payment", "payment.succeeded", DODO_AT, **paid),
    ]
    over = {"status": "cancelled", "cancelled_at": "2026-01-01T00:05:00Z"}
    ended = dodo_event("subscription", "subscription.cancelled", "2026-01-01T00:05:00Z", **over)
    return Sale(*("dodo", "product_id", SUBSCRIBED, bought, [ended], Reason.EXPIRED), email="ann@example.com")


def gumroad_ping() -> Sale:
    """A ping of the test button, as a form; and refunded, as Gumroad documents it."""
    text = read("gumroad-api", "lib/src/test/kotlin/com/gumroad/api/TestFormToJsonConverter.kt").decode()
    found = re.search(r'testFormData = ("seller_id=.*?)\n\n', text, re.DOTALL)
    assert found
    bought = "".join(re.findall(r'"([^"]*)"', found[1])).encode()
    ended = bought.replace(b"&refunded=false", b"&refunded=true&resource_name=refund")
    return Sale(
        "gumroad",
        "SahilsPencil",  # of the product's address; the vendor has chosen another name since
        "2023-01-01T15:50:55",
        [bought],
        [ended],
        email="test@gumroad.com",
        source={"is_test": True},
    )


# --- all of them ------------------------------------------------------------------------------

SALES: list[Callable[[], Sale]] = [
    old_checkout,
    old_dispute,
    old_subscription,
    new_checkout,
    new_subscription,
]
SALES += [paddle_subscription, paddle_adjustment, lemon_order, lemon_subscription, woo_order]
SALES += [polar_order, polar_subscription, dodo_payment, dodo_subscription, gumroad_ping]


@pytest.mark.parametrize("make", SALES, ids=lambda make: make.__name__)
def test_a_sale_that_others_wrote(make: Callable[[], Sale], open_shop: Open, clock: MovableClock) -> None:
    """It becomes a key that an app verifies, and ends as the shop says."""
    sale = make()
    clock.now = datetime.fromisoformat(sale.at).replace(tzinfo=UTC)
    shop = open_shop(sale.kind, sale.external_id, **sale.source)
    for other in sale.ignored:
        shop.services.sources.map(sale.kind, other, None)
    assert {shop.deliver(id_) for id_ in sale.bought} == {"accepted"}
    key = shop.key(sale.email)
    assert [shop.deliver(id_) for id_ in sale.ended][-1] == "accepted"
    done = len(sale.bought) + len(sale.ended)
    assert shop.refused(key, done) is sale.reason
    assert shop.states()["dead"] == 0


SECRET = "pdl_ntfset_01hs0t3tw21j988db1pam5xg8m_GrOWLNef+vmtjJYq4mSnHNzvc8uWoJ1I"


@pytest.mark.parametrize(
    ("path", "at", "signature"),
    [
        (
            "examples/_fixtures/webhook_payload.json",
            1710498758,
            "558bf93944dbeb4790c7a8af6cb2ea435c8ca9c8396aafc1a4e37424ac132744",
        ),
        (
            "tests/Unit/Notification/_fixtures/special_chars_payload.json",
            1710498288,
            "38219b3ba1578184e625c29d201a27cd25bd69e2ec9c3ab87dcb90d87ff73a41",
        ),
    ],
)
def test_the_vectors_of_paddle(
    path: str, at: int, signature: str, open_shop: Open, clock: MovableClock
) -> None:
    """They are accepted; a customer who is created changes no license."""
    clock.now = datetime.fromtimestamp(at, UTC)
    shop = open_shop("paddle", "pri_1", secret=SECRET)
    body = read("paddle", path).strip()
    assert shop.deliver(body, {"Paddle-Signature": f"ts={at};h1={signature}"}) == "ignored"


def stripe_events() -> list[bytes]:
    """Return those of the old shape, under ids of their own."""
    found = read_all("stripe-ruby-mock", EVENTS)
    return [change(body, id=f"evt_{name}") for name, body in found.items()]


def paddle_events() -> list[bytes]:
    """Return one of each type."""
    return [entity_event(name, entity) for name, entity in read_all("paddle", ENTITIES).items()]


@pytest.mark.parametrize(
    ("kind", "events", "purchases"),
    [
        ("stripe", stripe_events, 2),  # of nothing that is named: a person has to look
        ("paddle", paddle_events, 1),
        ("lemonsqueezy", lambda: list(read_all("pay", LEMON).values()), 1),
    ],
    ids=["stripe", "paddle", "lemonsqueezy"],
)
def test_all_types_are_accepted(
    kind: str, events: Callable[[], list[bytes]], purchases: int, open_shop: Open, clock: MovableClock
) -> None:
    """What changes no license is ignored; of a product that is not mapped, the purchase alone is dead."""
    clock.now = datetime(2024, 4, 12, 12, tzinfo=UTC)
    shop = open_shop(kind, "other", is_test=kind == "stripe")
    assert {shop.deliver(body) for body in events()} == {"accepted", "ignored"}
    eventually(lambda: shop.states()["waiting"] == 0)
    assert shop.states()["dead"] == purchases
