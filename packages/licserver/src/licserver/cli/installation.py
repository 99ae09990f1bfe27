"""Commands on a whole installation: its database, its self-check, backups, old data."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Final, TypeVar

import click

from licserver.cli import Commands
from licserver.cli.common import (
    Printer,
    data_dir_option,
    json_option,
    load_command_settings,
    open_command_services,
    pick,
    services_command,
    settings_command,
)
from licserver.clock import system_clock
from licserver.database import schema
from licserver.database.engine import Database, connect
from licserver.database.timelines import Timelines
from licserver.domain.text import plural
from licserver.errors import InvalidInputError, SettingsError, StoreError
from licserver.security import secrets_file
from licserver.security.private_files import new_file
from licserver.services import Services
from licserver.services.backup import Summary, write_backup
from licserver.services.restore import restore_backup
from licserver.services.self_check import Finding, Level, check_installation
from licserver.settings import Settings

# `migrate` is imported by the commands, because Alembic would double the time of all others.


database_group = Commands("db", help="Create, upgrade, check and count the database.")


@contextmanager
def _connected(settings: Settings, *, create: bool = False) -> Iterator[Database]:
    """Connect to the database; unless `create`, to an existing SQLite file only."""
    missing = StoreError("there is no database yet; the first command that needs one creates it")
    if create:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    elif settings.database_url is None and not settings.data_dir.is_dir():
        raise missing
    with closing(connect(settings.database, Timelines(settings.data_dir))) as database:
        if not (create or database.file is None or database.file.exists()):
            raise missing
        yield database


@settings_command("create", database_group)
def create_database(settings: Settings, printer: Printer) -> None:
    """Create a new database for secrets whose database is lost; it knows no license key."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings, create=True) as database:
        schema.check_new(database)
        secrets_file.open_vault(settings)
        migrate.upgrade(database)
    with closing(open_command_services(settings, new_database=True)) as services:
        services.audit.record("database.create", ("installation", "-"))
    printer.result({"to": schema.HEAD}, f"created: schema {schema.HEAD}")


@settings_command("upgrade", database_group)
def upgrade_database(settings: Settings, printer: Printer) -> None:
    """Upgrade the database to the schema of this program; on PostgreSQL the servers go on."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings, create=True) as database:
        if schema.read_version(database) is None:
            schema.check_expected(database, None, expected=_is_expected(settings))
            schema.check_new(database)
        before = migrate.upgrade(database)
    if before is not None and before > schema.HEAD:
        printer.result({"from": before, "to": before}, f"the schema is {before}, which serves this program")
        return
    done = f"{f'upgraded from {before}' if before else 'set up'}: schema {schema.HEAD}"
    sentence = f"the schema is {schema.HEAD} already" if before == schema.HEAD else done
    printer.result({"from": before, "to": schema.HEAD}, sentence)


@settings_command("downgrade", database_group)
def downgrade_database(settings: Settings, printer: Printer) -> None:
    """Take back the last step of the schema, once no server of this version runs any more."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings) as database:
        after = migrate.downgrade(database)
    printer.result({"from": schema.HEAD, "to": after}, f"taken back from {schema.HEAD}: schema {after}")


def _is_expected(settings: Settings) -> bool:
    """Return whether there are secrets that require an existing database."""
    if settings.secrets is None and not (settings.data_dir / secrets_file.SECRETS_FILE).exists():
        return False
    vault = secrets_file.read_vault(secrets_file.read_secrets(settings), secrets_file.SECRETS_FILE)
    return secrets_file.expects_database(settings, vault)


@settings_command("check", database_group)
def check_database(settings: Settings, printer: Printer) -> None:
    """Compare the database's schema with that of this program; exit code 1 if they differ."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings) as database:
        version = schema.read_version(database)
        schema.check_version(database, version)
        is_newer = version != schema.HEAD
        if not is_newer and (found := migrate.differences(database)):
            raise StoreError(f"the database differs from schema {schema.HEAD}: {'; '.join(found)}")
    ending = f"which serves this program ({schema.HEAD})" if is_newer else "as it should be"
    printer.result({"version": version, "ok": True}, f"the schema is {version}, {ending}")


@settings_command("status", database_group)
def show_status(settings: Settings, printer: Printer) -> None:
    """Show the database's engine, its schema, and how much it holds."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings) as database:
        found = migrate.read_status(database)
    shown = {"engine": found.engine, "database": found.place, "version": found.version, "head": found.head}
    printer.details({**shown, **found.counts})


# --- self-check -----------------------------------------------------------------------------------

_SIGNS = {Level.OK: "ok  ", Level.WARNING: "WARN", Level.FAILED: "FAIL"}


@click.command("check")
@data_dir_option
@json_option
@click.option("--reach", is_flag=True, help="Also request LICSERVER_BASE_URL over the network, within 5 s.")
def check(data_dir: Path | None, *, as_json: bool, reach: bool) -> None:
    """Check settings, permissions, clock, database, files and keys; change nothing.

    The exit code is 1 if a check has failed; warnings do not count.
    """
    try:
        settings = load_command_settings(data_dir)
    except SettingsError as error:
        findings = [Finding("settings", Level.FAILED, str(error), "correct the variable that it names")]
    else:
        findings = list(check_installation(settings, system_clock(), reach=reach))
    failed = [one for one in findings if one.level is Level.FAILED]
    if as_json:
        document = [
            {"about": one.about, "level": one.level, "message": one.message, "advice": one.advice}
            for one in findings
        ]
        Printer(as_json=True).result({"ok": not failed, "findings": document}, "")
    else:
        for one in findings:
            click.echo(f"{_SIGNS[one.level]}  {one.about}: {one.message}")
            if one.advice:
                click.echo(f"      → {one.advice}")
    if failed:
        sys.exit(1)


# --- files, and commands in the background ----------------------------------------------------

_NICENESS: Final = 10
_BUSY: Final = 2
"""Processes that want each processor, on average over a minute; with more, idle time is not enough."""

R = TypeVar("R")

file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
replace_option = click.option("--replace", is_flag=True, help="Replace an existing FILE.")


def _lower_priority() -> None:
    # Windows has no nice, and a systemd unit may filter the system call.
    with contextlib.suppress(AttributeError, OSError):
        os.nice(_NICENESS)


@contextmanager
def in_background() -> Iterator[Callable[[Callable[[], R]], R]]:
    """Lower the priority, and for the rest of the process use idle processor time only (D-135).

    Only lowers the priority where the system has no such class (it is Linux's), or is overloaded.

    Yields:
        A function that runs a transaction for which others wait, on a thread with the lower priority.
    """
    _lower_priority()
    with ThreadPoolExecutor(1, "licserver-transaction") as thread:
        thread.submit(int).result()  # started now, because a thread inherits its class
        with contextlib.suppress(AttributeError, OSError):
            if os.getloadavg()[0] < _BUSY * (os.cpu_count() or 1):
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        yield lambda work: thread.submit(work).result()


def is_piped(file: Path) -> bool:
    """Return whether a name stands for standard input or output."""
    return str(file) == "-"


@contextmanager
def written(file: Path, *, replace: bool) -> Iterator[IO[bytes]]:
    """Open a private file, or standard output, for a block that writes it."""
    if is_piped(file):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with new_file(file, replace=replace) as target:
        yield target


@services_command("sweep")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
def sweep(services: Services, printer: Printer, *, dry_run: bool) -> None:
    """Delete what is older than LICSERVER_ACTIVATION_DAYS and LICSERVER_AUDIT_DAYS allow.

    Run it once a day with a timer; the server may keep running.
    """
    _lower_priority()
    swept = services.retention.sweep(dry_run=dry_run)
    free, remove = ("would free", "remove") if dry_run else ("freed", "removed")
    slots, lines = plural(swept.activations, "slot"), plural(swept.audit, "line")
    sentence = f"{free} {swept.activations} {slots} and {remove} {swept.audit} {lines} of the audit log"
    printer.result(swept._asdict(), sentence)


# --- backup -----------------------------------------------------------------------------------


@services_command("backup")
@file_argument
@replace_option
@click.option("--without-artifacts", "bare", is_flag=True, help="Omit the files of releases.")
def backup(services: Services, printer: Printer, file: Path, *, replace: bool, bare: bool) -> None:
    """Write database, secrets and the files of releases to FILE; the server may keep running.

    FILE holds every secret: it has mode 0600; encrypt it and keep it on another machine. - writes to standard
    output, so that nothing is on the disk unencrypted.
    """
    if is_piped(file) and sys.stdout.isatty():
        raise InvalidInputError("a backup is not text; send it to a file or a program")
    with in_background() as run_transaction, written(file, replace=replace) as target:
        run_transaction(lambda: services.audit.record("backup.write", ("installation", "-")))
        summary = write_backup(services, target, system_clock(), artifacts=not bare)
    sentence = _format("backed up", summary)
    if is_piped(file):
        click.echo(sentence, err=True)
    else:
        printer.result({"file": str(file), **_record(summary)}, f"{sentence} in {file}")


@settings_command("restore")
@file_argument
@click.option("--force", is_flag=True, help="Replace the existing installation; stop its server first.")
def restore(settings: Settings, printer: Printer, file: Path, *, force: bool) -> None:
    """Create an installation from the backup FILE; - reads standard input.

    The settings name its folder and database, which may be of another engine than the backup's. FILE is
    checked completely before anything changes.
    """
    try:
        source = contextlib.nullcontext(sys.stdin.buffer) if is_piped(file) else file.open("rb")
    except (FileNotFoundError, IsADirectoryError):
        raise InvalidInputError(f"there is no file {file}") from None
    with source as content:
        summary = restore_backup(content, settings, force=force)
    done = f"restored the state of {summary.made_at:%Y-%m-%d %H:%M:%S} UTC:"
    printer.result(_record(summary), _format(done, summary))
    click.echo(
        "what was revoked or changed since then is valid again: check the tokens (licserver token list), the "
        "console's users and passwords, and revoked licenses; everybody is signed out",
        err=True,
    )


def _record(summary: Summary) -> dict[str, object]:
    return {
        **pick(summary, "made_at", "version"),
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
