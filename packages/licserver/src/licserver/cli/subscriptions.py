"""Commands on subscriptions of licenses."""

from datetime import UTC, datetime

import click

from licserver.cli import Commands
from licserver.cli.common import Printer, services_command
from licserver.domain.text import plural
from licserver.services import Services

subscription_argument = click.argument("subscription_id", metavar="ID")


def _parse_instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a date and time; write it like 2027-01-31T12:00Z"
        ) from None


@click.group("subscription", cls=Commands)
def subscription_group() -> None:
    """End and resume subscriptions."""


@services_command("end", subscription_group)
@subscription_argument
@click.option(
    "--at",
    type=_parse_instant,
    metavar="INSTANT",
    help="When it ends, UTC unless a zone is given; default: now.",
)
def end(services: Services, printer: Printer, subscription_id: str, at: datetime | None) -> None:
    """End the subscription ID: its licenses expire at that time."""
    count = services.subscriptions.end(subscription_id, at)
    licenses = plural(count, "license expires", "licenses expire")
    printer.result(
        {"subscription": subscription_id, "licenses": count},
        f"ended {subscription_id}: {count} {licenses} with it",
    )


@services_command("resume", subscription_group)
@subscription_argument
def resume(services: Services, printer: Printer, subscription_id: str) -> None:
    """Undo the end of the subscription ID."""
    count = services.subscriptions.resume(subscription_id)
    printer.result(
        {"subscription": subscription_id, "licenses": count},
        f"resumed {subscription_id}: {count} {plural(count, 'license')}",
    )
