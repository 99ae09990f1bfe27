"""Deliveries as each kind of shop makes them: bodies of the documented shape, signed with its scheme."""

import base64
import hashlib
import hmac
import json
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

SECRETS = {
    "stripe": "whsec_stripe-secret-of-the-tests",
    "paddle": "pdl_ntfset_01secret_of+the/tests",
    "lemonsqueezy": "lemon-secret-of-the-tests",
    "woocommerce": "woo-secret-of-the-tests",
    "polar": "polar_whs_secret-of-the-tests",
    "dodo": "whsec_c2VjcmV0LW9mLXRoZS10ZXN0cy1kb2Rv",
    "gumroad": "secretOfTheTestsInTheAddress",
    "standard": "whsec_c2VjcmV0LW9mLXRoZS10ZXN0cy1vdXItc2hvcA==",
}


def sign(
    kind: str, body: bytes, at: datetime, secret: str | None = None, delivery: str = "msg_1"
) -> dict[str, str]:
    """Make the headers of a delivery."""
    secret, seconds = SECRETS[kind] if secret is None else secret, int(at.timestamp())
    is_base64 = kind in {"standard", "dodo"}
    key = base64.b64decode(secret.removeprefix("whsec_")) if is_base64 else secret.encode()

    def mac(prefix: str = "") -> bytes:
        return hmac.digest(key, prefix.encode() + body, hashlib.sha256)

    match kind:
        case "stripe":
            return {"Stripe-Signature": f"t={seconds},v1={mac(f'{seconds}.').hex()},v0=00"}
        case "paddle":
            return {"Paddle-Signature": f"ts={seconds};h1={mac(f'{seconds}:').hex()}"}
        case "lemonsqueezy":
            return {"X-Signature": mac().hex()}
        case "gumroad":  # it signs nothing: the secret is in the address
            return {":path-secret": secret}
        case "woocommerce":
            return {"X-WC-Webhook-Signature": base64.b64encode(mac()).decode()}
        case _:
            signature = base64.b64encode(mac(f"{delivery}.{seconds}.")).decode()
            headers = {"webhook-id": delivery, "webhook-timestamp": str(seconds)}
            return {**headers, "webhook-signature": f"v1,{signature}"}


def _body(value: Any) -> bytes:
    return json.dumps(value).encode()


def stripe(type_: str, fields: dict[str, Any], *, id_: str = "evt_1", live: bool = True) -> bytes:
    """Make an event of Stripe."""
    event = {"id": id_, "object": "event", "type": type_, "created": 1_781_524_800, "livemode": live}
    return _body({**event, "data": {"object": fields}})


def stripe_session(**fields: Any) -> dict[str, Any]:
    """Make a Checkout Session that is paid."""
    session = {"id": "cs_1", "mode": "payment", "payment_status": "paid", "payment_intent": "pi_1"}
    return {**session, "payment_link": "plink_1", "customer_details": {"email": "ann@example.com"}, **fields}


def stripe_invoice(reason: str, end: int, *, new: bool = True) -> dict[str, Any]:
    """Make a paid invoice of a subscription, as API versions before or since 2025-03-31 have it."""
    line: dict[str, Any] = {"quantity": 1, "period": {"end": end}}
    invoice: dict[str, Any] = {
        "id": f"in_{end}",
        "billing_reason": reason,
        "customer_email": "ann@example.com",
    }
    if new:
        line["pricing"] = {"price_details": {"price": "price_1", "product": "prod_1"}}
        invoice["parent"] = {"subscription_details": {"subscription": "sub_1"}}
    else:
        line["price"] = {"id": "price_1", "product": "prod_1"}
        invoice |= {"subscription": {"id": "sub_1"}, "payment_intent": "pi_1"}
    return {**invoice, "lines": {"data": [line]}}


def paddle(type_: str, data: dict[str, Any], *, id_: str = "evt_1") -> bytes:
    """Make an event of Paddle."""
    return _body(
        {"event_id": id_, "event_type": type_, "occurred_at": "2026-06-15T12:00:00.5Z", "data": data}
    )


def paddle_transaction(**fields: Any) -> dict[str, Any]:
    """Make a completed transaction."""
    items = [{"price": {"id": "pri_1", "product_id": "pro_1"}, "quantity": 2}]
    return {
        "id": "txn_1",
        "origin": "web",
        "items": items,
        "custom_data": {"email": "ann@example.com"},
        **fields,
    }


def lemon(name: str, id_: str, attributes: dict[str, Any], *, test: bool = False) -> bytes:
    """Make an event of Lemon Squeezy."""
    return _body(
        {"meta": {"event_name": name, "test_mode": test}, "data": {"id": id_, "attributes": attributes}}
    )


def lemon_order(**fields: Any) -> dict[str, Any]:
    """Make the attributes of a paid order."""
    at = "2026-06-15T12:00:00.000000Z"
    order = {"status": "paid", "created_at": at, "updated_at": at, "user_email": "ann@example.com"}
    return {**order, "first_order_item": {"variant_id": 11, "product_id": 7, "quantity": 1}, **fields}


def lemon_subscription(status: str, **fields: Any) -> dict[str, Any]:
    """Make the attributes of a subscription."""
    at = {"updated_at": "2026-06-15T12:00:00Z", "renews_at": "2026-07-15T12:00:00Z", "ends_at": None}
    return {"status": status, "order_id": 5, **at, **fields}


def woo(status: str = "completed", **fields: Any) -> bytes:
    """Make an order of WooCommerce."""
    order = {"id": 727, "status": status, "date_modified_gmt": "2026-06-15T12:00:00", "total": "29.35"}
    lines = {"line_items": [woo_line()], "refunds": [], "meta_data": []}
    return _body({**order, "billing": {"email": "ann@example.com"}, **lines, **fields})


def woo_line(id_: int = 315, **fields: Any) -> dict[str, Any]:
    """Make a line of an order of WooCommerce."""
    return {"id": id_, "product_id": 93, "variation_id": 0, "sku": "APP", "quantity": 1, **fields}


def woo_renewal(id_: int, subscription: int | None = 900, **fields: Any) -> bytes:
    """Make the order by which WooCommerce Subscriptions renews a subscription."""
    named = [] if subscription is None else [{"id": 5, "key": "_subscription_renewal", "value": subscription}]
    meta = {"created_via": "subscription", "meta_data": named}
    return woo(**{"status": "processing", "id": id_, **meta, **fields})


def woo_subscription(status: str = "active", **fields: Any) -> bytes:
    """Make a subscription of WooCommerce Subscriptions, as its API since version 3 has it."""
    ids = {"id": 900, "parent_id": 727, "status": status, "date_modified_gmt": "2026-06-15T12:00:01"}
    billed = {"billing_period": "year", "billing_interval": "1"}
    dates = {"next_payment_date_gmt": "2027-06-15T12:00:00", "end_date_gmt": ""}
    return _body({**ids, **billed, **dates, "total": "29.35", "line_items": [woo_line(316)], **fields})


def standard(type_: str, at: str = "2026-06-15T12:00:00Z", **data: Any) -> bytes:
    """Make an event of an own shop."""
    return _body({"type": type_, "timestamp": at, "data": data})


def polar(type_: str, at: str = "2026-06-15T12:00:00Z", **data: Any) -> bytes:
    """Make an event of Polar."""
    return _body({"type": type_, "timestamp": at, "data": data})


def polar_order(**fields: Any) -> dict[str, Any]:
    """Make an order that is paid."""
    amounts = {"total_amount": 2_000, "refunded_amount": 0, "refunded_tax_amount": 0}
    dates = {"created_at": "2026-06-15T12:00:00Z", "modified_at": None}
    customer = {"customer_id": "cus_1", "customer": {"email": "ann@example.com"}}
    order = {"id": "ord_1", "status": "paid", "billing_reason": "purchase", "product_id": "prod_1"}
    return {**order, **amounts, **dates, **customer, "subscription_id": None, "seats": None, **fields}


def polar_subscription(status: str = "active", **fields: Any) -> dict[str, Any]:
    """Make a subscription of Polar."""
    dates = {"created_at": "2026-06-15T12:00:00Z", "modified_at": None, "ends_at": None, "ended_at": None}
    period = {"current_period_start": "2026-06-15T12:00:00Z", "current_period_end": "2026-07-15T12:00:00Z"}
    names = {"id": "sub_1", "status": status, "product_id": "prod_1", "cancel_at_period_end": False}
    return {**names, **dates, **period, **fields}


def dodo(type_: str, at: str = "2026-06-15T12:00:00Z", **data: Any) -> bytes:
    """Make an event of Dodo Payments."""
    return _body({"business_id": "bus_1", "type": type_, "timestamp": at, "data": data})


def dodo_payment(**fields: Any) -> dict[str, Any]:
    """Make a payment that succeeded."""
    payment = {"payload_type": "Payment", "payment_id": "pay_1", "status": "succeeded", "total_amount": 2_000}
    cart = {"product_cart": [{"product_id": "pdt_1", "quantity": 1}], "subscription_id": None}
    customer = {"customer": {"customer_id": "cus_1", "email": "ann@example.com"}}
    return {**payment, **cart, **customer, "created_at": "2026-06-15T12:00:00Z", **fields}


def dodo_subscription(status: str = "active", **fields: Any) -> dict[str, Any]:
    """Make a subscription of Dodo Payments."""
    names = {"payload_type": "Subscription", "subscription_id": "sub_1", "product_id": "pdt_1", "quantity": 1}
    dates = {"previous_billing_date": "2026-06-15T12:00:00Z", "next_billing_date": "2026-07-15T12:00:00Z"}
    customer = {"customer": {"customer_id": "cus_1", "email": "ann@example.com"}}
    return {**names, "status": status, **dates, "cancel_at_next_billing_date": False, **customer, **fields}


def gumroad(resource: str = "sale", **fields: Any) -> bytes:
    """Make a ping of Gumroad."""
    sale = {"sale_id": "sale_1==", "sale_timestamp": "2026-06-15T12:00:00Z", "seller_id": "seller_1=="}
    product = {"product_id": "product_1==", "short_product_id": "app", "permalink": "app", "quantity": "1"}
    rest = {"email": "ann@example.com", "price": "2000", "refunded": "false", "disputed": "false"}
    return urlencode({**sale, **product, **rest, "resource_name": resource, **fields}).encode()


def gumroad_subscription(resource: str, **fields: Any) -> bytes:
    """Make a ping of Gumroad about a membership."""
    names = {"subscription_id": "sub_1==", "product_id": "product_1==", "user_email": "ann@example.com"}
    begun = {"created_at": "2026-06-15T12:00:00Z", "recurrence": "monthly", "resource_name": resource}
    return urlencode({**names, **begun, **fields}).encode()
