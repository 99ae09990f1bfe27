"""What the commands share: the options that all of them take, and how they print."""

import contextlib
import functools
import getpass
import json
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from licserver.domain.environments import is_printable
from licserver.domain.records import Actor, ActorKind
from licserver.errors import LicserverError, WrongUse
from licserver.security.privileges import become_owner
from licserver.security.redaction import mask
from licserver.services import Services, open_services
from licserver.settings import Settings, load_settings

_STEP: Final = 10
_WHOLE: Final = 1000
_BUSY: Final = 2
"""Of those who want a processor there are so many to each, on average over a minute."""

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


class _Folder(click.Path):
    """A folder; an empty name is a script's variable that is not set, not the folder that one stands in."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Read the name."""
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


def data_dir_option(command: F) -> F:
    """Add ``--data-dir``."""
    return click.option(
        "--data-dir",
        type=_Folder(file_okay=False, path_type=Path),
        help="Folder of the database, the secrets and the files.  [LICSERVER_DATA_DIR]",
    )(command)


def load_command_settings(data_dir: Path | None) -> Settings:
    """Read the settings, and as root become the data folder's owner, before anything in it is opened."""
    settings = load_settings(data_dir=data_dir)
    _user()  # whoever started the command, and not the owner, is named in the audit log
    become_owner(settings.data_dir)
    return settings


@contextmanager
def opened(data_dir: Path | None) -> Iterator[Services]:
    """Open the data folder for one command."""
    with opened_services(load_command_settings(data_dir)) as services:
        yield services


@contextmanager
def opened_services(settings: Settings, *, new_database: bool = False) -> Iterator[Services]:
    """Open the data folder of settings from `load_command_settings`; as `open_services`."""
    services = open_services(settings, actor=Actor(ActorKind.CLI, _user()), new_database=new_database)
    try:
        yield services
    finally:
        services.close()


def note_done(settings: Settings, action: str, object_: tuple[str, str], **details: Any) -> None:
    """Note what was done to the secrets, which needs no database; where there is none at hand, say so.

    A secret that has leaked must be replaced also while the database is away (D-132).

    Args:
        settings: Whose.
        action: What was done.
        object_: Kind and id of what it was done to.
        details: For JSON; no secrets.
    """
    try:
        with opened_services(settings) as services:
            services.audit.record(action, object_, **details)
    except (LicserverError, OSError) as problem:
        click.echo(f"warning: done, but not recorded in the audit log: {mask(str(problem))}", err=True)


@functools.cache
def _user() -> str:
    """Who has started the command, for the audit log."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container often has a number without a name
        return "unknown"
    return name if name and is_printable(name) else "unknown"


def services_command(function: Callable[..., R]) -> Callable[..., R]:
    """Give a command ``--data-dir`` and ``--json``, and pass it services and a printer."""

    @data_dir_option
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @functools.wraps(function)
    def command(*, data_dir: Path | None, as_json: bool, **parameters: Any) -> R:
        with opened(data_dir) as services:
            return function(services, Printer(as_json=as_json), **parameters)

    return command


def step_back() -> None:
    """Let the server beside us go first: what takes minutes must not cost its customers anything."""
    # Not on Windows; and a service whose system calls are filtered may not.
    with contextlib.suppress(AttributeError, OSError):
        os.nice(_STEP)


class Commands(click.Group):
    """A group whose list of commands tells the whole first sentence of each; click cuts it off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(limit=_WHOLE)) for name, one in commands.items() if one]
            )


@contextmanager
def standing_aside() -> Iterator[Callable[[Callable[[], R]], R]]:
    """Step back, and for the rest of the process work only while nobody else wants the processor (D-135).

    Where the system knows no such rank (it is Linux's), or is so busy that this would be to stand still, it
    is `step_back` alone.

    Yields:
        Does something that must not be kept waiting, because others wait for its locks: on a thread that
        has stepped back and not aside.
    """
    step_back()
    with ThreadPoolExecutor(1, "licserver-upright") as upright:
        upright.submit(int).result()  # begun now, because a thread has the rank of the one that begins it
        with contextlib.suppress(AttributeError, OSError):
            if os.getloadavg()[0] < _BUSY * (os.cpu_count() or 1):
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        yield lambda work: upright.submit(work).result()


class Printer:
    """Prints results: a few words and aligned columns for people, one JSON document for programs.

    Args:
        as_json: Which of the two.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def one(self, record: dict[str, Any], sentence: str) -> None:
        """Print what became of one thing."""
        click.echo(json.dumps(record, default=plain, ensure_ascii=False) if self.as_json else sentence)

    def fields(self, record: dict[str, Any]) -> None:
        """Print one thing at length."""
        if self.as_json:
            self.one(record, "")
            return
        width = max(map(len, record))
        for name, value in record.items():
            lines = value if isinstance(value, list) else [value]
            for label, line in zip(
                [name.replace("_", " "), *[""] * len(lines)], lines or ["-"], strict=False
            ):
                click.echo(f"{label:{width}}  {_cell(line)}")

    def rows(self, records: Iterator[dict[str, Any]], widths: Sequence[int], empty: str) -> None:
        """Print a list as it comes, however long it is.

        Args:
            records: All with the same fields.
            widths: Of the columns, in characters; the last one may run on.
            empty: What to say when there is nothing.
        """
        count = 0
        for count, record in enumerate(records, 1):
            if self.as_json:
                click.echo(
                    ("[" if count == 1 else ",") + json.dumps(record, default=plain, ensure_ascii=False)
                )
                continue
            if count == 1:
                click.echo(_line([name.replace("_", " ").upper() for name in record], widths))
            click.echo(_line([_cell(value) for value in record.values()], widths))
        if self.as_json:
            click.echo("]" if count else "[]")
        elif not count:
            click.echo(empty)


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
            return str(value)


def plain(value: Any) -> Any:
    """Write dates, instants and bytes as JSON text."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case _:
            raise TypeError(f"no JSON for {type(value).__name__}")


class Slots(click.ParamType[Any]):
    """A whole number from 0, or ``unlimited`` (D-07)."""

    name = "N|unlimited"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text; None stands for unlimited, wrapped so that click takes it for given."""
        if isinstance(value, tuple):
            return value
        if value.lower() == "unlimited":  # help shows it in capitals
            return (None,)
        if not (value.isascii() and value.isdecimal() and len(value) < 10):  # noqa: PLR2004 - fits 32 bits
            self.fail(f"{value!r} is neither a whole number nor 'unlimited'", param, ctx)
        return (int(value),)


class Day(click.ParamType[Any]):
    """A date such as 2027-01-31."""

    name = "YYYY-MM-DD"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        try:
            return datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC).date()
        except ValueError:
            self.fail(f"{value!r} is no date; write it like 2027-01-31", param, ctx)


class DayOrNever(Day):
    """A date, or ``never``, which is None, wrapped so that click takes it for given."""

    name = "YYYY-MM-DD|never"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        if isinstance(value, tuple):
            return value
        return (None,) if value.lower() == "never" else (super().convert(value, param, ctx),)


class Instant(click.ParamType[Any]):
    """An instant such as 2027-01-31T12:00Z; without a zone it is UTC."""

    name = "INSTANT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        try:
            instant = datetime.fromisoformat(value)
            return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no instant; write it like 2027-01-31T12:00Z", param, ctx)


def bind(host: str, port: int) -> list[socket.socket]:
    """Open the listening sockets of a host, one for each of its addresses.

    Raises:
        WrongUse: when the host can be no name.
        OSError: naming the address that cannot be had.
    """
    from licserver.web import server  # noqa: PLC0415 - aiohttp takes half of the time that every other command needs

    try:
        return server.bind(host, port)
    except OSError as problem:
        raise OSError(problem.errno, f"cannot listen on {host} port {port}: {problem.strerror}") from None
    except UnicodeError:  # an empty label, one that is too long, bytes that are no text
        raise WrongUse(f"--host: {host!r} is neither a name nor an address") from None
