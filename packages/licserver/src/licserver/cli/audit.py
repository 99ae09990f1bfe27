"""The command that shows the audit log."""

from typing import Any

import click

from licserver.cli.common import services_command
from licserver.cli.output import Printer
from licserver.database.repositories.audit import Entry
from licserver.domain.text import say_details
from licserver.services import MAX_PAGE, AuditFilter, Services


@click.command()
@click.option("--license", "license_", metavar="KEY", help="Only changes of this license (key or id).")
@click.option(
    "--limit", type=click.IntRange(1, MAX_PAGE), default=50, show_default=True, help="How many lines."
)
@services_command
def audit(services: Services, printer: Printer, license_: str | None, limit: int) -> None:
    """Show who changed what, the latest first."""
    object_ = None if license_ is None else ("license", services.licenses.get(license_).id.hex())
    page = services.audit.list_page(AuditFilter(object=object_), limit=limit)
    records = (_record(entry, as_json=printer.as_json) for entry in page.items)
    printer.table(records, (24, 16, 20, 12, 32, 0), "no changes yet")


def _record(entry: Entry, *, as_json: bool) -> dict[str, Any]:
    return {
        "at": entry.at,
        "who": f"{entry.actor.kind}:{entry.actor.name}",
        "action": entry.action,
        "kind": entry.object_kind,
        "object": entry.object_id,
        "details": entry.details if as_json else say_details(entry.details),
    }
