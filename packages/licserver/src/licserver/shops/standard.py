"""Standard Webhooks (standardwebhooks.com): own shops, and the signatures of those that sign so."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import product
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, WrapValidator

from licserver.domain.languages import find_language
from licserver.shops.contract import MAX_QUANTITY
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
    RefundedLine,
    RefundState,
    Subscription,
    SubscriptionState,
)
from licserver.shops.reading import (
    MOST,
    NO_OPTIONS,
    Delivery,
    Instant,
    ReadOptions,
    UnreadableDeliveryError,
    check_year,
    load,
    no_path,
    parse,
    read_nothing,
)
from licserver.shops.signatures import MAX_SIGNATURES, from_base64, has_signed, is_recent

HEADER: Final = "webhook-signature"
DELIVERY_HEADER: Final = "webhook-id"  # signed as well

_PREFIX: Final = "whsec_"
_MAX_NAMES: Final = 5  # unknown fields that are named
_MAX_FIELDS: Final = 50  # unknown fields that are compared with those of this format
_MAX_NAMED: Final = 50  # characters of each
_LIKENESS: Final = (
    0.82  # of a misspelled name: `subscription` is one of `subscription_id`, `customer_id` is new
)

_SYNONYMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("qty", "count", "units", "copies", "seats", "licenses"), "quantity"),
    **dict.fromkeys(("email", "mail", "buyeremail", "billingemail"), "customer_email"),
    **dict.fromkeys(("subscription", "subid"), "subscription_id"),
    **dict.fromkeys(
        ("paiduntil", "validuntil", "expiresat", "expires", "periodend", "currentperiodend", "renewsat"),
        "paid_through",
    ),
    **dict.fromkeys(("productid", "product", "priceid", "variantid", "sku"), "external_id"),
    **dict.fromkeys(("order", "ordernumber", "invoiceid"), "order_id"),
    **dict.fromkeys(("istest", "testmode", "sandbox"), "test"),
}
"""Names that other systems have for fields of this format, as `_plain` writes them."""
_DECISIVE: Final[Mapping[str, tuple[str, ...]]] = {
    "purchase.completed": ("quantity", "customer_email", "subscription_id", "paid_through"),
    "subscription.changed": ("quantity",),
}
"""Fields that a type need not have, and without which a customer gets less or more, or no mail."""

_Id = Annotated[str, Field(min_length=1, max_length=255)]
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _read_through(value: object, read: Callable[[object], datetime]) -> datetime:
    """Read an instant, or a date, which includes its day."""
    if not isinstance(value, str) or _DAY.fullmatch(value) is None:
        return read(value)
    return datetime.combine(check_year(date.fromisoformat(value)), time(), UTC) + timedelta(days=1)


_Through = Annotated[
    Instant,
    WrapValidator(_read_through),
    WithJsonSchema({"anyOf": [{"type": "string", "format": name} for name in ("date-time", "date")]}),
]
_Amount = Annotated[Decimal, Field(max_digits=20, ge=0)]


class Data(BaseModel):
    """The data of a delivery; which fields are needed depends on its type."""

    model_config = ConfigDict(title="SaleData", coerce_numbers_to_str=True, extra="allow")

    order_id: _Id | None = Field(None, description="The order's id in the shop.")
    external_id: _Id | None = Field(None, description="The product's or price's id in the shop.")
    line_id: _Id | None = Field(
        None, description="The id of the order's line, where an order has several of one product."
    )
    quantity: int = Field(
        1,
        ge=1,
        le=MOST,
        description=f"How many license keys; the vendor is asked about more than {MAX_QUANTITY}.",
    )
    total: _Amount | None = Field(
        None,
        description="What the whole order cost, the same in each of its deliveries; refunds add up to it.",
    )
    customer_email: str | None = Field(None, max_length=254)
    customer_language: str | None = Field(
        None, max_length=35, description="Of mails to the customer, such as `de`."
    )
    subscription_id: _Id | None = Field(None, description="The subscription's id in the shop.")
    paid_through: _Through | None = Field(
        None, description="To when the subscription is paid; a date includes that day, in UTC."
    )
    refund_id: _Id | None = Field(
        None,
        description="The refund's id within its order; needed with `amount` or `partial`: refunds add up.",
    )
    amount: _Amount | None = Field(None, description="What was refunded.")
    partial: bool = Field(default=False, description="Whether a refund is of a part of the order.")
    dispute_id: _Id | None = Field(
        None, description="The dispute's id within its order, where that can have several."
    )
    test: bool | None = Field(None, description="Whether this is a test; a live source ignores those.")


class Event(BaseModel):
    """The body of a delivery."""

    type: str = Field(max_length=100)
    timestamp: Instant = Field(description="When it happened.")
    data: Data


class _Envelope(BaseModel):
    type: str = Field("no type", max_length=100)  # other senders with this signature have bodies of their own


def verify(
    headers: Mapping[str, str], body: bytes, secrets: list[str], now: datetime, tolerance: timedelta
) -> bool:
    """Return whether one of the secrets has signed the body lately."""
    return verify_by_keys(headers, body, [key for key in map(read_key, secrets) if key], now, tolerance)


def verify_by_keys(
    headers: Mapping[str, str], body: bytes, keys: list[bytes], now: datetime, tolerance: timedelta
) -> bool:
    """Return whether one of the keys has signed the body lately."""
    timestamp, delivery = headers.get("webhook-timestamp", ""), headers.get(DELIVERY_HEADER, "")
    if not is_recent(timestamp, now, tolerance):
        return False
    signed = [part.partition(",") for part in headers.get(HEADER, "").split()[:MAX_SIGNATURES]]
    signatures = [from_base64(value) for version, _, value in signed if version == "v1"]
    message = f"{delivery}.{timestamp}.".encode("utf-8", "surrogateescape") + body
    return has_signed(message, signatures, keys)


def read_key(secret: str) -> bytes:
    """Return the key of a secret: base64 after ``whsec_``, otherwise its text, as Polar has it."""
    return from_base64(secret.removeprefix(_PREFIX)) if secret.startswith(_PREFIX) else secret.encode()


def _read_purchase(reported_at: datetime, data: Data) -> list[Fact]:
    order_id = _required(data.order_id)
    product = _required(data.external_id)
    line_id = _find_line_id(data)
    line = Line(line_id, (product,), product, data.quantity)
    # A line of an order may be of a subscription of its own.
    part = product if line_id is None else f"line:{line_id}"
    return [
        Order(
            id=order_id,
            reported_at=reported_at,
            state=OrderState.PAID,
            subscriptions=_named(data.subscription_id),
            paid_at=reported_at,
            ends_at=data.paid_through,
            total=data.total,
            part=part,
        ),
        # An order of two products is two deliveries.
        Lines(order_id=order_id, reported_at=reported_at, lines=(line,), part=part),
        Contact(
            id=order_id,
            reported_at=reported_at,
            orders=(order_id,),
            subscriptions=_named(data.subscription_id),
            email=data.customer_email,
            language=find_language(data.customer_language),
        ),
    ]


def _read_renewal(reported_at: datetime, data: Data) -> list[Fact]:
    ends_at = data.paid_through
    order = Order(
        # Not the order's id alone: that may be another sale, or the first order of the subscription.
        id=f"{data.subscription_id}/{data.order_id or format(ends_at, '%Y-%m-%dT%H:%M:%SZ')}",
        reported_at=reported_at,
        state=OrderState.PAID,
        reason=OrderReason.RENEWAL,
        names=_named(data.order_id),
        subscriptions=_named(data.subscription_id),
        resumes=True,
        paid_at=reported_at,
        ends_at=ends_at,
        total=data.total,
    )
    return [order]


def _read_refund(state: RefundState, reported_at: datetime, data: Data) -> list[Fact]:
    line = _find_refunded_line(data)
    is_full: bool | None = not data.partial
    if data.amount is not None:  # which counts more than `partial`
        is_full = None
    elif line is not None and "partial" not in data.model_fields_set:
        is_full = False
    # Shops may number refunds and disputes for each order; a refund of two lines is two deliveries.
    whole = _in_order(data, "/all" if data.refund_id is None else _escape_slash(data.refund_id))
    part = None if line is None else _in_order(data, f"{_escape_slash(data.refund_id or '')}/{line.name}")
    refund = Refund(
        id=part or whole,
        reported_at=reported_at,
        state=state,
        orders=_named(data.order_id),
        amount=data.amount,
        is_full=is_full,
        lines=() if line is None else (line,),
        part_of=None if part is None else whole,
    )
    return [refund]


def _find_refunded_line(data: Data) -> RefundedLine | None:
    """Return the line that a refund names; not if it is an amount alone, or a part of no size."""
    name = _find_line_id(data) or data.external_id
    if name is None:
        return None
    if "quantity" in data.model_fields_set:
        return RefundedLine(name, data.quantity)
    return None if data.partial or data.amount is not None else RefundedLine(name)


def _read_dispute(state: DisputeState, reported_at: datetime, data: Data) -> list[Fact]:
    id_ = _in_order(data, data.dispute_id or "")
    return [Dispute(id=id_, reported_at=reported_at, state=state, orders=(_required(data.order_id),))]


def _in_order(data: Data, id_: str) -> str:
    """Return an id that no other order has."""
    return f"{_escape_slash(_required(data.order_id))}/{id_}"


def _find_line_id(data: Data) -> str | None:
    """Return the id of a line without a slash, which separates it from that of its order."""
    return None if data.line_id is None else _escape_slash(data.line_id)


def _escape_slash(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _read_cancellation(reported_at: datetime, data: Data) -> list[Fact]:
    report = Subscription(
        id=_required(data.subscription_id),
        reported_at=reported_at,
        state=SubscriptionState.ACTIVE,
        ends_at=data.paid_through,
        cancels_at=data.paid_through,
    )
    return [report]


def _read_end(reported_at: datetime, data: Data) -> list[Fact]:
    report = Subscription(
        id=_required(data.subscription_id),
        reported_at=reported_at,
        state=SubscriptionState.ENDED,
        ended_at=reported_at,
    )
    return [report]


def _read_resumption(reported_at: datetime, data: Data) -> list[Fact]:
    report = Subscription(
        id=_required(data.subscription_id),
        reported_at=reported_at,
        state=SubscriptionState.ACTIVE,
        ends_at=data.paid_through,
    )
    return [report]


def _read_change(reported_at: datetime, data: Data) -> list[Fact]:
    line = Line(None, (_required(data.external_id),), data.external_id, data.quantity)
    return [Lines(subscription_id=data.subscription_id, reported_at=reported_at, lines=(line,))]


def _note_unknown(data: Data) -> str:
    """Return a sentence about fields that this format does not have. Empty without such fields."""
    unknown = sorted(data.model_extra or ())
    names = ", ".join(name[:_MAX_NAMED] for name in unknown[:_MAX_NAMES])
    return f"not read, because this format has no such fields: {names}" if unknown else ""


def _refuse_misspelled(type_: str, data: Data) -> None:
    """Refuse a name that means a field which is missing: what it means decides what a customer gets.

    Any other name is of a field that the shop has for itself, which stops no sale.
    """
    missing = [name for name in Data.model_fields if name not in data.model_fields_set]
    decisive = {*TYPES[type_][1], *_DECISIVE.get(type_, ()), "test"}.intersection(missing)
    for name in sorted(data.model_extra or ())[:_MAX_FIELDS]:
        synonym = _SYNONYMS.get(_plain(name))
        meant = synonym if synonym in decisive else _find_like(name, missing)
        if meant is not None:
            raise _misspelled(name, meant)


def _misspelled(name: str, meant: str) -> UnreadableDeliveryError:
    return UnreadableDeliveryError(
        f"data.{name[:_MAX_NAMED]}: there is no such field; did you mean {meant}? "
        f"If not, send {meant} as well"
    )


def _find_like(name: str, names: Iterable[str]) -> str | None:
    """Return the name that another one is like, in any spelling of its words."""
    plain = {_plain(candidate): candidate for candidate in names}
    like = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=_LIKENESS)
    return plain[like[0]] if like else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name[:_MAX_NAMED].lower())


def _check_refund(type_: str, data: Data) -> None:
    """Refuse a refund that may be in part: what has no size revokes the whole order."""
    names_line = data.line_id is not None or data.external_id is not None
    counts = names_line and "quantity" in data.model_fields_set
    is_sized = data.amount is not None or names_line or "partial" in data.model_fields_set
    if data.refund_id is None and (data.amount is not None or data.partial or counts):
        raise UnreadableDeliveryError(
            "data.refund_id: Field required with amount, partial or quantity: refunds of an order add up"
        )
    if type_ != _REFUNDED or is_sized:
        return
    if data.refund_id is not None:
        raise UnreadableDeliveryError(
            "data.amount: Field required with refund_id; if all was refunded, send partial as false"
        )
    for name, size in product(sorted(data.model_extra or ()), ("amount", "partial")):
        if size in _plain(name):  # such as `refund_amount`
            raise _misspelled(name, size)


def _required(id_: str | None) -> str:
    """Return an id that `read` has required of this type."""
    return id_ or ""


def _named(id_: str | None) -> tuple[str, ...]:
    return () if id_ is None else (id_,)


TYPES: Final[Mapping[str, tuple[Callable[[datetime, Data], list[Fact]], tuple[str, ...]]]] = {
    "purchase.completed": (_read_purchase, ("order_id", "external_id")),
    "purchase.refunded": (partial(_read_refund, RefundState.MADE), ("order_id",)),
    "purchase.refund_failed": (partial(_read_refund, RefundState.VOID), ("order_id",)),
    "purchase.disputed": (partial(_read_dispute, DisputeState.OPEN), ("order_id",)),
    "purchase.dispute_won": (partial(_read_dispute, DisputeState.WON), ("order_id",)),
    "purchase.dispute_lost": (partial(_read_dispute, DisputeState.LOST), ("order_id",)),
    "subscription.renewed": (_read_renewal, ("subscription_id", "paid_through")),
    "subscription.changed": (_read_change, ("subscription_id", "external_id")),
    "subscription.cancelled": (_read_cancellation, ("subscription_id", "paid_through")),
    "subscription.resumed": (_read_resumption, ("subscription_id",)),
    "subscription.ended": (_read_end, ("subscription_id",)),
}
"""The reader of each type, and the fields that it needs."""

_PURCHASED: Final = "purchase.completed"
_REFUNDED: Final = "purchase.refunded"
_REFUND_FAILED: Final = "purchase.refund_failed"
_SUBJECTS: Final = ("purchase", "subscription")


def read(headers: Mapping[str, str], body: bytes, _options: ReadOptions = NO_OPTIONS) -> Delivery:
    """Read a verified body."""
    content = load(body)
    delivery, type_ = headers.get(DELIVERY_HEADER), parse(_Envelope, content).type
    if isinstance(content, dict) and "type" not in content and "data" in content:
        raise UnreadableDeliveryError("type: Field required")
    if type_ not in TYPES:
        return _read_unknown(delivery, type_)
    event = parse(Event, content)
    _refuse_misspelled(type_, event.data)
    reader, needed = TYPES[type_]
    for name in needed:
        if getattr(event.data, name) is None:
            raise UnreadableDeliveryError(f"data.{name}: Field required")
    if type_ == _PURCHASED and event.data.paid_through is not None and event.data.subscription_id is None:
        raise UnreadableDeliveryError(
            "data.subscription_id: Field required with paid_through; without it the license has no end"
        )
    if type_ in {_REFUNDED, _REFUND_FAILED}:
        _check_refund(type_, event.data)
    facts = reader(event.timestamp, event.data)
    return Delivery.of(delivery, type_, facts, is_test=event.data.test)._replace(
        note=_note_unknown(event.data)
    )


def _read_unknown(delivery: str | None, type_: str) -> Delivery:
    """Ignore a type of another sender; one that is meant for this format would be lost."""
    named, _, event = type_.partition(".")
    subject = _find_like(named, _SUBJECTS)
    if subject is None:
        return Delivery.of(delivery, type_, f"the type must be one of {', '.join(TYPES)}")
    events = [type_name.partition(".")[2] for type_name in TYPES if type_name.startswith(f"{subject}.")]
    meant = _find_like(event, events)
    hint = f"use one of {', '.join(TYPES)}" if meant is None else f"did you mean {subject}.{meant}?"
    raise UnreadableDeliveryError(f"type: there is no {type_}; {hint}")


fetch_path = no_path
read_fetched = read_nothing
