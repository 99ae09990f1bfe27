"""The command that shows the audit log."""

from typing import Any

import click

from licserver.cli.common import Printer, services_command
from licserver.database.repositories.audit import Entry
from licserver.services import MAX_PAGE, AuditFilter, Services
from licserver.services.phrases import say_details


@click.command()
@click.option("--license", "license_", metavar="KEY", help="Only what was done to this license (key or id).")
@click.option(
    "--limit", type=click.IntRange(1, MAX_PAGE), default=50, show_default=True, help="How many lines."
)
@services_command
def audit(services: Services, printer: Printer, license_: str | None, limit: int) -> None:
    """Show who changed what, the latest first."""
    object_ = None if license_ is None else ("license", services.licenses.get(license_).id.hex())
    page = services.audit.list_page(AuditFilter(object=object_), limit=limit)
    record = _record if printer.as_json else _in_words
    printer.rows(map(record, page.items), (24, 16, 20, 12, 32, 0), "nothing has been done yet")


def _in_words(line: Entry) -> dict[str, Any]:
    return {**_record(line), "details": say_details(line.details)}


def _record(line: Entry) -> dict[str, Any]:
    return {
        "at": line.at,
        "who": f"{line.actor.kind}:{line.actor.name}",
        "action": line.action,
        "kind": line.object_kind,
        "object": line.object_id,
        "details": line.details,
    }
