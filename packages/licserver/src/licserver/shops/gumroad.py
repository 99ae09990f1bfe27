"""Gumroad: pings about sales and memberships, which are not signed. A secret in the address verifies them.

A form with the fields of the ping, or a sale of the API in JSON, has the same names.
"""

import hmac
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qsl

from pydantic import AliasChoices, Field

from licserver.shops.contract import Fetch
from licserver.shops.facts import (
    Contact,
    Dispute,
    DisputeState,
    Fact,
    Line,
    Lines,
    Order,
    OrderReason,
    OrderState,
    Refund,
    RefundState,
    Subscription,
    SubscriptionState,
)
from licserver.shops.periods import add_period_to_instant, subtract_months
from licserver.shops.reading import (
    NO_OPTIONS,
    UNKNOWN_TYPE,
    Amount,
    Delivery,
    Instant,
    Quantity,
    Reading,
    ReadOptions,
    ShopObject,
    UnreadableDeliveryError,
    parse,
    quote_id,
    to_name,
)

HEADER: Final = ""
SECRET: Final = ":path-secret"
"""Stands for the secret in the address, among the headers."""

MIN_SECRET: Final = 20  # characters; it can be guessed at any rate that the server allows
_MAX_FIELDS: Final = 500
_ANSWER: Final = "custom_fields["


def verify(
    headers: Mapping[str, str],
    _body: bytes,
    secrets: list[str],
    _now: datetime,
    _tolerance: timedelta,
) -> bool:
    """Return whether the address has one of the secrets."""
    sent = headers.get(SECRET, "").encode("utf-8", "surrogateescape")
    # All are compared, so that the time does not depend on which one matches.
    matches = [hmac.compare_digest(sent, secret.encode()) for secret in secrets if len(secret) >= MIN_SECRET]
    return any(matches)


class _Sale(ShopObject):
    id: str = Field(validation_alias=AliasChoices("sale_id", "id"))
    at: Instant = Field(validation_alias=AliasChoices("sale_timestamp", "created_at"))
    product_id: str
    short_product_id: str | None = None
    permalink: str | None = None  # which the vendor chooses, and can change
    product_permalink: str | None = None  # the address, which ends with one of them
    email: str | None = None
    price: Amount | None = None
    quantity: Quantity = None
    subscription_id: str | None = None
    recurrence: str | None = None
    is_recurring_charge: bool = False
    is_preorder_authorization: bool = False
    is_gift_receiver_purchase: bool = False
    refunded: bool = False
    partially_refunded: bool = False
    disputed: bool = False
    dispute_won: bool = False
    test: bool = False
    variants: str | dict[str, str] | None = None

    @property
    def product_ids(self) -> tuple[str, ...]:
        """The names and the id of the product; the id, which stays, is the last."""
        address = (self.product_permalink or "").partition("?")[0].rstrip("/").rpartition("/")[2]
        named = (self.short_product_id, self.permalink, address, self.product_id)
        return tuple(dict.fromkeys(id_ for id_ in named if id_))


class _Subscription(ShopObject):
    subscription_id: str
    product_id: str
    user_email: str | None = None
    created_at: Instant
    cancelled_at: Instant | None = None
    ended_at: Instant | None = None
    ended_reason: str | None = None
    restarted_at: Instant | None = None
    type: str | None = None
    effective_as_of: Instant | None = None
    new_plan: dict[str, Any] = Field(default_factory=dict)
    recurrence: str | None = None
    cancelled_due_to_payment_failures: bool = False

    def find_cancellation(self) -> datetime | None:
        """Return the first instant at which it can have been cancelled.

        Gumroad reports the end of the period in which that was. It can be restarted before.
        """
        months = _MONTHS.get(self.recurrence or "")
        if self.cancelled_at is None or self.cancelled_due_to_payment_failures or months is None:
            return self.cancelled_at
        return max(self.created_at, subtract_months(self.cancelled_at, months))


_MONTHS: Final = {"monthly": 1, "quarterly": 3, "biannually": 6, "yearly": 12, "every_two_years": 24}
"""The length of a period."""

_ALL_PAID: Final = "fixed_subscription_period_ended"
"""A membership of a fixed length is over, or the last instalment of a purchase is paid: pings are alike."""

_LINE: Final = "1"
"""The id of the line of a sale, which has no other: the names of products, versions and tiers can change."""

_GIFT: Final = (
    "the other side of a gift: the ping of its buyer, whose payment can be refunded, issues its license"
)
_SALES: Final = {"sale", "refund", "dispute", "dispute_won"}


def _parse_fields(body: bytes) -> dict[str, Any]:
    """Return the fields of a form, of which ``variants[Tier]`` is one within `variants`, or of JSON."""
    if body.lstrip().startswith(b"{"):
        fields = parse(_Fields, body).model_dump()
        sale = fields.get("sale")
        return sale if isinstance(sale, dict) else fields
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise UnreadableDeliveryError("the body: not a form of Gumroad") from None
    fields = dict[str, Any]()
    # Gumroad writes the answers of a buyer to the vendor's questions among its own fields as well.
    answers = {(name[len(_ANSWER) : -1], value) for name, value in pairs if name.startswith(_ANSWER)}
    names = Counter(name for name, _ in pairs)
    for name, value in pairs:
        if names[name] > 1 and (name, value) in answers:
            answers.discard((name, value))
            continue
        if value == "":
            continue
        *folders, last = name.replace("]", "").split("[")
        inner = fields
        for folder in folders:
            next_ = inner.setdefault(folder, {})
            inner = next_ if isinstance(next_, dict) else {}
        inner[last] = value
    return fields


class _Fields(ShopObject, extra="allow"):
    pass


def _to_line(sale: _Sale) -> Line:
    """Return what was sold: a product, and the version or tier of it."""
    variants = sale.variants or ""
    named = variants.strip("()") if isinstance(variants, str) else ", ".join(variants.values())
    ids = sale.product_ids
    if not named:
        return Line(_LINE, ids, sale.product_id, sale.quantity)
    versions = tuple(to_name(f"{id_}:{named}") for id_ in ids)
    return Line(_LINE, versions + ids, versions[-1], sale.quantity)


def _read_sale(fields: dict[str, Any]) -> tuple[Reading, bool]:
    sale = parse(_Sale, fields)
    if sale.is_gift_receiver_purchase:
        return _GIFT, sale.test
    reported_at, orders, subscription_id = sale.at, (sale.id,), sale.subscription_id
    months = _MONTHS.get(sale.recurrence or "")
    is_period = subscription_id is not None and months is not None
    facts: list[Fact] = [
        Order(
            id=sale.id,
            reported_at=reported_at,
            state=OrderState.PENDING if sale.is_preorder_authorization else OrderState.PAID,
            reason=OrderReason.RENEWAL if sale.is_recurring_charge else OrderReason.PURCHASE,
            subscriptions=() if subscription_id is None else (subscription_id,),
            paid_at=None if sale.is_preorder_authorization else reported_at,
            starts_at=reported_at if is_period else None,
            ends_at=add_period_to_instant(reported_at, f"{months}m") if is_period else None,
            total=sale.price,
        ),
        Lines(order_id=sale.id, reported_at=reported_at, lines=(_to_line(sale),)),
        Contact(id=sale.id, reported_at=reported_at, orders=orders, email=sale.email),
    ]
    # A ping has no time of its own. Of one object, the ping that has got further counts.
    is_part = sale.partially_refunded or fields.get("resource_name") == "refund"
    if sale.refunded or is_part:
        name = f"refund of {sale.id}"
        is_full = sale.refunded and not sale.partially_refunded
        facts.append(
            Refund(id=name, reported_at=reported_at, state=RefundState.MADE, orders=orders, is_full=is_full)
        )
    if sale.disputed or sale.dispute_won:
        state = DisputeState.WON if sale.dispute_won else DisputeState.OPEN
        facts.append(Dispute(id=f"dispute of {sale.id}", reported_at=reported_at, state=state, orders=orders))
    return facts, sale.test


def _read_subscription(name: str, fields: dict[str, Any]) -> Reading:
    subscription = parse(_Subscription, fields)
    if name == "subscription_updated":
        return _read_change(subscription)
    reported_at = {
        "cancellation": subscription.find_cancellation(),
        "subscription_ended": subscription.ended_at,
        "subscription_restarted": subscription.restarted_at,
    }[name]
    state = {
        # It goes on until what was paid is over, and no further payment is awaited.
        "cancellation": SubscriptionState.PAUSED,
        "subscription_ended": SubscriptionState.ENDED,
        "subscription_restarted": SubscriptionState.ACTIVE,
    }[name]
    if subscription.ended_reason == _ALL_PAID:
        state = SubscriptionState.COMPLETED
    report = Subscription(
        id=subscription.subscription_id,
        reported_at=reported_at or subscription.created_at,
        state=state,
        shop_state=name,
        ended_at=reported_at if state is SubscriptionState.ENDED else None,
    )
    return [report]


def _read_change(subscription: _Subscription) -> Reading:
    if subscription.type != "upgrade":
        return "a lower plan: it applies from the next payment, which reports it"
    tier = subscription.new_plan.get("tier")
    name = tier.get("name") if isinstance(tier, dict) else None
    quantity = parse(_Quantity, {"quantity": subscription.new_plan.get("quantity")}).quantity
    ids = (
        (to_name(f"{subscription.product_id}:{name}"), subscription.product_id)
        if name
        else (subscription.product_id,)
    )
    line = Line(None, ids, ids[0], quantity)
    reported_at = subscription.effective_as_of or subscription.created_at
    return [Lines(subscription_id=subscription.subscription_id, reported_at=reported_at, lines=(line,))]


class _Quantity(ShopObject):
    quantity: Quantity = None


def read(_headers: Mapping[str, str], body: bytes, _options: ReadOptions = NO_OPTIONS) -> Delivery:
    """Read a ping whose address was verified, or a sale of the API."""
    fields = _parse_fields(body)
    name = str(fields.get("resource_name") or _guess(fields))[:100]
    if name in _SALES:
        reading, is_test = _read_sale(fields)
        return Delivery.of(None, name, reading, is_test=is_test)
    if name in {"cancellation", "subscription_ended", "subscription_restarted", "subscription_updated"}:
        return Delivery.of(None, name, _read_subscription(name, fields))
    return Delivery.of(None, name, UNKNOWN_TYPE)


def _guess(fields: Mapping[str, Any]) -> str:
    """Return what a ping is about that does not name it: those of the settings page are for sales only."""
    names = {
        "ended_at": "subscription_ended",
        "restarted_at": "subscription_restarted",
        "effective_as_of": "subscription_updated",
        "cancelled_at": "cancellation",
    }
    is_sale = "sale_id" in fields or "id" in fields
    return "sale" if is_sale else next((names[field] for field in names if field in fields), "")


class _FetchedSale(ShopObject):
    sale: dict[str, Any]


def fetch_path(fetch: Fetch) -> str | None:
    """Return the path of a sale."""
    return f"v2/sales/{quote_id(fetch.id)}" if fetch.kind in {"lines", "payment"} else None


def read_fetched(_fetch: Fetch, body: bytes, _at: datetime) -> Sequence[Fact]:
    """Read a sale."""
    reading = _read_sale(parse(_FetchedSale, body).sale)[0]
    return () if isinstance(reading, str) else reading
