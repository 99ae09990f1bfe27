"""Events of licenses and subscriptions that have ended, with ids derived from object and end (D-208)."""

from datetime import date, datetime
from typing import Any

from licserver.database.repositories.webhooks import NewEvent
from licserver.protocol import webhooks
from licserver.protocol.webhooks import EventType
from licserver.services.context import Context


def expired_event(license_: Any, now: datetime) -> NewEvent:
    """Return the event of an expired license or its row; the id is derived from the earlier end."""
    type_, id_ = EventType.LICENSE_EXPIRED, license_.id.hex()
    event_id = webhooks.derive_event_id(type_, id_, _first_end(license_).isoformat())
    return NewEvent(type_, now, {"license_id": id_}, event_id)


def _first_end(license_: Any) -> date:
    """Return the last day, or the instant at which the subscription ended if that came first."""
    last_day, ended_at = license_.expires_on, license_.subscription_ended_at
    is_day = ended_at is None or (last_day is not None and last_day < ended_at.date())
    end: date = last_day if is_day else ended_at
    return end


def ended_event(subscription_id: str, ended_at: datetime, now: datetime) -> NewEvent:
    """Return the event of a subscription that has ended."""
    type_, ended = EventType.SUBSCRIPTION_ENDED, ended_at.isoformat()
    data = {"subscription_id": subscription_id, "ended_at": ended}
    return NewEvent(type_, now, data, webhooks.derive_event_id(type_, subscription_id, ended))


def expired_events(row: Any, now: datetime) -> list[NewEvent]:
    """Return the event of a row whose last day is over, unless its subscription ended first."""
    return [expired_event(row, now)] if _first_end(row) == row.expires_on else []


def ended_events(row: Any, now: datetime) -> list[NewEvent]:
    """Return the events of a row whose subscription has ended, and of its license if that ended with it."""
    events = [ended_event(row.subscription_id, row.subscription_ended_at, now)]
    is_valid = not row.lifetime and row.revoked_at is None
    if is_valid and _first_end(row) == row.subscription_ended_at:
        events.append(expired_event(row, now))
    return events


def write_subscription_end(
    tx: Context, subscription_id: str, before: datetime | None, at: datetime | None
) -> None:
    """Write the events of a subscription that a change has ended; a scan finds what ends later."""
    now = tx.now()
    if at is not None and at <= now and (before is None or before > now):
        rows = tx.repositories.webhooks.list_linked(subscription_id)
        tx.add_new_events(*(event for row in rows for event in ended_events(row, now)))
