"""Problems of sales that need a decision: listed, answered, and reported to the vendor."""

import json
from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import timedelta
from shlex import quote
from typing import Any, Final

from licserver.database.repositories.sales import UNREADABLE_ONLY, Problem, SourceMapping
from licserver.domain.records import TERMS, LicenseTerms
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.protocol.webhooks import EventType
from licserver.services.context import Service
from licserver.services.lists import Page, page_by_id
from licserver.services.mail import MailService
from licserver.services.subscriptions import SubscriptionService
from licserver.services.validation import to_line
from licserver.shops.contract import ISSUABLE, Answer, ProblemKind, SaleProblem
from licserver.shops.facts import CONTACT, Contact, Lines, load_fact
from licserver.shops.periods import add_period

SCAN_SECONDS: Final = 60.0
MAIL_EVERY: Final = timedelta(hours=1)
MAX_NAME: Final = 500
MAX_NAMED: Final = 10  # deliveries that one message names
UNREADABLE: Final = "deliveries:unreadable"
"""The object of the problem that a source has deliveries which could not be read: one for all of them."""
_MAPPED: Final = tuple(field.name for field in fields(SourceMapping) if field.name in {"product", *TERMS})
"""Terms that a mapping has as they are; the others are spans of time."""


def list_answers(problem: Problem) -> list[str]:
    """Return the answers that a person can give; `issued` where a license can be missing."""
    is_issuable = problem.kind in ISSUABLE
    return [*problem.answers.split(), *([Answer.ISSUED.value] if is_issuable else [])]


class ProblemService(Service):
    """Lists, answers and reports problems."""

    def list_open(self, cursor: str | None = None, limit: int = 50) -> Page[Problem]:
        """Return a page of open problems, the latest first."""
        return page_by_id(self._context.repositories.sales.list_open_problems, cursor, limit)

    def count_open(self, limit: int) -> int:
        """Count open problems, up to a limit."""
        return self._context.repositories.sales.count_open_problems(limit)

    def get(self, problem_id: int) -> Problem:
        """Return a problem."""
        problem = self._context.repositories.sales.find_problem(problem_id)
        if problem is None:
            raise NotFoundError(f"there is no problem {problem_id}; `licserver source problems` shows all")
        return problem

    def list_licenses(self, problem: Problem, limit: int) -> list[bytes]:
        """Return the ids of the first licenses that were issued for the object of a problem."""
        sold = self._context.repositories.sales.list_sold(problem.source, {problem.object}, (), limit)
        return [row.license_id for row in sold]

    def find_terms(self, problem: Problem, slug: str | None = None) -> dict[str, Any]:
        """Return what is known of a license that is to be issued by hand for the sale of a problem.

        Args:
            problem: The problem.
            slug: The product, if it is chosen; what is mapped for another one does not apply.

        Returns:
            Fields of `LicenseTerms` by name, and the slug of the mapped product as ``product``.
        """
        kind, _, id_ = problem.object.partition(":")
        email, language = self._find_customer(problem)
        customer = {"customer_email": email, "customer_language": language}
        terms: dict[str, Any] = {name: value for name, value in customer.items() if value is not None}
        if problem.object != UNREADABLE:
            terms["note"] = f"{kind.capitalize()} {id_} ({problem.source})"
        if kind == "subscription":
            terms["subscription_id"] = id_
        mapping = self.find_mapping(problem)
        if mapping is None or slug not in {None, mapping.product}:
            return terms
        terms |= {name: getattr(mapping, name) for name in _MAPPED}
        today = self._context.now().date()
        if mapping.expires_in is not None and kind != "subscription":
            terms["expires_on"] = add_period(today, mapping.expires_in)
        if mapping.support is not None:
            terms["support_until"] = add_period(today, mapping.support)
        return terms

    def check_terms(self, terms: LicenseTerms) -> None:
        """Refuse a license for a sale that would be expired at once: its customer has paid.

        Raises:
            InvalidInputError: Its subscription has ended; the message has the command that extends it.
        """
        id_ = terms.subscription_id
        if id_ is not None and SubscriptionService(self._context).has_ended(id_):
            raise InvalidInputError(
                f"subscription {id_} has ended, so the key would be expired at once; extend it with "
                f"`licserver subscription end {quote(id_)} --at YYYY-MM-DD`, which makes its licenses "
                "valid again, and answer leave"
            )

    def find_quantity(self, problem: Problem) -> int | None:
        """Return how many licenses are missing, if a product is not mapped and its sale has no license yet.

        None if that is not so, or the shop has not reported it: then a person has to know.
        """
        kind, _, id_ = problem.object.partition(":")
        sales, ids = self._context.repositories.sales, {*json.loads(problem.external_ids or "[]")}
        rows, objects = sales.load_contract(problem.source, [problem.object])
        if problem.kind != ProblemKind.UNMAPPED or sales.list_sold(problem.source, objects, ()):
            return None
        facts = [load_fact(row.content, row.customer_email) for row in rows if row.kind == "lines"]
        quantities = [
            line.quantity
            for fact in facts
            if isinstance(fact, Lines) and id_ == (fact.order_id if kind == "order" else fact.subscription_id)
            for line in fact.lines
            if ids.intersection(line.external_ids)
        ]
        reported = [quantity for quantity in quantities if quantity is not None]
        return sum(reported) if reported and len(reported) == len(quantities) else None

    def find_mapping(self, problem: Problem) -> SourceMapping | None:
        """Return the mapping of a problem's purchase, if the mapping issues licenses."""
        ids = json.loads(problem.external_ids or "[]")
        mapped = self._context.repositories.sales.list_mappings(problem.source)
        return next((mapping for mapping in mapped if mapping.external_id in ids and mapping.product), None)

    def _find_customer(self, problem: Problem) -> tuple[str | None, str | None]:
        """Return the customer's address and language, as the shop has reported them last of the sale."""
        rows, _ = self._context.repositories.sales.load_contract(problem.source, [problem.object])
        contacts = [load_fact(row.content, row.customer_email) for row in rows if row.kind == CONTACT]
        latest = sorted(contacts, key=lambda fact: (fact.reported_at, fact.id), reverse=True)
        contact_facts = [fact for fact in latest if isinstance(fact, Contact)]
        return (
            next((contact.email for contact in contact_facts if contact.email), None),
            next((contact.language for contact in contact_facts if contact.language), None),
        )

    def update(
        self,
        source: str,
        objects: Collection[str],
        problems: Sequence[SaleProblem],
        stored: Sequence[Problem],
    ) -> list[str]:
        """Store the problems of a contract, and close those that are solved; return the messages.

        Call it in the transaction of the change; `stored` are its problems so far.
        """
        sales, now = self._context.repositories.sales, self._context.now()
        open_ids = list[int]()
        for problem in problems:
            values = {
                "message": to_line(problem.text),
                "external_ids": json.dumps(problem.external_ids) if problem.external_ids else None,
                "kind": problem.kind.value,
                "answers": " ".join(problem.answers),
            }
            id_, is_new = sales.put_problem(source, problem.about, problem.id[:MAX_NAME], now, **values)
            open_ids.append(id_)
            if is_new:
                data = {"source": source, "object": problem.about, "problem": problem.kind.value}
                self._context.add_events(EventType.SALE_NEEDS_ATTENTION, data)
        if any(problem.closed_at is None and problem.id not in open_ids for problem in stored):
            sales.close_problems(source, objects, open_ids, now)
        return [to_line(problem.text) for problem in problems]

    def update_unreadable(self, source: str) -> None:
        """Store the problem that deliveries cannot be read, or close it if none is left.

        Call it in the transaction that stores such a delivery, or replaces it.
        """
        sales = self._context.repositories.sales
        events = sales.list_events(source, UNREADABLE_ONLY, limit=MAX_NAMED + 1)
        if not events:
            sales.close_problems(source, [UNREADABLE], [], self._context.now())
            return
        text = (
            f"{_describe_unreadable([event.id for event in events])}: {events[0].reason}; correct the sender "
            "and send again what it reports; if this stays, answer leave; see "
            f"`licserver source events {source} --state {UNREADABLE_ONLY}`"
        )
        problem = SaleProblem("unreadable", ProblemKind.DELIVERY, text, UNREADABLE)
        self.update(source, [UNREADABLE], [problem], [])

    def answer(self, problem_id: int, answer: str) -> Problem:
        """Store the answer to a problem; `SourceService.answer` processes the sale again."""
        with self._context.transaction() as tx:
            problem = ProblemService(tx).get(problem_id)
            if answer not in (possible := list_answers(problem)):
                raise InvalidInputError(
                    f"{answer} is no answer to problem {problem_id}; answer {' or '.join(possible)}"
                )
            if answer == Answer.ISSUED and problem.closed_at is not None:
                raise ConflictError(
                    "this sale needs no decision any more: check its licenses before you issue more"
                )
            if problem.closed_at is not None and problem.answer is None:
                raise ConflictError("this needs no answer any more: a later report of the shop has solved it")
            now = tx.now()
            tx.repositories.sales.change_problem(problem_id, answer=Answer(answer).value, closed_at=now)
            about = {"object": problem.object, "problem": problem.kind, "answer": answer}
            tx.write_audit("source.answer", ("source", problem.source), **about)
        return problem._replace(answer=answer, closed_at=now)

    def send_mail(self) -> bool:
        """Queue the mail to the vendor about new problems, at most once an hour."""
        with self._context.transaction() as tx:
            count = tx.repositories.sales.take_unmailed(tx.now(), MAIL_EVERY)
            return count > 0 and MailService(tx).send_problems(count)


def _describe_unreadable(ids: Sequence[int]) -> str:
    """Return a sentence that names deliveries by their ids, the latest first; its end is about that."""
    last, *earlier = ids
    if not earlier:
        return f"delivery {last} could not be read, and what it reports is not done"
    names = ", ".join(map(str, reversed(earlier[: MAX_NAMED - 1])))
    count, others = (len(ids), "") if len(ids) <= MAX_NAMED else (f"more than {MAX_NAMED}", "…, ")
    return (
        f"{count} deliveries could not be read ({others}{names} and {last}), and what they report is not "
        f"done; of {last}"
    )
