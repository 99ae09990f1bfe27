"""Sources of sales, what they delivered, the facts in it, and the licenses of what was bought."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Row,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    select,
    tuple_,
    update,
)

from licserver.database.repositories.base import Repository, insert_into, matching, put_into
from licserver.database.tables.events import jobs
from licserver.database.tables.licenses import licenses, products
from licserver.database.tables.sales import (
    UNREADABLE,
    sale_events,
    sale_facts,
    sale_licenses,
    sale_links,
    sale_mappings,
    sale_orders,
    sale_problems,
    sale_sources,
    sale_subscriptions,
)
from licserver.shops import ShopKind

QUEUE: Final = "sale"
"""The queue of deliveries that are to be processed."""

FOLLOW, ASK = CHANGES = ("follow", "ask")
"""The ways to handle a changed plan, price or quantity."""

MAX_CONTRACT: Final = 10_000
"""Facts of a contract that are loaded: thirty years of daily payments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A connection to a shop; its secrets are in environment variables, here are their names."""

    name: str
    kind: ShopKind
    secret_env: str
    is_test: bool
    tolerance: int  # seconds
    grace_days: int
    revokes_partial_refunds: bool
    created_at: datetime
    changes: str = FOLLOW
    states: Mapping[str, str] = field(default_factory=dict)  # the shop's own state → what it means
    renewal_field: str | None = None  # by which an order names the subscription that it renews
    key_env: str | None = None  # the environment variable with the key of the shop's API
    url: str | None = None  # of the API, if the shop has one of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMapping:
    """The license that a product or a price of a shop issues; without a product it issues none."""

    source: str
    external_id: str
    product: str | None
    slots: int | None
    lifetime: bool
    expires_in: str | None
    support: str | None
    plan: str | None = None
    floating_seats: int | None = None
    quantity: int | None = None  # of a purchase, where the shop does not report it


class StoredEvent(NamedTuple):
    """A delivery; `content` is None if it changes nothing or could not be read."""

    id: int
    source: str
    delivery: str
    type: str
    content: str | None
    state: str
    reason: str | None
    received_at: datetime
    finished_at: datetime | None

    @property
    def job_key(self) -> str:
        """The key of its job in the queue."""
        return f"{self.source}:{self.delivery}"


class FactRow(NamedTuple):
    """A stored fact."""

    kind: str
    id: str
    reported_at: datetime
    content: str
    customer_email: str | None


_NO_ROWS: Final[Mapping[tuple[str, str], FactRow]] = MappingProxyType({})


class SoldLicense(NamedTuple):
    """A license that a source has issued; `thing` is None if that is not known (yet).

    Args:
        order_id: Of the order, as it was stored before facts were.
        item: The external id of that time.
        number: Counts those of the item.
        line_id: Of the order's line, where it was stored then.
        thing: What was bought.
        place: Which of several of the same.
        object: To which object of the shop it belongs, as `kind:id`.
        applied: JSON: what the source has set last.
        license_id: The license.
        mail_due: Whether its key is to be mailed.
        product: The slug of its product.
    """

    order_id: str
    item: str
    number: int
    line_id: str | None
    thing: str | None
    place: int | None
    object: str | None
    applied: str | None
    license_id: bytes
    mail_due: bool
    product: str


class Problem(NamedTuple):
    """A question about a sale that a person has to decide.

    Args:
        id: Its number.
        source: The source's name.
        object: The object of the shop, as `kind:id`.
        name: The same for the same problem of an object.
        message: What has happened, and what to do.
        external_ids: JSON: what can be mapped to mend it.
        found_at: When it was found first.
        closed_at: When it was over; None while it is open.
        kind: Why it is a problem.
        answers: That a person can give, separated by spaces.
        answer: The answer that was given.
    """

    id: int
    source: str
    object: str
    name: str
    message: str
    external_ids: str | None
    found_at: datetime
    closed_at: datetime | None
    kind: str
    answers: str
    answer: str | None
    mailed_at: datetime | None


class EarlierOrder(NamedTuple):
    """The state of an order that was stored before facts were."""

    order_id: str
    refund: int
    dispute: int
    subscription_id: str | None


class SubscriptionRow(NamedTuple):
    """The state of a subscription that was stored before facts were, and the end that was set last."""

    subscription_id: str
    paid_through: datetime | None = None
    end_reported_at: datetime | None = None
    ended_at: datetime | None = None
    purchased_at: datetime | None = None
    change_reported_at: datetime | None = None
    cancels_at: datetime | None = None
    period: str | None = None
    applied_end: datetime | None = None
    is_applied: bool = False


WAITING, DONE, IGNORED, DEAD = STATES = ("waiting", "done", "ignored", "dead")
UNREADABLE_ONLY: Final = "unreadable"
"""A part of those that are dead; a filter, and no state."""

_of_job: Final = and_(
    jobs.c.queue == QUEUE, jobs.c.key == sale_events.c.source + ":" + sale_events.c.delivery
)
_has_failed: Final = and_(sale_events.c.state == WAITING, jobs.c.state == DEAD)
_STATE: Final = case((_has_failed, DEAD), else_=sale_events.c.state)
_reason: Final = case((sale_events.c.state == WAITING, jobs.c.last_error), else_=sale_events.c.reason)
_is_unreadable: Final = (sale_events.c.state == DEAD) & sale_events.c.content.is_(None)
_SHOWN: Final = {"state": _STATE.label("state"), "reason": _reason.label("reason")}
_EVENTS: Final[Select[*tuple[Any, ...]]] = select(
    *(_SHOWN.get(name, sale_events.c[name]) for name in StoredEvent._fields)
).select_from(sale_events.outerjoin(jobs, _of_job))
_PLAIN_EVENT: Final[Select[*tuple[Any, ...]]] = select(*(sale_events.c[name] for name in StoredEvent._fields))
_PROBLEM: Final = [sale_problems.c[name] for name in Problem._fields]
_SOLD: Final[Select[*tuple[Any, ...]]] = (
    select(
        *(sale_licenses.c[name] for name in SoldLicense._fields if name != "product"),
        products.c.slug.label("product"),
    )
    .join_from(sale_licenses, licenses)
    .join(products)
    .order_by(sale_licenses.c.order_id, sale_licenses.c.item, sale_licenses.c.number)
)


class SaleRepository(Repository):
    """Sources, mappings, deliveries, facts, sold licenses and problems."""

    # --- sources and mappings

    def add_source(self, source: Source) -> bool:
        """Add a source; return False when its name is taken."""
        row = asdict(source) | {"states": _dump_states(source.states)}
        return self._insert_unless_taken(insert(sale_sources).values(**row))

    def change_source(self, name: str, values: Mapping[str, Any]) -> None:
        """Change columns of a source."""
        if "states" in values:
            values = {**values, "states": _dump_states(values["states"])}
        self._execute(update(sale_sources).where(sale_sources.c.name == name).values(values))

    def find_source(self, name: str, *, locked: bool = False) -> Source | None:
        """Load a source; no other process handles events of a `locked` one until the transaction ends."""
        statement = select(sale_sources).where(sale_sources.c.name == name)
        return self._find(statement.with_for_update() if locked else statement, _read_source)

    def find_source_of(self, event_id: int, *, locked: bool = False) -> Source | None:
        """Load the source of a delivery, as `find_source` does."""
        name = select(sale_events.c.source).where(sale_events.c.id == event_id).scalar_subquery()
        statement = select(sale_sources).where(sale_sources.c.name == name)
        return self._find(statement.with_for_update() if locked else statement, _read_source)

    def list_sources(self) -> list[Source]:
        """Load all sources, by name."""
        return list(map(_read_source, self._all(select(sale_sources).order_by(sale_sources.c.name))))

    def remove_source(self, name: str) -> None:
        """Delete a source with its mappings, deliveries and problems; what it has issued stays known."""
        with self._writing() as connection:
            for table in (sale_mappings, sale_events, sale_problems):
                connection.execute(delete(table).where(table.c.source == name))
            connection.execute(delete(sale_sources).where(sale_sources.c.name == name))

    def set_mapping(self, source: str, external_id: str, product_id: int | None, **terms: Any) -> None:
        """Store what is issued for a product of a shop."""
        row = {"source": source, "external_id": external_id, "product_id": product_id}
        self._put(sale_mappings, row | terms)

    def remove_mapping(self, source: str, external_id: str) -> bool:
        """Delete a mapping; return False if it does not exist."""
        of_it = matching(sale_mappings, source=source, external_id=external_id)
        return self._execute(delete(sale_mappings).where(of_it)) > 0

    def list_mappings(self, source: str | None = None) -> list[SourceMapping]:
        """Load mappings, of one source or of all."""
        columns = [column for column in sale_mappings.c if column.key != "product_id"]
        statement = select(*columns, products.c.slug.label("product")).outerjoin_from(sale_mappings, products)
        if source is not None:
            statement = statement.where(sale_mappings.c.source == source)
        ordered = statement.order_by(sale_mappings.c.source, sale_mappings.c.external_id)
        return [SourceMapping(**row._asdict()) for row in self._all(ordered)]

    # --- deliveries

    def add_event(self, source: str, delivery: str, now: datetime, **values: Any) -> int | None:
        """Store a delivery and return its id; None if it is there already.

        A delivery that was ignored or could not be read then is replaced.
        """
        row = {"source": source, "delivery": delivery, "received_at": now, **values}
        without_content = matching(sale_events, source=source, delivery=delivery, content=None)
        with self._writing() as connection:
            add = insert_into(connection, sale_events).values(row).on_conflict_do_nothing()
            id_: int | None = connection.scalar(add.returning(sale_events.c.id))
            if id_ is None and connection.execute(delete(sale_events).where(without_content)).rowcount:
                id_ = connection.scalar(add.returning(sale_events.c.id))
            return id_

    def find_event(self, event_id: int) -> StoredEvent | None:
        """Load one delivery, as it is stored, in any state of its job."""
        return self._find(_PLAIN_EVENT.where(sale_events.c.id == event_id), StoredEvent._make)

    def set_event(self, event_id: int, state: str, reason: str | None, finished_at: datetime | None) -> None:
        """Store what has become of a delivery."""
        values = {"state": state, "reason": reason, "finished_at": finished_at}
        self._execute(update(sale_events).where(sale_events.c.id == event_id).values(**values))

    def remove_unreadable(self, source: str, deliveries: Collection[str]) -> bool:
        """Delete deliveries that could not be read; return whether there was any of them."""
        of_them = (sale_events.c.source == source) & sale_events.c.delivery.in_(deliveries)
        return self._execute(delete(sale_events).where(of_them, _is_unreadable)) > 0

    def ignore_unreadable(self, source: str) -> None:
        """Let dead deliveries without content be ignored: a person has looked at them."""
        self._execute(
            update(sale_events).where(sale_events.c.source == source, _is_unreadable).values(state=IGNORED)
        )

    def list_events(
        self, source: str, state: str | None = None, before: int | None = None, limit: int = 50
    ) -> Sequence[StoredEvent]:
        """Load deliveries of a source, the latest first; `before` is the id after which a page begins.

        `state` may be `UNREADABLE_ONLY`.
        """
        statement = _EVENTS.where(sale_events.c.source == source)
        if state == UNREADABLE_ONLY:
            statement = statement.where(_is_unreadable)
        elif state is not None:
            statement = statement.where(_STATE.in_([state]))
        if before is not None:
            statement = statement.where(sale_events.c.id < before)
        latest = statement.order_by(sale_events.c.id.desc()).limit(limit)
        return list(map(StoredEvent._make, self._all(latest)))

    def list_dead(self, source: str, objects: Collection[str]) -> list[StoredEvent]:
        """Load the deliveries about some objects that wait for a person."""
        of_them = matching(sale_events, source=source, state=DEAD) & sale_events.c.object.in_(objects)
        statement = _PLAIN_EVENT.where(of_them, sale_events.c.content.is_not(None)).order_by(sale_events.c.id)
        return list(map(StoredEvent._make, self._all(statement)))

    def find_job(self, event: StoredEvent) -> int | None:
        """Return the id of a delivery's job."""
        is_its = matching(jobs, queue=QUEUE, key=event.job_key)
        job: int | None = self._scalar(select(jobs.c.id).where(is_its))
        return job

    def count_unreadable(self, limit: int) -> int:
        """Count the deliveries that could not be read, up to a limit."""
        unreadable = select(sale_events.c.id).where(UNREADABLE).limit(limit).subquery()
        count: int = self._scalar(select(func.count()).select_from(unreadable))
        return count

    def sweep(self, before: datetime) -> int:
        """Delete deliveries that were done with, or unreadable, before an instant; others stay.

        Addresses of customers go from the facts as well, unless a person still has to look at the contract.
        """
        is_open = exists().where(
            sale_problems.c.source == sale_facts.c.source,
            sale_problems.c.object == sale_facts.c.id,  # of a contact
            sale_problems.c.closed_at.is_(None),
        )
        has_address = sale_facts.c.customer_email.is_not(None) & (sale_facts.c.stored_at < before)
        self._execute(update(sale_facts).where(has_address, ~is_open).values(customer_email=None))
        is_over = sale_events.c.state.in_([DONE, IGNORED]) | sale_events.c.content.is_(None)
        return self._delete(sale_events, is_over & (sale_events.c.finished_at < before))

    # --- facts

    def find_facts(self, source: str, keys: Collection[tuple[str, str]]) -> list[FactRow]:
        """Load facts by kind and id."""
        if not keys:
            return []
        of_them = tuple_(sale_facts.c.kind, sale_facts.c.id).in_(sorted(keys))
        columns = (sale_facts.c[name] for name in FactRow._fields)
        statement = select(*columns).where(sale_facts.c.source == source, of_them)
        return list(map(FactRow._make, self._all(statement)))

    def put_facts(self, source: str, now: datetime, facts: Iterable[tuple[FactRow, Collection[str]]]) -> None:
        """Store facts, each in place of an earlier report of the same object, and the objects they name."""
        rows, links = [], []
        for fact, objects in facts:
            rows.append({"source": source, **fact._asdict(), "stored_at": now})
            names = {"source": source, "kind": fact.kind, "id": fact.id}
            links += [{**names, "object": object_} for object_ in dict.fromkeys(objects)]
        with self._writing() as connection:
            if rows:
                put_into(connection, sale_facts, *rows)
            if links:
                connection.execute(insert_into(connection, sale_links).on_conflict_do_nothing(), links)

    def load_contract(
        self, source: str, objects: Collection[str], loaded: Mapping[tuple[str, str], FactRow] = _NO_ROWS
    ) -> tuple[list[FactRow], set[str]]:
        """Load all facts that are joined by the objects that they name, and these objects.

        Those in `loaded`, by kind and id, were read or written in this transaction.
        """
        all_objects, new = set[str](), set(objects)
        keys = set[tuple[str, str]]()
        while new and len(keys) < MAX_CONTRACT:
            all_objects |= new
            named, other = sale_links.alias(), sale_links.alias()
            is_same = (other.c.source == source) & (other.c.kind == named.c.kind) & (other.c.id == named.c.id)
            joined = select(named.c.kind, named.c.id, other.c.object).join_from(named, other, is_same)
            rows = self._all(joined.where(named.c.source == source, named.c.object.in_(sorted(new))))
            keys |= {(row.kind, row.id) for row in rows}
            new = {row.object for row in rows} - all_objects
        already_loaded = [loaded[key] for key in sorted(keys & loaded.keys())]
        return already_loaded + self.find_facts(source, keys - loaded.keys()), all_objects | new

    def count_refunds(self, source: str, objects: Collection[str]) -> Counter[str]:
        """Count the refunds and disputes that name each of some objects."""
        columns = sale_links.c
        of_them = (columns.source == source) & columns.object.in_(sorted(objects))
        kinds = columns.kind.in_(("refund", "dispute"))
        counted = select(columns.object, func.count()).where(of_them, kinds).group_by(columns.object)
        return Counter({row[0]: row[1] for row in self._all(counted)})

    # --- what was known before facts were stored

    def find_earlier_orders(
        self, source: str, order_ids: Collection[str], subscription_ids: Collection[str]
    ) -> list[EarlierOrder]:
        """Load what was known of orders, and of those of licenses of subscriptions."""
        columns = sale_orders.c
        of_licenses = (
            select(sale_licenses.c.order_id)
            .join_from(sale_licenses, licenses)
            .where(sale_licenses.c.source == source, licenses.c.subscription_id.in_(sorted(subscription_ids)))
        )
        is_named = columns.order_id.in_(sorted(order_ids)) | columns.order_id.in_(of_licenses)
        statement = select(*(columns[name] for name in EarlierOrder._fields)).where(
            columns.source == source, is_named
        )
        return list(map(EarlierOrder._make, self._all(statement)))

    def find_subscriptions(self, source: str, ids: Collection[str]) -> list[SubscriptionRow]:
        """Load what is known of subscriptions."""
        columns = sale_subscriptions.c
        statement = select(*(columns[name] for name in SubscriptionRow._fields)).where(
            columns.source == source, columns.subscription_id.in_(sorted(ids))
        )
        return list(map(SubscriptionRow._make, self._all(statement)))

    def list_applied_ends(self, subscription_id: str) -> list[datetime]:
        """Load the ends that sources have set, or would have, of a subscription."""
        columns = sale_subscriptions.c
        is_set = columns.is_applied, columns.applied_end.is_not(None)
        statement = select(columns.applied_end).where(columns.subscription_id == subscription_id, *is_set)
        return [row.applied_end for row in self._all(statement.order_by(columns.applied_end))]

    def put_subscription(self, source: str, row: SubscriptionRow) -> None:
        """Store what is known of a subscription."""
        self._put(sale_subscriptions, {"source": source, **row._asdict()})

    # --- licenses

    def list_sold(
        self, source: str, objects: Collection[str], order_ids: Collection[str], limit: int | None = None
    ) -> list[SoldLicense]:
        """Load the licenses of objects, and those of orders of which no object was stored."""
        columns = sale_licenses.c
        is_earlier = columns.object.is_(None) & columns.order_id.in_(sorted(order_ids))
        is_one = columns.object.in_(sorted(objects)) | is_earlier
        statement = _SOLD.where(columns.source == source, is_one).limit(limit)
        return list(map(SoldLicense._make, self._all(statement)))

    def count_sold(self, source: str, objects: Collection[str]) -> int:
        """Count the licenses of objects, by an index."""
        columns = sale_licenses.c
        of_them = (columns.source == source) & columns.object.in_(sorted(objects))
        count: int = self._scalar(select(func.count()).select_from(sale_licenses).where(of_them))
        return count

    def find_sold(self, license_id: bytes) -> SoldLicense | None:
        """Load what is known of a license's sale; None if it was not sold by a shop."""
        return self._find(_SOLD.where(sale_licenses.c.license_id == license_id), SoldLicense._make)

    def list_subscribed(self, subscription_ids: Collection[str], sold: Collection[bytes]) -> list[bytes]:
        """Load the ids of licenses of subscriptions, but of those that were sold."""
        columns = licenses.c
        is_one = columns.subscription_id.in_(sorted(subscription_ids)), columns.id.not_in(sorted(sold))
        return [row.id for row in self._all(select(columns.id).where(*is_one).order_by(columns.id))]

    def add_sold(self, source: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Store licenses of things that were bought; none has two for one place.

        A row whose `number` is None gets the next one of its order and item.
        """
        last = dict[tuple[str, str], int]()
        with self._writing() as connection:
            for row in rows:
                of_it = {"source": source, "order_id": row["order_id"], "item": row["item"]}
                if row["number"] is None and (row["order_id"], row["item"]) not in last:
                    highest = select(func.max(sale_licenses.c.number)).where(matching(sale_licenses, **of_it))
                    last[row["order_id"], row["item"]] = connection.scalar(highest) or 0
            numbered = list[Mapping[str, Any]]()
            for row in rows:
                number = row["number"]
                if number is None:
                    number = last[row["order_id"], row["item"]] = last[row["order_id"], row["item"]] + 1
                numbered.append({"source": source, **row, "number": number})
            connection.execute(insert(sale_licenses), numbered)

    def change_sold(self, source: str, changes: Mapping[bytes, Mapping[str, Any]]) -> None:
        """Change columns of licenses that were sold, by their ids."""
        by_columns = defaultdict[tuple[str, ...], list[dict[str, Any]]](list)
        for id_, values in changes.items():
            row = {"of_source": source, "of_license": id_, **{f"new_{name}": values[name] for name in values}}
            by_columns[tuple(sorted(values))].append(row)
        columns = sale_licenses.c
        is_it = columns.source == bindparam("of_source"), columns.license_id == bindparam("of_license")
        with self._writing() as connection:
            for names, rows in by_columns.items():
                new: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
                connection.execute(update(sale_licenses).where(*is_it).values(new), rows)

    def clear_mail_due(self, source: str, ids: Collection[bytes]) -> None:
        """Note that the keys of some licenses are mailed."""
        columns = sale_licenses.c
        of_them = (columns.source == source) & columns.license_id.in_(sorted(ids))
        self._execute(update(sale_licenses).where(of_them).values(mail_due=False))

    def replace_license(self, old: bytes, new: bytes) -> None:
        """Let a refund find the license that has replaced another one."""
        of_old = sale_licenses.c.license_id == old
        self._execute(update(sale_licenses).where(of_old).values(license_id=new))

    # --- what a person has to look at

    def put_problem(
        self, source: str, object_: str, name: str, now: datetime, **values: Any
    ) -> tuple[int, bool]:
        """Store a problem; return its number, and whether it is new, or open again."""
        of_it = matching(sale_problems, source=source, object=object_, name=name)
        problem = self._first(select(*_PROBLEM).where(of_it))
        if problem is None:
            row = {"source": source, "object": object_, "name": name, "found_at": now, **values}
            with self._writing() as connection:
                add = insert(sale_problems).values(row).returning(sale_problems.c.id)
                return connection.scalar(add) or 0, True
        again = (
            {"closed_at": None, "found_at": now, "mailed_at": None, "answer": None}
            if problem.closed_at is not None
            else {}
        )
        self._execute(update(sale_problems).where(of_it).values(**values, **again))
        return problem.id, bool(again)

    def close_problems(
        self, source: str, objects: Collection[str], open_ids: Collection[int], now: datetime
    ) -> int:
        """Close the open problems of objects but some."""
        columns = sale_problems.c
        of_them = (
            (columns.source == source) & columns.object.in_(sorted(objects)) & columns.closed_at.is_(None)
        )
        statement = update(sale_problems).where(of_them, columns.id.not_in(sorted(open_ids)))
        return self._execute(statement.values(closed_at=now))

    def change_problem(self, problem_id: int, **values: Any) -> None:
        """Change a problem."""
        self._execute(update(sale_problems).where(sale_problems.c.id == problem_id).values(**values))

    def list_problems(self, source: str, objects: Collection[str]) -> list[Problem]:
        """Load the problems of objects, also those that are over."""
        of_them = (sale_problems.c.source == source) & sale_problems.c.object.in_(sorted(objects))
        return list(map(Problem._make, self._all(select(*_PROBLEM).where(of_them))))

    def list_waiting(self, source: str, external_id: str) -> list[Problem]:
        """Load the open problems that a mapping of an external id may mend."""
        columns = sale_problems.c
        is_open = (columns.source == source) & columns.closed_at.is_(None) & columns.external_ids.is_not(None)
        problems = map(Problem._make, self._all(select(*_PROBLEM).where(is_open).order_by(columns.id)))
        return [problem for problem in problems if external_id in json.loads(problem.external_ids or "[]")]

    def find_problem(self, problem_id: int) -> Problem | None:
        """Load a problem."""
        return self._find(select(*_PROBLEM).where(sale_problems.c.id == problem_id), Problem._make)

    def list_open_problems(self, before: int | None = None, limit: int = 50) -> list[Problem]:
        """Load open problems of all sources, the latest first."""
        open_ = select(*_PROBLEM).where(sale_problems.c.closed_at.is_(None))
        if before is not None:
            open_ = open_.where(sale_problems.c.id < before)
        return list(map(Problem._make, self._all(open_.order_by(sale_problems.c.id.desc()).limit(limit))))

    def take_unmailed(self, now: datetime, pause: timedelta) -> int:
        """Note that open problems are reported now, unless some were lately; return how many."""
        columns = sale_problems.c
        is_open = columns.closed_at.is_(None), columns.mailed_at.is_(None)
        if self._first(select(columns.id).where(*is_open).limit(1)) is None:
            return 0
        last = self._scalar(select(func.max(columns.mailed_at)))
        if last is not None and now - last < pause:
            return 0
        return self._execute(update(sale_problems).where(*is_open).values(mailed_at=now))

    def count_open_problems(self, limit: int) -> int:
        """Count what a person has to look at, up to a limit."""
        open_ = select(sale_problems.c.id).where(sale_problems.c.closed_at.is_(None)).limit(limit).subquery()
        count: int = self._scalar(select(func.count()).select_from(open_))
        return count


def _dump_states(states: Mapping[str, str]) -> str | None:
    return json.dumps(dict(states), sort_keys=True) if states else None


def _read_source(row: Row[Any]) -> Source:
    values = row._asdict() | {"kind": ShopKind(row.kind), "states": json.loads(row.states or "{}")}
    return Source(**{attribute.name: values[attribute.name] for attribute in fields(Source)})
