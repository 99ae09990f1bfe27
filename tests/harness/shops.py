"""Deliveries as each kind of shop makes them: bodies of the documented shape, signed with its scheme."""

import base64
import hashlib
import hmac
import json
from datetime import datetime
from typing import Any

from licserver.sources import SHOPS, SourceKind
from licserver.sources.records import Delivery, SaleEvent

SECRETS = {
    "stripe": "whsec_stripe-secret-of-the-tests",
    "paddle": "pdl_ntfset_01secret_of+the/tests",
    "lemonsqueezy": "lemon-secret-of-the-tests",
    "woocommerce": "woo-secret-of-the-tests",
    "standard": "whsec_c2VjcmV0LW9mLXRoZS10ZXN0cy1vdXItc2hvcA==",
}


def sign(
    kind: str, body: bytes, at: datetime, secret: str | None = None, delivery: str = "msg_1"
) -> dict[str, str]:
    """Make the headers of a delivery."""
    secret, seconds = SECRETS[kind] if secret is None else secret, int(at.timestamp())
    key = base64.b64decode(secret.removeprefix("whsec_")) if kind == "standard" else secret.encode()

    def mac(prefix: str = "") -> bytes:
        return hmac.digest(key, prefix.encode() + body, hashlib.sha256)

    match kind:
        case "stripe":
            return {"Stripe-Signature": f"t={seconds},v1={mac(f'{seconds}.').hex()},v0=00"}
        case "paddle":
            return {"Paddle-Signature": f"ts={seconds};h1={mac(f'{seconds}:').hex()}"}
        case "lemonsqueezy":
            return {"X-Signature": mac().hex()}
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
    line = {"product_id": 93, "variation_id": 0, "sku": "APP", "quantity": 1}
    order = {"id": 727, "status": status, "date_modified_gmt": "2026-06-15T12:00:00", "total": "29.35"}
    return _body(
        {**order, "billing": {"email": "ann@example.com"}, "line_items": [line], "refunds": [], **fields}
    )


def standard(type_: str, at: str = "2026-06-15T12:00:00Z", **data: Any) -> bytes:
    """Make an event of an own shop."""
    return _body({"type": type_, "timestamp": at, "data": data})


def read(kind: str, body: bytes, **headers: str) -> Delivery:
    """Read a body as the server does."""
    return SHOPS[SourceKind(kind)].read({name.lower(): value for name, value in headers.items()}, body)


def read_one(kind: str, body: bytes, **headers: str) -> SaleEvent:
    """Read a body that contains one event."""
    (event,) = read(kind, body, **headers).events
    return event
