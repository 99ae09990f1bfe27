"""Webhooks that are sent: endpoints, events and their deliveries, which are jobs of the queue."""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, Select, delete, insert, select, update

from licserver.database.repositories.base import Repository, insert_into
from licserver.database.repositories.instants import SCANNED
from licserver.database.repositories.licenses import ends_within
from licserver.database.repositories.queue import JobState, QueueShare, add_job, new_job
from licserver.database.tables.events import jobs, webhook_deliveries, webhook_endpoints, webhook_events
from licserver.database.tables.licenses import facts, licenses
from licserver.domain.instants import is_of_the_future
from licserver.domain.records import Environment
from licserver.protocol.webhooks import EventType, derive_event_id

EVENTS: Final = "webhook-events"  # queue: find the endpoints of an event
DELIVERIES: Final = "webhook-deliveries"  # queue: send an event to an endpoint

_SUBSCRIBED: Final = select(webhook_endpoints.c.types).where(webhook_endpoints.c.disabled_at.is_(None))


class NewEvent(NamedTuple):
    """Something that happened; `id` is given only where it may be found several times."""

    type: EventType
    at: datetime
    data: Mapping[str, Any]
    id: str | None = None


def add_events(connection: Connection, events: Iterable[NewEvent]) -> None:
    """Write events in the transaction of what happened; each once by its id.

    What a clock that was ahead has written before it happened counts for nothing, and the event gets another
    id: receivers pass over an id that they know.
    """
    rows = []
    for event in _name_early(connection, list(events)):
        payload = {"type": event.type.value, "at": event.at.isoformat(), "data": event.data}
        row = {"queue": EVENTS, "key": event.id or f"msg_{secrets.token_hex(16)}"}
        rows.append(row | new_job(payload, event.at))
    if rows:
        connection.execute(insert_into(connection, jobs).on_conflict_do_nothing(), rows)


def _name_early(connection: Connection, events: list[NewEvent]) -> list[NewEvent]:
    ids = [event.id for event in events if event.id is not None]
    if not ids:
        return events
    of_them = select(jobs.c.key, jobs.c.created_at).where(jobs.c.queue == EVENTS, jobs.c.key.in_(ids))
    written = {row.key: row.created_at for row in connection.execute(of_them)}
    early = [
        event for event in events if event.id in written and is_of_the_future(written[event.id], event.at)
    ]
    if not early:
        return events
    named = [event._replace(id=derive_event_id(event.type, event.id or "", "again")) for event in early]
    return [event for event in events if event not in early] + _name_early(connection, named)


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """An endpoint; without `types` it gets all events."""

    id: str
    url: str
    types: tuple[str, ...]
    encrypted_secret: bytes
    encrypted_previous: bytes | None
    previous_until: datetime | None
    created_at: datetime
    disabled_at: datetime | None = None
    disabled_reason: str | None = None
    failing_since: datetime | None = None

    def wants(self, type_: str) -> bool:
        """Return whether events of a type are sent to it."""
        return self.disabled_at is None and (not self.types or type_ in self.types)


class WebhookDelivery(NamedTuple):
    """An event and an endpoint, with the last attempt and the state of the job."""

    id: int
    endpoint_id: str
    event_id: str
    type: str
    created_at: datetime
    state: JobState
    attempts: int
    due_at: datetime | None
    sent_at: datetime | None
    status: int | None
    response: str | None
    body: str


_DELIVERY: Final[Select[Any]] = (
    select(
        *(jobs.c[name] for name in ("id", "state", "attempts", "due_at")),
        *(webhook_events.c[name] for name in ("type", "created_at", "body")),
        *(webhook_deliveries.c[n] for n in ("endpoint_id", "event_id", "sent_at", "status")),
        webhook_deliveries.c.response.label("response"),
    )
    .join_from(jobs, webhook_deliveries)
    .join(webhook_events)
)
_END: Final = ("id", "expires_on", "subscription_id", "subscription_ended_at", "lifetime", "revoked_at")
_ENDS: Final[Select[Any]] = select(*(licenses.c[name] for name in _END))


class WebhookRepository(Repository):
    """Endpoints, events and deliveries."""

    def list_endpoints(self) -> list[WebhookEndpoint]:
        """Load all endpoints, the oldest first."""
        order = webhook_endpoints.c.created_at, webhook_endpoints.c.id
        return [_read_endpoint(row) for row in self._all(select(webhook_endpoints).order_by(*order))]

    def find_endpoint(self, id_: str) -> WebhookEndpoint | None:
        """Load one endpoint."""
        return self._find(select(webhook_endpoints).where(webhook_endpoints.c.id == id_), _read_endpoint)

    def subscribed_types(self) -> frozenset[str]:
        """Return the types of events that any endpoint wants."""
        return frozenset(
            type_ for (types,) in self._all(_SUBSCRIBED) for type_ in types.split() or map(str, EventType)
        )

    def add_endpoint(self, endpoint: WebhookEndpoint) -> None:
        """Add an endpoint."""
        values = asdict(endpoint) | {"types": " ".join(endpoint.types)}
        self._execute(insert(webhook_endpoints).values(values))

    def change_endpoint(self, id_: str, **values: Any) -> None:
        """Change columns of an endpoint."""
        self._execute(update(webhook_endpoints).where(webhook_endpoints.c.id == id_).values(**values))

    def remove_endpoint(self, id_: str) -> None:
        """Remove an endpoint with its deliveries; jobs that wait for them find nothing to do."""
        self._execute(delete(webhook_endpoints).where(webhook_endpoints.c.id == id_))

    def add_events(self, events: Iterable[NewEvent]) -> None:
        """Write events, as `add_events`."""
        with self._writing() as connection:
            add_events(connection, events)

    def add_deliveries(
        self, event_id: str, type_: str, body: str, endpoints: Collection[str], now: datetime
    ) -> None:
        """Store the body of an event, and a delivery for each endpoint, unless they exist."""
        event = {"id": event_id, "type": type_, "created_at": now, "body": body}
        with self._writing() as connection:
            connection.execute(insert_into(connection, webhook_events).values(event).on_conflict_do_nothing())
            for endpoint_id in sorted(endpoints):
                key = f"{event_id}/{endpoint_id}"
                job_id = add_job(connection, DELIVERIES, key, {}, now, QueueShare(endpoint_id))
                if job_id is not None:
                    row = {"job_id": job_id, "endpoint_id": endpoint_id, "event_id": event_id}
                    connection.execute(insert(webhook_deliveries).values(row))

    def name_owners(self) -> None:
        """Name the endpoint of waiting deliveries that have none: of programs before schema 0035."""
        endpoint = select(webhook_deliveries.c.endpoint_id).where(webhook_deliveries.c.job_id == jobs.c.id)
        is_unnamed = (jobs.c.queue == DELIVERIES) & jobs.c.owner.is_(None) & jobs.c.due_at.is_not(None)
        self._execute(update(jobs).where(is_unnamed).values(owner=endpoint.scalar_subquery()))

    def find_delivery(self, id_: int) -> WebhookDelivery | None:
        """Load one delivery."""
        return self._find(_DELIVERY.where(jobs.c.id == id_), _read_delivery)

    def list_deliveries(
        self, endpoint_id: str | None, before: int | None, limit: int
    ) -> Sequence[WebhookDelivery]:
        """Load deliveries, the latest first: to one endpoint or to all."""
        statement = _DELIVERY.order_by(webhook_deliveries.c.job_id.desc()).limit(limit)
        if endpoint_id is not None:
            statement = statement.where(webhook_deliveries.c.endpoint_id == endpoint_id)
        if before is not None:
            statement = statement.where(webhook_deliveries.c.job_id < before)
        return [_read_delivery(row) for row in self._all(statement)]

    def list_ids_since(self, since: datetime, endpoint_id: str | None) -> list[int]:
        """Return the ids of deliveries of events since an instant."""
        columns = webhook_deliveries.c
        statement = select(columns.job_id).join(webhook_events).where(webhook_events.c.created_at >= since)
        if endpoint_id is not None:
            statement = statement.where(columns.endpoint_id == endpoint_id)
        return [row.job_id for row in self._all(statement.order_by(columns.job_id))]

    def note_attempt(self, id_: int, status: int | None, response: str, now: datetime) -> None:
        """Store what the last attempt of a delivery came to."""
        values = {"status": status, "response": response, "sent_at": now}
        self._execute(update(webhook_deliveries).where(webhook_deliveries.c.job_id == id_).values(values))

    def sweep(self, before: datetime) -> int:
        """Delete events of before an instant, with their deliveries."""
        return self._delete(webhook_events, webhook_events.c.created_at < before)

    # --- what ends by itself, when a day is over or an instant reached ---

    def read_scanned_at(self) -> datetime | None:
        """Return up to when licenses were scanned."""
        value = self._scalar(select(facts.c.value).where(facts.c.name == SCANNED))
        return None if value is None else datetime.fromisoformat(value.decode())

    def write_scanned_at(self, at: datetime) -> None:
        """Store up to when licenses were scanned."""
        self._put(facts, {"name": SCANNED, "value": at.isoformat().encode()})

    def list_expired(self, first: date, last: date, after: bytes, limit: int) -> Sequence[Any]:
        """Load licenses whose last day is within some days, by id."""
        page = _ENDS.where(ends_within(first, last), licenses.c.id > after)
        return self._all(page.order_by(licenses.c.id).limit(limit))

    def list_ended(self, since: datetime, until: datetime, after: bytes, limit: int) -> Sequence[Any]:
        """Load licenses whose subscription ended after one instant and until another, by id."""
        columns = licenses.c
        ended = (columns.subscription_ended_at > since) & (columns.subscription_ended_at <= until)
        return self._all(_ENDS.where(ended, columns.id > after).order_by(columns.id).limit(limit))

    def list_linked(self, subscription_id: str) -> Sequence[Any]:
        """Load the licenses of a subscription, by id."""
        columns = licenses.c
        return self._all(_ENDS.where(columns.subscription_id == subscription_id).order_by(columns.id))


class SubscribedEvents:
    """The types of events that any endpoint subscribes to, as this process last read them (D-207).

    Those in `always` are wanted by the server itself. So the public endpoints need no statement to find out
    that no endpoint subscribes to an event.
    """

    def __init__(self, repository: WebhookRepository, always: Iterable[EventType] = ()) -> None:
        self._repository, self._always = repository, frozenset(map(str, always))
        self.types = self._always

    def refresh(self) -> None:
        """Read them; called every few seconds in the background."""
        self.types = self._repository.subscribed_types() | self._always

    def add_activations(self, connection: Connection, rows: Iterable[Sequence[Any]]) -> None:
        """Write an event for each activation; a row begins with license, domain, address and instant."""
        if EventType.ACTIVATION_CREATED in self.types:
            places = (row[:4] for row in rows)
            add_events(
                connection,
                (activation_event(license_id, Environment(*place), at) for license_id, *place, at in places),
            )

    def describe_refusals(
        self, refused: Iterable[tuple[bytes, Environment]], now: datetime
    ) -> Sequence[NewEvent]:
        """Return the events of environments that got no slot: once a day, however often each tries."""
        kind, day = EventType.ACTIVATION_REFUSED, now.date().isoformat()
        if kind not in self.types:
            return ()
        places = [_place(license_id, *environment) for license_id, environment in sorted({*refused})]
        return [NewEvent(kind, now, place, derive_event_id(kind, *place.values(), day)) for place in places]


def activation_event(license_id: bytes, environment: Environment, at: datetime) -> NewEvent:
    """Return the event of an activation: once a day, however often the slot is freed and taken (D-296)."""
    kind, place = EventType.ACTIVATION_CREATED, _place(license_id, *environment)
    return NewEvent(kind, at, place, derive_event_id(kind, *place.values(), at.date().isoformat()))


def _place(license_id: bytes, domain: str, ip: str) -> dict[str, str]:
    return {"license_id": license_id.hex(), "domain": domain, "ip": ip}


def _read_endpoint(row: Row[Any]) -> WebhookEndpoint:
    return WebhookEndpoint(**row._asdict() | {"types": tuple(row.types.split())})


def _read_delivery(row: Row[Any]) -> WebhookDelivery:
    return WebhookDelivery(**row._asdict() | {"state": JobState(row.state)})
