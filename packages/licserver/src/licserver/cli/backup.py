"""Commands that put the whole installation into one file, and take it out again."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

import click

from licserver.cli.common import (
    Printer,
    data_dir_option,
    load_command_settings,
    services_command,
    standing_aside,
)
from licserver.clock import system_clock
from licserver.errors import WrongUse
from licserver.security.private_files import new_file
from licserver.services import Services
from licserver.services.backup import Summary, restore_backup, write_backup
from licserver.services.phrases import plural


@click.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Take the place of a FILE that is there already.")
@click.option("--without-artifacts", is_flag=True, help="Leave the files of releases out.")
@services_command
def backup(
    services: Services, printer: Printer, file: Path, *, replace: bool, without_artifacts: bool
) -> None:
    """Write database, secrets and the files of releases into FILE; the server may go on serving.

    FILE holds every secret: it is made with mode 0600, and belongs encrypted onto another machine. A - writes
    to standard output, so that nothing is ever on the disk in the clear.
    """
    is_piped = str(file) == "-"
    if is_piped and sys.stdout.isatty():
        raise WrongUse("a backup is no text; send it into a file or a program")
    with (
        standing_aside() as upright,
        nullcontext(sys.stdout.buffer) if is_piped else new_file(file, replace=replace) as target,
    ):
        upright(lambda: services.audit.record("backup.write", ("installation", "-")))
        summary = write_backup(services, target, system_clock(), artifacts=not without_artifacts)
        target.flush()
    if is_piped:
        click.echo(_sentence("backed up", summary), err=True)
        return
    printer.one({"file": str(file), **_record(summary)}, f"{_sentence('backed up', summary)} in {file}")


@click.command("restore")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace the installation that is there; stop its server first.")
@data_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def restore(file: Path, data_dir: Path | None, *, force: bool, as_json: bool) -> None:
    """Make an installation of the backup FILE; - reads standard input.

    The settings say where to: the engine of the database may be another than the backup's. All of FILE is
    checked before anything of it counts.
    """
    settings = load_command_settings(data_dir)
    with nullcontext(sys.stdin.buffer) if str(file) == "-" else _open_file(file) as source:
        summary = restore_backup(source, settings, force=force)
    done = f"restored the state of {summary.made_at:%Y-%m-%d %H:%M:%S} UTC:"
    Printer(as_json=as_json).one(_record(summary), _sentence(done, summary))
    click.echo(
        "what was ended since that day holds again: see to the tokens (licserver token list), the "
        "console's users and passwords, and the licenses that were revoked; everybody is signed out",
        err=True,
    )


def _open_file(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except (FileNotFoundError, IsADirectoryError):
        raise WrongUse(f"there is no file {file}") from None


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


def _sentence(done: str, summary: Summary) -> str:
    counts = [(name, summary.rows.get(f"{name}s", 0)) for name in ("product", "license", "activation")]
    told = ", ".join(
        f"{count} {plural(count, name)}" for name, count in [*counts, ("file", summary.artifacts)]
    )
    return f"{done} {told}; {summary.size:,} bytes"
