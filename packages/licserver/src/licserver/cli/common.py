"""Shared by all commands: parameters, opening an installation, printing."""

import functools
import getpass
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import click

from licserver.cli.output import echo
from licserver.domain.characters import dump_json
from licserver.domain.environments import is_printable
from licserver.domain.records import Actor, ActorKind
from licserver.domain.text import describe_short_year
from licserver.errors import InvalidInputError, LicserverError
from licserver.security.private_files import become_owner
from licserver.services.installation import Services, open_services
from licserver.services.lists import MAX_PAGE
from licserver.services.products import describe_unused_support
from licserver.settings import Settings, load_settings

Function = Callable[..., Any]


# --- opening an installation ------------------------------------------------------------------


class _Folder(click.Path):
    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if value == "":  # a script's unset variable, not the current folder
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


slug_argument = click.argument("slug")
name_argument = click.argument("name")
data_dir_option = click.option(
    "--data-dir",
    type=_Folder(file_okay=False, path_type=Path),
    help="Folder of the database, the secrets and the files.  [LICSERVER_DATA_DIR]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
row_id = click.IntRange(1, 2**63 - 1)
"""The number of a row, as a list shows it."""

limit_option = click.option(
    "--limit", type=click.IntRange(1, MAX_PAGE), default=50, show_default=True, help="How many."
)


def load_command_settings(data_dir: Path | None) -> Settings:
    """Read the settings, and as root become the data folder's owner before anything in it is opened."""
    settings = load_settings(data_dir=data_dir)
    _user()  # the audit log names the user who started the command, not the owner
    become_owner(settings.data_dir)
    return settings


def open_command_services(settings: Settings, *, new_database: bool = False) -> Services:
    """Open the services for the user who started the command; see `open_services`.

    Reports a data folder that it creates: with a mistyped name all products and licenses seem to be gone.
    """
    is_new = not settings.data_dir.exists()
    services = open_services(settings, actor=Actor(ActorKind.CLI, _user()), new_database=new_database)
    if is_new:
        echo(f"created the data folder {settings.data_dir}", err=True)
    return services


def settings_command(
    name: str, group: click.Group | None = None, **attributes: Any
) -> Callable[[Function], click.Command]:
    """Make a command with ``--data-dir`` and ``--json`` of a function of settings and a printer."""

    def decorate(function: Function) -> click.Command:
        @data_dir_option
        @json_option
        @functools.wraps(function)
        def command(*, data_dir: Path | None, as_json: bool, **parameters: Any) -> Any:
            _end_by_sigterm()
            return function(load_command_settings(data_dir), Printer(as_json=as_json), **parameters)

        click_command = (click.command if group is None else group.command)(name, **attributes)(command)
        # The common options last in the help.
        click_command.params = [*click_command.params[2:], *click_command.params[:2]]
        return click_command

    return decorate


def _end_by_sigterm() -> None:
    """Let SIGTERM end a command as Ctrl-C does: not before it has removed what it leaves unfinished."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def services_command(name: str, group: click.Group | None = None) -> Callable[[Function], click.Command]:
    """Do as `settings_command`, with services in place of settings."""

    def decorate(function: Function) -> click.Command:
        @functools.wraps(function)
        def command(settings: Settings, printer: Printer, **parameters: Any) -> Any:
            with closing(open_command_services(settings)) as services:
                return function(services, printer, **parameters)

        return settings_command(name, group)(command)

    return decorate


@functools.cache
def _user() -> str:
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container often has a user id without a name
        return "unknown"
    return name if name and is_printable(name) else "unknown"


def warn_of_unused_support(services: Services, slug: str) -> None:
    """Print a warning if the end of a support period has no effect for a product."""
    if (reason := describe_unused_support(services.products.get(slug))) is not None:
        echo(f"warning: {reason}", err=True)


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, reason: str) -> None:
    """Ask on the terminal; end the command unless the user agrees.

    Raises:
        InvalidInputError: There is no terminal; `reason` begins the message.
        LicserverError: The user does not agree.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInputError(f"{reason}, and there is no terminal to ask; add --yes")
    if not click.confirm(question, err=True):
        raise LicserverError("not confirmed: nothing was changed")


# --- reading parameters -----------------------------------------------------------------------


def parse_day(text: str) -> date:
    """Parse a date; for options with the metavar `YYYY-MM-DD`."""
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a date; write it like 2027-01-31") from None
    if problem := describe_short_year(day):
        raise click.BadParameter(problem)
    return day


def read_stdin_line(subject: str) -> str:
    """Read a line of standard input."""
    if sys.stdin is None:
        raise InvalidInputError(f"there is no standard input to read the {subject} from")
    try:
        return sys.stdin.readline().rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidInputError("standard input is not text") from None


def _read_key(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    # Arguments stay in the shell's history.
    return read_stdin_line("key").strip() if value == "-" else value


key_argument = click.argument("key", callback=_read_key)


def read_file(path: Path) -> bytes:
    """Read a file that the user named."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from None


def read_text(path: Path) -> str:
    """Read a text file that the user named."""
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not UTF-8 text") from None


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that must not exist yet."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    except FileExistsError:
        raise InvalidInputError(f"the file {path} exists already") from None
    with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, for its mode
        file.write(content)


# --- printing ---------------------------------------------------------------------------------


def pick(record: object, *names: str) -> dict[str, Any]:
    """Return fields of a record that are printed as they are."""
    return {name: getattr(record, name) for name in names}


class Printer:
    """Prints results: sentences and aligned columns for people, or JSON for programs."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def result(self, record: dict[str, Any], sentence: str) -> None:
        """Print the result of a change."""
        echo(_to_json(record) if self.as_json else sentence)

    def details(self, record: dict[str, Any]) -> None:
        """Print one object, a field a line."""
        if self.as_json:
            echo(_to_json(record))
            return
        width = max(map(len, record))
        for name, value in record.items():
            lines = (value if isinstance(value, list) else [value]) or ["-"]
            for label, line in zip([name.replace("_", " "), *[""] * len(lines)], lines, strict=False):
                echo(f"{label:{width}}  {_cell(line)}")

    def table(self, records: Iterable[dict[str, Any]], widths: Sequence[int], empty: str) -> None:
        """Print a list of any length while it is read.

        Args:
            records: All with the same fields.
            widths: Of the columns, in characters; 0 for the last one.
            empty: What to print if there are none.
        """
        count = 0
        for count, record in enumerate(records, 1):
            if self.as_json:
                echo(("[" if count == 1 else ",") + _to_json(record))
                continue
            if count == 1:
                echo(_line([name.replace("_", " ").upper() for name in record], widths))
            echo(_line([_cell(value) for value in record.values()], widths))
        if self.as_json:
            echo("]" if count else "[]")
        elif not count:
            echo(empty)


def _to_json(record: dict[str, Any]) -> str:
    return dump_json(record, default=_plain)


def _plain(value: Any) -> str:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case _:
            raise TypeError(f"no JSON for {type(value).__name__}")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case dict():
            return "  ".join(_cell(part) for part in value.values())
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S} UTC"
        case _:
            return str(value).replace("\n", "\\n")  # a line break would look like a further row
