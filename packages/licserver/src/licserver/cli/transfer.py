"""Licenses as a file: export, and import from our own files or those of other systems."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click

from licserver.cli.common import Printer, services_command
from licserver.cli.installation import file_argument, in_background, is_piped, replace_option, written
from licserver.cli.output import echo
from licserver.domain.text import plural
from licserver.errors import InvalidInputError
from licserver.protocol.conversion import Quantity
from licserver.protocol.foreign_exports import PRESETS
from licserver.protocol.license_files import FORMATS, read_lines, read_rows, write_head, write_row
from licserver.services.installation import Services
from licserver.services.license_imports import Action, Existing, LicenseImport
from licserver.services.transfer import choose_format

format_option = click.option(
    "--format", "form", type=click.Choice(FORMATS), help="Default: the extension of FILE."
)


@services_command("export")
@file_argument
@format_option
@click.option("--product", metavar="SLUG", help="Only this product's licenses.")
@replace_option
def export(
    services: Services, printer: Printer, file: Path, form: str | None, product: str | None, *, replace: bool
) -> None:
    """Write all licenses with their keys and activations to FILE; - is standard output.

    FILE holds every key: it has mode 0600. `licserver import` reads it again.
    """
    form = choose_format(file.name, form)
    count = 0
    with in_background() as run_transaction, written(file, replace=replace) as target:
        target.write(write_head(form).encode())
        for row in run_transaction(lambda: services.transfer.export(product)):  # records it, then reads
            target.write(write_row(form, row).encode())
            count += 1
    if not is_piped(file):
        record = {"file": str(file), "licenses": count}
        printer.result(record, f"exported {count} {plural(count, 'license')} into {file}")


@services_command("import")
@file_argument
@format_option
@click.option("--preset", type=click.Choice(sorted(PRESETS)), help="The system whose export FILE is.")
@click.option(
    "--map",
    "columns",
    multiple=True,
    metavar="COLUMN=FIELD",
    help="Take FIELD from this column of FILE; without FIELD ignore the column. May be repeated.",
)
@click.option(
    "--product",
    "products",
    multiple=True,
    metavar="[NAME=]SLUG",
    help="The product of the lines that name NAME, or of all others. May be repeated.",
)
@click.option("--slots", metavar="N", help="Slots of lines that name none; `unlimited` for no limit.")
@click.option(
    "--expires", metavar="YYYY-MM-DD|NEVER", help="Last day of validity of lines without an end of their own."
)
@click.option(
    "--support-until",
    metavar="YYYY-MM-DD|NEVER",
    help="Last day of update downloads of lines without one, if the product has a policy.",
)
@click.option(
    "--quantity",
    type=click.Choice([member.value for member in Quantity]),
    help="What several copies in a line become: a license with as many times the slots, or as many licenses.",
)
@click.option(
    "--existing",
    type=click.Choice([member.value for member in Existing]),
    default=Existing.REFUSE.value,
    show_default=True,
    help="What to do with a line whose key is in the database with other terms.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done with each line, and change nothing.")
def import_(
    services: Services,
    printer: Printer,
    file: Path,
    form: str | None,
    existing: str,
    *,
    dry_run: bool,
    **mapping: Any,
) -> None:
    """Import licenses from FILE, all or none; - is standard input.

    Each line is a license, with your key or a generated one; generated keys are printed, one a line, in the
    order of the file. `licserver export` shows the fields. A file without a column for the slots, or for the
    end, needs --slots or --expires. A line whose license is in the database already
    with the same terms changes nothing. The server may keep running.

    A line without a key is a new license each time that FILE is imported.

    Keys that were sold elsewhere need a product that accepts them: `licserver product change SLUG
    --accept-imported-keys`.
    """
    conversion = services.transfer.make_conversion(**mapping)
    form = choose_format(file.name, form, conversion)
    with (
        in_background() as run_transaction,
        _opened_text(file) as lines,
        services.transfer.start_import() as incoming,
    ):
        incoming.read(read_rows(form, read_lines(lines), conversion), Existing(existing))
        _print_warnings(incoming)
        if dry_run:
            _print_plan(printer, incoming)
            return
        for problem in incoming.problems:
            echo(f"line {problem.line}: {problem.message}", err=True)
        _check(incoming)
        incoming.prepare()
        count = run_transaction(incoming.commit)
        keys = incoming.generated_keys()
        if printer.as_json:
            drawn = [{"line": line, "license_key": key} for line, key in keys]
            record = {"licenses": count, "drawn": drawn, "without_key": incoming.keyless}
            printer.result({**record, "warnings": _warnings_of(incoming)}, "")
            return
        for _, key in keys:
            echo(key)
        echo(f"imported {count} {plural(count, 'license')}{_describe_rest(incoming)}", err=True)


def _print_warnings(incoming: LicenseImport) -> None:
    for warning in incoming.warnings:
        echo(f"line {warning.line}: warning: {warning.message}", err=True)
    if hidden := incoming.doubtful - len(incoming.warnings):
        echo(f"{hidden} more warnings are not shown", err=True)
    if (keyless := incoming.describe_keyless()) is not None:
        echo(f"warning: {keyless}", err=True)


def _warnings_of(incoming: LicenseImport) -> list[dict[str, Any]]:
    return [warning._asdict() for warning in incoming.warnings]


def _print_plan(printer: Printer, incoming: LicenseImport) -> None:
    if printer.as_json:
        record = {
            "licenses": incoming.count,
            "dry_run": True,
            "changed": len(incoming.changes),
            "unchanged": len(incoming.unchanged),
            "skipped": len(incoming.skipped),
            "refused": incoming.wrong,
            "without_key": incoming.keyless,
            "lines": [entry._asdict() for entry in incoming.plan()],
            "warnings": _warnings_of(incoming),
        }
        printer.result(record, "")
        _check(incoming)
        return
    for entry in incoming.plan():
        change = " ".join(filter(None, (entry.action, entry.license_key, entry.detail)))
        echo(f"line {entry.line}: {change}", err=entry.action is Action.REFUSE)
    _check(incoming)
    count = f"{incoming.count} {plural(incoming.count, 'license')}"
    echo(f"{count} can be imported{_describe_rest(incoming)}; nothing was written")


def _describe_rest(incoming: LicenseImport) -> str:
    """Describe the lines that bring no new license."""
    skipped = f"{plural(len(incoming.skipped), 'line')} skipped"
    counts = (
        (len(incoming.changes), "changed"),
        (len(incoming.unchanged), "unchanged"),
        (len(incoming.skipped), skipped),
    )
    return "".join(f", {count} {label}" for count, label in counts if count)


def _check(incoming: LicenseImport) -> None:
    if incoming.wrong:
        hidden = incoming.wrong - len(incoming.problems)
        raise InvalidInputError(
            f"nothing was imported: {incoming.wrong} {plural(incoming.wrong, 'line')} with errors"
            + (f" ({hidden} not shown)" if hidden else "")
        )


@contextmanager
def _opened_text(file: Path) -> Iterator[TextIO]:
    if is_piped(file):
        if isinstance(sys.stdin, io.TextIOWrapper):  # as a file, with any locale
            sys.stdin.reconfigure(encoding="utf-8", newline="")
        yield sys.stdin
        return
    try:
        opened = file.open(encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidInputError(f"cannot read {file}: {error.strerror}") from None
    with opened:
        yield opened
