"""What is read from deliveries of Paddle, Lemon Squeezy, WooCommerce and own shops."""

import json
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import pytest

from harness import shops
from licserver.sources import standard, woocommerce
from licserver.sources.records import (
    UNKNOWN_TYPE,
    Delivery,
    Item,
    SaleEvent,
    SaleKind,
    UnreadableDeliveryError,
)

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
HALF = NOW + timedelta(seconds=0.5)  # of Paddle's events
DAY = timedelta(days=1)
ANN = "ann@example.com"

# --- Paddle -----------------------------------------------------------------------------------

PERIOD = {"billing_period": {"ends_at": "2026-07-15T12:00:00Z"}, "subscription_id": "sub_1"}
ITEM = Item(("pri_1", "pro_1"), 2)
SOLD = {"kind": SaleKind.PURCHASED, "order_id": "txn_1", "items": (ITEM,)}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {**SOLD, "customer_email": ANN}),
        (
            PERIOD,
            {**SOLD, "customer_email": ANN, "subscription_id": "sub_1", "paid_through": NOW + 30 * DAY},
        ),
        ({"custom_data": None}, SOLD),
        ({"custom_data": {"email": 5}, "customer_id": "ctm_01"}, {**SOLD, "customer_id": "ctm_01"}),
        ({"custom_data": {}, "customer_id": "ctm_1/x"}, SOLD),
        (
            {**PERIOD, "origin": "subscription_recurring"},
            {"kind": SaleKind.RENEWED, "subscription_id": "sub_1", "paid_through": NOW + 30 * DAY},
        ),
    ],
)
def test_paddle_transactions(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """A completed transaction is a purchase; one of a running subscription renews it."""
    body = shops.paddle("transaction.completed", shops.paddle_transaction(**fields))
    event = SaleEvent(occurred_at=HALF, **expected)
    assert shops.read("paddle", body) == Delivery("evt_1", "transaction.completed", events=(event,))


@pytest.mark.parametrize(
    ("fields", "kind", "is_partial"),
    [
        ({"action": "refund", "type": "full"}, SaleKind.REFUNDED, False),
        ({"action": "refund", "type": "partial"}, SaleKind.REFUNDED, True),
        ({"action": "refund", "items": [{"type": "full"}, {"type": "partial"}]}, SaleKind.REFUNDED, True),
        ({"action": "refund", "items": [{"type": "full"}]}, SaleKind.REFUNDED, False),
        ({"action": "chargeback", "items": [{"type": "partial"}]}, SaleKind.DISPUTED, False),
        ({"action": "chargeback_reverse"}, SaleKind.DISPUTE_WON, False),
    ],
)
def test_paddle_adjustments(fields: dict[str, Any], kind: SaleKind, is_partial: bool) -> None:
    """An approved adjustment takes the money back."""
    data = {"status": "approved", "transaction_id": "txn_1", **fields}
    event = shops.read_one("paddle", shops.paddle("adjustment.updated", data))
    assert event == SaleEvent(kind=kind, occurred_at=HALF, order_id="txn_1", is_partial=is_partial)


@pytest.mark.parametrize(("fields", "at"), [({"canceled_at": "2026-06-14T12:00:00Z"}, NOW - DAY), ({}, HALF)])
def test_paddle_end(fields: dict[str, str], at: datetime) -> None:
    """A subscription ends when it was cancelled."""
    event = shops.read_one("paddle", shops.paddle("subscription.canceled", {"id": "sub_1", **fields}))
    assert event == SaleEvent(kind=SaleKind.ENDED, occurred_at=HALF, subscription_id="sub_1", ended_at=at)


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"action": "cancel", "effective_at": "2026-07-15T12:00:00Z"}, NOW + 30 * DAY),
        ({"action": "pause", "effective_at": "2026-07-15T12:00:00Z"}, None),
        (None, None),
    ],
)
def test_paddle_cancellation(change: dict[str, str] | None, at: datetime | None) -> None:
    """A subscription that was cancelled ends with its period; any other report says that it was not."""
    data = {"id": "sub_1", "scheduled_change": change}
    event = shops.read_one("paddle", shops.paddle("subscription.updated", data))
    assert event == SaleEvent(kind=SaleKind.CHANGED, occurred_at=HALF, subscription_id="sub_1", cancels_at=at)


@pytest.mark.parametrize(
    ("type_", "data", "reason"),
    [
        ("customer.created", {}, UNKNOWN_TYPE),
        ("adjustment.created", {"action": "refund", "status": "rejected"}, "the adjustment is rejected"),
        ("adjustment.created", {"action": "credit", "status": "approved"}, "an adjustment that is a credit"),
        (
            "transaction.completed",
            shops.paddle_transaction(origin="subscription_charge", subscription_id="sub_1"),
            "a charge within a subscription",
        ),
        (
            "transaction.completed",
            shops.paddle_transaction(**PERIOD | {"subscription_id": None}, origin="subscription_charge"),
            "a charge within a subscription",
        ),
    ],
)
def test_paddle_ignored(type_: str, data: dict[str, Any], reason: str) -> None:
    """What changes no license is ignored, with a reason."""
    body = shops.paddle(type_, {"transaction_id": "txn_1", **data})
    assert shops.read("paddle", body) == Delivery("evt_1", type_, reason=reason)


# --- Lemon Squeezy ----------------------------------------------------------------------------

LEMON_ITEM = {"variant_id": 11, "product_id": 7, "quantity": 3}
ENDS = {"ends_at": "2026-07-01T02:00:00+02:00"}
ENDS_AT = datetime(2026, 7, 1, tzinfo=UTC)
CANCELLED = {"kind": SaleKind.CHANGED, "cancels_at": ENDS_AT}


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        (
            "order_created",
            shops.lemon_order(first_order_item=LEMON_ITEM, updated_at="2026-06-17T12:00:00Z"),
            {"kind": SaleKind.PURCHASED, "items": (Item(("11", "product:7"), 3),), "customer_email": ANN},
        ),
        (
            "order_refunded",
            shops.lemon_order(status="refunded", refunded_at="2026-06-16T12:00:00Z"),
            {"kind": SaleKind.REFUNDED, "occurred_at": NOW + DAY},
        ),
        (
            "order_refunded",
            shops.lemon_order(status="partial_refund", updated_at="2026-06-17T12:00:00Z"),
            {"kind": SaleKind.REFUNDED, "occurred_at": NOW + 2 * DAY, "is_partial": True},
        ),
        *(
            (
                "subscription_updated",
                shops.lemon_subscription(status, **ends),
                {"subscription_id": "5", **expected},
            )
            for status, ends, expected in (
                ("active", ENDS, {"kind": SaleKind.CHANGED, "paid_through": NOW + 30 * DAY}),
                ("on_trial", {}, {"kind": SaleKind.CHANGED, "paid_through": NOW + 30 * DAY}),
                ("cancelled", ENDS, {**CANCELLED, "paid_through": ENDS_AT}),
                ("expired", ENDS, {"kind": SaleKind.ENDED, "ended_at": ENDS_AT}),
                ("expired", {}, {"kind": SaleKind.ENDED, "ended_at": NOW}),
            )
        ),
    ],
)
def test_lemon_events(name: str, attributes: dict[str, Any], expected: dict[str, Any]) -> None:
    """Orders and refunds name the order, subscriptions both; a cancelled one is paid to its end."""
    delivery = shops.read("lemonsqueezy", shops.lemon(name, "5", attributes, test=True))
    event = SaleEvent(**{"occurred_at": NOW, "order_id": "5", **expected})
    assert delivery == Delivery(None, name, is_test=True, events=(event,))


def test_lemon_test_mode_of_older_deliveries() -> None:
    """It is in the order alone; what bought nothing must not become a license."""
    order = {"id": "5", "attributes": shops.lemon_order(test_mode=True)}
    body = json.dumps({"meta": {"event_name": "order_created"}, "data": order}).encode()
    assert shops.read("lemonsqueezy", body).is_test is True


@pytest.mark.parametrize(
    ("name", "attributes", "reason"),
    [
        ("license_key_created", {}, UNKNOWN_TYPE),
        ("order_created", shops.lemon_order(status="pending"), "the order is pending"),
        (
            "subscription_updated",
            shops.lemon_subscription("past_due"),
            "the subscription is past_due; its end follows if it is not paid",
        ),
    ],
)
def test_lemon_ignored(name: str, attributes: dict[str, Any], reason: str) -> None:
    """What changes no license is ignored, with a reason."""
    body = shops.lemon(name, "5", attributes)
    assert shops.read("lemonsqueezy", body) == Delivery(None, name, is_test=False, reason=reason)


# --- WooCommerce ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "refunds", "expected"),
    [
        ("processing", [], [SaleKind.PURCHASED]),
        ("completed", ["-28.35"], [SaleKind.PURCHASED, True]),
        ("completed", ["-5.00", "-24.35"], [SaleKind.PURCHASED, False]),
        ("refunded", [], [False]),
        ("refunded", ["-5.00"], [False]),
        ("pending", [], []),
    ],
)
def test_woo_orders(status: str, refunds: list[str], expected: list[Any]) -> None:
    """A paid order is a purchase; what was paid back is a refund, and a full one if nothing is left."""
    body = shops.woo(status, refunds=[{"total": total} for total in refunds])
    delivery = shops.read("woocommerce", body, **{"X-WC-Webhook-Topic": "order.created"})
    about = {"occurred_at": NOW, "order_id": "727"}
    bought = SaleEvent(kind=SaleKind.PURCHASED, items=(Item(("APP", "93")),), customer_email=ANN, **about)
    events = [
        bought if one is SaleKind.PURCHASED else SaleEvent(kind=SaleKind.REFUNDED, is_partial=one, **about)
        for one in expected
    ]
    reason = "" if events else f"the order is {status}"
    assert delivery == Delivery(None, f"order.created ({status})", None, tuple(events), reason)


def test_woo_items() -> None:
    """A position is named by variation, article number and product; equal ones are one."""
    line = {"product_id": 93, "variation_id": 94, "sku": "", "quantity": 2}
    event = shops.read_one("woocommerce", shops.woo(line_items=[line, line, {**line, "quantity": 0}]))
    assert event.items == (Item(("94", "93"), 4),)


@pytest.mark.parametrize("topic", ["order.created", "order.updated", "order.restored"])
def test_woo_topics(topic: str) -> None:
    """Those of orders are read; a time with its zone as well."""
    body = shops.woo(date_modified_gmt="2026-06-15T12:00:00Z")
    event = shops.read_one("woocommerce", body, **{"X-WC-Webhook-Topic": topic})
    assert (event.kind, event.occurred_at) == (SaleKind.PURCHASED, NOW)


def test_woo_other_topics() -> None:
    """They change no license; without a header, as in the shop's API, an order is an update of it."""
    other = shops.read("woocommerce", b"{}", **{"X-WC-Webhook-Topic": "product.updated" + "x" * 100})
    reason = "this topic changes no license"
    assert other == Delivery(None, "product.updated" + "x" * 85, reason=reason)
    assert shops.read("woocommerce", shops.woo("a" * 100)).type == f"order.updated ({'a' * 85}"


def test_woo_ping() -> None:
    """The unsigned test of a new webhook is recognised, and nothing else is."""
    assert woocommerce.is_ping(b"webhook_id=12")
    assert not woocommerce.is_ping(b"webhook_id=12&order=1")


# --- own shops --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "data", "expected"),
    [
        (
            "purchase.completed",
            {"order_id": 1042, "external_id": "app", "quantity": 2, "customer_email": ANN},
            {"order_id": "1042", "items": (Item(("app",), 2),), "customer_email": ANN},
        ),
        (
            "purchase.completed",
            {"order_id": "1", "external_id": "app", "subscription_id": "s1", "paid_through": "2026-06-20"},
            {
                "order_id": "1",
                "items": (Item(("app",)),),
                "subscription_id": "s1",
                "paid_through": datetime(2026, 6, 21, tzinfo=UTC),
            },
        ),
        (
            "purchase.refunded",
            {"order_id": "1", "partial": True, "external_id": "app"},
            {"order_id": "1", "is_partial": True},
        ),
        (
            "subscription.renewed",
            {"subscription_id": "s1", "paid_through": "2026-07-15T14:00:00+02:00"},
            {"subscription_id": "s1", "paid_through": NOW + 30 * DAY},
        ),
        (
            "subscription.cancelled",
            {"subscription_id": "s1", "paid_through": "2026-06-30"},
            {"subscription_id": "s1", "paid_through": ENDS_AT, "cancels_at": ENDS_AT},
        ),
        ("subscription.resumed", {"subscription_id": "s1"}, {"subscription_id": "s1"}),
        ("subscription.ended", {"subscription_id": "s1"}, {"subscription_id": "s1", "ended_at": NOW}),
    ],
)
@pytest.mark.parametrize("test", [{}, {"test": True}, {"test": False}])
def test_standard_events(
    type_: str, data: dict[str, Any], expected: dict[str, Any], test: dict[str, bool]
) -> None:
    """All fields are read; a date includes its day."""
    delivery = shops.read("standard", shops.standard(type_, **data, **test), **{"webhook-id": "m1"})
    event = SaleEvent(kind=standard.TYPES[type_], occurred_at=NOW, **expected)
    assert delivery == Delivery("m1", type_, test.get("test"), (event,))


@pytest.mark.parametrize(
    ("body", "type_"),
    [(b'{"type": "customer.created"}', "customer.created"), (b'{"test": 2432232314}', "no type")],
)
def test_standard_other_types(body: bytes, type_: str) -> None:
    """What is not known is ignored, whatever its data, and the reason names what is."""
    delivery = shops.read("standard", body, **{"webhook-id": "m1"})
    types = "purchase.completed, purchase.refunded, subscription.renewed, subscription.cancelled"
    reason = f"the type is none of {types}, subscription.resumed, subscription.ended"
    assert delivery == Delivery("m1", type_, reason=reason)


def test_the_published_schema_has_the_fields_that_are_read() -> None:
    """`SaleEvent` of the OpenAPI document, with the limits of the numbers and texts."""
    text = (files("licserver.protocol") / "openapi.json").read_text(encoding="utf-8")
    published = json.loads(text)["components"]["schemas"]["SaleEvent"]
    read = standard.Event.model_json_schema()
    assert published["required"] == read["required"]
    assert published["properties"].keys() == read["properties"].keys()
    fields, limits = read["$defs"]["Data"]["properties"], ("minLength", "maxLength", "minimum", "maximum")
    for name, field in published["properties"]["data"]["properties"].items():
        own = fields.pop(name)
        own |= own.get("anyOf", [{}])[0]
        assert [field.get(one) for one in limits] == [own.get(one) for one in limits], name
    assert fields == {}


@pytest.mark.parametrize(
    ("type_", "data", "field"),
    [
        ("purchase.completed", {"order_id": "1"}, "^data.external_id: Field required$"),
        ("purchase.completed", {"external_id": "1"}, "^data.order_id: Field required$"),
        ("purchase.refunded", {"external_id": "1"}, "^data.order_id: Field required$"),
        ("subscription.renewed", {"paid_through": "2026-07-15"}, "^data.subscription_id: Field required$"),
        ("subscription.cancelled", {"subscription_id": "1"}, "^data.paid_through: Field required$"),
        ("subscription.ended", {"order_id": "1"}, "^data.subscription_id: Field required$"),
        ("subscription.renewed", {"subscription_id": "1"}, "data.paid_through"),
        ("purchase.completed", {"order_id": "1", "external_id": "a", "quantity": 0}, "data.quantity"),
    ],
)
def test_standard_missing_fields(type_: str, data: dict[str, Any], field: str) -> None:
    """The error names the field."""
    with pytest.raises(UnreadableDeliveryError, match=field):
        shops.read("standard", shops.standard(type_, **data))
