"""Sources of sales, what they delivered, and what is known of their orders and subscriptions."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Row, Select, and_, case, delete, func, insert, select, update

from licserver.database.repositories.base import Repository, insert_into, matching
from licserver.database.tables.events import (
    UNREADABLE,
    jobs,
    sale_events,
    sale_licenses,
    sale_mappings,
    sale_orders,
    sale_sources,
    sale_subscriptions,
)
from licserver.database.tables.licenses import products
from licserver.sources import SourceKind
from licserver.sources.state import Dispute, OrderState, Refund, SubscriptionState

QUEUE: Final = "sale"
"""The queue of deliveries that are to be processed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A shop that delivers events; its secrets are in environment variables, here are their names."""

    name: str
    kind: SourceKind
    secret_env: str
    is_test: bool
    tolerance: int  # seconds
    grace_days: int
    revokes_partial_refunds: bool
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMapping:
    """What is issued for a product or a price of a shop; without a product nothing is."""

    source: str
    external_id: str
    product: str | None
    slots: int | None
    lifetime: bool
    expires_in: str | None
    support: str | None
    plan: str | None = None
    floating_seats: int | None = None


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


WAITING, DONE, IGNORED, DEAD = STATES = ("waiting", "done", "ignored", "dead")

_of_job: Final = and_(
    jobs.c.queue == QUEUE, jobs.c.key == sale_events.c.source + ":" + sale_events.c.delivery
)
_has_failed: Final = and_(sale_events.c.state == WAITING, jobs.c.state == DEAD)
_STATE: Final = case((_has_failed, DEAD), else_=sale_events.c.state)
_reason: Final = case((sale_events.c.state == WAITING, jobs.c.last_error), else_=sale_events.c.reason)
_SHOWN: Final = {"state": _STATE.label("state"), "reason": _reason.label("reason")}
_EVENTS: Final[Select[*tuple[Any, ...]]] = select(
    *(_SHOWN.get(name, sale_events.c[name]) for name in StoredEvent._fields)
).select_from(sale_events.outerjoin(jobs, _of_job))


class SaleRepository(Repository):
    """Sources, mappings, deliveries, orders and subscriptions of shops."""

    # --- sources and mappings

    def add_source(self, source: Source) -> bool:
        """Add a source; return False when its name is taken."""
        return self._insert_unless_taken(insert(sale_sources).values(**asdict(source)))

    def change_source(self, name: str, values: Mapping[str, Any]) -> None:
        """Change columns of a source."""
        self._execute(update(sale_sources).where(sale_sources.c.name == name).values(values))

    def find_source(self, name: str, *, locked: bool = False) -> Source | None:
        """Load a source; nobody else processes events of a `locked` one until the transaction ends."""
        statement = select(sale_sources).where(sale_sources.c.name == name)
        return self._find(statement.with_for_update() if locked else statement, _read_source)

    def list_sources(self) -> list[Source]:
        """Load all sources, by name."""
        return list(map(_read_source, self._all(select(sale_sources).order_by(sale_sources.c.name))))

    def remove_source(self, name: str) -> None:
        """Delete a source with its mappings and deliveries; what it has issued stays known."""
        with self._writing() as connection:
            for table in (sale_mappings, sale_events):
                connection.execute(delete(table).where(table.c.source == name))
            connection.execute(delete(sale_sources).where(sale_sources.c.name == name))

    def set_mapping(self, source: str, external_id: str, product_id: int | None, **terms: Any) -> None:
        """Store what is issued for a product of a shop."""
        row = {"source": source, "external_id": external_id, "product_id": product_id}
        self._put(sale_mappings, row | terms)

    def remove_mapping(self, source: str, external_id: str) -> bool:
        """Delete a mapping; return False when there is none."""
        of_it = matching(sale_mappings, source=source, external_id=external_id)
        return self._execute(delete(sale_mappings).where(of_it)) > 0

    def list_mappings(self, source: str | None = None) -> list[SourceMapping]:
        """Load mappings, of one source or of all."""
        columns = [one for one in sale_mappings.c if one.key != "product_id"]
        statement = select(*columns, products.c.slug.label("product")).outerjoin_from(sale_mappings, products)
        if source is not None:
            statement = statement.where(sale_mappings.c.source == source)
        ordered = statement.order_by(sale_mappings.c.source, sale_mappings.c.external_id)
        return [SourceMapping(**row._asdict()) for row in self._all(ordered)]

    # --- deliveries

    def add_event(self, source: str, delivery: str, now: datetime, **values: Any) -> int | None:
        """Store a delivery and return its id; None if it is there already.

        One that was ignored or could not be read then is replaced.
        """
        without_content = matching(sale_events, source=source, delivery=delivery, content=None)
        with self._writing() as connection:
            connection.execute(delete(sale_events).where(without_content))
            row = {"source": source, "delivery": delivery, "received_at": now, **values}
            add = insert_into(connection, sale_events).values(row).on_conflict_do_nothing()
            id_: int | None = connection.scalar(add.returning(sale_events.c.id))
            return id_

    def find_event(self, event_id: int) -> StoredEvent | None:
        """Load one delivery, as it is stored, whatever has become of its job."""
        return self._find(select(sale_events).where(sale_events.c.id == event_id), StoredEvent._make)

    def set_event(self, event_id: int, state: str, reason: str | None, at: datetime | None) -> None:
        """Store what has become of a delivery."""
        values = {"state": state, "reason": reason, "finished_at": at}
        self._execute(update(sale_events).where(sale_events.c.id == event_id).values(**values))

    def list_events(
        self, source: str, state: str | None = None, before: int | None = None, limit: int = 50
    ) -> Sequence[StoredEvent]:
        """Load deliveries of a source, the latest first; `before` is the id after which a page begins."""
        statement = _EVENTS.where(sale_events.c.source == source)
        if state is not None:
            statement = statement.where(_STATE.in_([state]))
        if before is not None:
            statement = statement.where(sale_events.c.id < before)
        latest = statement.order_by(sale_events.c.id.desc()).limit(limit)
        return list(map(StoredEvent._make, self._all(latest)))

    def find_job(self, event: StoredEvent) -> int | None:
        """Return the id of a delivery's job."""
        is_its = matching(jobs, queue=QUEUE, key=event.job_key)
        job: int | None = self._scalar(select(jobs.c.id).where(is_its))
        return job

    def count_unreadable(self, limit: int) -> int:
        """Count the deliveries that could not be read, up to a limit."""
        found = select(sale_events.c.id).where(UNREADABLE).limit(limit).subquery()
        count: int = self._scalar(select(func.count()).select_from(found))
        return count

    def sweep(self, before: datetime) -> int:
        """Delete deliveries that were done with, or unreadable, before an instant; others stay."""
        is_over = sale_events.c.state.in_([DONE, IGNORED]) | sale_events.c.content.is_(None)
        return self._delete(sale_events, is_over & (sale_events.c.finished_at < before))

    # --- orders and subscriptions

    def find_order(self, source: str, order_id: str) -> OrderState:
        """Load what is known of an order."""
        of_it = matching(sale_orders, source=source, order_id=order_id)
        row = self._first(select(sale_orders).where(of_it))
        if row is None:
            return OrderState()
        return OrderState(Refund(row.refund), Dispute(row.dispute), row.subscription_id)

    def set_order(self, source: str, order_id: str, state: OrderState) -> None:
        """Store what is known of an order."""
        self._put(sale_orders, {"source": source, "order_id": order_id, **asdict(state)})

    def find_subscription(self, source: str, subscription_id: str) -> SubscriptionState:
        """Load what is known of a subscription."""
        columns = (sale_subscriptions.c[one.name] for one in fields(SubscriptionState))
        of_it = matching(sale_subscriptions, source=source, subscription_id=subscription_id)
        return SubscriptionState(*(self._first(select(*columns).where(of_it)) or ()))

    def set_subscription(self, source: str, subscription_id: str, state: SubscriptionState) -> None:
        """Store what is known of a subscription."""
        row = {"source": source, "subscription_id": subscription_id, **asdict(state)}
        self._put(sale_subscriptions, row)

    def list_licenses(self, source: str, order_id: str) -> dict[str, list[bytes]]:
        """Load the licenses of an order, by position."""
        columns, of_it = sale_licenses.c, matching(sale_licenses, source=source, order_id=order_id)
        ordered = select(columns.item, columns.license_id).where(of_it).order_by(columns.item, columns.number)
        found = defaultdict[str, list[bytes]](list)
        for item, license_id in self._all(ordered):
            found[item].append(license_id)
        return found

    def add_licenses(self, source: str, order_id: str, item: str, ids: Sequence[bytes]) -> None:
        """Store the licenses of a position; no position has them twice."""
        position = {"source": source, "order_id": order_id, "item": item}
        rows = [{**position, "number": number, "license_id": one} for number, one in enumerate(ids)]
        with self._writing() as connection:
            connection.execute(insert(sale_licenses), rows)

    def replace_license(self, old: bytes, new: bytes) -> None:
        """Let a refund find the license that has replaced another one."""
        of_old = sale_licenses.c.license_id == old
        self._execute(update(sale_licenses).where(of_old).values(license_id=new))


def _read_source(row: Row[Any]) -> Source:
    return Source(**row._asdict() | {"kind": SourceKind(row.kind)})
