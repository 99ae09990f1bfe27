"""Commands on one person's data."""

from pathlib import Path

import click

from licserver.cli import Commands
from licserver.cli.common import Printer, confirm, services_command, write_new, yes_option
from licserver.cli.output import echo
from licserver.domain.characters import dump_json
from licserver.domain.text import plural
from licserver.services.installation import Services

email_argument = click.argument("email")

customer_group = Commands("customer", help="Export or erase all data of a customer.")


@services_command("export", customer_group)
@email_argument
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="A new file.  [default: print, as - does]"
)
def export(services: Services, printer: Printer, email: str, out: Path | None) -> None:
    """Write all that is held of EMAIL as one JSON document, with the license keys.

    It looks through all tables, also those of audit log, jobs, webhooks and shops. The server may keep
    running.
    """
    document = dump_json(services.personal_data.export(email), indent=2)
    if out is None or out == Path("-"):
        echo(document)
        return
    write_new(out, f"{document}\n".encode(), 0o600)
    printer.result({"file": str(out)}, f"written to {out}; it contains license keys: keep it secret")


@services_command("erase", customer_group)
@email_argument
@click.option("--keep-licenses", is_flag=True, help="Keep the licenses valid, without personal data.")
@yes_option
def erase(services: Services, printer: Printer, email: str, *, keep_licenses: bool, yes: bool) -> None:
    """Erase all that is held of EMAIL, for good; ask first.

    Licenses are deleted; those that a shop has sold are revoked and stay as numbers, so that a delivery that
    comes again issues none. A restore erases again what its backup still has. The server may keep running.
    """
    if not yes:
        licenses = "everything but the licenses" if keep_licenses else "everything, with the licenses,"
        confirm(f"Erase {licenses} of {email}? It cannot be undone.", "erasing cannot be undone")
    counts = services.personal_data.erase(email, keep_licenses=keep_licenses)
    total = sum(counts.values())
    printer.result(
        {"rows": total, "tables": counts, "keep_licenses": keep_licenses},
        f"erased: {total} {plural(total, 'row')} in {len(counts)} {plural(len(counts), 'table')}; backups "
        "have it until you delete them",
    )


@services_command("erase-again", customer_group)
def erase_again(services: Services, printer: Printer) -> None:
    """Erase again what was erased before, after a database was restored by other means than `restore`."""
    count = services.personal_data.erase_again()
    printer.result({"addresses": count}, f"erased again: {count} {plural(count, 'address', 'addresses')}")
