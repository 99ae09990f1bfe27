"""The newest report of each object of a shop, under the shop's own id of it.

A report replaces an earlier report of the same object as a whole. So neither the order nor the number of
deliveries matters, and each object can go back: a refund can fail, a dispute can be won.
"""

import enum
import json
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter


class OrderState(enum.StrEnum):
    """The state of an order's payment. Of two reports of the same instant, the later value here counts."""

    UNKNOWN = "unknown"  # a state of the vendor's own, which the rules of the source may translate
    PENDING = "pending"
    HELD = "on hold"
    FAILED = "failed"
    PAID = "paid"
    CANCELLED = "cancelled"
    REFUNDED = "refunded"


class OrderReason(enum.StrEnum):
    """The reason of an order."""

    PURCHASE = "purchase"  # of a product, or the first order of a subscription
    RENEWAL = "renewal"  # of a subscription, for a further period: it sells nothing new
    CHANGE = "change"  # a charge or credit within a period of a subscription
    UNKNOWN = "unknown"  # the first charge of a subscription, or a later charge


class RefundState(enum.StrEnum):
    """The state of a refund."""

    PENDING = "pending"  # it waits for approval
    MADE = "made"
    VOID = "void"  # failed, rejected or taken back


class DisputeState(enum.StrEnum):
    """The state of a dispute."""

    INQUIRY = "inquiry"  # takes no money yet
    OPEN = "open"
    WON = "won"  # or withdrawn
    LOST = "lost"
    REVERSAL = "reversal"  # takes back another dispute of its order, which it does not name


class SubscriptionState(enum.StrEnum):
    """The state of a subscription."""

    UNKNOWN = "unknown"
    PENDING = "pending"  # its first payment is not made
    UNPAID = "unpaid"  # a renewal is not paid, and may be later
    ACTIVE = "active"
    PAUSED = "paused"  # no payment is awaited
    COMPLETED = "completed"  # all agreed payments are made; whether what they paid stays is not known
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A payment for goods: an order, a session, a transaction, or an invoice of a subscription."""

    id: str
    reported_at: datetime
    state: OrderState
    shop_state: str = ""  # the shop's word for `state`
    reason: OrderReason = OrderReason.PURCHASE
    refund_ids: tuple[str, ...] | None = None  # all that it has then; None if the order does not list them
    names: tuple[str, ...] = ()  # other ids by which objects name it: of its payment, charge or invoice
    subscriptions: tuple[str, ...] = ()
    paid_at: datetime | None = None
    starts_at: datetime | None = None  # the period of a subscription that it pays
    ends_at: datetime | None = None
    total: Decimal | None = None
    refunded: Decimal | None = None  # as the order itself reports it
    resumes: bool = False  # of a renewal: the subscription goes on, even if its end was reported before
    part: str = (
        ""  # of shops that report an order product by product: a part may be of a subscription of its own
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """A charge or a payment of an order, with what was refunded of it; or only the link between ids."""

    id: str
    reported_at: datetime
    orders: tuple[str, ...] = ()  # ids or other names of its order
    total: Decimal | None = None
    refunded: Decimal | None = None


class Line(NamedTuple):
    """A line of an order, or an item of a subscription.

    Args:
        id: The shop's, which stays when price, product or article change; None if the shop has none.
        external_ids: Of the price or product: what a mapping may name, the most specific first.
        sold: The id of them that changes only if something else is sold; None if that is not known.
        quantity: None if the report does not contain it.
        item_id: Of a line of an order: the item of the subscription that it pays.
        names: Other ids by which a refund names it.
        is_one_time: Of a line of an order: it is sold once, beside the subscription that the order names.
    """

    id: str | None
    external_ids: tuple[str, ...]
    sold: str | None
    quantity: int | None
    item_id: str | None = None
    names: tuple[str, ...] = ()
    is_one_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """All lines of an order, or all items of a subscription."""

    order_id: str | None = None  # of either; `id` is made of it
    subscription_id: str | None = None
    reported_at: datetime
    as_of: datetime | None = None  # when that was what the subscription has; None: when it was reported
    lines: tuple[Line, ...]
    is_complete: bool = True  # whether there are no further lines
    part: str = ""  # of shops that report the lines of an order one by one
    is_first: bool = False  # by the event that has made the object
    credited: tuple[str, ...] = ()  # items of a subscription that an order pays back, and does not pay

    @property
    def id(self) -> str:
        """The id of the object whose lines these are."""
        return f"{self.links[0]}/{self.part}" if self.part else self.links[0]

    @property
    def holds_from(self) -> datetime:
        """When that was what the order or the subscription has."""
        return self.as_of or self.reported_at

    @property
    def links(self) -> tuple[str, ...]:
        """The objects that it belongs to."""
        return _links(
            (self.order_id,) if self.order_id else (),
            (self.subscription_id,) if self.subscription_id else (),
        )


class RefundedLine(NamedTuple):
    """A part of a line that a refund takes back.

    Args:
        name: The id of the line, or what it has sold if the shop has no ids of lines.
        quantity: None: all of it.
    """

    name: str
    quantity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """A refund of an order, whole or in part."""

    id: str
    reported_at: datetime
    state: RefundState
    orders: tuple[str, ...]  # ids or other names of its order
    amount: Decimal | None = None
    is_full: bool | None = None  # None: what `amount` and the other refunds of the order add up to
    lines: tuple[RefundedLine, ...] = ()  # that it is about; empty if it names none
    part_of: str | None = None  # the refund of several lines, each of which is reported by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """A dispute about the payment of an order."""

    id: str
    reported_at: datetime
    state: DisputeState
    orders: tuple[str, ...]  # ids or other names of its order


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription; its items are `Lines`."""

    id: str
    reported_at: datetime
    state: SubscriptionState
    orders: tuple[str, ...] = ()  # ids or other names of its orders, the first order first
    shop_state: str = ""  # the shop's word for `state`
    starts_at: datetime | None = None  # the current period
    ends_at: datetime | None = None
    cancels_at: datetime | None = None  # when it ends, if it was cancelled for later
    ended_at: datetime | None = None
    period: str | None = None  # what each payment pays for, as ``1y``
    is_first: bool = False  # by the event that has made the object


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """The customer of an order or of a subscription. The address is kept only for a time (D-205)."""

    id: str
    reported_at: datetime
    orders: tuple[str, ...] = ()
    subscriptions: tuple[str, ...] = ()
    email: str | None = field(default=None, repr=False)
    language: str | None = None  # a code such as ``de``
    customer_id: str | None = None  # the shop's, where its API has the e-mail address and the report has none


Fact = Order | Payment | Lines | Refund | Dispute | Subscription | Contact

CONTACT: Final = "contact"
"""The kind of the only fact with an address."""

KINDS: Final[dict[str, type[Fact]]] = {
    "order": Order,
    "payment": Payment,
    "lines": Lines,
    "refund": Refund,
    "dispute": Dispute,
    "subscription": Subscription,
    CONTACT: Contact,
}
_NAMES: Final = {kind: name for name, kind in KINDS.items()}
_ADAPTERS: Final[dict[str, TypeAdapter[Any]]] = {name: TypeAdapter(kind) for name, kind in KINDS.items()}
_STATES: Final = (OrderState, RefundState, DisputeState, SubscriptionState)


def kind_of(fact: Fact) -> str:
    """Return the name of a fact's kind, one of `KINDS`."""
    return _NAMES[type(fact)]


def key_of(fact: Fact) -> tuple[str, str]:
    """Return the kind and the id, of which a source has a single fact."""
    part = fact.part if isinstance(fact, Order) else ""  # that of `Lines` is in its id
    return kind_of(fact), f"{fact.id}/{part}" if part else fact.id


def links_of(fact: Fact) -> tuple[str, ...]:
    """Return the orders and subscriptions that a fact names, as ``order:5`` and ``subscription:77``.

    Facts that share a name belong to the same contract, and so do those that share a name with these. An
    order may be named by the id of its payment.
    """
    match fact:
        case Order():
            return _links((fact.id, *fact.names), fact.subscriptions)
        case Payment():
            return _links((fact.id, *fact.orders))
        case Lines():
            return fact.links
        case Refund() | Dispute():
            return _links(fact.orders)
        case Subscription():
            return _links(fact.orders, (fact.id,))
        case Contact():
            return _links(fact.orders, fact.subscriptions)


def _links(orders: tuple[str, ...] = (), subscriptions: tuple[str, ...] = ()) -> tuple[str, ...]:
    return (*(f"order:{id_}" for id_ in orders), *(f"subscription:{id_}" for id_ in subscriptions))


def is_newer(stored: Fact, new: Fact) -> bool:
    """Return whether a report of the same object is to replace the known one.

    Of two reports of the same instant, as shops count by the second, the one that has not made the object
    counts, then the later state, then the one with more refunded, then the one that has sold more. Otherwise
    their content decides.
    """
    return _rank(stored) < _rank(new)


def newest(first: Fact, second: Fact) -> Fact:
    """Return the report that counts, of two of the same object."""
    return second if is_newer(first, second) else first


def _rank(fact: Fact) -> tuple[datetime, bool, list[int], Decimal, int, str, str]:
    state = getattr(fact, "state", None)
    ranks = [list(kind).index(state) for kind in _STATES if isinstance(state, kind)]
    refunded = getattr(fact, "refunded", None) or Decimal(0)
    sold = sum(line.quantity or 0 for line in fact.lines) if isinstance(fact, Lines) else 0
    is_later, email = not getattr(fact, "is_first", False), getattr(fact, "email", None) or ""
    return fact.reported_at, is_later, ranks, refunded, sold, dump_fact(fact), email


def dump_fact(fact: Fact) -> str:
    """Return a fact as it is stored, without the address of a customer."""
    name = kind_of(fact)
    content = _ADAPTERS[name].dump_python(fact, mode="json", exclude_defaults=True, exclude={"email"})
    return json.dumps({"kind": name, **content}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def load_fact(stored: str, email: str | None = None) -> Fact:
    """Return a stored fact.

    Args:
        stored: As `dump_fact` returns it.
        email: The address of a `Contact`, which is stored apart.
    """
    content = json.loads(stored)
    name = content.pop("kind")
    if email is not None and name == CONTACT:
        content["email"] = email
    fact: Fact = _ADAPTERS[name].validate_python(content)
    return fact
