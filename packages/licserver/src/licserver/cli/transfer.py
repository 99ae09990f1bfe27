"""Commands that move whole lists of licenses, and the one that removes what is old."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TextIO

import click

from licserver.cli.common import Printer, services_command, standing_aside, step_back
from licserver.errors import WrongUse
from licserver.protocol.license_files import FORMATS, read_rows, write_head, write_row
from licserver.security.private_files import new_file
from licserver.services import Services
from licserver.services.phrases import plural

format_option = click.option(
    "--format", "form", type=click.Choice(FORMATS), help="Unless given, what FILE's name ends with."
)


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@format_option
@click.option("--product", metavar="SLUG", help="Only this product's.")
@click.option("--replace", is_flag=True, help="Take the place of a FILE that is there already.")
@services_command
def export(
    services: Services, printer: Printer, file: Path, form: str | None, product: str | None, *, replace: bool
) -> None:
    """Write all licenses with their keys and activations into FILE; - is standard output.

    FILE holds every key: it is made with mode 0600. `licserver import` reads it again.
    """
    form = _form(file, form)
    count = 0
    with (
        standing_aside() as upright,
        nullcontext(sys.stdout.buffer) if str(file) == "-" else new_file(file, replace=replace) as target,
    ):
        target.write(write_head(form).encode())
        for row in upright(lambda: services.transfer.export(product)):  # which notes it, and then reads
            target.write(write_row(form, row).encode())
            count += 1
        target.flush()
    if str(file) != "-":
        printer.one(
            {"file": str(file), "licenses": count}, f"exported {count} {plural(count, 'license')} into {file}"
        )


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@format_option
@click.option("--dry-run", is_flag=True, help="Check all lines, and change nothing.")
@services_command
def import_(services: Services, printer: Printer, file: Path, form: str | None, *, dry_run: bool) -> None:
    """Take licenses in from FILE, all or none; - is standard input.

    Each line is a license, with a key of yours or one that is drawn; drawn keys are printed, one a line, in
    the order of the file. `licserver export` shows the fields. The server may go on serving.
    """
    form = _form(file, form)
    with standing_aside() as upright, _opened(file) as lines, services.transfer.start_import() as incoming:
        try:
            incoming.read(read_rows(form, lines))
        except UnicodeDecodeError:
            raise WrongUse(f"{file} is no text in UTF-8; spreadsheets can save one as “CSV UTF-8”") from None
        for problem in incoming.problems:
            click.echo(f"line {problem.line}: {problem.said}", err=True)
        if incoming.wrong:
            more = incoming.wrong - len(incoming.problems)
            raise WrongUse(
                f"nothing was imported: {incoming.wrong} {plural(incoming.wrong, 'line')} cannot be taken"
                + (f" ({more} not shown)" if more else "")
            )
        if dry_run:
            record = {"licenses": incoming.count, "dry_run": True}
            printer.one(record, f"{incoming.count} {plural(incoming.count, 'license')} can be imported")
            return
        incoming.prepare()
        count = upright(incoming.commit)
        drawn = incoming.drawn_keys()
        if printer.as_json:
            told = [{"line": line, "license_key": key} for line, key in drawn]
            printer.one({"licenses": count, "drawn": told}, "")
            return
        for _, key in drawn:
            click.echo(key)
        click.echo(f"imported {count} {plural(count, 'license')}", err=True)


@click.command("sweep")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@services_command
def sweep(services: Services, printer: Printer, *, dry_run: bool) -> None:
    """Remove what is older than LICSERVER_ACTIVATION_DAYS and LICSERVER_AUDIT_DAYS allow.

    To be run once a day, by a timer; the server goes on serving.
    """
    step_back()
    swept = services.retention.sweep(dry_run=dry_run)
    free, remove = ("would free", "remove") if dry_run else ("freed", "removed")
    slots, lines = plural(swept.activations, "slot"), plural(swept.audit, "line")
    sentence = f"{free} {swept.activations} {slots} and {remove} {swept.audit} {lines} of the audit log"
    printer.one(swept._asdict(), sentence)


def _form(file: Path, form: str | None) -> str:
    found = form or file.suffix.removeprefix(".").lower()
    if found not in FORMATS:
        raise WrongUse("say with --format whether it is csv or jsonl")
    return found


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    if str(file) == "-":
        if isinstance(sys.stdin, io.TextIOWrapper):  # as a file would be read, whatever the locale says
            sys.stdin.reconfigure(encoding="utf-8", newline="")
        yield sys.stdin
        return
    try:
        opened = file.open(encoding="utf-8", newline="")
    except OSError as problem:
        raise WrongUse(f"cannot read {file}: {problem.strerror}") from None
    with opened:
        yield opened
