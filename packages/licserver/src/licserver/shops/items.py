"""Which item of a subscription is which line of an order, whose licenses it keeps."""

from collections.abc import Callable, Sequence

from licserver.shops.facts import Line, Lines
from licserver.shops.subscriptions import SubscriptionFacts
from licserver.shops.units import (
    Unit,
    add_quantities,
    assign_item,
    escape,
    find_last_item,
    find_sale,
    has_key,
    is_assigned,
)

_Matcher = Callable[[Unit, Line], bool]


class Matching:
    """The items of a subscription without a unit yet, and the units that may be them.

    Args:
        subscription: Whose items they are.
        listing: The items.
        units: What may belong to the subscription.
        has_others: Whether its orders have sold more, which belongs to other subscriptions.
    """

    def __init__(
        self, subscription: SubscriptionFacts, listing: Lines, units: list[Unit], *, has_others: bool = False
    ) -> None:
        self.subscription, self.listing = subscription, listing
        self.items = _merge(share_items(units, listing, subscription))
        self.later = [
            unit for unit in units if unit.sold_at is not None and unit.sold_at > listing.holds_from
        ]
        self.earlier = [unit for unit in units if unit not in self.later]
        if not self.earlier:  # a purchase that was sent again, with a later time
            self.earlier, self.later = self.later, []
        # What other subscriptions have left over is not alone: it may have been sold once, beside them.
        self.is_alone = len(self.earlier) == 1 and not has_others
        self.is_line_gone = any(
            unit.quantity == 0 and not unit.is_item and is_assigned(unit, subscription)
            for unit in self.earlier
        )
        self.taken = set[str]()  # the keys of units that are items now

    def take(self, unit: Unit, item: Line) -> None:
        """Let a unit be an item."""
        self.items.remove(item)
        self.taken.add(unit.key)
        assign_item(unit, item, self.subscription)
        self.earlier = [other for other in self.earlier if other is not unit]
        self.later = [other for other in self.later if other is not unit]

    def remove_taken(self) -> None:
        """Remove the units that are items of other subscriptions now."""
        self.earlier = list(filter(self.is_free, self.earlier))
        self.later = list(filter(self.is_free, self.later))

    def keep_served(self, find_product: Callable[[Line], str | None]) -> None:
        """Let later units that nothing is mapped for stay the items as which they were served.

        The order of deliveries is no matter: beside the line that was the item, none would have been issued.
        """
        for unit in list(self.later):
            is_served = find_last_item(unit.issued) not in {None, unit.sold}
            if is_served and find_product(Line(None, unit.ids, unit.sold, unit.quantity)) is None:
                self.later.remove(unit)
                self.earlier.append(unit)

    def is_free(self, unit: Unit) -> bool:
        """Return whether a unit is of no other subscription."""
        return unit.subscription is None or unit.subscription is self.subscription


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


def match_items(matchings: Sequence[Matching], find_product: Callable[[Line], str | None]) -> None:
    """Assign items to units; both are removed from their matching (D-411).

    An order may have sold several subscriptions: each rule is tried for all of them before the next one, so
    that the better match counts, and not the lower id.
    """

    def has_product(unit: Unit, item: Line) -> bool:
        if unit.issued:
            return unit.is_valid and unit.issued[-1].product == find_product(item)
        # As if its license had been issued before the item was known: the order of deliveries is no matter.
        product = find_product(Line(None, unit.ids, unit.sold, unit.quantity))
        return bool(product) and product == find_product(item)

    for matching in matchings:
        matching.keep_served(find_product)
    first_rules = (_has_id, _if_kept(_is_current), _if_kept(_is_sold), has_product)
    rules = (*first_rules, _is_current, _is_sold, _shares_id)
    earlier = [_Candidates(matching, matching.earlier) for matching in matchings]
    _apply(rules, earlier)
    for candidates in earlier:
        candidates.match_another_plan()
    # Units that were sold later than the items were reported never replace another product.
    _apply(rules, [_Candidates(matching, matching.later) for matching in matchings])


def _apply(rules: Sequence[_Matcher], all_candidates: Sequence["_Candidates"]) -> None:
    for rule in rules:
        for candidates in all_candidates:
            candidates.match(rule)


class _Candidates:
    """Units that may be the items of a matching, the best ones first."""

    def __init__(self, matching: Matching, units: Sequence[Unit]) -> None:
        subscription = matching.subscription
        self._matching, self._units = matching, list(units)
        if any(is_assigned(unit, subscription) for unit in units):
            # What was issued as not of the subscription is not made an item by one of the same article.
            self._units = [unit for unit in units if is_assigned(unit, subscription) or not _is_issued(unit)]
        # An item keeps a key that is valid, rather than revive a key that was removed before.
        self._units.sort(key=lambda unit: not unit.is_valid)

    def match(self, matches: _Matcher) -> None:
        """Take the units that match an item."""
        for item in list(self._matching.items):
            free = (unit for unit in self._units if self._matching.is_free(unit))
            unit = next((candidate for candidate in free if matches(candidate, item)), None)
            if unit is not None:
                self._take(unit, item)

    def match_another_plan(self) -> None:
        """Take the units that are left for other items: an item is missing, and another was added.

        Items have no ids there, or new ids. Of several units those are taken that are known to be of the
        subscription.
        """
        subscription, is_alone = self._matching.subscription, self._matching.is_alone
        units = [
            unit
            for unit in self._units
            if self._matching.is_free(unit)
            and (is_assigned(unit, subscription) or (is_alone and _is_sale(unit)))
        ]
        for unit, item in zip(units, list(self._matching.items), strict=False):
            self._take(unit, item)

    def _take(self, unit: Unit, item: Line) -> None:
        self._units.remove(unit)
        self._matching.take(unit, item)


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


def _if_kept(matches: _Matcher) -> _Matcher:
    """Return a matcher of units whose licenses were not removed."""
    return lambda unit, item: (unit.is_valid or not unit.issued) and matches(unit, item)


def _is_sale(unit: Unit) -> bool:
    """Return whether an order has sold a unit, as far as the order is known."""
    return unit.order is not None and (unit.order.sells or unit.order.order is None)


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
