"""What deliveries of shops do: their facts are stored, and the licenses become what should exist."""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import date, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from licserver.database.repositories.audit import AuditFilter, Entry
from licserver.database.repositories.queue import Job
from licserver.database.repositories.sales import (
    DEAD,
    DONE,
    FOLLOW,
    QUEUE,
    WAITING,
    EarlierOrder,
    FactRow,
    Problem,
    SoldLicense,
    Source,
    StoredEvent,
    SubscriptionRow,
)
from licserver.domain.decisions import generate_license_key
from licserver.domain.records import Actor, ActorKind, IssuedLicense, LicenseTerms
from licserver.domain.text import plural
from licserver.errors import BuryJobError, InvalidInputError
from licserver.services.context import Context
from licserver.services.license_lookups import audit_object
from licserver.services.license_terms import validate_terms
from licserver.services.licenses import LicenseService, add_licenses, reinstate_licenses, revoke_licenses
from licserver.services.mail import MailService
from licserver.services.products import find_product
from licserver.services.sale_problems import ProblemService
from licserver.services.subscriptions import SubscriptionService
from licserver.services.validation import find_email
from licserver.settings import Settings
from licserver.shops import SHOPS, ShopKind, earlier, paddle
from licserver.shops.changes import (
    REVOKED,
    TERMS,
    Actual,
    Applied,
    Change,
    Wanted,
    assume_applied,
    find_change,
    find_end,
)
from licserver.shops.contract import (
    Answer,
    Attention,
    AttentionKind,
    Desired,
    DesiredLicense,
    Fetch,
    Issued,
    Rules,
    Terms,
)
from licserver.shops.desired import desired
from licserver.shops.facts import (
    Contact,
    Dispute,
    Fact,
    OrderState,
    Refund,
    dump_fact,
    is_newer,
    key_of,
    links_of,
    load_fact,
)
from licserver.shops.units import EARLIER

MAX_REASON: Final = 500  # characters
ISSUE_BATCH: Final = 150
"""Licenses issued in one transaction: 0.1 s, in which no other transaction can write."""

CHANGE_BATCH: Final = 100
"""Licenses revoked or reinstated in one transaction; a change of terms counts as `_TERMS_COST` of them."""

_TERMS_COST: Final = 5  # it is written for each license by itself

_MAX_LINES: Final = 1_000  # of the audit log about a license


class Kept(NamedTuple):
    """What a source would set otherwise, and the line of the audit log about the change."""

    text: str
    by: Entry | None


class SaleService:
    """Processes deliveries, each in short transactions that can end at any point and be done again."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list_kept(self, license_: IssuedLicense) -> list[Kept]:
        """Return what the source of a license would change, had a person not changed it by hand."""
        sales, subscription_id = self._context.repositories.sales, license_.subscription_id
        found, kept = sales.find_sold(license_.id), list[Kept]()
        if found is not None and found.applied is not None:
            values = _load_applied(found.applied).kept
            lines = self._list_changes(audit_object(license_)) if values else []
            for name, value in values.items():
                if name == REVOKED:
                    line = _find_line(lines, lambda one: one.action == "license.reinstate")
                    kept.append(Kept(f"revoked: {value}", line))
                else:
                    text = f"{name.replace('_', ' ')}: {'none' if value is None else value}"
                    kept.append(Kept(text, _find_line(lines, partial(_changes, name))))
        if subscription_id is not None:
            ends = sales.list_applied_ends(subscription_id)
            if ends and license_.subscription_ended_at not in ends:
                line = _find_line(self._list_changes(("subscription", subscription_id)), lambda _: True)
                kept += [Kept(f"end of the subscription: {one:%Y-%m-%d %H:%M} UTC", line) for one in ends]
        return kept

    def _list_changes(self, object_: tuple[str, str]) -> list[Entry]:
        """Return the changes of an object by persons, the newest first."""
        lines = self._context.repositories.audit.list_page(AuditFilter(object=object_), None, _MAX_LINES)
        return [one for one in lines if one.actor.kind is not ActorKind.SYSTEM]

    def find_fetches(
        self, event_id: int, fetched: Sequence[Fact] = ()
    ) -> tuple[ShopKind, str, str | None, bool, tuple[Fetch, ...]] | None:
        """Return what to ask the shop's API for; None if nothing is missing, or no key is configured.

        Args:
            event_id: Of a delivery.
            fetched: What was fetched for it already.

        Returns:
            The shop, the key of its API, the address of that if it is the shop's own, whether it is the test
            mode, and what is missing.
        """
        sales = self._context.repositories.sales
        source = sales.find_source_of(event_id)
        key = "" if source is None else find_key(source, self._context.settings)
        event = sales.find_event(event_id) if key else None
        if source is None or event is None or event.state != WAITING:
            return None
        with self._context.transaction() as tx:
            locked = tx.repositories.sales.find_source(source.name, locked=True)
            if locked is None:
                return None
            worker, facts = SaleWorker(tx, locked, Report()), [*load_content(event), *fetched]
            worker.store(facts)
            fetches = worker.find_fetches(
                {*_load_objects(event), *(x for one in facts for x in links_of(one))}
            )
        shop = SHOPS[source.kind]
        wanted = tuple(one for one in fetches if shop.fetch_path(one) is not None)
        return (source.kind, key, source.url, source.is_test, wanted) if wanted else None

    def process(self, event_id: int, fetched: Sequence[Fact] = (), job: Job | None = None) -> bool:
        """Do what a delivery asks for; nothing if that was done before.

        Args:
            event_id: The delivery's.
            fetched: What the shop's API has reported of it.
            job: Finished in the same transaction.

        Returns:
            Whether the job was finished.

        Raises:
            BuryJobError: a person has to do something first; what could be done is done.
        """
        problem: str | None = None
        report = Report()
        try:
            while problem is None:
                with self._context.transaction() as tx:
                    problem = _apply_delivery(tx, event_id, fetched or (), report)
                    if job is not None and problem == "":
                        tx.repositories.queue.finish(job, tx.now())
        except InvalidInputError as wrong:  # rolled back; the same would fail again
            problem = str(wrong)[:MAX_REASON]
            self._context.repositories.sales.set_event(event_id, DEAD, problem, self._context.now())
        if problem:
            raise BuryJobError(problem)
        return job is not None


def find_key(source: Source, settings: Settings) -> str:
    """Return the key of a shop's API; empty if none is configured, or only one of the other mode."""
    if source.key_env is not None:
        return os.environ.get(source.key_env, "").strip()
    if source.kind is ShopKind.PADDLE and settings.paddle_api_key is not None:
        key = settings.paddle_api_key.get_secret_value()
        return key if paddle.is_sandbox(key) is source.is_test else ""
    return ""


def load_content(event: StoredEvent) -> list[Fact]:
    """Return the facts of a delivery."""
    content = json.loads(event.content or "[]")
    if isinstance(content, list):  # of before facts were stored
        return earlier.read_events(event.content or "[]")
    emails = content.get("emails", {})
    return [load_fact(one, emails.get(str(place))) for place, one in enumerate(content["facts"])]


def _load_objects(event: StoredEvent) -> list[str]:
    content = json.loads(event.content or "{}")
    return content.get("objects", []) if isinstance(content, dict) else []


def dump_content(facts: Sequence[Fact], objects: Sequence[str] = ()) -> str:
    """Return the facts of a delivery, or objects whose contract is to be looked at, as they are stored."""
    emails = {
        str(place): one.email
        for place, one in enumerate(facts)
        if isinstance(one, Contact) and one.email is not None
    }
    content = {"facts": [*map(dump_fact, facts)], **({"emails": emails} if emails else {})}
    content |= {"objects": objects} if objects else {}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


class Report:
    """What was done for a delivery, in one transaction after the other."""

    def __init__(self) -> None:
        self._issued = Counter[str]()
        self._lines = dict[str, None]()

    def add_issued(self, slug: str, count: int) -> None:
        """Add licenses that were issued."""
        self._issued[slug] += count

    def add(self, line: str) -> None:
        """Add what was done otherwise, each sentence once."""
        self._lines[line] = None

    def __str__(self) -> str:
        issued = [
            f"issued {count} {plural(count, 'license')} of {slug}" for slug, count in self._issued.items()
        ]
        return ("; ".join([*issued, *self._lines]) or "nothing to change")[:MAX_REASON]


def _apply_delivery(tx: Context, event_id: int, fetched: Sequence[Fact], report: Report) -> str | None:
    """Do a part; return None if more is to be done, else what a person has to do, or nothing."""
    sales = tx.repositories.sales
    source = sales.find_source_of(event_id, locked=True)
    event = sales.find_event(event_id)  # after the lock: another process may have done it meanwhile
    if source is None or event is None or event.content is None or event.state != WAITING:
        return ""
    actor = Actor(ActorKind.SYSTEM, f"source {source.name}")
    worker = SaleWorker(tx.acting_as(actor), source, report)
    facts = [*load_content(event), *fetched]
    worker.store(facts)
    if not worker.reconcile({*_load_objects(event), *(link for one in facts for link in links_of(one))}):
        return None
    problem = worker.problem()
    state, reason = (DEAD, problem) if problem else (DONE, str(report))
    sales.set_event(event_id, state, reason, tx.now())
    if not problem:
        worker.revive_dead()
    return problem


class _Contract(NamedTuple):
    """What is known of what belongs together, and what follows from it."""

    objects: set[str]
    sold: dict[bytes, SoldLicense]
    licenses: dict[bytes, IssuedLicense]
    applied: dict[bytes, Applied]  # what the source has set of a license last, if that is stored
    subscriptions: dict[str, SubscriptionRow]
    earlier_revocations: dict[str, str | None]
    problems: Sequence[Problem]
    result: Desired


class _Changes(NamedTuple):
    """Changes of licenses that are written together, by their ids."""

    revoke: dict[str, list[bytes]]  # by reason
    reinstate: dict[str | None, list[bytes]]  # by the reason of the revocation
    sold: dict[bytes, dict[str, Any]]  # what to store of the sale


class SaleWorker:
    """Brings contracts to what they should be, within a transaction that holds the lock of their source."""

    def __init__(self, tx: Context, source: Source, report: Report) -> None:
        self._report = report
        self._tx, self._source, self._sales = tx, source, tx.repositories.sales
        self._licenses, self._subscriptions = LicenseService(tx), SubscriptionService(tx)
        self._rules = Rules(
            grace=timedelta(days=source.grace_days),
            revokes_partial_refunds=source.revokes_partial_refunds,
            follows_changes=source.changes == FOLLOW,
            states={name: OrderState(state) for name, state in source.states.items()},
        )
        self._problems: list[str] = []
        self._objects: set[str] = set()
        self._rows: dict[tuple[str, str], FactRow] = {}  # what was read or written of facts
        self._had_problems = False

    def problem(self) -> str:
        """Return what a person has to do; empty if all is done."""
        return "; ".join(self._problems)[:MAX_REASON]

    def store(self, facts: Iterable[Fact]) -> None:
        """Store facts that are newer than what is stored of the same objects."""
        newest = dict[tuple[str, str], Fact]()
        for fact in facts:
            known = newest.get(key_of(fact))
            newest[key_of(fact)] = fact if known is None or is_newer(known, fact) else known
        self._rows |= {(row.kind, row.id): row for row in self._sales.find_facts(self._source.name, newest)}
        new = [
            (_make_fact_row(fact), links_of(fact))
            for key, fact in newest.items()
            if (row := self._rows.get(key)) is None or is_newer(_load(row), fact)
        ]
        self._sales.put_facts(self._source.name, self._tx.now(), new)
        self._rows |= {(row.kind, row.id): row for row, _ in new}

    def reconcile(self, objects: Iterable[str]) -> bool:
        """Make the licenses of a contract what they should be; return False if that was a part of it.

        Args:
            objects: Some of the contract's, as `kind:id`.
        """
        contract = self._load(objects)
        name, self._objects, result = self._source.name, contract.objects, contract.result
        self._had_problems = bool(contract.problems)
        for one in sorted({*result.ends, *(one.subscription_id or "" for one in result.licenses)} - {""}):
            self._tx.repositories.subscriptions.lock(one)  # before licenses, as everywhere
        missing = [one for one in result.licenses if one.license_id is None and not one.revoked and one.terms]
        is_part = len(missing) > ISSUE_BATCH
        new = self._issue(missing[:ISSUE_BATCH], contract, is_mail_due=is_part)
        if is_part:
            return False
        if not self._change_all(contract):
            return False
        self._end_subscriptions(contract)
        attention = [one for one in result.attention if not self._is_endless(one)]
        self._problems += ProblemService(self._tx).update(
            self._source, contract.objects, attention, contract.problems
        )
        if not (contract.licenses or new):
            _describe_nothing(contract.objects, self._report)
        if due := [id_ for id_, one in contract.sold.items() if one.mail_due]:
            self._sales.clear_mail_due(name, due)
        MailService(self._tx).send_issued([*(contract.licenses[one] for one in due), *new])
        return True

    def find_fetches(self, objects: Iterable[str]) -> tuple[Fetch, ...]:
        """Return what is not known of a contract, and the shop's API may know."""
        return self._load(objects).result.fetches

    def _load(self, objects: Iterable[str]) -> _Contract:
        name, sales = self._source.name, self._sales
        rows, found = sales.load_contract(name, set(objects), self._rows)
        facts = [*map(_load, rows)]
        orders, subscriptions = _split(found)
        before = sales.find_earlier_orders(name, orders, subscriptions)
        subscriptions |= {one.subscription_id for one in before if one.subscription_id}
        orders |= {one.order_id for one in before}
        found |= _join(orders, subscriptions)
        known = sales.find_subscriptions(name, subscriptions) if subscriptions else []
        ends = {one.subscription_id: one for one in known}
        facts += _find_earlier(facts, before, ends.values())
        is_named_so = self._source.kind is ShopKind.STRIPE  # an order was named by its subscription
        sold = {
            one.license_id: one
            for one in sales.list_sold(name, found, orders | (subscriptions if is_named_so else set()))
        }
        by_hand = sales.list_subscribed(subscriptions, sold) if subscriptions else []
        ids = [*sold, *by_hand]
        licenses = {one.id: one for one in (self._tx.repositories.licenses.find_all(ids) if ids else [])}
        applied = {id_: _load_applied(one.applied) for id_, one in sold.items() if one.applied is not None}
        issued = [_read_issued(sold.get(id_), one, applied.get(id_)) for id_, one in licenses.items()]
        problems = sales.list_problems(name, found)
        answers = {one.name: Answer(one.answer) for one in problems if one.answer is not None}
        mappings = {one.external_id: one for one in sales.list_mappings(name)}
        result = desired(facts, mappings, self._rules, issued, answers)
        revocations = {one.order_id: _find_earlier_revocation(one, self._rules) for one in before}
        return _Contract(found, sold, licenses, applied, ends, revocations, problems, result)

    def _issue(
        self, missing: Sequence[DesiredLicense], contract: _Contract, *, is_mail_due: bool
    ) -> list[IssuedLicense]:
        """Issue licenses, those of one product together; return them.

        With `is_mail_due` their keys are mailed with those that follow.
        """
        new = dict[str, list[tuple[IssuedLicense, DesiredLicense]]]()
        address, language = _find_customer(contract)
        slugs = {one.terms.product for one in missing if one.terms is not None}
        products = {slug: find_product(self._tx, slug) for slug in sorted(slugs)}
        for wanted in missing:
            if wanted.terms is not None:
                product, order = products[wanted.terms.product], _find_object(wanted)
                terms = LicenseTerms(
                    **_read_terms(wanted.terms),
                    subscription_id=wanted.subscription_id,
                    # A mistyped address must not prevent the license.
                    customer_email=find_email(wanted.email) or address,
                    customer_language=wanted.language or language,
                    note=f"Order {order.partition(':')[2]} ({self._source.name})",
                )
                valid = validate_terms(terms, self._tx.settings.ipv6_prefix)
                made = self._licenses.prepare(product, valid, generate_license_key(), self._tx.now())
                new.setdefault(product.slug, []).append((made, wanted))
        for slug, pairs in new.items():
            add_licenses(self._tx, [made for made, _ in pairs], slug)
            rows = [_make_row(*pair) | {"mail_due": is_mail_due} for pair in pairs]
            self._sales.add_sold(self._source.name, rows)
            self._report.add_issued(slug, len(pairs))
        return [made for pairs in new.values() for made, _ in pairs]

    def _change_all(self, contract: _Contract) -> bool:
        """Change licenses to what they should be, together; return False if some are left."""
        changes = _Changes(defaultdict(list), defaultdict(list), {})
        left = CHANGE_BATCH
        for wanted in contract.result.licenses:
            if wanted.license_id is not None and left > 0:
                left -= self._change(wanted, contract, changes)
        for reason, ids in changes.revoke.items():
            revoke_licenses(self._tx, self._lock(ids, is_revoked=False), reason)
            self._report.add(f"revoked: {reason}")
        for ids in changes.reinstate.values():
            reinstate_licenses(self._tx, self._lock(ids, is_revoked=True))
            self._report.add("reinstated")
        if changes.sold:
            self._sales.change_sold(self._source.name, changes.sold)
        return left > 0

    def _lock(self, ids: Sequence[bytes], *, is_revoked: bool) -> list[IssuedLicense]:
        found = self._tx.repositories.licenses.find_all(ids, locked=True)
        return [one for one in found if (one.revoked_at is not None) is is_revoked]

    def _change(self, wanted: DesiredLicense, contract: _Contract, changes: _Changes) -> int:
        """Change the terms of a license, and note its other changes; return what that costs of a batch."""
        license_ = contract.licenses[wanted.license_id or b""]
        sold, id_ = contract.sold.get(license_.id), license_.id
        actual = Actual(_read_terms(license_), license_.revoked_at is not None, license_.revoked_reason)
        applied = self._read_applied(sold, actual, license_, contract)
        has_end = wanted.ends_at is not None and sold is not None
        terms = None if wanted.terms is None else _read_terms(wanted.terms)
        change = find_change(Wanted(wanted.item, terms, has_end, wanted.revoked), actual, applied)
        cost = 0
        if wanted.subscription_id is not None and license_.subscription_id is None:
            self._subscriptions.link([id_], wanted.subscription_id)
            cost += _TERMS_COST
        if change.terms:
            self._licenses.change(id_.hex(), **change.terms)
            self._report.add(_describe_terms(change))
            cost += _TERMS_COST
        if change.revoke is not None:
            changes.revoke[change.revoke].append(id_)
            cost += 1
        if change.reinstate:
            changes.reinstate[actual.reason].append(id_)
            cost += 1
        if sold is not None:
            values = _find_stored(wanted, sold)
            if change.applied != contract.applied.get(id_):
                values["applied"] = _dump_applied(change.applied)
            if values:
                changes.sold[id_] = values
        return cost

    def _read_applied(
        self, sold: SoldLicense | None, actual: Actual, license_: IssuedLicense, contract: _Contract
    ) -> Applied:
        if license_.id in contract.applied:
            return contract.applied[license_.id]
        is_chosen = actual.terms["expires_on"] is not None and self._is_end_chosen(license_)
        revoked = None if sold is None else contract.earlier_revocations.get(sold.order_id)
        return assume_applied(actual, revoked, is_end_chosen=is_chosen)

    def _is_end_chosen(self, license_: IssuedLicense) -> bool:
        """Return whether a person has changed the day on which a license ends."""
        of_license = AuditFilter(object=audit_object(license_))
        lines = self._tx.repositories.audit.list_page(of_license, None, _MAX_LINES)
        return any(_changes("expires_on", one) for one in lines if one.actor.kind is not ActorKind.SYSTEM)

    def _end_subscriptions(self, contract: _Contract) -> None:
        """Let the licenses of subscriptions end with them, also those that a person has issued for one."""
        for id_, end in sorted(contract.result.ends.items()):
            known = contract.subscriptions.get(id_)
            linked = self._tx.repositories.subscriptions.find(id_)
            actual = None if linked is None else linked.ended_at
            before, is_applied = (
                None if known is None else known.applied_end,
                known is not None and known.is_applied,
            )
            change = find_end(end.at, actual, before, is_applied=is_applied and linked is not None)
            if change.sets is not None:
                if self._subscriptions.follow(id_, change.sets):
                    self._report.add(f"the subscription ends {change.sets:%Y-%m-%d %H:%M} UTC if not renewed")
            elif change.kept:
                self._report.add("the end of the subscription was changed by hand, and stays")
            row = (known or SubscriptionRow(id_))._replace(
                cancels_at=end.at if end.is_final else None,
                applied_end=end.at if linked is not None else before,
                is_applied=is_applied or linked is not None,
            )
            if row != known:
                self._sales.put_subscription(self._source.name, row)

    def _is_endless(self, attention: Attention) -> bool:
        """Return whether a subscription that was paid for an unknown time has licenses without an end."""
        id_ = attention.about.partition(":")[2]
        if attention.kind is not AttentionKind.PERIOD:
            return False
        linked = self._tx.repositories.subscriptions.find(id_)
        if linked is None or linked.ended_at is not None:
            return False
        self._report.add(f"subscription {id_} was paid, whose licenses have no end")
        return True

    def revive_dead(self) -> None:
        """Let deliveries of the contract that waited for a person be done: nothing is left to do."""
        if not self._had_problems:
            return
        now, queue = self._tx.now(), self._tx.repositories.queue
        for event in self._sales.list_dead(self._source.name, self._objects):
            self._sales.set_event(event.id, WAITING, None, None)
            job = self._sales.find_job(event)
            if job is None:  # swept
                queue.add(QUEUE, event.job_key, {"event": event.id}, now)
            else:
                queue.revive(QUEUE, [job], now)


def _make_fact_row(fact: Fact) -> FactRow:
    email = fact.email if isinstance(fact, Contact) else None
    return FactRow(*key_of(fact), fact.reported_at, dump_fact(fact), email)


def _load(row: FactRow) -> Fact:
    return load_fact(row.content, row.customer_email)


def _split(objects: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the ids of orders and of subscriptions among objects."""
    found: dict[str, set[str]] = {"order": set(), "subscription": set()}
    for one in objects:
        kind, _, id_ = one.partition(":")
        found[kind].add(id_)
    return found["order"], found["subscription"]


def _join(orders: Iterable[str], subscriptions: Iterable[str]) -> set[str]:
    return {*(f"order:{one}" for one in orders), *(f"subscription:{one}" for one in subscriptions)}


def _find_earlier(
    facts: Sequence[Fact], orders: Iterable[EarlierOrder], subscriptions: Iterable[SubscriptionRow]
) -> list[Fact]:
    """Return what was known before facts were stored, but for what the shop has reported since."""
    found = [fact for one in orders for fact in earlier.read_order(*one)]
    for row in subscriptions:
        values = row._asdict()
        id_ = values.pop("subscription_id")
        found += earlier.read_subscription(id_, **{name: values[name] for name in EARLIER_FIELDS})
    known = {key_of(one) for one in facts}
    reported = {
        (type(one), link) for one in facts if isinstance(one, Refund | Dispute) for link in links_of(one)
    }
    return [
        fact
        for fact in found
        if key_of(fact) not in known and not any((type(fact), link) in reported for link in links_of(fact))
    ]


def _find_earlier_revocation(order: EarlierOrder, rules: Rules) -> str | None:
    """Return why the licenses of an order were to be revoked before facts were stored."""
    return earlier.find_revocation(order.refund, order.dispute, is_any=rules.revokes_partial_refunds)


def _read_issued(sold: SoldLicense | None, license_: IssuedLicense, applied: Applied | None) -> Issued:
    """Return a license that a source has issued, or a person for its subscription."""
    subscription_id, in_use = license_.subscription_id, license_.slots_used
    revoked = None if license_.revoked_at is None else license_.revoked_reason
    if sold is None:
        by_hand = Issued(license_.id, license_.product_slug, subscription_id=subscription_id)
        return by_hand._replace(in_use=in_use, revoked=revoked)
    item = None if applied is None else applied.item
    return Issued(
        license_.id,
        license_.product_slug,
        key=sold.thing,
        number=sold.number if sold.place is None else sold.place,
        item=item or (sold.item if sold.thing is None else None),
        order_id=sold.order_id or None,
        line_id=sold.line_id,
        subscription_id=subscription_id,
        in_use=in_use,
        revoked=revoked,
    )


def _find_object(wanted: DesiredLicense) -> str:
    """Return the object of the shop that a license belongs to."""
    return f"subscription:{wanted.subscription_id}" if wanted.order_id is None else f"order:{wanted.order_id}"


def _find_stored(wanted: DesiredLicense, sold: SoldLicense) -> dict[str, Any]:
    """Return what has to be stored of what a license was sold for."""
    values = dict[str, Any]()
    if wanted.key and not (wanted.key.startswith(EARLIER) or earlier.has_earlier_line(wanted.key)):
        object_ = sold.object or _find_object(wanted)
        values = {"thing": wanted.key, "place": wanted.number, "object": object_}
    return {name: value for name, value in values.items() if value != getattr(sold, name)}


def _read_terms(found: LicenseTerms | Terms) -> dict[str, Any]:
    return {name: getattr(found, name) for name in TERMS}


def _describe_nothing(objects: Iterable[str], report: Report) -> None:
    for order in sorted(_split(objects)[0])[:1]:
        report.add(f"no license of order {order}: its purchase has not arrived, or issues none")


def _find_customer(contract: _Contract) -> tuple[str | None, str | None]:
    """Return address and language of the customer, as other licenses of the contract have them."""
    licenses = contract.licenses.values()
    return (
        next((one.customer_email for one in licenses if one.customer_email), None),
        next((one.customer_language for one in licenses if one.customer_language), None),
    )


def _make_row(made: IssuedLicense, wanted: DesiredLicense) -> dict[str, Any]:
    is_known = not earlier.has_earlier_line(wanted.key or "")
    return {
        "order_id": wanted.order_id or "",
        "item": wanted.key if is_known else wanted.item,
        "number": wanted.number if is_known else None,  # after those of before
        "thing": wanted.key if is_known else None,
        "place": wanted.number if is_known else None,
        "object": _find_object(wanted) if is_known else None,
        "license_id": made.id,
        "applied": _dump_applied(Applied(item=wanted.item, terms=_read_terms(made))),
    }


def _changes(term: str, line: Entry) -> bool:
    return term in line.details


def _find_line(lines: Iterable[Entry], matches: Callable[[Entry], bool]) -> Entry | None:
    return next(filter(matches, lines), None)


def _describe_terms(change: Change) -> str:
    if change.terms == {"expires_on": None}:
        return "the license no longer ends by --expires-in"
    return f"changed {', '.join(name.replace('_', ' ') for name in change.terms)}"


def _dump_applied(applied: Applied) -> str:
    values = {one.name: value for one in fields(applied) if (value := getattr(applied, one.name))}
    return json.dumps(values, default=date.isoformat, sort_keys=True)


def _load_applied(stored: str) -> Applied:
    values = json.loads(stored)
    for terms in (values.get("terms", {}), values.get("kept", {})):
        for name in _DATES & terms.keys():
            terms[name] = None if terms[name] is None else date.fromisoformat(terms[name])
    return Applied(**values)


_DATES: Final = {"expires_on", "support_until"}
EARLIER_FIELDS: Final = (
    "paid_through",
    "end_reported_at",
    "ended_at",
    "purchased_at",
    "change_reported_at",
    "cancels_at",
    "period",
)
