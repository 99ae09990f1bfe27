"""What deliveries of shops do: issue, revoke, reinstate and end licenses."""

from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Final

from licserver.database.repositories.queue import Job
from licserver.database.repositories.sales import DEAD, DONE, WAITING, Source, SourceMapping
from licserver.domain.records import Actor, ActorKind, LicenseTerms
from licserver.domain.text import plural
from licserver.errors import BuryJobError, InvalidInputError
from licserver.services.context import Context
from licserver.services.license_terms import find_email
from licserver.services.licenses import LicenseService, SubscriptionService
from licserver.services.mail import MailService
from licserver.sources.records import SaleEvent, SaleKind, add_period, load_events
from licserver.sources.state import Change, OrderState, Rules, SubscriptionState, decide

MAX_REASON: Final = 500  # characters
_NAMELESS: Final = (
    "the purchase names no price, so issue its licenses by hand; "
    "for later ones give Checkout Sessions of Stripe the metadata licserver_item"
)


class SaleService:
    """Processes deliveries, each in one transaction with all that it changes."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def find_customer(self, event_id: int, *, is_test: bool) -> str | None:
        """Return the shop's id of a customer whose e-mail address a waiting delivery does not contain.

        Args:
            event_id: The delivery's.
            is_test: Of sources in test mode, or of those in live mode.
        """
        sales = self._context.repositories.sales
        event = sales.find_event(event_id)
        source = None if event is None else sales.find_source(event.source)
        if event is None or source is None or source.is_test is not is_test or event.state != WAITING:
            return None
        events = load_events(event.content or "[]")
        return next((one.customer_id for one in events if not one.customer_email), None)

    def process(self, event_id: int, email: str | None = None, job: Job | None = None) -> bool:
        """Do what a delivery asks for; nothing if that was done before.

        Args:
            event_id: The delivery's.
            email: The customer's, if the delivery does not contain it.
            job: Finished in the same transaction.

        Returns:
            Whether the job was finished.

        Raises:
            BuryJobError: a person has to do something first; what could be done is done.
        """
        try:
            with self._context.transaction() as tx:
                problem = _apply_delivery(tx, event_id, email)
                if job is not None and not problem:
                    tx.repositories.queue.finish(job, tx.now())
        except InvalidInputError as wrong:  # rolled back; the same would fail again
            problem = str(wrong)[:MAX_REASON]
            self._context.repositories.sales.set_event(event_id, DEAD, problem, self._context.now())
        if problem:
            raise BuryJobError(problem)
        return job is not None


def _apply_delivery(tx: Context, event_id: int, email: str | None) -> str:
    """Return what a person has to do; empty if all is done."""
    sales = tx.repositories.sales
    event = sales.find_event(event_id)
    source = None if event is None else sales.find_source(event.source, locked=True)
    event = sales.find_event(event_id)  # again: another process may have done it meanwhile
    if source is None or event is None or event.content is None or event.state != WAITING:
        return ""
    worker = SaleWorker(tx.acting_as(Actor(ActorKind.SYSTEM, f"source {source.name}")), source)
    for sale in load_events(event.content):
        worker.apply(sale if email is None else replace(sale, customer_email=email))
    problem = worker.problem()
    state, reason = (DEAD, problem) if problem else (DONE, worker.summary())
    sales.set_event(event_id, state, reason, tx.now())
    return problem


class SaleWorker:
    """Applies the events of one delivery, within a transaction that holds the lock of its source."""

    def __init__(self, tx: Context, source: Source) -> None:
        self._tx, self._source, self._sales = tx, source, tx.repositories.sales
        self._licenses, self._subscriptions = LicenseService(tx), SubscriptionService(tx)
        self._rules = Rules(timedelta(days=source.grace_days), source.revokes_partial_refunds)
        self._mappings = {one.external_id: one for one in self._sales.list_mappings(source.name)}
        self._unmapped: list[str] = []
        self._is_nameless = False
        self._done: list[str] = []

    def problem(self) -> str:
        """Return what a person has to do; empty if all is done."""
        if self._is_nameless:
            return _NAMELESS
        if not self._unmapped:
            return ""
        ids = ", ".join(self._unmapped)
        return f"not mapped: {ids}; use `licserver source map`, then `licserver source replay`"[:MAX_REASON]

    def summary(self) -> str:
        """Return what was done."""
        return ("; ".join(self._done) or "nothing to change")[:MAX_REASON]

    def apply(self, sale: SaleEvent) -> None:
        """Store what is known after an event, and change the licenses."""
        name = self._source.name
        order, issued = OrderState(), dict[str, list[bytes]]()
        if sale.order_id is not None:
            order = self._sales.find_order(name, sale.order_id)
            issued = self._sales.list_licenses(name, sale.order_id)
        subscription_id = sale.subscription_id or order.subscription_id
        subscription = SubscriptionState()
        if subscription_id is not None:
            self._tx.repositories.subscriptions.lock(subscription_id)  # before licenses, as everywhere
            subscription = self._sales.find_subscription(name, subscription_id)
        change = decide(sale, order, subscription, issued, self._rules)
        if sale.order_id is not None and change.order is not None:
            self._sales.set_order(name, sale.order_id, change.order)
        if subscription_id is not None and change.subscription is not None:
            self._sales.set_subscription(name, subscription_id, change.subscription)
        new = self._issue(sale, change, subscription_id)
        known = list(chain.from_iterable(issued.values()))
        if subscription_id is not None:
            self._subscriptions.link([*known, *new], subscription_id)
            if change.sets_end:
                self._follow(subscription_id, change)
        self._revoke(change, order, known, new)
        if sale.order_id is not None and not (known or new or self._unmapped):
            self._done.append(
                f"no license of order {sale.order_id}: its purchase has not arrived, or issues none"
            )

    def _issue(self, sale: SaleEvent, change: Change, subscription_id: str | None) -> list[bytes]:
        """Issue the licenses of positions that have none; return their ids."""
        new: list[bytes] = []
        if sale.kind is SaleKind.PURCHASED and not sale.items:
            self._is_nameless = True
        for item in change.issue:
            found = [self._mappings[one] for one in item.external_ids if one in self._mappings]
            if not found:
                self._unmapped.append(" or ".join(item.external_ids))
            elif (slug := found[0].product) is not None:
                terms = self._terms(sale, found[0], subscription_id)
                ids = [self._licenses.issue(slug, terms)[0].id for _ in range(item.quantity)]
                self._sales.add_licenses(self._source.name, sale.order_id or "", item.id, ids)
                self._done.append(f"issued {len(ids)} {plural(len(ids), 'license')} of {slug}")
                for one in ids:
                    MailService(self._tx).send_key(one)
                new += ids
        return new

    def _terms(self, sale: SaleEvent, mapping: SourceMapping, subscription_id: str | None) -> LicenseTerms:
        bought_on = sale.occurred_at.date()
        has_end = mapping.expires_in is not None and subscription_id is None
        return LicenseTerms(
            slots=mapping.slots,
            lifetime=mapping.lifetime,
            expires_on=add_period(bought_on, mapping.expires_in or "") if has_end else None,
            support_until=add_period(bought_on, mapping.support) if mapping.support else None,
            subscription_id=subscription_id,
            plan=mapping.plan,
            floating_seats=mapping.floating_seats,
            customer_email=find_email(sale.customer_email),  # a mistyped one must not prevent the license
            note=f"Order {sale.order_id} ({self._source.name})",
        )

    def _follow(self, subscription_id: str, change: Change) -> None:
        count = self._subscriptions.follow(subscription_id, change.ends_at)
        if count and change.ends_at is not None:
            self._done.append(f"the subscription ends {change.ends_at:%Y-%m-%d %H:%M} UTC if not renewed")

    def _revoke(self, change: Change, before: OrderState, known: list[bytes], new: list[bytes]) -> None:
        """Revoke licenses of an order, or reinstate those that were revoked for what is over."""
        if change.revoke_new is not None:
            for one in sorted([*known, *new] if change.revoke_all else new):
                self._licenses.revoke(one.hex(), change.revoke_new)
                self._done.append(f"revoked: {change.revoke_new}")
        if change.reinstate:
            reason = before.revocation(self._rules)
            for one in sorted(known):
                if self._licenses.get(one.hex()).revoked_reason == reason:  # not what a person has revoked
                    self._licenses.reinstate(one.hex())
                    self._done.append("reinstated")
