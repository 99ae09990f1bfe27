"""Commands on a whole installation: its database, its self-check, backups, old data."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, Final, TypeVar

import click

from licserver.cli.common import (
    Printer,
    data_dir_option,
    json_option,
    load_command_settings,
    pick,
    services_command,
    settings_command,
)
from licserver.cli.output import TerminalFile, echo
from licserver.clock import system_clock
from licserver.domain.text import plural
from licserver.errors import InvalidInputError, SettingsError, StoreUnavailableError
from licserver.security.private_files import new_file
from licserver.services.backup import Summary, write_backup
from licserver.services.installation import Services
from licserver.services.personal_data import FILE as ERASURES_FILE
from licserver.services.restore import restore_backup
from licserver.services.self_check import Finding, Level, check_installation, describe_clock
from licserver.settings import Settings

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
    failed = [finding for finding in findings if finding.level is Level.FAILED]
    if as_json:
        document = [
            {
                "about": finding.about,
                "level": finding.level,
                "message": finding.message,
                "advice": finding.advice,
            }
            for finding in findings
        ]
        Printer(as_json=True).result({"ok": not failed, "findings": document}, "")
    else:
        for finding in findings:
            echo(f"{_SIGNS[finding.level]}  {finding.about}: {finding.message}")
            if finding.advice:
                echo(f"      → {finding.advice}")
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
    """Return whether a name means standard input or output."""
    return str(file) == "-"


@contextmanager
def written(file: Path, *, replace: bool) -> Iterator[IO[bytes]]:
    """Open a private file, or standard output, for a block that writes it."""
    if is_piped(file):
        output: BinaryIO = sys.stdout.buffer
        if sys.stdout.isatty():
            output = io.BufferedWriter(TerminalFile(output))
        yield output
        output.flush()
        sys.stdout.buffer.flush()
        return
    with new_file(file, replace=replace) as target:
        yield target


@services_command("sweep")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
def sweep(services: Services, printer: Printer, *, dry_run: bool) -> None:
    """Delete what is older than the settings allow.

    `licserver serve` does so once a day; with this command you need not wait for it.
    """
    _lower_priority()
    swept = services.retention.sweep(dry_run=dry_run)
    if (warning := describe_clock(services.repositories, services.now())) is not None:
        echo(f"{warning}; until then only what was old before is deleted", err=True)
    free, remove = ("would free", "remove") if dry_run else ("freed", "removed")
    slots, lines = plural(swept.activations, "slot"), plural(swept.audit, "line")
    sentence = f"{free} {swept.activations} {slots} and {remove} {swept.audit} {lines} of the audit log"
    printer.result(swept._asdict(), sentence)


@services_command("clock")
@click.option("--accept", is_flag=True, help="Trust the clock at once, because it is right.")
def clock(services: Services, printer: Printer, *, accept: bool) -> None:
    """Show whether the clock of this machine is trusted, or accept it.

    After an outage or a change of the clock, expiry events, mails about an end and deletions wait as long as
    that has lasted, a day at most.
    """
    now, clocks = services.now(), services.repositories.clock
    if accept:
        with services.transaction() as tx:
            tx.repositories.clock.accept(now)
            tx.audit.record("clock.accept", ("installation", "-"), at=now)
    reading, warning = clocks.evaluate(now), describe_clock(services.repositories, now)
    sentence = f"the clock is trusted: {now:%Y-%m-%d %H:%M:%S} UTC"
    if warning is not None:
        sentence = f"{warning}. If it is right, `licserver clock --accept`"
    printer.result(
        {"now": now, "certain": reading.record.confirmed_at, "believed_from": reading.believed_from}, sentence
    )


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
        run_transaction(partial(_record_backup, services))
        summary = write_backup(services, target, system_clock(), artifacts=not bare)
    sentence = _format("backed up", summary)
    if is_piped(file):
        echo(sentence, err=True)
    else:
        printer.result({"file": str(file), **_record(summary)}, f"{sentence} in {file}")


def _record_backup(services: Services) -> None:
    """Record a backup in the audit log; from a full disk it is written without (D-132)."""
    try:
        services.audit.record("backup.write", ("installation", "-"))
    except StoreUnavailableError as problem:
        echo(f"warning: the backup is not recorded in the audit log: {problem}", err=True)


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
    knows_erasures = force or (settings.data_dir / ERASURES_FILE).exists()
    with source as content:
        summary = restore_backup(content, settings, force=force)
    done = f"restored the state of {summary.made_at:%Y-%m-%d %H:%M:%S} UTC:"
    printer.result({**_record(summary), "erased": summary.erased}, _format(done, summary))
    if summary.erased:
        echo(f"erased again: {summary.erased} {plural(summary.erased, 'address', 'addresses')}", err=True)
    if not knows_erasures:
        echo(
            "customers that were erased since then are back, if there were any: to erase them again, copy "
            f"{ERASURES_FILE} from the former data folder to {settings.data_dir}, and run: "
            "licserver customer erase-again",
            err=True,
        )
    echo(
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
