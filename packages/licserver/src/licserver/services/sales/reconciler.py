"""Bring contracts to what they should be: issue, change, revoke, reinstate and end licenses."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from licserver.database.repositories.sales import (
    QUEUE,
    WAITING,
    FactRow,
    SoldLicense,
    Source,
    SubscriptionRow,
)
from licserver.domain.decisions import generate_license_key
from licserver.domain.mail_addresses import can_be_mailed
from licserver.domain.records import IssuedLicense, LicenseTerms
from licserver.domain.text import plural
from licserver.services.context import Context
from licserver.services.license_terms import validate_terms
from licserver.services.licenses import LicenseService, add_licenses, reinstate_licenses, revoke_licenses
from licserver.services.mail import MailService
from licserver.services.manual_changes import is_changed_by_hand
from licserver.services.personal_data import PersonalDataService
from licserver.services.products import find_product
from licserver.services.sales.contract_loader import Contract, LargeContractError, load_contract, make_rules
from licserver.services.sales.plans import LargePlan, read_basis
from licserver.services.sales.problems import ProblemService
from licserver.services.sales.rows import (
    dump_applied,
    find_object,
    find_stored,
    load_fact_row,
    make_fact_row,
    make_sold_row,
    read_terms,
    split_objects,
)
from licserver.services.subscriptions import SubscriptionService
from licserver.services.validation import find_email
from licserver.shops.changes import (
    ActualState,
    Applied,
    Change,
    DesiredState,
    assume_applied,
    find_change,
    find_end,
)
from licserver.shops.contract import MAX_REFUNDS, DesiredLicense, End, Fetch, ProblemKind, SaleProblem
from licserver.shops.facts import Dispute, Fact, Refund, is_newer, key_of, links_of

MAX_PROBLEM_CHARS: Final = 500  # characters
ISSUE_BATCH: Final = 150
"""Licenses issued in one transaction: 0.1 s, in which no other transaction can write."""

CHANGE_BATCH: Final = 100
"""Licenses revoked or reinstated in one transaction; a change of terms counts as `_TERMS_COST` of them."""

MOST_LOCKED: Final = 500
"""Licenses of a contract that are loaded within a transaction: 0.1 s; more of them are loaded before it."""

_TERMS_COST: Final = 5  # it is written for each license by itself
_ADDRESS: Final = "address:"  # begins the names of questions about an address
_UNUSABLE: Final = (
    "the customer's address cannot be used, and nothing is mailed; give its license the right one and send "
    "the key, or leave it"
)
_NOBODY: Final = "nobody has a license of it: all were revoked by hand, or their customer was erased"
_NO_ADDRESS: Final = (
    "the shop has reported no address of the customer, so nobody is mailed the key; give its license the "
    "address and send the key, or leave it"
)


class Report:
    """The report of the work for a delivery, in one transaction after the other."""

    def __init__(self) -> None:
        self._issued, self._revoked = Counter[str](), Counter[str]()
        self._reinstated = 0
        self._lines = dict[str, None]()
        self._notes = dict[str, None]()

    def add_issued(self, slug: str, count: int) -> None:
        """Add licenses that were issued."""
        self._issued[slug] += count

    def set_issued(self, issued: Counter[str]) -> None:
        """Set how many licenses were issued, also before a part of it was reported."""
        self._issued |= issued

    def add_revoked(self, reason: str, count: int) -> None:
        """Add licenses that were revoked for a reason."""
        self._revoked[reason] += count

    def add_reinstated(self, count: int) -> None:
        """Add licenses that were reinstated."""
        self._reinstated += count

    def add(self, line: str) -> None:
        """Add what was done otherwise, each sentence once."""
        self._lines[line] = None

    def note(self, *sentences: str) -> None:
        """Add what has changed nothing, for a delivery that changes nothing else."""
        self._notes.update(dict.fromkeys(sentences))

    def __str__(self) -> str:
        issued = [
            f"issued {count} {plural(count, 'license')} of {slug}" for slug, count in self._issued.items()
        ]
        revoked = [
            f"revoked {count} {plural(count, 'license')}: {reason}" for reason, count in self._revoked.items()
        ]
        count = self._reinstated
        reinstated = [f"reinstated {count} {plural(count, 'license')}"] if count else []
        changes = [*issued, *revoked, *reinstated, *self._lines]
        return ("; ".join(changes or self._notes) or "nothing to change")[:MAX_PROBLEM_CHARS]


class _Comparison(NamedTuple):
    """The difference between a license and its desired state."""

    is_linked: bool  # to its subscription, from now on
    change: Change
    stored: dict[str, Any]  # of the sale
    customer: dict[str, Any]  # the address and the language that the license lacks

    @property
    def is_equal(self) -> bool:
        """Whether there is nothing to do."""
        change = self.change
        is_kept = not (self.is_linked or change.terms or change.reinstate or self.stored or self.customer)
        return is_kept and change.revoked_reason is None


class _Changes(NamedTuple):
    """Changes of licenses that are written together, by their ids."""

    revoke: dict[str, list[bytes]]  # by reason
    reinstate: dict[str | None, list[bytes]]  # by the reason of the revocation
    sold: dict[bytes, dict[str, Any]]  # what to store of the sale


class SaleReconciler:
    """Brings contracts to what they should be, within a transaction that holds the lock of their source."""

    def __init__(self, tx: Context, source: Source, report: Report) -> None:
        self._report = report
        self._tx, self._source, self._sales = tx, source, tx.repositories.sales
        self._licenses, self._subscriptions = LicenseService(tx), SubscriptionService(tx)
        self._messages: list[str] = []
        self._objects: set[str] = set()
        self._rows: dict[tuple[str, str], FactRow] = {}  # what was read or written of facts
        self._had_problems = False
        self._erased: dict[str, bool] = {}

    def problem(self) -> str:
        """Return what a person has to do; empty if all is done."""
        return "; ".join(self._messages)[:MAX_PROBLEM_CHARS]

    def store(self, facts: Iterable[Fact]) -> None:
        """Store facts that are newer than what is stored of the same objects."""
        newest = dict[tuple[str, str], Fact]()
        for fact in facts:
            earlier = newest.get(key_of(fact))
            newest[key_of(fact)] = fact if earlier is None or is_newer(earlier, fact) else earlier
        self._rows |= {(row.kind, row.id): row for row in self._sales.find_facts(self._source.name, newest)}
        new = [
            (make_fact_row(fact), links_of(fact))
            for key, fact in self._drop_excess(newest).items()
            if (row := self._rows.get(key)) is None or is_newer(load_fact_row(row), fact)
        ]
        self._sales.put_facts(self._source.name, self._tx.now(), new)
        self._rows |= {(row.kind, row.id): row for row, _ in new}

    def _drop_excess(self, facts: dict[tuple[str, str], Fact]) -> dict[tuple[str, str], Fact]:
        """Drop new refunds and disputes of orders that have many; `desired` asks a person about these."""
        unknown = {key: fact for key, fact in facts.items() if key not in self._rows}
        refunds = {key: fact for key, fact in unknown.items() if isinstance(fact, Refund | Dispute)}
        if not refunds:
            return facts
        objects = {link for fact in refunds.values() for link in links_of(fact)}
        counts = self._sales.count_refunds(self._source.name, objects)
        for key, fact in refunds.items():
            counts.update(links_of(fact))
            if any(counts[link] > MAX_REFUNDS for link in links_of(fact)):
                del facts[key]
        return facts

    def plan(self, objects: Iterable[str]) -> LargePlan:
        """Find what is to be done for a contract, outside of a transaction."""
        basis = read_basis(self._tx.repositories, self._source, objects)  # before: what changes then is seen
        contract = self._load(objects)
        changed = [
            desired
            for desired in contract.result.licenses
            if desired.license_id is not None and not self._compare(desired, contract).is_equal
        ]
        return LargePlan(basis, contract, _find_missing(contract), changed)

    def reconcile(self, objects: Iterable[str], plan: LargePlan | None = None) -> bool:
        """Make the licenses of a contract what they should be; return False if that was a part of it.

        Args:
            objects: Some of the contract's, as `kind:id`.
            plan: What is to be done; a contract of more than `MOST_LOCKED` licenses needs one.
        """
        try:
            contract = self._load(objects, MOST_LOCKED) if plan is None else plan.contract
        except LargeContractError:
            return False
        name, self._objects, result = self._source.name, contract.objects, contract.result
        self._had_problems = bool(contract.problems)
        for subscription_id in sorted(
            {*result.ends, *(license_.subscription_id or "" for license_ in result.licenses)} - {""}
        ):
            self._tx.repositories.subscriptions.lock(subscription_id)  # before licenses, as everywhere
        missing = _find_missing(contract) if plan is None else plan.take_missing(ISSUE_BATCH)
        is_part = len(missing) > ISSUE_BATCH or (plan is not None and bool(missing))
        new = self._issue(missing[:ISSUE_BATCH], contract, is_mail_due=is_part)
        if is_part:
            return False
        if plan is not None:
            self._load_again(plan)
        existing = [license_ for license_ in result.licenses if license_.license_id is not None]
        if not self._change_all(contract, existing if plan is None else plan.changed):
            return False
        self._end_subscriptions(contract)
        problems = [problem for problem in result.problems if not self._is_endless(problem, contract)]
        # Last, and not among those for which the delivery is dead: all that it reports is done.
        asked = [*problems, *self._ask_for_addresses(contract, new)]
        messages = ProblemService(self._tx).update(name, contract.objects, asked, contract.problems)
        self._messages += messages[: len(problems)]
        self._report.note(*result.notes)
        if not new and _are_all_revoked_by_hand(contract):
            self._report.add(_NOBODY)
        if not (contract.licenses or new):
            _describe_nothing(contract, self._report)
        if due := [id_ for id_, sale in contract.sold.items() if sale.mail_due]:
            self._sales.clear_mail_due(name, due)
            issued = (id_ for id_ in due if id_ not in contract.addressed)
            self._report.set_issued(Counter(contract.sold[id_].product for id_ in issued))
        MailService(self._tx).send_issued([*(contract.licenses[license_id] for license_id in due), *new])
        return True

    def find_fetches(self, objects: Iterable[str]) -> tuple[Fetch, ...]:
        """Return what is not known of a contract, and the shop's API may know."""
        return self._load(objects).result.fetches

    def _load(self, objects: Iterable[str], limit: int | None = None) -> Contract:
        return load_contract(self._tx.repositories, self._source, objects, self._rows, limit)

    def _issue(
        self, missing: Sequence[DesiredLicense], contract: Contract, *, is_mail_due: bool
    ) -> list[IssuedLicense]:
        """Issue licenses, those of one product together; return them.

        With `is_mail_due` their keys are mailed with those that follow.
        """
        new = dict[str, list[tuple[IssuedLicense, DesiredLicense]]]()
        address, language = contract.find_customer()
        slugs = {desired.terms.product for desired in missing if desired.terms is not None}
        products = {slug: find_product(self._tx, slug) for slug in sorted(slugs)}
        for desired in missing:
            if desired.terms is not None:
                product, order = products[desired.terms.product], find_object(desired)
                email = find_email(desired.email) or address
                if desired.email and email is None:
                    self._report.add("the customer's address cannot be used: nothing is mailed")
                elif email is None and MailService(self._tx).is_on:
                    self._report.add("the customer's address is not in the report: nothing is mailed")
                terms = LicenseTerms(
                    **read_terms(desired.terms),
                    subscription_id=desired.subscription_id,
                    # A mistyped address must not prevent the license.
                    customer_email=email,
                    customer_language=desired.language or language,
                    note=f"Order {order.partition(':')[2]} ({self._source.name})",
                )
                valid = validate_terms(terms, self._tx.settings.ipv6_prefix)
                license_ = self._licenses.prepare(product, valid, generate_license_key(), self._tx.now())
                new.setdefault(product.slug, []).append((license_, desired))
        for slug, pairs in new.items():
            add_licenses(self._tx, [license_ for license_, _ in pairs], slug)
            rows = [make_sold_row(*pair) | {"mail_due": is_mail_due} for pair in pairs]
            self._sales.add_sold(self._source.name, rows)
            self._report.add_issued(slug, len(pairs))
        return [license_ for pairs in new.values() for license_, _ in pairs]

    def _load_again(self, plan: LargePlan) -> None:
        """Lock the next licenses that a plan changes: a person may have changed them since."""
        ids = [license_.license_id or b"" for license_ in plan.changed[:CHANGE_BATCH]]
        again = self._tx.repositories.licenses.find_all(ids, locked=True) if ids else []
        plan.contract.licenses.update({license_.id: license_ for license_ in again})

    def _change_all(self, contract: Contract, licenses: list[DesiredLicense]) -> bool:
        """Change the first of some licenses to what they should be, and remove them from the list.

        Return False if some are left.
        """
        changes = _Changes(defaultdict(list), defaultdict(list), {})
        budget, count = CHANGE_BATCH, 0
        while count < len(licenses) and budget > 0:
            budget -= self._change(licenses[count], contract, changes)
            count += 1
        del licenses[:count]
        for reason, ids in changes.revoke.items():
            revoke_licenses(self._tx, self._lock(ids, is_revoked=False), reason)
            self._report.add_revoked(reason, len(ids))
        for ids in changes.reinstate.values():
            reinstate_licenses(self._tx, self._lock(ids, is_revoked=True))
            self._report.add_reinstated(len(ids))
        if changes.sold:
            self._sales.change_sold(self._source.name, changes.sold)
        return not licenses

    def _lock(self, ids: Sequence[bytes], *, is_revoked: bool) -> list[IssuedLicense]:
        licenses = self._tx.repositories.licenses.find_all(ids, locked=True)
        return [license_ for license_ in licenses if (license_.revoked_at is not None) is is_revoked]

    def _compare(self, desired: DesiredLicense, contract: Contract) -> _Comparison:
        """Return how a license differs from what it should be."""
        license_ = contract.licenses[desired.license_id or b""]
        sold = contract.sold.get(license_.id)
        actual = ActualState(read_terms(license_), license_.revoked_at is not None, license_.revoked_reason)
        applied = self._read_applied(sold, actual, license_, contract)
        has_end = desired.ends_at is not None and sold is not None
        terms = None if desired.terms is None else read_terms(desired.terms)
        change = find_change(
            DesiredState(desired.item, terms, has_end, desired.revoked_reason), actual, applied
        )
        stored = {} if sold is None else find_stored(desired, sold)
        if sold is not None and change.applied != contract.applied.get(license_.id):
            stored["applied"] = dump_applied(change.applied)
        is_linked = desired.subscription_id not in {None, license_.subscription_id}
        customer = {} if sold is None else self._find_customer(desired, license_, contract)
        return _Comparison(is_linked, change, stored, customer)

    def _find_customer(
        self, desired: DesiredLicense, license_: IssuedLicense, contract: Contract
    ) -> dict[str, Any]:
        """Return address and language for a license that was issued without an address.

        Empty if none has arrived, a person has removed it or left the license without one, or it was erased.
        """
        email = find_email(desired.email)
        if email is None or license_.customer_email:
            return {}
        is_left = any(
            problem.answer is not None and problem.name.startswith(_ADDRESS) for problem in contract.problems
        )
        if is_left or self._is_erased(email):
            return {}
        if is_changed_by_hand(self._tx.repositories, license_, "customer_email"):
            return {}
        language = license_.customer_language or desired.language
        return {"customer_email": email, "customer_language": language}

    def _is_erased(self, email: str) -> bool:
        """Return whether an address was erased; licenses of a contract have the same one."""
        if email not in self._erased:
            self._erased[email] = PersonalDataService(self._tx).is_erased(email)
        return self._erased[email]

    def _change(self, desired: DesiredLicense, contract: Contract, changes: _Changes) -> int:
        """Change the terms of a license, and note its other changes; return what that costs of a batch."""
        is_linked, change, stored, customer = self._compare(desired, contract)
        id_, cost = desired.license_id or b"", 0
        if is_linked and desired.subscription_id is not None:
            self._subscriptions.link([id_], desired.subscription_id)
            cost += _TERMS_COST
        if change.terms:
            self._licenses.change(id_.hex(), **change.terms)
            self._report.add(_describe_terms(change))
            cost += _TERMS_COST
        if change.revoked_reason is not None:
            changes.revoke[change.revoked_reason].append(id_)
            cost += 1
        if change.reinstate:
            changes.reinstate[contract.licenses[id_].revoked_reason].append(id_)
            cost += 1
        if customer:
            contract.licenses[id_] = self._licenses.change(id_.hex(), **customer)
            contract.sold[id_] = contract.sold[id_]._replace(mail_due=True)
            contract.addressed.add(id_)
            stored["mail_due"] = True
            self._report.add("added the customer's address")
            cost += _TERMS_COST
        if stored:
            changes.sold[id_] = stored
        return cost or int(bool(stored))

    def _read_applied(
        self, sold: SoldLicense | None, actual: ActualState, license_: IssuedLicense, contract: Contract
    ) -> Applied:
        if license_.id in contract.applied:
            return contract.applied[license_.id]
        is_chosen = actual.terms["expires_on"] is not None and is_changed_by_hand(
            self._tx.repositories, license_, "expires_on"
        )
        desired_reason = None if sold is None else contract.earlier_revocations.get(sold.order_id)
        return assume_applied(actual, desired_reason, is_end_chosen=is_chosen)

    def _end_subscriptions(self, contract: Contract) -> None:
        """Let the licenses of subscriptions end with them, also those that a person has issued for one."""
        for id_, end in sorted(contract.result.ends.items()):
            stored_row = contract.subscriptions.get(id_)
            linked = self._tx.repositories.subscriptions.find(id_)
            actual = None if linked is None else linked.ended_at
            before, is_applied = (
                None if stored_row is None else stored_row.applied_end,
                stored_row is not None and stored_row.is_applied,
            )
            change = find_end(end.at, actual, before, is_applied=is_applied and linked is not None)
            if change.sets is not None:
                if self._subscriptions.follow(id_, change.sets):
                    self._report.add(_describe_end(end, change.sets, self._tx.now()))
            elif change.kept:
                self._report.add("the end of the subscription was changed by hand, and stays")
            row = (stored_row or SubscriptionRow(id_))._replace(
                cancels_at=end.at if end.is_final else None,
                applied_end=end.at if linked is not None else before,
                is_applied=is_applied or linked is not None,
            )
            if row != stored_row:
                self._sales.put_subscription(self._source.name, row)

    def _is_endless(self, problem: SaleProblem, contract: Contract) -> bool:
        """Return whether licenses without an end, for what was paid for an unknown time, are by hand."""
        id_ = problem.about.partition(":")[2]
        if problem.kind is not ProblemKind.PERIOD:
            return False
        linked = self._tx.repositories.subscriptions.find(id_)
        by_hand = [license_ for license_ in contract.licenses.values() if license_.id not in contract.sold]
        is_by_hand = any(license_.subscription_id == id_ for license_ in by_hand)
        if linked is None or linked.ended_at is not None or not is_by_hand:
            return False
        self._report.add(f"subscription {id_} was paid, whose licenses have no end")
        return True

    def _ask_for_addresses(self, contract: Contract, new: Sequence[IssuedLicense]) -> list[SaleProblem]:
        """Ask about customers without a usable address: they have paid, and get no mail with their key.

        A question stays until it is answered or a license has an address. Only new licenses raise one, since
        the address of an erased customer is missing on purpose.
        """
        addresses = {license_.customer_email for license_ in (*contract.licenses.values(), *new)}
        if any(address is not None and can_be_mailed(address) for address in addresses):
            return []
        stored = {problem.name: problem for problem in contract.problems if problem.name.startswith(_ADDRESS)}
        problems = dict[str, SaleProblem]()
        for desired in contract.result.licenses:
            about = find_object(desired)
            name, id_ = about.replace(":", " ", 1), f"{_ADDRESS}{about}"
            problem, is_new = stored.get(id_), _is_new(desired, contract)
            if desired.revoked_reason or (problem is not None and problem.answer is not None):
                continue
            if problem is not None and problem.closed_at is None:
                kind, text = ProblemKind(problem.kind), problem.message
            elif is_new and desired.email:
                kind, text = ProblemKind.ADDRESS, f"{name}: {_UNUSABLE}"
            elif is_new and MailService(self._tx).is_on:
                kind, text = ProblemKind.NO_ADDRESS, f"{name}: {_NO_ADDRESS}"
                if any(fetch.kind == "customer" for fetch in contract.result.fetches):
                    advice = make_rules(self._source).key_advice
                    text += f"; {advice}, so that the shop is asked for the addresses of later sales"
            else:
                continue
            problems[id_] = SaleProblem(id_, kind, text, about)
        return [problems[id_] for id_ in sorted(problems)]

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


def _find_missing(contract: Contract) -> list[DesiredLicense]:
    return [
        license_
        for license_ in contract.result.licenses
        if license_.license_id is None and not license_.revoked_reason and license_.terms
    ]


def _is_new(desired: DesiredLicense, contract: Contract) -> bool:
    """Return whether a license is issued for this delivery, or was in a part of its work before."""
    if desired.license_id is None:
        return desired.terms is not None
    sold = contract.sold.get(desired.license_id)
    return sold is not None and sold.mail_due


def _are_all_revoked_by_hand(contract: Contract) -> bool:
    """Return whether all is revoked of what the shop counts as paid, and the source has not revoked it."""
    ids = {license_.license_id for license_ in contract.result.licenses if not license_.revoked_reason}
    ours = {id_ for id_, applied in contract.applied.items() if applied.revoked_reason is not None}
    is_nobody = all(license_.revoked_at is not None for license_ in contract.licenses.values())
    return bool(ids) and None not in ids and is_nobody and not ids & ours


def _describe_nothing(contract: Contract, report: Report) -> None:
    orders = sorted(split_objects(contract.objects)[0])
    if orders:
        unknown = f"no license of order {orders[0]}: its purchase has not arrived, or issues none"
        report.add(contract.result.nothing or unknown)


def _describe_terms(change: Change) -> str:
    if change.terms == {"expires_on": None}:
        return "the license no longer ends by --expires-in"
    return f"changed {', '.join(name.replace('_', ' ') for name in change.terms)}"


def _describe_end(end: End, at: datetime, now: datetime) -> str:
    verb = "ended" if at <= now else "ends"
    return f"the subscription {verb} {at:%Y-%m-%d %H:%M} UTC" + ("" if end.is_final else " if not renewed")
