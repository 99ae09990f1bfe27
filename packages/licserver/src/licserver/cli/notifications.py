"""Commands on what is sent: webhooks to programs of the vendor, mail to customers."""

from typing import Any

import click

from licserver.cli import Commands
from licserver.cli.common import Printer, key_argument, limit_option, pick, row_id, services_command
from licserver.database.repositories.queue import Job, JobState
from licserver.database.repositories.webhooks import WebhookEndpoint
from licserver.errors import InvalidInputError
from licserver.protocol.webhooks import EventType
from licserver.services.installation import Services
from licserver.services.mail import TEMPLATES
from licserver.services.webhooks import parse_instant

id_argument = click.argument("endpoint", metavar="ID")


webhook_group = Commands(
    "webhook",
    help="Notify your programs of events: add, list and change endpoints; repeat deliveries.",
)


@services_command("add", webhook_group)
@click.argument("url")
@click.option("--events", metavar="TYPE,…", help=f"Only these: {', '.join(EventType)}.  [default: all]")
def add(services: Services, printer: Printer, url: str, events: str | None) -> None:
    """Send events to URL, and print the secret that signs them."""
    types = [] if events is None else [type_.strip() for type_ in events.split(",") if type_.strip()]
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


def _describe_endpoint(endpoint: WebhookEndpoint) -> dict[str, Any]:
    disabled = endpoint.disabled_at and f"disabled: {endpoint.disabled_reason or 'by hand'}"
    shown = {"endpoint": endpoint.id, "url": endpoint.url, "events": " ".join(endpoint.types) or "all"}
    return {**shown, "state": disabled or "enabled", "failing_since": endpoint.failing_since}


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
@limit_option
def deliveries(services: Services, printer: Printer, endpoint: str | None, limit: int) -> None:
    """List deliveries, the latest first, with what the endpoint responded."""
    listed = services.webhooks.list_deliveries(endpoint, limit=limit).items
    records = (
        {"delivery": delivery.id, "endpoint": delivery.endpoint_id, "event": delivery.event_id}
        | pick(delivery, "type", "state", "attempts", "sent_at", "status")
        | {"response": None if delivery.response is None else " ".join(delivery.response.split())}
        for delivery in listed
    )
    printer.table(records, (8, 15, 36, 24, 8, 8, 23, 6, 0), "nothing was sent yet")


@services_command("redeliver", webhook_group)
@click.argument("delivery", type=row_id, required=False, metavar="[DELIVERY]")
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
        count = services.webhooks.redeliver_since(parse_instant(since or ""), endpoint)
    printer.result({"redelivered": count}, f"{count} will be sent again by the running server")


# --- mail to customers ------------------------------------------------------------------------

_STATES = {JobState.WAITING: "waiting", JobState.DONE: "sent", JobState.DEAD: "given up"}


def _describe_state(job: Job) -> str:
    return "not sent" if job.state is JobState.DONE and job.last_error else _STATES[job.state]


mail_group = Commands("mail", help="List mails to customers, send one again, try the settings.")


@services_command("list", mail_group)
@click.option("--failed", is_flag=True, help="Only those that were given up.")
@limit_option
def list_mails(services: Services, printer: Printer, limit: int, *, failed: bool) -> None:
    """List mails, the latest first; the license names the customer."""
    jobs = services.mail.list_jobs(JobState.DEAD if failed else None, limit=limit).items
    records = (
        {"mail": job.id, "template": job.payload["template"], "license": job.payload.get("license_id")}
        | {"state": _describe_state(job), "attempts": job.attempts}
        | {"queued_at": job.created_at, "error": job.last_error}
        for job in jobs
    )
    printer.table(records, (8, 15, 32, 8, 8, 23, 0), "no mails")


@services_command("retry", mail_group)
@click.argument("mail", type=row_id, metavar="MAIL")
def retry_mail(services: Services, printer: Printer, mail: int) -> None:
    """Send MAIL, a number of the list, again."""
    services.mail.retry(mail)
    printer.result({"mail": mail}, f"mail {mail} is sent again by the running server")


@services_command("test", mail_group)
@click.argument("address")
def send_test_mail(services: Services, printer: Printer, address: str) -> None:
    """Send a test to ADDRESS; the server must be running."""
    services.mail.send_test(address)
    printer.result({"sent": True}, "the running server sends it; see: licserver mail list")


@services_command("keys", mail_group)
@click.argument("address")
def send_keys(services: Services, printer: Printer, address: str) -> None:
    """Send the keys of all valid licenses of ADDRESS to that address, after their loss."""
    if not services.mail.send_lost_keys(address):
        raise InvalidInputError(f"nothing is sent: {address} has no valid license, or mail is off")
    printer.result({"sent": True}, "the running server sends them; see: licserver mail list")


@services_command("key", mail_group)
@key_argument
def send_key(services: Services, printer: Printer, key: str) -> None:
    """Send the key of a license to its customer; KEY is the key, or the id that `license list` shows."""
    services.mail.resend_key(key)
    printer.result({"sent": True}, "the running server sends it; see: licserver mail list")


@services_command("preview", mail_group)
@click.argument("template", metavar="TEMPLATE", type=click.Choice(list(TEMPLATES)))
@click.option("--language", metavar="CODE", help="Such as de.  [default: LICSERVER_MAIL_LANGUAGE]")
def preview(services: Services, printer: Printer, template: str, language: str | None) -> None:
    """Print a TEMPLATE with made-up values."""
    message = services.mail.preview(template, language)
    parts = [part for part in message.walk() if not part.is_multipart()]
    texts = {part.get_content_type(): part.get_content() for part in parts}
    record = {"subject": message["Subject"], **texts}
    printer.result(record, f"Subject: {message['Subject']}\n\n{texts['text/plain']}")
