"""Commands that import and export licenses, and delete old data."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TextIO

import click

from licserver.cli.common import in_background, lower_priority, services_command
from licserver.cli.output import Printer
from licserver.domain.text import plural
from licserver.errors import InvalidInputError
from licserver.protocol.license_files import FORMATS, read_rows, write_head, write_row
from licserver.security.private_files import new_file
from licserver.services import Services

file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
format_option = click.option(
    "--format", "form", type=click.Choice(FORMATS), help="Default: the extension of FILE."
)


@click.command("export")
@file_argument
@format_option
@click.option("--product", metavar="SLUG", help="Only this product's licenses.")
@click.option("--replace", is_flag=True, help="Replace an existing FILE.")
@services_command
def export(
    services: Services, printer: Printer, file: Path, form: str | None, product: str | None, *, replace: bool
) -> None:
    """Write all licenses with their keys and activations to FILE; - is standard output.

    FILE holds every key: it has mode 0600. `licserver import` reads it again.
    """
    form = _choose_format(file, form)
    count = 0
    with (
        in_background() as run_transaction,
        nullcontext(sys.stdout.buffer) if str(file) == "-" else new_file(file, replace=replace) as target,
    ):
        target.write(write_head(form).encode())
        for row in run_transaction(lambda: services.transfer.export(product)):  # records it, then reads
            target.write(write_row(form, row).encode())
            count += 1
        target.flush()
    if str(file) != "-":
        record = {"file": str(file), "licenses": count}
        printer.result(record, f"exported {count} {plural(count, 'license')} into {file}")


@click.command("import")
@file_argument
@format_option
@click.option("--dry-run", is_flag=True, help="Check all lines, and change nothing.")
@services_command
def import_(services: Services, printer: Printer, file: Path, form: str | None, *, dry_run: bool) -> None:
    """Import licenses from FILE, all or none; - is standard input.

    Each line is a license, with your key or a generated one; generated keys are printed, one a line, in the
    order of the file. `licserver export` shows the fields. The server may keep running.
    """
    form = _choose_format(file, form)
    with (
        in_background() as run_transaction,
        _opened(file) as lines,
        services.transfer.start_import() as incoming,
    ):
        try:
            incoming.read(read_rows(form, lines))
        except UnicodeDecodeError:
            raise InvalidInputError(
                f"{file} is not UTF-8 text; spreadsheets can save as “CSV UTF-8”"
            ) from None
        for problem in incoming.problems:
            click.echo(f"line {problem.line}: {problem.message}", err=True)
        if incoming.wrong:
            hidden = incoming.wrong - len(incoming.problems)
            raise InvalidInputError(
                f"nothing was imported: {incoming.wrong} {plural(incoming.wrong, 'line')} with errors"
                + (f" ({hidden} not shown)" if hidden else "")
            )
        if dry_run:
            record = {"licenses": incoming.count, "dry_run": True}
            printer.result(record, f"{incoming.count} {plural(incoming.count, 'license')} can be imported")
            return
        incoming.prepare()
        count = run_transaction(incoming.commit)
        keys = incoming.drawn_keys()
        if printer.as_json:
            drawn = [{"line": line, "license_key": key} for line, key in keys]
            printer.result({"licenses": count, "drawn": drawn}, "")
            return
        for _, key in keys:
            click.echo(key)
        click.echo(f"imported {count} {plural(count, 'license')}", err=True)


@click.command("sweep")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@services_command
def sweep(services: Services, printer: Printer, *, dry_run: bool) -> None:
    """Delete what is older than LICSERVER_ACTIVATION_DAYS and LICSERVER_AUDIT_DAYS allow.

    Run it once a day with a timer; the server may keep running.
    """
    lower_priority()
    swept = services.retention.sweep(dry_run=dry_run)
    free, remove = ("would free", "remove") if dry_run else ("freed", "removed")
    slots, lines = plural(swept.activations, "slot"), plural(swept.audit, "line")
    sentence = f"{free} {swept.activations} {slots} and {remove} {swept.audit} {lines} of the audit log"
    printer.result(swept._asdict(), sentence)


def _choose_format(file: Path, form: str | None) -> str:
    chosen = form or file.suffix.removeprefix(".").lower()
    if chosen not in FORMATS:
        raise InvalidInputError("the format of the file is not known; add --format csv or --format jsonl")
    return chosen


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    if str(file) == "-":
        if isinstance(sys.stdin, io.TextIOWrapper):  # as a file, whatever the locale
            sys.stdin.reconfigure(encoding="utf-8", newline="")
        yield sys.stdin
        return
    try:
        opened = file.open(encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidInputError(f"cannot read {file}: {error.strerror}") from None
    with opened:
        yield opened
