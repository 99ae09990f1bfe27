"""Loads a contract: its facts, its licenses, and what follows from them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from licserver.database.repositories import Repositories
from licserver.database.repositories.sales import (
    FOLLOW,
    FactRow,
    Problem,
    SoldLicense,
    Source,
    SubscriptionRow,
)
from licserver.domain.records import IssuedLicense
from licserver.services.sales.rows import (
    find_earlier,
    find_earlier_revocation,
    join_objects,
    load_applied,
    load_fact_row,
    read_issued,
    split_objects,
)
from licserver.shops import ROWS
from licserver.shops.changes import Applied
from licserver.shops.contract import Answer, Desired, Rules
from licserver.shops.desired import desired
from licserver.shops.facts import OrderState


class LargeContractError(Exception):
    """A contract has too many licenses to load it within a transaction."""


class Contract(NamedTuple):
    """The stored objects that belong together, and the desired state that follows from them."""

    objects: set[str]
    sold: dict[bytes, SoldLicense]
    licenses: dict[bytes, IssuedLicense]
    applied: dict[bytes, Applied]  # what the source has set of a license last, if that is stored
    subscriptions: dict[str, SubscriptionRow]
    earlier_revocations: dict[str, str | None]
    problems: Sequence[Problem]
    result: Desired
    addressed: set[bytes]  # licenses that got the customer's address by this delivery

    def find_customer(self) -> tuple[str | None, str | None]:
        """Return address and language of the customer, as other licenses of the contract have them."""
        licenses = self.licenses.values()
        return (
            next((license_.customer_email for license_ in licenses if license_.customer_email), None),
            next((license_.customer_language for license_ in licenses if license_.customer_language), None),
        )


def read_own_key(source: Source) -> str:
    """Return the key of a shop's API from the variable that the source names; empty without either."""
    return os.environ.get(source.key_env or "", "").strip()


def make_rules(source: Source) -> Rules:
    """Return what the vendor has chosen for a source."""
    return Rules(
        grace=timedelta(days=source.grace_days),
        revokes_partial_refunds=source.revokes_partial_refunds,
        follows_changes=source.changes == FOLLOW,
        states={name: OrderState(state) for name, state in source.states.items()},
        source=source.name,
        has_api=not ROWS[source.kind].is_own,
        unset_key=source.key_env if source.key_env and not read_own_key(source) else None,
    )


def load_contract(
    repositories: Repositories,
    source: Source,
    objects: Iterable[str],
    stored_rows: Mapping[tuple[str, str], FactRow],
    limit: int | None = None,
) -> Contract:
    """Load what belongs together with some objects, and derive what should exist.

    Args:
        repositories: Of the transaction.
        source: The source.
        objects: Some of the contract's, as `kind:id`.
        stored_rows: Facts that need not be read again, by kind and id.
        limit: How many licenses it may have.

    Raises:
        LargeContractError: It has more.
    """
    name, sales, rules = source.name, repositories.sales, make_rules(source)
    rows, all_objects = sales.load_contract(name, set(objects), stored_rows)
    facts = [*map(load_fact_row, rows)]
    orders, subscriptions = split_objects(all_objects)
    before = sales.find_earlier_orders(name, orders, subscriptions)
    subscriptions |= {order.subscription_id for order in before if order.subscription_id}
    orders |= {order.order_id for order in before}
    all_objects |= join_objects(orders, subscriptions)
    stored = sales.find_subscriptions(name, subscriptions) if subscriptions else []
    ends = {subscription.subscription_id: subscription for subscription in stored}
    facts += find_earlier(facts, before, ends.values())
    named = orders | (subscriptions if ROWS[source.kind].names_by_subscription else set())
    rows_sold = sales.list_sold(name, all_objects, named, None if limit is None else limit + 1)
    if limit is not None and len(rows_sold) > limit:
        raise LargeContractError
    sold = {sale.license_id: sale for sale in rows_sold}
    by_hand = sales.list_subscribed(subscriptions, sold) if subscriptions else []
    ids = [*sold, *by_hand]
    licenses = {license_.id: license_ for license_ in (repositories.licenses.find_all(ids) if ids else [])}
    applied = {id_: load_applied(sale.applied) for id_, sale in sold.items() if sale.applied is not None}
    issued = [read_issued(sold.get(id_), license_, applied.get(id_)) for id_, license_ in licenses.items()]
    problems = sales.list_problems(name, all_objects)
    answers = {problem.name: Answer(problem.answer) for problem in problems if problem.answer is not None}
    mappings = {mapping.external_id: mapping for mapping in sales.list_mappings(name)}
    result = desired(facts, mappings, rules, issued, answers)
    revocations = {order.order_id: find_earlier_revocation(order, rules) for order in before}
    return Contract(all_objects, sold, licenses, applied, ends, revocations, problems, result, set())
