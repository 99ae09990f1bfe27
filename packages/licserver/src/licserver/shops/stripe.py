"""Stripe: Checkout, invoices, subscriptions, refunds and disputes.

A payload follows the API version of the endpoint: what version 2025-03-31 moved is read at both places.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import AliasPath, BeforeValidator, Field, model_validator

from licserver.domain.languages import find_language
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
    Payment,
    Refund,
    RefundState,
    Subscription,
    SubscriptionState,
)
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
    as_first,
    load,
    parse,
    quote_id,
)
from licserver.shops.signatures import encode_keys, from_hex, has_signed, is_recent, split_fields

HEADER: Final = "stripe-signature"

ITEM_FIELD: Final = "licserver_item"
"""Names the mapping in the metadata of a Checkout Session, because an event does not contain its prices."""

QUANTITY_FIELD: Final = "licserver_quantity"


def verify(
    headers: Mapping[str, str], body: bytes, secrets: list[str], now: datetime, tolerance: timedelta
) -> bool:
    """Return whether one of the secrets has signed the body lately."""
    fields = split_fields(headers.get(HEADER, ""), ",")
    timestamp = fields.get("t", [""])[0]
    if not is_recent(timestamp, now, tolerance):
        return False
    signatures = [from_hex(signature) for signature in fields.get("v1", ())]
    return has_signed(f"{timestamp}.".encode() + body, signatures, encode_keys(secrets))


def _to_id(value: Any) -> Any:
    """Return the id of an object that is sent whole."""
    return value.get("id") if isinstance(value, dict) else value


_Id = Annotated[str | None, BeforeValidator(_to_id)]


class _Envelope(ShopObject):
    id: str
    type: str = Field(max_length=100)
    object: str = "event"


class _Event(_Envelope):
    created: Instant
    livemode: bool
    fields: dict[str, Any] = Field(validation_alias=AliasPath("data", "object"))


class _Price(ShopObject):
    id: str
    product: _Id = None


class _Line(ShopObject):
    """A line of a session or of an invoice; `plan` is the price in API versions before 2020."""

    price: _Price | None = None
    plan: _Price | None = None
    new_price: _Id = Field(None, validation_alias=AliasPath("pricing", "price_details", "price"))
    new_product: _Id = Field(None, validation_alias=AliasPath("pricing", "price_details", "product"))
    quantity: Quantity = None
    start: Instant | None = Field(None, validation_alias=AliasPath("period", "start"))
    end: Instant | None = Field(None, validation_alias=AliasPath("period", "end"))
    amount: Amount = Decimal(0)
    proration: bool | None = None
    item_proration: bool | None = Field(
        None, validation_alias=AliasPath("parent", "subscription_item_details", "proration")
    )
    other_proration: bool | None = Field(
        None, validation_alias=AliasPath("parent", "invoice_item_details", "proration")
    )
    subscription_item: _Id = None
    new_subscription_item: _Id = Field(
        None, validation_alias=AliasPath("parent", "subscription_item_details", "subscription_item")
    )

    @property
    def item(self) -> str | None:
        """The item of the subscription that it pays."""
        return self.subscription_item or self.new_subscription_item

    @property
    def is_credit(self) -> bool:
        """Whether the line pays no period: it settles the rest of a period that was changed."""
        is_settled = self.proration or self.item_proration or self.other_proration
        return bool(is_settled) or self.amount < 0

    def as_first(self) -> "_Line":
        """Return the line of a first invoice, in which nothing can be settled but by a credit."""
        names = ("proration", "item_proration", "other_proration")
        return self.model_copy(update=dict.fromkeys(names))

    def to_line(self, id_: str | None = None, item_id: str | None = None) -> Line | None:
        """Return what was bought, by price and product; None if the line does not name it."""
        price = self.price or self.plan
        ids = (self.new_price, self.new_product) if price is None else (price.id, price.product)
        named = tuple(id_ for id_ in ids if id_)
        return Line(id_, named, named[0], self.quantity, item_id) if named else None


class _Lines(ShopObject):
    data: tuple[_Line, ...] = ()
    has_more: bool = False


class _Session(ShopObject):
    id: str
    mode: str
    payment_status: str = ""
    payment_intent: _Id = None
    payment_link: _Id = None
    invoice: _Id = None
    subscription: _Id = None
    email: str | None = Field(None, validation_alias=AliasPath("customer_details", "email"))
    customer_email: str | None = None
    locale: str | None = None  # "auto" if the customer's browser chose it
    metadata: dict[str, str] | None = None
    amount_total: Amount | None = None
    line_items: _Lines | None = None

    def to_lines(self, reported_at: datetime) -> Lines | None:
        """Return what was bought, as far as the session contains it."""
        metadata = self.metadata or {}
        item = metadata.get(ITEM_FIELD)
        quantity = None
        if QUANTITY_FIELD in metadata:
            quantity = parse(_Quantity, {"quantity": metadata[QUANTITY_FIELD]}).quantity
        if quantity == 0 and self.amount_total:  # none, and paid: a person has to know how many
            quantity = None
        names = tuple(name for name in (item, self.payment_link) if name)
        if self.line_items is not None and self.line_items.data:
            numbered = enumerate(self.line_items.data, 1)
            lines = [line for number, of_session in numbered if (line := of_session.to_line(str(number)))]
            if len(lines) == 1 and not self.line_items.has_more:
                # A link, or the vendor's own field, names the line only if there is no other line.
                line = lines[0]
                count = line.quantity if quantity is None else quantity
                lines = [line._replace(external_ids=(*line.external_ids, *names), quantity=count)]
            is_complete = not self.line_items.has_more
            return Lines(
                order_id=self.id, reported_at=reported_at, lines=tuple(lines), is_complete=is_complete
            )
        if not names:
            return None
        return Lines(order_id=self.id, reported_at=reported_at, lines=(Line("1", names, names[0], quantity),))


class _Quantity(ShopObject):
    quantity: Quantity = None


class _InvoicePayment(ShopObject):
    id: str
    invoice: _Id = None
    intent: _Id = Field(None, validation_alias=AliasPath("payment", "payment_intent"))
    charge: _Id = Field(None, validation_alias=AliasPath("payment", "charge"))

    def to_payment(self, reported_at: datetime) -> Payment:
        """Return the link between an invoice and what has paid it, which refunds and disputes name."""
        names = tuple(name for name in (self.invoice, self.intent, self.charge) if name)
        return Payment(id=self.id, reported_at=reported_at, orders=names)


class _InvoicePayments(ShopObject):
    data: tuple[_InvoicePayment, ...] = ()


class _Invoice(ShopObject):
    id: str
    billing_reason: str | None = None
    created: Instant | None = None
    paid_at: Instant | None = Field(None, validation_alias=AliasPath("status_transitions", "paid_at"))
    customer_email: str | None = None
    subscription: _Id = None
    new_subscription: _Id = Field(
        None, validation_alias=AliasPath("parent", "subscription_details", "subscription")
    )
    payment_intent: _Id = None
    charge: _Id = None
    amount_paid: Amount | None = None
    payments: _InvoicePayments = _InvoicePayments()
    lines: _Lines

    @model_validator(mode="after")
    def _settle_nothing_at_first(self) -> "_Invoice":
        if self.billing_reason == "subscription_create":
            self.lines.data = tuple(line.as_first() for line in self.lines.data)
        return self

    def find_reason(self) -> OrderReason:
        """Return why it was made."""
        if self.billing_reason == "subscription_create":
            return OrderReason.PURCHASE
        if self.billing_reason in {
            None,
            "subscription",
        }:  # old API versions do not report which of these it is
            return OrderReason.UNKNOWN
        is_period = any(not line.is_credit and line.end is not None for line in self.lines.data)
        is_regular = self.billing_reason in {"subscription_cycle", "subscription_update"}
        return OrderReason.RENEWAL if is_period and is_regular else OrderReason.CHANGE


class _Charge(ShopObject):
    id: str = ""
    payment_intent: _Id = None
    invoice: _Id = None
    refunded: bool
    amount: Amount | None = None
    amount_refunded: Amount | None = None


class _Refund(ShopObject):
    id: str
    charge: _Id = None
    payment_intent: _Id = None
    amount: Amount | None = None
    status: str | None = None


class _Dispute(ShopObject):
    id: str = ""
    charge: _Id = None
    payment_intent: _Id = None
    status: str


class _Recurring(ShopObject):
    id: str
    product: _Id = None


class _Item(ShopObject):
    id: str
    price: _Price | None = None
    plan: _Price | None = None
    quantity: Quantity = None
    start: Instant | None = Field(None, validation_alias="current_period_start")
    end: Instant | None = Field(None, validation_alias="current_period_end")
    deleted: bool = False


class _Items(ShopObject):
    data: tuple[_Item, ...] = ()
    has_more: bool = False


class _Subscription(ShopObject):
    id: str
    status: str | None = None
    ended_at: Instant | None = None
    cancel_at: Instant | None = None  # the end of the period as well, if it was cancelled for that
    cancel_at_period_end: bool = False
    start: Instant | None = Field(None, validation_alias="current_period_start")  # of old API versions
    end: Instant | None = Field(None, validation_alias="current_period_end")
    pause: str | None = Field(None, validation_alias=AliasPath("pause_collection", "behavior"))
    items: _Items | None = None


_SUBSCRIPTION_STATES: Final = {
    "incomplete": SubscriptionState.PENDING,
    "incomplete_expired": SubscriptionState.ENDED,
    "trialing": SubscriptionState.ACTIVE,
    "active": SubscriptionState.ACTIVE,
    "past_due": SubscriptionState.UNPAID,
    "unpaid": SubscriptionState.UNPAID,
    "paused": SubscriptionState.PAUSED,
    "canceled": SubscriptionState.ENDED,
}
_REFUND_STATES: Final = {
    "pending": RefundState.PENDING,
    "requires_action": RefundState.PENDING,
    "failed": RefundState.VOID,
    "canceled": RefundState.VOID,
}
_DISPUTE_STATES: Final = {
    "won": DisputeState.WON,
    "warning_closed": DisputeState.WON,
    "prevented": DisputeState.WON,
    "lost": DisputeState.LOST,
}


def _read_session(created: datetime, fields: dict[str, Any]) -> Reading:
    session = parse(_Session, fields)
    language, email = find_language(session.locale), session.email or session.customer_email
    if session.mode == "subscription" and session.subscription is not None:
        # The paid invoice issues the licenses; it does not contain the language.
        orders = (session.invoice,) if session.invoice else ()
        contact = Contact(id=session.id, reported_at=created, orders=orders, email=email, language=language)
        return [_with_subscription(contact, session.subscription)]
    if session.mode != "payment":
        return "a session that takes no payment"
    is_paid = session.payment_status in {"paid", "no_payment_required"}
    order = Order(
        id=session.payment_intent or session.id,  # vendors and refunds know the payment only
        reported_at=created,
        state=OrderState.PAID if is_paid else OrderState.PENDING,
        shop_state=session.payment_status,
        names=(session.id,) if session.payment_intent else (),
        paid_at=created if is_paid else None,
        total=session.amount_total,
    )
    facts: list[Fact] = [order]
    if (lines := session.to_lines(created)) is not None:
        facts.append(lines)
    contact = Contact(
        id=session.id, reported_at=created, orders=(session.id,), email=email, language=language
    )
    return [*facts, contact]


def _with_subscription(contact: Contact, subscription_id: str) -> Contact:
    return Contact(
        id=contact.id,
        reported_at=contact.reported_at,
        orders=contact.orders,
        subscriptions=(subscription_id,),
        email=contact.email,
        language=contact.language,
    )


def _read_invoice(created: datetime, fields: dict[str, Any]) -> Reading:
    invoice = parse(_Invoice, fields)
    subscription_id = invoice.subscription or invoice.new_subscription
    if subscription_id is None:
        return "an invoice without a subscription"
    reason = invoice.find_reason()
    paying = [line for line in invoice.lines.data if not line.is_credit and line.end is not None]
    period = max(paying, key=lambda line: (line.start or line.end, line.end), default=None)
    paid = [
        payment for payment in invoice.payments.data if payment.invoice or payment.intent or payment.charge
    ]
    names = [invoice.payment_intent, invoice.charge, *(payment.intent or payment.charge for payment in paid)]
    order = Order(
        id=invoice.id,
        reported_at=created,
        state=OrderState.PAID,
        shop_state="paid",
        reason=reason,
        names=tuple(dict.fromkeys(name for name in names if name)),
        subscriptions=(subscription_id,),
        paid_at=invoice.paid_at or created,
        starts_at=None if period is None else period.start,
        ends_at=None if period is None else period.end,
        total=invoice.amount_paid,
    )
    contact = Contact(id=invoice.id, reported_at=created, orders=(invoice.id,), email=invoice.customer_email)
    facts: list[Fact] = [order, contact]
    if reason is not OrderReason.CHANGE:
        facts.append(_read_invoice_lines(invoice, reason, created, subscription_id))
    return facts


def _read_invoice_lines(
    invoice: _Invoice, reason: OrderReason, created: datetime, subscription_id: str
) -> Lines:
    lines = list[Line]()
    for number, invoice_line in enumerate(invoice.lines.data, 1):
        line = None if invoice_line.is_credit else invoice_line.to_line(str(number), invoice_line.item)
        if line is None:
            continue
        if reason is OrderReason.UNKNOWN and line.item_id is None:
            line = line._replace(item_id=f"{subscription_id}/{line.sold}")
        lines.append(line)
    return Lines(
        order_id=invoice.id,
        reported_at=created,
        as_of=invoice.created or created,
        lines=tuple(lines),
        is_complete=not invoice.lines.has_more,
        credited=_find_credited(invoice.lines, lines),
    )


def _find_credited(of_invoice: _Lines, paid: Sequence[Line]) -> tuple[str, ...]:
    """Return the items of which an invoice has credits alone."""
    credited = {line.item for line in of_invoice.data if line.is_credit and line.item is not None}
    return tuple(sorted(credited.difference(line.item_id for line in paid)))


def _read_invoice_payment(created: datetime, fields: dict[str, Any]) -> Reading:
    return [parse(_InvoicePayment, fields).to_payment(created)]


def _read_charge(created: datetime, fields: dict[str, Any]) -> Reading:
    charge = parse(_Charge, fields)
    names = tuple(name for name in (charge.payment_intent, charge.invoice) if name)
    if not names:
        return "a charge without a payment intent"
    if charge.amount is None or charge.amount_refunded is None:
        refund = Refund(
            id=f"refund of {charge.id or names[0]}",
            reported_at=created,
            state=RefundState.MADE,
            orders=names,
            is_full=charge.refunded,
        )
        return [refund]
    payment = Payment(
        id=charge.id or names[0],
        reported_at=created,
        orders=names,
        total=charge.amount,
        refunded=charge.amount if charge.refunded else charge.amount_refunded,
    )
    return [payment]


def _read_refund(created: datetime, fields: dict[str, Any]) -> Reading:
    refund = parse(_Refund, fields)
    names = tuple(name for name in (refund.payment_intent, refund.charge) if name)
    if not names:
        return "a refund without a payment"
    state = _REFUND_STATES.get(refund.status or "", RefundState.MADE)
    return [Refund(id=refund.id, reported_at=created, state=state, orders=names, amount=refund.amount)]


def _read_dispute(created: datetime, fields: dict[str, Any]) -> Reading:
    dispute = parse(_Dispute, fields)
    names = tuple(name for name in (dispute.payment_intent, dispute.charge) if name)
    if not names:
        return "a dispute without a payment"
    default = DisputeState.INQUIRY if dispute.status.startswith("warning_") else DisputeState.OPEN
    state = _DISPUTE_STATES.get(dispute.status, default)
    return [
        Dispute(id=dispute.id or f"dispute of {names[0]}", reported_at=created, state=state, orders=names)
    ]


def _read_subscription(created: datetime, fields: dict[str, Any], status: str = "active") -> Reading:
    """Read the state of a subscription; `status` is that of events which do not contain it."""
    subscription = parse(_Subscription, fields)
    items = (
        [] if subscription.items is None else [item for item in subscription.items.data if not item.deleted]
    )
    start = subscription.start or max((item.start for item in items if item.start is not None), default=None)
    end = subscription.end or max((item.end for item in items if item.end is not None), default=None)
    state = _SUBSCRIPTION_STATES.get(subscription.status or status, SubscriptionState.UNKNOWN)
    is_paused = subscription.pause == "void"  # the other kinds of pause go on for free
    if is_paused and state is SubscriptionState.ACTIVE:
        state = SubscriptionState.PAUSED
    report = Subscription(
        id=subscription.id,
        reported_at=created,
        state=state,
        shop_state=subscription.status or "",
        starts_at=start,
        ends_at=None if is_paused else end,
        cancels_at=subscription.cancel_at or (end if subscription.cancel_at_period_end else None),
        ended_at=(subscription.ended_at or created) if state is SubscriptionState.ENDED else None,
    )
    if not items:
        return [report]
    prices = [(item, item.price or item.plan) for item in items]
    lines = Lines(
        subscription_id=subscription.id,
        reported_at=created,
        lines=tuple(
            Line(item.id, tuple(name for name in (price.id, price.product) if name), price.id, item.quantity)
            for item, price in prices
            if price is not None
        ),
        is_complete=subscription.items is not None and not subscription.items.has_more,
    )
    return [report, lines]


def _read_first(created: datetime, fields: dict[str, Any]) -> Reading:
    return as_first(_read_subscription(created, fields))


def _read_end(created: datetime, fields: dict[str, Any]) -> Reading:
    return _read_subscription(created, {**fields, "status": "canceled"})


_READERS: Final[Mapping[str, Callable[[datetime, dict[str, Any]], Reading]]] = {
    "checkout.session.completed": _read_session,
    "checkout.session.async_payment_succeeded": _read_session,
    "checkout.session.async_payment_failed": _read_session,
    "invoice.paid": _read_invoice,
    "invoice.payment_succeeded": _read_invoice,
    "invoice_payment.paid": _read_invoice_payment,
    "charge.refunded": _read_charge,
    "charge.refund.updated": _read_refund,
    **{f"refund.{action}": _read_refund for action in ("created", "updated", "failed")},
    **{
        f"charge.dispute.{action}": _read_dispute
        for action in ("created", "updated", "closed", "funds_withdrawn", "funds_reinstated")
    },
    **{
        f"customer.subscription.{action}": _read_subscription
        for action in ("updated", "paused", "resumed", "pending_update_applied")
    },
    "customer.subscription.created": _read_first,
    "customer.subscription.deleted": _read_end,
}


def read(_headers: Mapping[str, str], body: bytes, _options: ReadOptions = NO_OPTIONS) -> Delivery:
    """Read a verified body."""
    content = load(body)
    envelope = parse(_Envelope, content)
    reader = _READERS.get(envelope.type)
    if envelope.object != "event":
        return Delivery.of(envelope.id, envelope.type, "a thin event: choose snapshot events in Stripe")
    if reader is None:
        return Delivery.of(envelope.id, envelope.type, UNKNOWN_TYPE)
    event = parse(_Event, content)
    reading = reader(event.created, event.fields)
    return Delivery.of(event.id, event.type, reading, is_test=not event.livemode)


# --- what the API knows -----------------------------------------------------------------------


def fetch_path(fetch: Fetch) -> str | None:
    """Return the path of an object; a session with its lines."""
    id_ = quote_id(fetch.id)
    match fetch.kind:
        case "lines" if fetch.id.startswith("cs_"):
            return f"v1/checkout/sessions/{id_}?expand[]=line_items"
        case "lines" if fetch.id.startswith("in_"):
            return f"v1/invoices/{id_}/lines?limit=100"
        case "subscription" if fetch.id.startswith("sub_"):
            return f"v1/subscriptions/{id_}"
        case "payment" if fetch.id.startswith("pi_"):
            return f"v1/invoice_payments?payment[type]=payment_intent&payment[payment_intent]={id_}"
        case _:
            return None


def read_fetched(fetch: Fetch, body: bytes, reported_at: datetime) -> Sequence[Fact]:
    """Read an object of the API."""
    match fetch.kind:
        case "lines" if fetch.id.startswith("cs_"):
            lines = parse(_Session, body).to_lines(reported_at)
            return () if lines is None else (lines,)
        case "lines":
            return (_read_lines(fetch.id, parse(_Lines, body), reported_at),)
        case "subscription":
            reading = _read_subscription(reported_at, parse(_Object, body).model_dump())
            return () if isinstance(reading, str) else reading
        case _:
            return [payment.to_payment(reported_at) for payment in parse(_InvoicePayments, body).data]


class _Object(ShopObject, extra="allow"):
    id: str


def _read_lines(id_: str, line_items: _Lines, reported_at: datetime) -> Lines:
    numbered = [(str(number), item) for number, item in enumerate(line_items.data, 1) if not item.is_credit]
    lines = [line for number, item in numbered if (line := item.to_line(number, item.item))]
    starts = [item.start for _, item in numbered if item.start is not None]
    return Lines(
        order_id=id_,
        reported_at=reported_at,
        as_of=max(starts, default=reported_at),
        lines=tuple(lines),
        is_complete=not line_items.has_more,
        credited=_find_credited(line_items, lines),
    )
