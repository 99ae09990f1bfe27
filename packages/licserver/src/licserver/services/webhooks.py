"""Webhooks: the vendor's endpoints, and the deliveries of events to them."""

import random
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from licserver.database.repositories.queue import Job
from licserver.database.repositories.webhooks import DELIVERIES, WebhookDelivery, WebhookEndpoint
from licserver.domain.environments import is_printable
from licserver.domain.instants import TWO_WEBHOOK_SECRETS
from licserver.errors import BuryJobError, InvalidInputError, NotFoundError, RetryJobError
from licserver.protocol import webhooks
from licserver.protocol.webhooks import TEST_TYPE, DeliveryOutcome, EventType
from licserver.security.outbound_addresses import is_listed, is_permitted, read_host
from licserver.services.context import Context
from licserver.services.license_events import ended_events, expired_events
from licserver.services.lists import Page, page_by_id
from licserver.services.mail import MailService

BOTH_SECRETS: Final = TWO_WEBHOOK_SECRETS  # after a rotation, events are signed with both secrets


SCAN_SECONDS: Final = 60.0


_MAX_URL: Final = 2_000


_AFTER_BRACKET: Final = re.compile(r"\][^:]")  # text after an IPv6 address, which `urlsplit` accepts


_CHUNK: Final = 1_000  # licenses of a transaction of a scan


class Attempt(NamedTuple):
    """The request of an attempt to deliver an event."""

    url: str
    body: bytes
    headers: dict[str, str]


class WebhookService:
    """Manages endpoints, lists and repeats deliveries, and processes the jobs of events.

    1. A service writes an event in the transaction of a change (`Context.add_events`).
    2. `fan_out` turns the event into a delivery for each endpoint that wants its type.
    3. `prepare` returns the signed request of a delivery; `jobs.webhooks` sends it.
    4. `record` stores the result; the delivery is finished, repeated or given up.
    5. `scan` writes events of licenses and subscriptions that have ended by themselves.

    Example::

        endpoint, secret = services.webhooks.add("https://example.com/hooks", [EventType.LICENSE_ISSUED])
        services.webhooks.send_test(endpoint.id)

    `record` raises a `RetryJobError` or a `BuryJobError` for a failed attempt; the methods for endpoints
    raise a `NotFoundError` for an unknown id, and an `InvalidInputError` for an address that is not allowed.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._webhooks = context.repositories.webhooks

    def add(self, url: str, types: Sequence[str] = ()) -> tuple[WebhookEndpoint, str]:
        """Add an endpoint for some types of events, or for all; return it with its secret."""
        self._check_url(url)
        event_types = [*map(str, EventType)]
        if unknown := [type_ for type_ in types if type_ not in event_types]:
            raise InvalidInputError(
                f"unknown type of event {unknown[0]!r}; choose from {', '.join(event_types)}"
            )
        id_, secret, now = f"ep_{secrets.token_hex(6)}", _draw_secret(), self._context.now()
        chosen = tuple(type_ for type_ in event_types if type_ in types)
        endpoint = WebhookEndpoint(id_, url, chosen, self._encrypt(id_, secret), None, None, now)
        with self._context.transaction() as tx:
            _begin_scan(tx)
            tx.repositories.webhooks.add_endpoint(endpoint)
            tx.write_audit(
                "webhook.add", ("webhook", id_), host=urlsplit(url).hostname, types=list(chosen) or "all"
            )
        return endpoint, webhooks.format_secret(secret)

    def _check_url(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            is_valid = bool(parts.hostname) and parts.port != 0 and not _AFTER_BRACKET.search(parts.netloc)
            is_valid = is_valid and "%" not in parts.netloc  # in no name, which nothing would be sent to
        except ValueError:
            is_valid = False
        if not (is_valid and url.isascii() and is_printable(url)) or set(' #"<>\\') & {*url}:
            raise InvalidInputError("the address must look like https://example.com/webhooks")
        if "@" in parts.netloc or len(url) > _MAX_URL:
            raise InvalidInputError(f"the address must have no password, and at most {_MAX_URL} characters")
        allowed = {"https", "http"} if self._context.settings.webhook_networks else {"https"}
        if parts.scheme not in allowed:
            raise InvalidInputError(
                "the address must begin with https://; http:// is for networks of LICSERVER_WEBHOOK_NETWORKS"
            )
        self._check_host(parts.hostname or "", parts.scheme)

    def _check_host(self, host: str, scheme: str) -> None:
        """Refuse an IP address to which nothing would be sent; names are resolved at each request."""
        try:
            address = read_host(host)
        except ValueError:
            raise InvalidInputError("the address must look like https://example.com/webhooks") from None
        networks = self._context.settings.webhook_networks
        if address is None:
            return
        if not is_permitted(address, networks):
            raise InvalidInputError(
                f"{host} is not a public address, and nothing would be sent to it; "
                "for a network of your own, set LICSERVER_WEBHOOK_NETWORKS"
            )
        if scheme == "http" and not is_listed(address, networks):
            raise InvalidInputError(
                f"{host} is in no network of LICSERVER_WEBHOOK_NETWORKS; the address must begin with https://"
            )

    def list_endpoints(self) -> list[WebhookEndpoint]:
        """Return all endpoints."""
        return self._webhooks.list_endpoints()

    def get(self, id_: str) -> WebhookEndpoint:
        """Return an endpoint."""
        endpoint = self._webhooks.find_endpoint(id_)
        if endpoint is None:
            raise NotFoundError(f"there is no endpoint {id_!r}; `licserver webhook list` shows all")
        return endpoint

    def rotate(self, id_: str) -> str:
        """Replace an endpoint's secret, and return it; for a day both secrets sign."""
        secret = _draw_secret()
        with self._context.transaction() as tx:
            old = WebhookService(tx).get(id_)
            tx.repositories.webhooks.change_endpoint(
                id_,
                encrypted_secret=self._encrypt(id_, secret),
                encrypted_previous=old.encrypted_secret,
                previous_until=tx.now() + BOTH_SECRETS,
            )
            tx.write_audit("webhook.rotate", ("webhook", id_))
        return webhooks.format_secret(secret)

    def disable(self, id_: str, reason: str | None = None) -> WebhookEndpoint:
        """Disable an endpoint; `reason` is None if a user does it."""
        with self._context.transaction() as tx:
            endpoint = WebhookService(tx).get(id_)
            if endpoint.disabled_at is None:
                tx.repositories.webhooks.change_endpoint(id_, disabled_at=tx.now(), disabled_reason=reason)
                tx.write_audit("webhook.disable", ("webhook", id_), reason=reason)
                if reason is not None:
                    MailService(tx).send_disabled(id_, urlsplit(endpoint.url).hostname or "", reason)
        return self.get(id_)

    def enable(self, id_: str) -> WebhookEndpoint:
        """Enable an endpoint; events from while it was disabled are not sent."""
        with self._context.transaction() as tx:
            if WebhookService(tx).get(id_).disabled_at is not None:
                _begin_scan(tx)
                fresh = {"disabled_at": None, "disabled_reason": None, "failing_since": None}
                tx.repositories.webhooks.change_endpoint(id_, **fresh)
                tx.write_audit("webhook.enable", ("webhook", id_))
        return self.get(id_)

    def remove(self, id_: str) -> None:
        """Remove an endpoint and the list of its deliveries."""
        with self._context.transaction() as tx:
            WebhookService(tx).get(id_)
            tx.repositories.webhooks.remove_endpoint(id_)
            tx.write_audit("webhook.remove", ("webhook", id_))

    def send_test(self, id_: str) -> str:
        """Send a test event to an endpoint; return the event's id."""
        event_id, now = f"msg_{secrets.token_hex(16)}", self._context.now()
        body = webhooks.format_event(TEST_TYPE, now, {"endpoint_id": id_})
        with self._context.transaction() as tx:
            if WebhookService(tx).get(id_).disabled_at is not None:
                raise InvalidInputError("the endpoint is disabled; enable it first")
            tx.repositories.webhooks.add_deliveries(event_id, TEST_TYPE, body, [id_], now)
        return event_id

    def list_deliveries(
        self, endpoint_id: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[WebhookDelivery]:
        """Return a page of deliveries, the latest first."""
        return page_by_id(partial(self._webhooks.list_deliveries, endpoint_id), cursor, limit)

    def redeliver(self, delivery_id: int) -> None:
        """Send an event to an endpoint again, with the same id."""
        with self._context.transaction() as tx:
            if tx.repositories.webhooks.find_delivery(delivery_id) is None:
                raise NotFoundError(
                    f"there is no delivery {delivery_id}; `licserver webhook deliveries` lists them"
                )
            _repeat(tx, [delivery_id], delivery=delivery_id)

    def redeliver_since(self, since: datetime, endpoint_id: str | None = None) -> int:
        """Repeat all deliveries since an instant, delivered or not; return their number."""
        with self._context.transaction() as tx:
            ids = tx.repositories.webhooks.list_ids_since(since, endpoint_id)
            return _repeat(tx, ids, since=since, endpoint=endpoint_id) if ids else 0

    # --- background ---

    def fan_out(self, job: Job) -> bool:
        """Store the body of an event, and a delivery for each endpoint that wants it; for `EVENTS`.

        Returns:
            Whether the job was finished in the same transaction.
        """
        type_, data = job.payload["type"], {**job.payload["data"]}
        if type_ == EventType.ACTIVATION_CREATED:
            license_id = bytes.fromhex(data["license_id"])
            MailService(self._context).send_activation(job.key, license_id)
        endpoints = [endpoint.id for endpoint in self._webhooks.list_endpoints() if endpoint.wants(type_)]
        if not endpoints:
            return False
        if "license_id" in data:
            license_ = self._context.repositories.licenses.find(bytes.fromhex(data["license_id"]))
            if license_ is not None:
                data |= {"masked_key": license_.masked_key, "product": license_.product_slug}
                data |= {"trial": True} if license_.trial else {}
        body = webhooks.format_event(type_, datetime.fromisoformat(job.payload["at"]), data)
        with self._context.transaction() as tx:
            tx.repositories.webhooks.add_deliveries(job.key, type_, body, endpoints, tx.now())
            tx.repositories.queue.finish(job, tx.now())
        return True

    def prepare(self, job: Job) -> Attempt | None:
        """Return what to send for a delivery; None if its endpoint has been removed."""
        delivery = self._webhooks.find_delivery(job.id)
        if delivery is None:
            return None
        endpoint, now, body = self.get(delivery.endpoint_id), self._context.now(), delivery.body.encode()
        if endpoint.disabled_at is not None:
            raise BuryJobError("the endpoint is disabled")
        keys = [self._decrypt(endpoint.id, endpoint.encrypted_secret)]
        if endpoint.encrypted_previous and endpoint.previous_until and now < endpoint.previous_until:
            keys.append(self._decrypt(endpoint.id, endpoint.encrypted_previous))
        return Attempt(endpoint.url, body, webhooks.signed_headers(delivery.event_id, now, body, keys))

    def record(self, job: Job, status: int | None, response: str) -> bool:
        """Store the result of an attempt; raise `RetryJobError` or `BuryJobError` unless it was delivered.

        Returns:
            Whether the job was finished in the same transaction.
        """
        now, outcome = self._context.now(), webhooks.evaluate_response(status)
        due_at = webhooks.next_attempt(job.attempts, now, random.random())  # noqa: S311 - jitter
        settled = now if outcome is DeliveryOutcome.DELIVERED else self._context.settled_now()
        with self._context.transaction() as tx:
            tx.repositories.webhooks.note_attempt(job.id, status, response, now)
            delivery = tx.repositories.webhooks.find_delivery(job.id)
            if delivery is None:
                return False
            endpoint = WebhookService(tx).get(delivery.endpoint_id)
            failing_since = None if outcome is DeliveryOutcome.DELIVERED else endpoint.failing_since or now
            if failing_since != endpoint.failing_since:
                tx.repositories.webhooks.change_endpoint(endpoint.id, failing_since=failing_since)
            if failing_since is None:
                return tx.repositories.queue.finish(job, now)
            if outcome is DeliveryOutcome.GONE:
                WebhookService(tx).disable(endpoint.id, "it answered 410 Gone")
            elif settled - failing_since >= webhooks.MAX_FAILING:
                WebhookService(tx).disable(endpoint.id, "all deliveries of five days failed")
        message = f"status {status}" if status is not None else response
        if due_at is None or outcome is DeliveryOutcome.GONE:
            raise BuryJobError(message)
        raise RetryJobError(message, due_at)

    def scan(self) -> None:
        """Write the events of licenses and subscriptions that have ended by themselves, each once."""
        types, now = self._webhooks.subscribed_types(), self._context.settled_now()
        since = self._webhooks.read_scanned_at()
        if (
            not types & {EventType.LICENSE_EXPIRED, EventType.SUBSCRIPTION_ENDED}
            or since is None
            or since > now
        ):
            return
        # Several processes may scan at once: they write the same events with the same ids.
        self._scan(
            types, now, lambda after: self._webhooks.list_ended(since, now, after, _CHUNK), ended_events
        )
        if since.date() < now.date():
            first, last = since.date(), now.date() - timedelta(days=1)
            self._scan(
                types,
                now,
                lambda after: self._webhooks.list_expired(first, last, after, _CHUNK),
                expired_events,
            )
        if self._webhooks.read_scanned_at() == since:
            self._webhooks.write_scanned_at(now)

    def _scan(self, types: frozenset[str], now: datetime, load: Any, describe: Any) -> None:
        after = b""
        while rows := load(after):
            events = [event for row in rows for event in describe(row, now)]
            self._webhooks.add_events(event for event in events if event.type in types)
            after = rows[-1].id

    def _encrypt(self, id_: str, secret: bytes) -> bytes:
        return self._context.vault.encrypt(secret, b"webhook " + id_.encode())

    def _decrypt(self, id_: str, encrypted: bytes) -> bytes:
        return self._context.vault.decrypt(encrypted, b"webhook " + id_.encode())


def parse_instant(text: str) -> datetime:
    """Parse a typed instant, in UTC unless it has a time zone."""
    try:
        parsed = datetime.fromisoformat(text)
        return parsed.replace(tzinfo=parsed.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInputError(f"{text!r} is not a time; write it like 2026-01-31T14:00") from None


def _draw_secret() -> bytes:
    return secrets.token_bytes(webhooks.SECRET_BYTES)


def _begin_scan(tx: Context) -> None:
    """Skip, before the first endpoint is added, everything that ended without an endpoint."""
    if not tx.repositories.webhooks.subscribed_types():
        tx.repositories.webhooks.write_scanned_at(tx.settled_now())


def _repeat(tx: Context, ids: Sequence[int], **details: Any) -> int:
    count = tx.repositories.queue.revive(DELIVERIES, ids, tx.now())
    tx.repositories.webhooks.name_owners()
    tx.write_audit("webhook.redeliver", ("webhook", "-"), count=count, **details)
    return count
