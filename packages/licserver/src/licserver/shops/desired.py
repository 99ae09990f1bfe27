"""Derive the licenses that should exist from the facts of a contract."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from shlex import quote
from types import MappingProxyType
from typing import Final, NamedTuple

from licserver.domain.text import plural
from licserver.shops.adoption import adopt
from licserver.shops.changes import REFUNDED
from licserver.shops.contract import (
    MAX_LICENSES,
    MAX_QUANTITY,
    MAX_REFUNDS,
    Answer,
    Desired,
    DesiredLicense,
    Fetch,
    Issued,
    ItemMapping,
    ProblemKind,
    Rules,
    SaleProblem,
    Terms,
)
from licserver.shops.facts import Contact, Fact, Line, Lines, OrderReason, OrderState
from licserver.shops.items import Matching, match_items
from licserver.shops.orders import OrderFacts, Share, group_orders
from licserver.shops.periods import add_period
from licserver.shops.subscriptions import SAME, Course, SubscriptionFacts, group_subscriptions
from licserver.shops.units import (
    EARLIER,
    FEWER,
    REPLACED,
    Unit,
    add_quantities,
    assign_item,
    by_need,
    escape,
    find_base_key,
    find_last_item,
    find_sale,
    has_key,
    is_assigned,
    make_line_key,
    may_be_replaced,
    may_belong,
)

_NO_ANSWERS: Final[Mapping[str, Answer]] = MappingProxyType({})
_CHOICE: Final = (Answer.FOLLOW, Answer.LEAVE)


class _Current(NamedTuple):
    """The licenses of a unit for what is sold now, or was sold last."""

    issued: list[Issued]
    is_same: bool = False  # what is sold is what they are for
    mapping: ItemMapping | None = None  # what they have to become


def desired(
    facts: Collection[Fact],
    mappings: Mapping[str, ItemMapping],
    rules: Rules,
    issued: Sequence[Issued],
    answers: Mapping[str, Answer] = _NO_ANSWERS,
) -> Desired:
    """Return the licenses that should exist, and what a person has to look at.

    Args:
        facts: Of one contract, the newest report of each object.
        mappings: By the ids in the shop.
        rules: Of the source.
        issued: The licenses that exist for the contract.
        answers: How a person has answered, by `SaleProblem.id`.
    """
    return _Derivation(facts, mappings, rules, issued, answers).run()


class _Derivation:
    def __init__(
        self,
        facts: Collection[Fact],
        mappings: Mapping[str, ItemMapping],
        rules: Rules,
        issued: Sequence[Issued],
        answers: Mapping[str, Answer],
    ) -> None:
        self._mappings, self._rules, self._answers = mappings, rules, answers
        self._by_hand = tuple(id_ for id_, answer in answers.items() if answer is Answer.ISSUED)
        self._issued = sorted(
            issued, key=lambda license_: (license_.key or "", license_.number, license_.license_id)
        )
        # Licenses with no order yet.
        self._unmatched = [license_ for license_ in self._issued if not has_key(license_)]
        self._keyed = {find_base_key(license_.key) for license_ in issued if license_.key is not None}
        orders = group_orders(
            facts, {license_.order_id for license_ in issued if license_.order_id is not None}
        )
        self._orders = sorted(orders, key=_by_payment)
        self._subscriptions = group_subscriptions(facts, self._orders)
        contacts = [fact for fact in facts if isinstance(fact, Contact)]
        self._contacts = sorted(contacts, key=lambda contact: (contact.reported_at, contact.id), reverse=True)
        self._courses: dict[str, Course] = {}
        self._units: dict[str, Unit] = {}
        self._licenses: list[DesiredLicense] = []
        self._endless: set[str] = set()  # subscriptions whose licenses have no end, as none is known
        self._count = len(issued)
        self._places = {(license_.key, license_.number) for license_ in issued if has_key(license_)}
        self._problems: dict[str, SaleProblem] = {}
        self._fetches: dict[Fetch, None] = {}
        self._notes: list[str] = []

    def run(self) -> Desired:
        """Derive all."""
        # First those whose lines are known: a license may have been stored for the order or its subscription.
        for order in sorted(
            self._orders, key=lambda candidate: not candidate.sells or candidate.lines is None
        ):
            self._add_units(order)
        self._attach_keyed()
        self._match_items()
        for subscription in self._subscriptions:
            self._courses[subscription.id] = subscription.find_course(self._rules, self._find_period)
        for unit in self._units.values():
            self._derive(unit)
        for order in self._orders:
            self._check_order(order)
        for subscription in self._subscriptions:
            self._check_subscription(subscription)
        ends = {name: course.end for name, course in self._courses.items() if course.end is not None}
        over = {Answer.LEAVE, Answer.ISSUED}
        problems = [
            problem for problem in self._problems.values() if self._answers.get(problem.id) not in over
        ]
        return Desired(
            licenses=tuple(self._licenses),
            ends=ends,
            problems=tuple(problems),
            fetches=tuple(self._fetches),
            nothing="" if self._licenses else self._explain_nothing(),
            notes=tuple(self._notes),
        )

    # --- what was bought

    def _add_units(self, order: OrderFacts) -> None:
        """Add what an order has sold, with the licenses that were issued before lines were known."""
        names = set(order.names)
        if order.order is not None and order.order.reason is OrderReason.UNKNOWN:
            names.update(order.order.subscriptions)  # as the order of all its charges was called before
        own = [license_ for license_ in self._unmatched if license_.order_id in names]
        self._unmatched = [license_ for license_ in self._unmatched if license_.order_id not in names]
        if not order.sells or order.lines is None:
            self._add_earlier(order, own)
            return
        units = self._read_lines(order, order.lines)
        by_key = {unit.key: unit for unit in units}
        unmatched: list[Issued] = []
        for license_ in own:
            unit = None if license_.line_id is None else by_key.get(make_line_key(order, license_.line_id))
            (unmatched if unit is None else unit.issued).append(license_)
        served = {place for place, unit in enumerate(units) if unit.issued or unit.key in self._keyed}
        lines = [Line(None, unit.ids, unit.sold, unit.quantity) for unit in units]
        adoption = adopt(lines, served, unmatched, self._find_product)
        for place, of_line in adoption.taken.items():
            units[place].issued = of_line
        self._add_earlier(order, adoption.left)
        for place, unit in enumerate(units):
            if place in adoption.unclear:
                self._ask_about_unclear(unit)
            else:
                self._units[unit.key] = unit
        if not order.lines.is_complete:
            self._ask_for_lines(order, has_some=True)

    def _read_lines(self, order: OrderFacts, lines: Lines) -> list[Unit]:
        units: dict[str, Unit] = {}
        subscription = self._find_named(order)
        has_items = any(line.item_id is not None for line in lines.lines)
        for line, sold_at in order.list_lines():
            is_one_time = line.is_one_time or (has_items and line.item_id is None)
            key = (
                f"item:{escape(line.item_id)}" if line.item_id else make_line_key(order, line.id or line.sold)
            )
            unit = units.get(key)
            if unit is not None:
                unit.quantity = add_quantities(unit, line)
                unit.refunded += order.count_refunded(line)
                continue
            # An item that an earlier order has sold is not sold again.
            units[key] = self._units.get(key) or Unit(
                key,
                line.external_ids,
                line.sold,
                line.quantity,
                order,
                None if is_one_time else subscription,
                sold_at,
                is_one_time,
                is_item=line.item_id is not None,
                refunded=order.count_refunded(line),
            )
        return list(units.values())

    def _find_named(self, order: OrderFacts) -> SubscriptionFacts | None:
        """Return the subscription that an order itself names."""
        named = () if order.order is None else order.order.subscriptions
        return next((candidate for candidate in self._subscriptions if (candidate.id,) == named), None)

    def _add_earlier(self, order: OrderFacts, issued: Iterable[Issued]) -> None:
        """Add licenses of an order of whose line nothing is known."""
        for license_ in issued:
            key = (
                license_.key
                or f"{EARLIER}{escape(order.id)}/{escape(license_.line_id or license_.item or '')}"
            )
            unit = Unit(key, sold=license_.item, order=order, is_described=False)
            self._units.setdefault(key, unit).issued.append(license_)

    def _attach_keyed(self) -> None:
        """Attach licenses to what they were issued for; of a line that is gone, nothing is paid any more."""
        orders = {name: order_facts for order_facts in self._orders for name in order_facts.names}
        subscriptions = {subscription.id: subscription for subscription in self._subscriptions}
        for license_ in self._issued:
            if license_.key is None or not has_key(license_):
                continue
            key = find_base_key(license_.key)
            if key not in self._units:
                order = orders.get(license_.order_id or "")
                is_item = key.startswith("item:")
                lines = None if order is None or not order.sells or is_item else order.lines
                is_gone = lines is not None and lines.is_complete
                self._units[key] = Unit(
                    key,
                    quantity=0 if is_gone else None,
                    order=order,
                    subscription=subscriptions.get(license_.subscription_id or ""),
                    is_item=is_item,
                    is_described=is_gone,
                )
            self._units[key].issued.append(license_)

    def _match_items(self) -> None:
        """Match the items of subscriptions with what their first orders have sold."""
        matchings, unlisted = list[Matching](), list[SubscriptionFacts]()
        for subscription in self._subscriptions:
            listing = subscription.find_items()
            if listing is None:
                unlisted.append(subscription)
                continue
            own, others = self._list_open(subscription)
            matchings.append(Matching(subscription, listing, own, has_others=bool(others)))
        # Of two that match a line alike, that which was listed first is nearer to what the order has sold.
        matchings.sort(key=lambda matching: matching.listing.holds_from)
        match_items(matchings, self._find_product)
        for matching in matchings:
            self._follow_answer(matching)
        for matching in matchings:
            matching.remove_taken()
            self._close(matching)
        for subscription in unlisted:
            for unit in self._list_open(subscription)[0]:
                unit.subscription = subscription

    def _list_open(self, subscription: SubscriptionFacts) -> tuple[list[Unit], list[Unit]]:
        """Return what may belong to a subscription, and what was issued for others of the same order."""
        own, others = list[Unit](), list[Unit]()
        for unit in self._units.values():
            if may_belong(unit, subscription):
                is_own = is_assigned(unit, subscription) or not self._is_of_any(unit)
                (own if is_own else others).append(unit)
        return own, others

    def _is_of_any(self, unit: Unit) -> bool:
        """Return whether its licenses were issued for a subscription of its order."""
        return any(
            is_assigned(unit, subscription)
            for subscription in self._subscriptions
            if may_belong(unit, subscription)
        )

    def _follow_answer(self, matching: Matching) -> None:
        """Let the only line of before be the item for which a person has decided that."""
        matching.remove_taken()
        replaced = self._find_replaced(matching)
        if len(replaced) != 1:
            return
        subscription = matching.subscription
        for item in matching.items:
            problem_id = _make_unclear_id(_make_item_key(item, subscription), item.sold)
            if self._answers.get(problem_id) is Answer.FOLLOW:
                matching.take(replaced[0], item)
                return

    def _find_replaced(self, matching: Matching) -> list[Unit]:
        """Return lines that issue licenses, and may be what the items were before they were known.

        Not only of the first listing: which is the first, nothing says once a license was issued for it.
        """
        if not matching.items:
            return []
        candidates = [unit for unit in matching.earlier if may_be_replaced(unit)]
        return [
            unit
            for unit in candidates
            if unit.issued or (mapping := self._find_mapping(unit.ids)) is None or mapping.product is not None
        ]

    def _close(self, matching: Matching) -> None:
        """Close what a subscription has no more, and add the items that no known line was before."""
        replaced, subscription = self._find_replaced(matching), matching.subscription
        for unit in matching.earlier:
            if unit.is_item or is_assigned(unit, subscription):
                unit.subscription, unit.quantity, unit.is_described = subscription, 0, True
                unit.is_item = True
                # Its licenses stay those of what they were for last, not of what its order has sold first.
                unit.sold = find_last_item(unit.issued) or unit.sold
                unit.ids = unit.ids if unit.sold is None else (unit.sold,)
            elif not unit.is_described:
                unit.subscription = subscription
            # A line that is gone may have been added once more, under another id.
            elif matching.is_line_gone or unit in replaced or _is_long_before(unit.order, matching.listing):
                unit.may_have_been_of += (subscription.id,)
        self._add_items(matching, tuple(unit.name for unit in replaced))

    def _add_items(self, matching: Matching, replaced: tuple[str, ...]) -> None:
        """Add the items that no known line was before."""
        subscription, taken = matching.subscription, set(matching.taken)
        payer = _find_payer(subscription, self._rules)
        for item in matching.items:
            key = _make_item_key(item, subscription)
            while key in taken:  # what is another item now was this one before
                key += "+"
            taken.add(key)
            unit = self._units.setdefault(key, Unit(key, order=payer))
            assign_item(unit, item, subscription)
            unit.may_replace = replaced

    def _is_bought(self, subscription: SubscriptionFacts) -> bool:
        return any(order.sells and order.was_paid(self._rules) for order in subscription.orders)

    # --- what it is worth

    def _find_mapping(self, ids: Iterable[str]) -> ItemMapping | None:
        return next((self._mappings[id_] for id_ in ids if id_ in self._mappings), None)

    def _find_product(self, line: Line) -> str | None:
        mapping = self._find_mapping(line.external_ids)
        return None if mapping is None else mapping.product or ""

    def _find_period(self, order: OrderFacts) -> str | None:
        """Return the period that is mapped for the lines of a renewal."""
        lines = () if order.lines is None else order.lines.lines
        mappings = [self._find_mapping(line.external_ids) for line in lines]
        periods = {
            mapping.expires_in
            for mapping in mappings
            if mapping is not None and mapping.expires_in is not None
        }
        return periods.pop() if len(periods) == 1 else None

    def _find_revoked_reason(self, unit: Unit) -> str | None:
        own = None if unit.order is None else unit.order.find_revoked_reason(self._rules)
        if unit.subscription is None:
            return own
        reason = self._courses[unit.subscription.id].revoked_reason
        return own if reason is None and own is not None and self._is_sold_beside(unit) else reason

    def _is_sold_beside(self, unit: Unit) -> bool:
        """Return whether its subscription was bought several times, and something else of it is paid."""
        own = find_sale(unit)
        beside = [other for other in self._units.values() if other.subscription is unit.subscription]
        sales = [find_sale(other) for other in beside if find_sale(other) is not own]
        return own is not None and any(
            sale is None or sale.find_revoked_reason(self._rules) is None for sale in sales
        )

    def _may_issue(self, unit: Unit) -> bool:
        """Return whether it was paid, and still is."""
        if self._find_revoked_reason(unit) is not None:
            return False
        if unit.subscription is not None:
            return self._is_bought(unit.subscription)
        return unit.order is not None and unit.order.find_state(self._rules) is not OrderState.UNKNOWN

    def _make_terms(self, unit: Unit, mapping: ItemMapping) -> Terms:
        """Return the terms of a license; their periods begin with the payment."""
        paid_at = None if unit.order is None else unit.order.find_paid_at()
        day = None if paid_at is None else paid_at.date()
        subscription, period = unit.subscription, mapping.expires_in
        has_end = subscription is not None and self._courses[subscription.id].end is not None
        return Terms(
            product=mapping.product or "",
            slots=mapping.slots,
            lifetime=mapping.lifetime,
            expires_on=None if has_end or period is None or day is None else add_period(day, period),
            support_until=add_period(day, mapping.support) if mapping.support and day else None,
            plan=mapping.plan,
            floating_seats=mapping.floating_seats,
        )

    # --- licenses

    def _derive(self, unit: Unit) -> None:
        """Add the licenses of a line or an item."""
        mapping = self._find_mapping(unit.ids)
        if not unit.issued:
            self._derive_new(unit, mapping)
            return
        current = self._find_current(unit, mapping)
        terms = None if current.mapping is None else self._make_terms(unit, current.mapping)
        is_replaced = terms is not None and terms.product != current.issued[0].product
        paid = sum(1 for license_ in current.issued if license_.revoked_reason != FEWER)
        count = paid if unit.quantity is None else unit.quantity
        # What was refunded is not issued any more, and what was issued of it stays, revoked.
        count = min(count, max(paid, count - unit.taken_back))
        is_ignored = mapping is not None and mapping.product is None
        if count > max(paid, MAX_QUANTITY):
            if not is_ignored and self._may_issue(unit):
                self._ask_about_many(unit, count)
            count = paid
        if is_replaced and terms is not None:
            if not self._may_issue(unit):
                self._add_unpaid(unit)
                return
            self._add_issued(unit, unit.issued, REPLACED)
            self._add_new(unit, count, terms, f"{unit.key}@{terms.product}")
            return
        others = [license_ for license_ in unit.issued if license_ not in current.issued]
        self._add_issued(unit, others, REPLACED)
        if not unit.is_described or (is_ignored and count):
            count = paid
        elif not current.is_same:  # more are of what it is for now
            count = min(count, paid)
        self._resize(unit, current, count, mapping, terms)

    def _add_unpaid(self, unit: Unit) -> None:
        """Add the licenses of a unit of another product that is not paid: no others take their place."""
        reason = self._find_revoked_reason(unit) or REPLACED
        for license_ in unit.issued:
            is_removed = license_.revoked_reason in {FEWER, REPLACED}
            self._add_issued(unit, [license_], license_.revoked_reason if is_removed else reason)

    def _derive_new(self, unit: Unit, mapping: ItemMapping | None) -> None:
        order, taken_back = unit.order, unit.taken_back
        if order is None or not self._may_issue(unit) or self._is_issued_by_hand(unit):
            return
        if unit.quantity is not None and unit.quantity <= taken_back:
            return
        if mapping is None:
            self._ask_to_map(unit)
        elif unit.subscription is None and unit.may_have_been_of and mapping.product is not None:
            subscriptions = " or ".join(unit.may_have_been_of)
            text = (
                f"{_name(unit.about)}: whether {unit.name} was sold once, or was of subscription "
                f"{subscriptions} before that was changed, is not known; issue a license by hand if one is "
                "missing"
            )
            self._ask(f"unclear:{unit.key}", ProblemKind.UNCLEAR, text, unit.about, unit.ids)
        elif unit.may_replace and mapping.product is not None:
            self._ask_about_replaced(unit)
        elif order.is_mixed(unit.sold):
            text = (
                f"{_name(unit.about)}: {unit.name} was delivered with a line_id and without, and it is not "
                "known whether that is two lines; issue a license by hand if one is missing"
            )
            self._ask(f"unclear:{unit.key}", ProblemKind.UNCLEAR, text, unit.about, unit.ids)
        elif mapping.product is not None:
            quantities = (unit.quantity, unit.ordered, mapping.quantity)
            quantity = next((count for count in quantities if count is not None), None)
            if quantity is None:
                self._ask_for_quantity(unit, order)
            elif quantity - taken_back > MAX_QUANTITY:
                self._ask_about_many(unit, quantity - taken_back)
            else:
                self._add_new(unit, quantity - taken_back, self._make_terms(unit, mapping), unit.key)

    def _is_issued_by_hand(self, unit: Unit) -> bool:
        """Return whether a person has answered a problem about it with a license."""
        lines = {f"lines:{unit.key}", f"lines:{unit.order_id}"}
        names = {f"quantity:{unit.key}", f"unclear:{unit.key}", f"purchase:{unit.about}", *lines}
        begins = (f"unmapped:{unit.key}:", f"unclear:{unit.key}:", f"state:{unit.order_id}:")
        return any(id_ in names or id_.startswith(begins) for id_ in self._by_hand)

    def _is_order_issued_by_hand(self, order: OrderFacts) -> bool:
        units = [unit for unit in self._units.values() if unit.order is order]
        return f"lines:{order.id}" in self._by_hand or any(map(self._is_issued_by_hand, units))

    def _find_current(self, unit: Unit, mapping: ItemMapping | None) -> _Current:
        """Return the licenses for what is sold now, or was sold last."""
        products: dict[str, list[Issued]] = {}
        for license_ in reversed(unit.issued):
            products.setdefault(license_.product, []).insert(0, license_)
        kept = [
            of_product
            for of_product in products.values()
            if any(license_.revoked_reason != REPLACED for license_ in of_product)
        ]
        latest = next(iter(kept or products.values()))
        if not unit.ids:
            return _Current(latest, is_same=True)
        for of_product in products.values():
            if any(license_.item is None or license_.item in unit.ids for license_ in of_product):
                return _Current(of_product, is_same=True)
        if not unit.can_change and (mapping is None or mapping.product in {None, latest[0].product}):
            return _Current(latest, is_same=True)  # a line that was served is not asked about again
        if mapping is None:
            self._ask_to_map(unit)
        if mapping is None or mapping.product is None:
            return _Current(latest)
        problem_id = f"change:{unit.key}:{unit.sold}"
        if not self._follows_product(unit, problem_id):
            text = f"{_name(unit.about)} is for {unit.name} now, and its license is not: follow the change"
            self._ask(problem_id, ProblemKind.CHANGE, text, unit.about, unit.ids, _CHOICE)
            return _Current(latest)
        return _Current(products.get(mapping.product, latest), is_same=True, mapping=mapping)

    def _follows_product(self, unit: Unit, problem_id: str) -> bool:
        """Return whether licenses are replaced; those of a line that was served only if a person agrees."""
        if unit.can_change:
            return self._follows(problem_id)
        return self._answers.get(problem_id) is Answer.FOLLOW

    def _follows(self, problem_id: str) -> bool:
        answer = self._answers.get(problem_id)
        return self._rules.follows_changes if answer is None else answer is Answer.FOLLOW

    def _resize(
        self,
        unit: Unit,
        current: _Current,
        quantity: int,
        mapping: ItemMapping | None,
        terms: Terms | None,
    ) -> None:
        """Give a line or an item the number of licenses that is paid."""
        paid = [license_ for license_ in current.issued if license_.revoked_reason != FEWER]
        count, problem_id = len(paid), f"quantity:{unit.key}:{quantity}"
        is_refused = quantity < count and not self._may_reduce(unit, paid, quantity, problem_id)
        if is_refused or (quantity > count and not self._may_add(unit, count, quantity, problem_id)):
            quantity = count
        order = sorted(current.issued, key=by_need)
        bought, reason = order[:quantity], self._find_revoked_reason(unit)
        still_paid = max(quantity, unit.quantity or 0) - unit.taken_back
        if still_paid < quantity:  # the last ones were refunded, whatever is in use: that would change
            bought.sort(key=lambda license_: (license_.number, license_.license_id))
        groups = (
            (reason, bought[:still_paid]),
            (reason or REFUNDED, bought[still_paid:]),
            (FEWER, order[quantity:]),
        )
        for revoked_reason, licenses in groups:
            self._add_issued(unit, licenses, revoked_reason, terms, is_same=current.is_same)
        missing = quantity - len(order)
        if missing <= 0 or not self._may_issue(unit):
            return
        if mapping is None:
            self._ask_to_map(unit)
            return
        key = next(
            (license_.key for license_ in current.issued if license_.key and has_key(license_)), unit.key
        )
        self._add_new(unit, missing, terms or self._make_terms(unit, mapping), key)

    def _may_reduce(self, unit: Unit, paid: Sequence[Issued], quantity: int, problem_id: str) -> bool:
        """Return whether licenses that are not paid any more may be revoked; otherwise a person is asked."""
        in_use = sum(1 for license_ in paid if license_.in_use)
        is_followed = in_use <= quantity and self._follows(problem_id)
        if is_followed or self._answers.get(problem_id) is Answer.FOLLOW:
            return True
        text = (
            f"{_name(unit.about)} pays for {quantity} {plural(quantity, 'license')} of {unit.name}; "
            f"{len(paid)} were issued, and {in_use} are in use: revoke what is not paid"
        )
        self._ask(problem_id, ProblemKind.FEWER, text, unit.about, unit.ids, _CHOICE)
        return False

    def _may_add(self, unit: Unit, count: int, quantity: int, problem_id: str) -> bool:
        if self._follows(problem_id):
            return True
        text = f"{_name(unit.about)} pays for {quantity} of {unit.name}; {count} were issued: issue more"
        self._ask(problem_id, ProblemKind.CHANGE, text, unit.about, unit.ids, _CHOICE)
        return False

    def _add_issued(
        self,
        unit: Unit,
        issued: Sequence[Issued],
        revoked_reason: str | None,
        terms: Terms | None = None,
        *,
        is_same: bool = False,
    ) -> None:
        """Add licenses that exist; `is_same`: they are for what is sold now."""
        for license_ in issued:
            key, number = license_.key, license_.number
            if key is None or not has_key(license_):
                key, (number,) = unit.key, self._take_places(unit.key, 1, number)
            item = unit.sold or license_.item if is_same else license_.item
            self._add(unit, license_, key, number, item=item, revoked_reason=revoked_reason, terms=terms)

    def _take_places(self, key: str, quantity: int, first: int = 1) -> list[int]:
        """Return numbers that no license has under a key; the database holds both together unique."""
        free = (number for number in itertools.count(first) if (key, number) not in self._places)
        numbers = list(itertools.islice(free, quantity))
        self._places.update((key, number) for number in numbers)
        return numbers

    def _add_new(self, unit: Unit, quantity: int, terms: Terms, key: str) -> None:
        self._count += quantity
        if self._count > MAX_LICENSES:
            self._ask_about_many(unit, quantity)
            return
        for number in self._take_places(key, quantity):
            self._add(unit, None, key, number, item=unit.sold, revoked_reason=None, terms=terms)

    def _add(
        self,
        unit: Unit,
        license_: Issued | None,
        key: str,
        number: int,
        *,
        item: str | None,
        revoked_reason: str | None,
        terms: Terms | None,
    ) -> None:
        subscription = unit.subscription
        end = None if subscription is None else self._courses[subscription.id].end
        if subscription is not None and end is None and revoked_reason is None:
            mapping = self._find_mapping(unit.ids)
            if mapping is None or mapping.expires_in is None:
                self._endless.add(subscription.id)
        email, language = self._find_contact(unit, is_new=license_ is None)
        self._licenses.append(
            DesiredLicense(
                key=key,
                number=number,
                license_id=None if license_ is None else license_.license_id,
                item=item,
                order_id=unit.order_id,
                subscription_id=self._find_subscription_id(unit, license_),
                terms=terms,
                ends_at=None if end is None else end.at,
                revoked_reason=revoked_reason,
                email=email,
                language=language,
            )
        )

    def _find_subscription_id(self, unit: Unit, license_: Issued | None) -> str | None:
        """Return the subscription of a license, which stays unless its order names another one."""
        subscription = unit.subscription
        if subscription is None:
            return None
        is_named = unit.order is not None and self._find_named(unit.order) is subscription
        return (None if license_ is None or is_named else license_.subscription_id) or subscription.id

    def _find_contact(self, unit: Unit, *, is_new: bool) -> tuple[str | None, str | None]:
        """Return the address and the language of a customer, as they were reported last."""
        orders = set() if unit.order is None else set(unit.order.names)
        subscription = unit.subscription
        if subscription is not None:
            orders = orders.union(*(order.names for order in subscription.orders))
        contacts = [
            contact
            for contact in self._contacts
            if orders & set(contact.orders)
            or (subscription is not None and subscription.id in contact.subscriptions)
        ]
        email = next((contact.email for contact in contacts if contact.email), None)
        if email is None and is_new:
            customers = (
                Fetch("customer", contact.customer_id, unit.about)
                for contact in contacts
                if contact.customer_id
            )
            self._note(*list(customers)[:1])
        return email, next((contact.language for contact in contacts if contact.language), None)

    # --- what a person has to look at

    def _ask(
        self,
        id_: str,
        kind: ProblemKind,
        text: str,
        about: str,
        ids: tuple[str, ...] = (),
        answers: tuple[Answer, ...] = (Answer.LEAVE,),
    ) -> None:
        self._problems[id_] = SaleProblem(id_, kind, text, about, ids, answers)

    def _ask_to_map(self, unit: Unit) -> None:
        if unit.subscription is not None and unit.subscription.is_over:
            return  # it is not paid any more
        if not unit.ids:
            # Of a product that was deleted, WooCommerce reports no id in any order.
            text = f"{_name(unit.about)}: which product was bought is not in the report; issue by hand"
            self._ask(f"lines:{unit.key}", ProblemKind.LINES, text, unit.about)
            return
        several = unit.quantity is not None and unit.quantity > 1
        subject = f"{unit.quantity} of {unit.name} are" if several else f"{unit.name} is"
        id_ = quote(unit.ids[0])
        text = (
            f"{_name(unit.about)}: {subject} not mapped; map it with "
            f"`licserver source map {self._rules.source} {id_} --product SLUG --go-on`"
        )
        self._ask(f"unmapped:{unit.key}:{unit.sold}", ProblemKind.UNMAPPED, text, unit.about, unit.ids)

    def _ask_for_quantity(self, unit: Unit, order: OrderFacts) -> None:
        text = (
            f"{_name(unit.about)}: how many of {unit.name} were bought is not in the report; "
            f"{self._rules.key_advice}, map it with `--quantity`, or issue by hand"
        )
        self._ask(f"quantity:{unit.key}", ProblemKind.QUANTITY, text, unit.about, unit.ids)
        self._fetch("lines", order)

    def _ask_about_many(self, unit: Unit, quantity: int) -> None:
        text = (
            f"{_name(unit.about)}: {quantity} of {unit.name} were bought; {MAX_QUANTITY} for a line and "
            f"{MAX_LICENSES} for a sale are issued at most: issue by hand"
        )
        self._ask(f"quantity:{unit.key}", ProblemKind.MANY, text, unit.about, unit.ids)

    def _ask_about_unclear(self, unit: Unit) -> None:
        text = (
            f"{_name(unit.about)} was changed after its licenses were issued, and it is not known whether "
            f"they are for {unit.name}; issue a license by hand if one is missing"
        )
        self._ask(f"unclear:{unit.key}", ProblemKind.UNCLEAR, text, unit.about, unit.ids)

    def _ask_about_replaced(self, unit: Unit) -> None:
        """Ask whether an item is another plan of what was sold, or was added to it."""
        lines = " or ".join(unit.may_replace)
        text = (
            f"{_name(unit.about)} is for {unit.name}, which its first order has not sold, and it is "
            f"not known whether that takes the place of {lines}; "
        )
        can_follow = len(unit.may_replace) == 1
        text += "follow the change, or issue a license by hand" if can_follow else "issue and revoke by hand"
        self._ask(
            _make_unclear_id(unit.key, unit.sold),
            ProblemKind.UNCLEAR,
            text,
            unit.about,
            unit.ids,
            _CHOICE if can_follow else (Answer.LEAVE,),
        )

    def _ask_for_lines(self, order: OrderFacts, *, has_some: bool = False) -> None:
        about = f"order:{order.id}"
        subject = "not all that was bought is" if has_some else "what was bought is not"
        text = f"{_name(about)}: {subject} in the report; {self._rules.key_advice}, or issue by hand"
        self._ask(f"lines:{order.id}", ProblemKind.LINES, text, about)
        self._fetch("lines", order)

    def _fetch(self, kind: str, order: OrderFacts) -> None:
        """Note what the shop's API may know of an order; it may know it by any of its names."""
        self._note(*(Fetch(kind, name, f"order:{order.id}") for name in sorted(order.names)))

    def _note(self, *fetches: Fetch) -> None:
        """Note what the shop's API may know, each once."""
        self._fetches.update(dict.fromkeys(fetches))

    def _check_order(self, order: OrderFacts) -> None:
        about = f"order:{order.id}"
        is_served = any(unit.issued for unit in self._units.values() if unit.order is order)
        is_served = is_served or any(license_.order_id in order.names for license_ in self._issued)
        if order.order is None:
            if not is_served and (order.find_refunded_share() is not Share.NONE or order.is_disputed()):
                # Most such payments have nothing to do with licenses: they need no decision.
                self._fetch("payment", order)
            return
        if order.has_unread_refunds() and order.find_revoked_reason(self._rules) is None:
            self._fetch("refunds", order)
        self._check_refunds(order, about, is_served=is_served)
        if is_served or not order.was_paid(self._rules) or order.find_revoked_reason(self._rules):
            return
        if order.sells and order.find_state(self._rules) is OrderState.UNKNOWN:
            state = order.order.shop_state
            source, meaning = self._rules.source, quote(f"{state}=paid")
            text = (
                f"{_name(about)} is paid, and its state {state} is not known; choose what it means with "
                f"`licserver source change {source} --state {meaning}`, then repeat the delivery with "
                "`licserver source replay`"
            )
            self._ask(f"state:{order.id}:{state}", ProblemKind.STATE, text, about)
        elif order.sells and order.lines is None:
            # The items of a subscription may be known by itself.
            named = set(order.order.subscriptions)
            if not any(other.items is not None for other in self._subscriptions if other.id in named):
                self._ask_for_lines(order)
        elif order.order.reason is OrderReason.RENEWAL and not order.order.subscriptions:
            self._ask_for_purchase(
                f"{_name(about)} renews a subscription that it does not name", about, order
            )

    def _check_refunds(self, order: OrderFacts, about: str, *, is_served: bool) -> None:
        """Ask about refunds and disputes that the licenses cannot follow by themselves."""
        reason, name = order.find_revoked_reason(self._rules), _name(about)
        if order.refund_count >= MAX_REFUNDS:
            text = (
                f"{name} has {order.refund_count} refunds and disputes, and no more are read; revoke its "
                "licenses by hand if they are not paid any more, or leave it"
            )
            self._ask(f"refunds:{order.id}", ProblemKind.REFUND, text, about)
        if reason is None:
            if is_served:
                self._check_parts(order, name)
            return
        paid_at = None if order.order is None else order.order.paid_at
        if order.sells and order.is_paid_again():
            text = f"{name} was paid again after its refund or dispute; issue or reinstate by hand"
            self._ask(f"again:{order.id}:{paid_at:%Y-%m-%dT%H:%M:%SZ}", ProblemKind.LATE, text, about)
        if reason == REFUNDED and (failed := order.find_failed_beside()) is not None:
            text = f"{name}: a refund failed, and another one still counts; reinstate by hand, or leave it"
            self._ask(f"failed:{order.id}:{failed.id}", ProblemKind.REFUND, text, about)
        if order.sells and self._is_order_issued_by_hand(order):
            text = f"{name}: {reason}, and its license was issued by hand; revoke that by hand, or leave it"
            self._ask(f"by-hand:{order.id}", ProblemKind.BY_HAND, text, about)

    def _check_parts(self, order: OrderFacts, name: str) -> None:
        """Ask about refunds of an order whose licenses are valid, or note that they revoke nothing."""
        about = f"order:{order.id}"
        if unknown := order.list_unknown_names():
            shown = ", ".join(repr(name_[:40]) for name_ in unknown[:3])
            advice = "revoke its license by hand, or leave it"
            if not self._rules.has_api:
                advice = f"send the refund again with the right one and a later `timestamp`; or {advice}"
            text = f"{name}: a refund names {shown}, which is no line of it; {advice}"
            self._ask(f"refund:{order.id}", ProblemKind.REFUND, text, about)
        elif order.has_unknown_share():
            advice = "revoke its licenses by hand if it was all, or leave it"
            if not self._rules.has_api:
                resend = "send the refund again with `partial` in place of `amount`, and a later `timestamp`"
                advice = f"{resend}; or {advice}"
            text = f"{name} was refunded, and it is not known whether in part or all; {advice}"
            self._ask(f"refund:{order.id}", ProblemKind.REFUND, text, about)
        elif (failed := order.find_failed_part()) is not None:
            text = (
                f"{name}: a refund failed for a line that it does not name, and it still counts; report its "
                "failure without the line, or leave it"
            )
            self._ask(f"failed:{order.id}:{failed.id}", ProblemKind.REFUND, text, about)
        elif order.find_refunded_share() is Share.PART:
            self._note_part(order, name)

    def _note_part(self, order: OrderFacts, name: str) -> None:
        """Note a refund in part that revokes nothing."""
        refunded = [unit for unit in self._units.values() if unit.order is order and unit.refunded]
        is_by_lines = refunded and not any(unit.subscription is not None for unit in refunded)
        if is_by_lines and any(not refund.lines for refund in order.find_made()):
            self._notes.append(f"a refund of {name} names an amount and no quantity, so it revokes nothing")
        elif not is_by_lines:
            note = f"{name} was refunded in part, which revokes nothing"
            if order.has_unread_refunds():
                note += f"; {self._rules.key_advice}, so that the shop can be asked which lines it is"
            self._notes.append(note)

    def _check_subscription(self, subscription: SubscriptionFacts) -> None:
        about, course = f"subscription:{subscription.id}", self._courses[subscription.id]
        by_hand = any(license_.subscription_id == subscription.id for license_ in self._issued)
        has_licenses = by_hand or any(
            unit.issued for unit in self._units.values() if unit.subscription is subscription
        )
        paid = [
            order
            for order in subscription.orders
            if order.was_paid(self._rules) and order.find_revoked_reason(self._rules) is None
        ]
        if paid and not has_licenses and not self._is_bought(subscription):
            self._ask_for_purchase(f"{_name(about)} was paid, and its purchase is not known", about, *paid)
            self._note(Fetch("subscription", subscription.id, about))
        elif course.has_unknown_period and has_licenses:
            text = f"{_name(about)} was paid for a time that is not known; {_advise_extending(subscription)}"
            if len(paid) < sum(order.was_paid(self._rules) for order in subscription.orders):
                text = (
                    f"{_name(about)}: a payment does not count any more, and until when the others paid is "
                    "not known; change the end of its licenses by hand, or leave it"
                )
            self._ask(f"period:{subscription.id}", ProblemKind.PERIOD, text, about)
            self._note(Fetch("subscription", subscription.id, about))
        elif subscription.id in self._endless:
            text = (
                f"{_name(about)}: until when it is paid is not known; change the end of its licenses by "
                "hand, or leave it"
            )
            self._ask(f"period:{subscription.id}", ProblemKind.PERIOD, text, about)
            self._note(Fetch("subscription", subscription.id, about))
        if subscription.is_completed and has_licenses:
            text = (
                f"{_name(about)}: all its payments are made, and whether its licenses stay, as after "
                f"instalments, or end is not known; {_advise_extending(subscription)}, or leave it"
            )
            self._ask(f"completed:{subscription.id}", ProblemKind.PERIOD, text, about)
        is_served = by_hand or any(license_.subscription_id == subscription.id for license_ in self._licenses)
        for order_id in course.late if is_served else ():
            text = (
                f"{_name(about)} has ended, and order {order_id} was paid for it later; "
                f"{_advise_extending(subscription)}, or refund the order"
            )
            self._ask(f"late:{subscription.id}:{order_id}", ProblemKind.LATE, text, about)

    def _explain_nothing(self) -> str:
        """Return why no license is issued for the first order; empty if that is not known."""
        for order in self._orders:
            reason = order.find_revoked_reason(self._rules)
            lines = () if order.lines is None else order.lines.lines
            if order.order is not None and reason is not None:
                return f"no license of order {order.id}: {reason}"
            if lines and all(self._find_product(line) == "" for line in lines):
                return f"no license of order {order.id}: what was bought is mapped to none"
        answered = [(problem, self._answers.get(problem.id)) for problem in self._problems.values()]
        for problem, answer in answered:
            if answer is Answer.LEAVE:
                return f"no license of {_name(problem.about)}: it was left as it is"
        by_hand = next(filter(self._is_order_issued_by_hand, self._orders), None)
        return "" if by_hand is None else f"no license of order {by_hand.id}: one was issued by hand"

    def _ask_for_purchase(self, text_start: str, about: str, *orders: OrderFacts) -> None:
        lines = [line for order in orders if order.lines is not None for line in order.lines.lines]
        if lines and all(self._find_product(line) == "" for line in lines):
            return  # what issues no license anyway
        text = f"{text_start}; use `licserver source sync`, or extend or issue its license by hand"
        if not self._rules.has_api:
            text = f"{text_start}; report the purchase, or extend or issue its license by hand"
        self._ask(f"purchase:{about}", ProblemKind.SUBSCRIPTION, text, about)


def _is_long_before(order: OrderFacts | None, listing: Lines) -> bool:
    """Return whether an order was paid long before what its subscription consists of was reported."""
    paid_at = None if order is None else order.find_paid_at()
    return paid_at is not None and listing.holds_from - paid_at >= SAME


def _by_payment(order: OrderFacts) -> tuple[float, str]:
    paid_at = order.find_paid_at()
    return (float("inf") if paid_at is None else paid_at.timestamp()), order.id


def _make_item_key(item: Line, subscription: SubscriptionFacts) -> str:
    """Return the key of an item that no order is known to have sold."""
    return f"item:{escape(item.id or f'{subscription.id}/{item.sold}')}"


def _make_unclear_id(key: str, sold: str | None) -> str:
    """Return the id of the question whether an item replaces what was sold before."""
    return f"unclear:{key}:{sold}"


def _name(about: str) -> str:
    """Return an object for a sentence."""
    return about.replace(":", " ", 1)


def _advise_extending(subscription: SubscriptionFacts) -> str:
    return f"extend its licenses with `licserver subscription end {quote(subscription.id)} --at YYYY-MM-DD`"


def _find_payer(subscription: SubscriptionFacts, rules: Rules) -> OrderFacts | None:
    """Return the latest order that paid the subscription."""
    paid = [order for order in subscription.orders if order.was_paid(rules)]
    return paid[-1] if paid else None
