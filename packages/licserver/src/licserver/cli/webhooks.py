"""Commands on webhooks that are sent."""

from datetime import UTC, datetime
from typing import Any

import click

from licserver.cli import Commands
from licserver.cli.common import Printer, pick, services_command
from licserver.database.repositories.webhooks import Delivery, Endpoint
from licserver.errors import InvalidInputError
from licserver.protocol.webhooks import EventType
from licserver.services import Services

id_argument = click.argument("endpoint", metavar="ID")


@click.group("webhook", cls=Commands)
def webhook_group() -> None:
    """Notify programs of yours of what happens: add, list and change endpoints; repeat deliveries."""


@services_command("add", webhook_group)
@click.argument("url")
@click.option("--events", metavar="TYPE,…", help=f"Only these: {', '.join(EventType)}.  [default: all]")
def add(services: Services, printer: Printer, url: str, events: str | None) -> None:
    """Send events to URL, and print the secret that signs them."""
    types = [] if events is None else [one.strip() for one in events.split(",") if one.strip()]
    endpoint, secret = services.webhooks.add(url, types)
    printer.result(
        {"endpoint": endpoint.id, "url": url, "secret": secret},
        f"added {endpoint.id}\nsecret, which is not shown again: {secret}",
    )


@services_command("list", webhook_group)
def list_endpoints(services: Services, printer: Printer) -> None:
    """List all endpoints."""
    records = map(_describe_endpoint, services.webhooks.list_endpoints())
    printer.table(records, (15, 50, 30, 30, 0), "no endpoints yet; add one: licserver webhook add URL")


def _describe_endpoint(endpoint: Endpoint) -> dict[str, Any]:
    state = (
        "enabled" if endpoint.disabled_at is None else f"disabled: {endpoint.disabled_reason or 'by hand'}"
    )
    return {
        "endpoint": endpoint.id,
        "url": endpoint.url,
        "events": " ".join(endpoint.types) or "all",
        "state": state,
        "failing_since": endpoint.failing_since,
    }


@services_command("rotate", webhook_group)
@id_argument
def rotate(services: Services, printer: Printer, endpoint: str) -> None:
    """Give the endpoint ID another secret; for a day, the old one signs as well."""
    secret = services.webhooks.rotate(endpoint)
    printer.result({"endpoint": endpoint, "secret": secret}, f"secret, which is not shown again: {secret}")


@services_command("disable", webhook_group)
@id_argument
def disable(services: Services, printer: Printer, endpoint: str) -> None:
    """Send nothing to the endpoint ID."""
    services.webhooks.disable(endpoint)
    printer.result({"endpoint": endpoint}, f"disabled {endpoint}; events are not kept for it")


@services_command("enable", webhook_group)
@id_argument
def enable(services: Services, printer: Printer, endpoint: str) -> None:
    """Send events to the endpoint ID again."""
    services.webhooks.enable(endpoint)
    printer.result({"endpoint": endpoint}, f"enabled {endpoint}")


@services_command("remove", webhook_group)
@id_argument
def remove(services: Services, printer: Printer, endpoint: str) -> None:
    """Remove the endpoint ID and the list of its deliveries."""
    services.webhooks.remove(endpoint)
    printer.result({"endpoint": endpoint}, f"removed {endpoint}")


@services_command("test", webhook_group)
@id_argument
def send_test(services: Services, printer: Printer, endpoint: str) -> None:
    """Send an event without a meaning to the endpoint ID; the server must be running."""
    event = services.webhooks.send_test(endpoint)
    printer.result(
        {"event": event}, f"{event} is sent by the running server; see: licserver webhook deliveries"
    )


@services_command("deliveries", webhook_group)
@click.option("--endpoint", metavar="ID", help="Only those to this endpoint.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="At most so many.")
def deliveries(services: Services, printer: Printer, endpoint: str | None, limit: int) -> None:
    """List deliveries, the latest first, with what the endpoint answered."""
    found = services.webhooks.list_deliveries(endpoint, limit=limit)
    records = (_describe_delivery(one) for one in found)
    printer.table(records, (8, 15, 36, 24, 8, 8, 23, 6, 0), "nothing was sent yet")


def _describe_delivery(delivery: Delivery) -> dict[str, Any]:
    return {
        "delivery": delivery.id,
        "endpoint": delivery.endpoint_id,
        "event": delivery.event_id,
        **pick(delivery, "type", "state", "attempts", "sent_at", "status"),
        "answer": None if delivery.answer is None else " ".join(delivery.answer.split()),
    }


@services_command("redeliver", webhook_group)
@click.argument("delivery", type=int, required=False, metavar="[DELIVERY]")
@click.option("--since", metavar="TIME", help="All events since then: 2026-01-31, or 2026-01-31T14:00 (UTC).")
@click.option("--endpoint", metavar="ID", help="With --since: only those to this endpoint.")
def redeliver(
    services: Services, printer: Printer, delivery: int | None, since: str | None, endpoint: str | None
) -> None:
    """Send one delivery again, or all since an instant; events keep their ids."""
    if (delivery is None) == (since is None):
        raise InvalidInputError("give either the number of a delivery or --since")
    if delivery is not None:
        services.webhooks.redeliver(delivery)
        count = 1
    else:
        count = services.webhooks.redeliver_since(_parse_instant(since or ""), endpoint)
    printer.result({"redelivered": count}, f"{count} will be sent again by the running server")


def _parse_instant(text: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"{text!r} is not a time; write it like 2026-01-31T14:00") from None
    return parsed.replace(tzinfo=parsed.tzinfo or UTC)
