"""Commands on mail to customers."""

import click

from licserver.cli import Commands
from licserver.cli.common import Printer, services_command
from licserver.database.repositories.queue import JobState
from licserver.errors import InvalidInputError
from licserver.services import Services
from licserver.services.mail import TEMPLATES

_STATES = {JobState.WAITING: "waiting", JobState.DONE: "sent", JobState.DEAD: "given up"}


@click.group("mail", cls=Commands)
def mail_group() -> None:
    """List mails to customers, send one again, try the settings."""


@services_command("list", mail_group)
@click.option("--failed", is_flag=True, help="Only those that were given up.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="At most so many.")
def list_mails(services: Services, printer: Printer, limit: int, *, failed: bool) -> None:
    """List mails, the latest first; the license names the customer."""
    found = services.mail.list_jobs(JobState.DEAD if failed else None, limit=limit)
    records = (
        {
            "mail": job.id,
            "template": job.payload["template"],
            "license": job.payload.get("license_id"),
            "state": _STATES[job.state],
            "attempts": job.attempts,
            "queued_at": job.created_at,
            "error": job.last_error,
        }
        for job in found
    )
    printer.table(records, (8, 15, 32, 8, 8, 23, 0), "no mails")


@services_command("retry", mail_group)
@click.argument("mail", type=int)
def retry(services: Services, printer: Printer, mail: int) -> None:
    """Send MAIL, a number of the list, again."""
    services.mail.retry(mail)
    printer.result({"mail": mail}, f"mail {mail} is sent again by the running server")


@services_command("test", mail_group)
@click.argument("address")
def send_test(services: Services, printer: Printer, address: str) -> None:
    """Send a test to ADDRESS; the server must be running."""
    services.mail.send_test(address)
    printer.result({"sent": True}, "the running server sends it; see: licserver mail list")


@services_command("keys", mail_group)
@click.argument("address")
def send_keys(services: Services, printer: Printer, address: str) -> None:
    """Send a customer who has lost them the keys of all valid licenses of ADDRESS."""
    if not services.mail.send_lost_keys(address):
        raise InvalidInputError(f"nothing is sent: {address} has no valid license, or mail is off")
    printer.result({"sent": True}, "the running server sends them; see: licserver mail list")


@services_command("preview", mail_group)
@click.argument("template", type=click.Choice(list(TEMPLATES)))
def preview(services: Services, printer: Printer, template: str) -> None:
    """Print a TEMPLATE with made-up values."""
    message = services.mail.preview(template)
    parts = [part for part in message.walk() if not part.is_multipart()]
    texts = {part.get_content_type(): part.get_content() for part in parts}
    record = {"subject": message["Subject"], **texts}
    printer.result(record, f"Subject: {message['Subject']}\n\n{texts['text/plain']}")
