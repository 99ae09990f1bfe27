"""Commands that back up and restore the whole installation."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

import click

from licserver.cli.common import in_background, services_command, settings_command
from licserver.cli.output import Printer
from licserver.clock import system_clock
from licserver.domain.text import plural
from licserver.errors import InvalidInputError
from licserver.security.private_files import new_file
from licserver.services import Services
from licserver.services.backup import Summary, restore_backup, write_backup
from licserver.settings import Settings

file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.command("backup")
@file_argument
@click.option("--replace", is_flag=True, help="Replace an existing FILE.")
@click.option("--without-artifacts", is_flag=True, help="Omit the files of releases.")
@services_command
def backup(
    services: Services, printer: Printer, file: Path, *, replace: bool, without_artifacts: bool
) -> None:
    """Write database, secrets and the files of releases to FILE; the server may keep running.

    FILE holds every secret: it has mode 0600; encrypt it and keep it on another machine. - writes to standard
    output, so that nothing is on the disk unencrypted.
    """
    is_piped = str(file) == "-"
    if is_piped and sys.stdout.isatty():
        raise InvalidInputError("a backup is not text; send it to a file or a program")
    with (
        in_background() as run_transaction,
        nullcontext(sys.stdout.buffer) if is_piped else new_file(file, replace=replace) as target,
    ):
        run_transaction(lambda: services.audit.record("backup.write", ("installation", "-")))
        summary = write_backup(services, target, system_clock(), artifacts=not without_artifacts)
        target.flush()
    sentence = _format("backed up", summary)
    if is_piped:
        click.echo(sentence, err=True)
    else:
        printer.result({"file": str(file), **_record(summary)}, f"{sentence} in {file}")


@click.command("restore")
@file_argument
@click.option("--force", is_flag=True, help="Replace the existing installation; stop its server first.")
@settings_command
def restore(settings: Settings, printer: Printer, file: Path, *, force: bool) -> None:
    """Create an installation from the backup FILE; - reads standard input.

    The settings name its folder and database, which may be of another engine than the backup's. FILE is
    checked completely before anything changes.
    """
    with nullcontext(sys.stdin.buffer) if str(file) == "-" else _open_file(file) as source:
        summary = restore_backup(source, settings, force=force)
    done = f"restored the state of {summary.made_at:%Y-%m-%d %H:%M:%S} UTC:"
    printer.result(_record(summary), _format(done, summary))
    click.echo(
        "what was revoked or changed since then is valid again: check the tokens (licserver token list), the "
        "console's users and passwords, and revoked licenses; everybody is signed out",
        err=True,
    )


def _open_file(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except (FileNotFoundError, IsADirectoryError):
        raise InvalidInputError(f"there is no file {file}") from None


def _record(summary: Summary) -> dict[str, object]:
    return {
        "made_at": summary.made_at,
        "version": summary.version,
        "schema": summary.revision,
        "licenses": summary.rows.get("licenses", 0),
        "activations": summary.rows.get("activations", 0),
        "artifacts": summary.artifacts,
        "bytes": summary.size,
    }


def _format(done: str, summary: Summary) -> str:
    counts = [(name, summary.rows.get(f"{name}s", 0)) for name in ("product", "license", "activation")]
    words = [f"{count} {plural(count, name)}" for name, count in [*counts, ("file", summary.artifacts)]]
    return f"{done} {', '.join(words)}; {summary.size:,} bytes"
