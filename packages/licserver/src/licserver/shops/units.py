"""Lines of orders and items of subscriptions with their licenses."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from licserver.shops.contract import Issued
from licserver.shops.facts import Line, OrderReason
from licserver.shops.orders import OrderFacts
from licserver.shops.subscriptions import SubscriptionFacts

EARLIER: Final = "earlier:"
"""Begins the keys of licenses whose line is not known yet; they are matched again once it is."""

FEWER: Final = "fewer are paid than were issued"
REPLACED: Final = "another product is paid instead"


@dataclass(slots=True, eq=False)
class Unit:
    """A line of an order, or an item of a subscription, with its licenses."""

    key: str
    ids: tuple[str, ...] = ()
    sold: str | None = None
    quantity: int | None = None
    order: OrderFacts | None = None
    subscription: SubscriptionFacts | None = None
    sold_at: datetime | None = None  # of an order that is reported product by product
    is_one_time: bool = False  # sold beside a subscription
    may_have_been_of: tuple[str, ...] = ()  # the subscriptions that list it no more, or never did
    may_replace: tuple[str, ...] = ()  # of an item: the lines that it may have been before
    issued: list[Issued] = field(default_factory=list)
    is_item: bool = False  # of a subscription
    refunded: int = 0  # how many of a line were refunded by name
    ordered: int | None = None  # of an item: how many its first order has sold of it
    is_described: bool = True  # by a fact; otherwise its licenses stay as they are

    @property
    def is_valid(self) -> bool:
        """Whether it has licenses that were not removed."""
        return any(license_.revoked_reason not in {FEWER, REPLACED} for license_ in self.issued)

    @property
    def can_change(self) -> bool:
        """Whether it can be for another product: an item, or a line that names its subscription itself."""
        return self.is_item or (self.subscription is not None and self.sold_at is not None)

    @property
    def taken_back(self) -> int:
        """The number that is not paid any more; those of a subscription follow its periods."""
        return 0 if self.subscription is not None or self.quantity is None else self.refunded

    @property
    def about(self) -> str:
        """The object that it belongs to."""
        if self.subscription is not None:
            return f"subscription:{self.subscription.id}"
        return "" if self.order is None else f"order:{self.order.id}"

    @property
    def order_id(self) -> str | None:
        """The order that has sold it, as far as it is known."""
        return None if self.order is None else self.order.id

    @property
    def name(self) -> str:
        """Its name, for a sentence."""
        return " or ".join(self.ids) or "what has no id"


def by_need(license_: Issued) -> tuple[bool, bool, int, bytes]:
    """Order licenses: first those in use, last those that were not paid before."""
    return license_.revoked_reason == FEWER, not license_.in_use, license_.number, license_.license_id


def has_key(license_: Issued) -> bool:
    """Return whether a license has a key of a line that is known."""
    return license_.key is not None and not license_.key.startswith(EARLIER)


def escape(text: str) -> str:
    """Return an id as a part of a key, in which ``@`` has a meaning."""
    return text.replace("%", "%25").replace("@", "%40")


def find_base_key(key: str) -> str:
    """Return a key without the product, which is named if another product was sold first."""
    return key.partition("@")[0]


def make_line_key(order: OrderFacts, name: str | None) -> str:
    """Return the key of a line of an order."""
    return f"line:{escape(order.id)}/{escape(name or '')}"


def find_sale(unit: Unit) -> OrderFacts | None:
    """Return the order that has sold a unit; None of an item, which any order of its subscription pays."""
    order = None if unit.order is None else unit.order.order
    is_sale = order is not None and order.reason is OrderReason.PURCHASE and not unit.is_item
    return unit.order if is_sale else None


def add_quantities(unit: Unit | Line, other: Line) -> int | None:
    """Return how many both are; None if either is not known."""
    if unit.quantity is None or other.quantity is None:
        return None
    return unit.quantity + other.quantity


def may_belong(unit: Unit, subscription: SubscriptionFacts) -> bool:
    """Return whether a unit may be an item of a subscription."""
    if unit.subscription is not None:
        return unit.subscription is subscription
    return not unit.is_one_time and any(unit.order is order for order in subscription.orders)


def is_assigned(unit: Unit, subscription: SubscriptionFacts) -> bool:
    """Return whether its order names the subscription, or its licenses were issued for it."""
    if unit.subscription is subscription:
        return True
    return any(has_key(license_) and license_.subscription_id == subscription.id for license_ in unit.issued)


def may_be_replaced(unit: Unit) -> bool:
    """Return whether a line that no item matches may be what an item was before."""
    is_known = unit.subscription is not None or any(license_.subscription_id for license_ in unit.issued)
    return find_sale(unit) is not None and not is_known


def assign_item(unit: Unit, item: Line, subscription: SubscriptionFacts) -> None:
    """Let a unit be an item of a subscription."""
    unit.subscription, unit.is_item, unit.is_described = subscription, True, True
    unit.ordered = unit.quantity if unit.sold == item.sold else None
    unit.ids, unit.sold, unit.quantity = item.external_ids, item.sold, item.quantity


def find_last_item(issued: Sequence[Issued]) -> str | None:
    """Return what licenses were for last."""
    return next(
        (
            license_.item
            for license_ in reversed(issued)
            if license_.item and license_.revoked_reason != REPLACED
        ),
        None,
    )
