"""Lines of orders and items of subscriptions with their licenses, and which item is which of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from licserver.shops.contract import Issued
from licserver.shops.facts import Line, Lines, OrderReason
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
    may_have_been_of: str | None = None  # the subscription that lists it no more, or never did
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


_Matcher = Callable[[Unit, Line], bool]


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


def share_items(units: list[Unit], listing: Lines, subscription: SubscriptionFacts) -> list[Line]:
    """Let several purchases of what became one item keep their licenses; return the items for the first ones.

    Together those of before the listing are as many as the item has, and later ones are more. All but the
    first purchase are removed from `units`.
    """
    at, items = listing.holds_from, list[Line]()
    for item in listing.lines:
        sales = [
            (unit, order, quantity)
            for unit in units
            if (order := find_sale(unit)) is not None
            and (quantity := unit.quantity) is not None
            and (len(listing.lines) == 1 or unit.sold == item.sold)
        ]
        if item.quantity is None or len({id(order) for _, order, _ in sales}) <= 1:
            items.append(item)
            continue
        count = sales[0][2]
        missing = item.quantity - count
        for unit, order, quantity in sales[1:]:
            units.remove(unit)
            paid_at = unit.sold_at or order.find_paid_at()
            if paid_at is not None and paid_at > at:
                unit.subscription = subscription
                continue
            share = min(quantity, max(missing, 0))
            missing -= share
            assign_item(unit, item._replace(quantity=share), subscription)
        items.append(item._replace(quantity=min(item.quantity, count + max(missing, 0))))
    return items


def match_items(
    units: list[Unit],
    items: Sequence[Line],
    subscription: SubscriptionFacts,
    find_product: Callable[[Line], str | None],
    *,
    is_later: bool = False,
) -> list[Line]:
    """Assign items to units, which are removed from `units`; return the items without a unit.

    Units that were sold later than the items were reported (`is_later`) never replace another product, and
    of several none does before some are known to be of the subscription.
    """

    def has_product(unit: Unit, item: Line) -> bool:
        return unit.is_valid and unit.issued[-1].product == find_product(item)

    open_, is_alone = _merge(items), len(units) == 1
    candidates = list(units)
    has_assigned = any(is_assigned(unit, subscription) for unit in units)
    if has_assigned:
        # What was issued as not of the subscription is not made an item by one of the same article.
        candidates = [unit for unit in units if is_assigned(unit, subscription) or not _is_issued(unit)]
    # An item keeps a key that is valid, rather than revive a key that was removed before.
    candidates.sort(key=lambda unit: not unit.is_valid)
    first_rules = (_has_id, _if_kept(_is_current), _if_kept(_is_sold), has_product)
    for matches in (*first_rules, _is_current, _is_sold, _shares_id):
        for item in list(open_):
            unit = next((candidate for candidate in candidates if matches(candidate, item)), None)
            if unit is not None:
                candidates.remove(unit)
                units.remove(unit)
                open_.remove(item)
                assign_item(unit, item, subscription)
    if is_later or not (is_alone or has_assigned):
        return open_
    # Another plan, where items have no ids or new ids: an item is missing, and an item was added.
    remaining = [unit for unit in candidates if is_assigned(unit, subscription)]
    remaining += [unit for unit in candidates if unit not in remaining and _is_sale(unit, is_alone=is_alone)]
    for unit in remaining[: len(open_)]:
        units.remove(unit)
        assign_item(unit, open_.pop(0), subscription)
    return open_


def _merge(items: Sequence[Line]) -> list[Line]:
    """Return items once each: an invoice has a line for each tier of a price.

    Items without an id are distinguished by their products; of one id with two products the later counts.
    """
    merged: dict[str, Line] = {}
    for place, item in enumerate(items):
        unknown = f"{place}" if item.sold is None else f"sold:{item.sold}"
        name = unknown if item.id is None else f"id:{item.id}"
        merged_item = merged.get(name)
        is_part = merged_item is not None and merged_item.sold == item.sold
        merged[name] = (
            item._replace(quantity=add_quantities(merged_item, item)) if merged_item and is_part else item
        )
    return list(merged.values())


def add_quantities(unit: Unit | Line, other: Line) -> int | None:
    """Return how many both are; None if either is not known."""
    if unit.quantity is None or other.quantity is None:
        return None
    return unit.quantity + other.quantity


def _if_kept(matches: _Matcher) -> _Matcher:
    """Return a matcher of units whose licenses were not removed."""
    return lambda unit, item: (unit.is_valid or not unit.issued) and matches(unit, item)


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
    """Return whether a line that no item matches may be what the items were before."""
    return find_sale(unit) is not None and not any(license_.subscription_id for license_ in unit.issued)


def _is_sale(unit: Unit, *, is_alone: bool) -> bool:
    """Return whether a unit that no item matches may still belong to the subscription.

    Beside others it is not, if its licenses were issued as not of the subscription.
    """
    if unit.order is None or not (unit.order.sells or unit.order.order is None):
        return False
    return is_alone or not _is_issued(unit)


def _is_issued(unit: Unit) -> bool:
    return any(has_key(license_) for license_ in unit.issued)


def _has_id(unit: Unit, item: Line) -> bool:
    return item.id is not None and unit.key == f"item:{escape(item.id)}"


def _is_current(unit: Unit, item: Line) -> bool:
    return item.sold is not None and find_last_item(unit.issued) == item.sold


def _is_sold(unit: Unit, item: Line) -> bool:
    return item.sold is not None and unit.sold == item.sold


def _shares_id(unit: Unit, item: Line) -> bool:
    return unit.sold in item.external_ids or not set(unit.ids).isdisjoint(item.external_ids)


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
