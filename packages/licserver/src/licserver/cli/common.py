"""What the commands share: opening an installation, the audit log, priorities, sockets."""

import contextlib
import functools
import getpass
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from licserver.cli.output import Printer
from licserver.cli.parameters import Folder
from licserver.domain.environments import is_printable
from licserver.domain.records import Actor, ActorKind
from licserver.errors import InvalidInputError, LicserverError
from licserver.security.private_files import become_owner
from licserver.security.redaction import mask
from licserver.services import Services, open_services
from licserver.settings import Settings, load_settings

_NICENESS: Final = 10
_BUSY: Final = 2
"""Processes that want each processor, on average over a minute; with more, idle time is not enough."""

R = TypeVar("R")

data_dir_option = click.option(
    "--data-dir",
    type=Folder(),
    help="Folder of the database, the secrets and the files.  [LICSERVER_DATA_DIR]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


class Commands(click.Group):
    """A group whose help lists the first sentence of each command in full; click would cut it off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(limit=1000)) for name, one in commands.items() if one]
            )


# --- opening an installation ------------------------------------------------------------------


def load_command_settings(data_dir: Path | None) -> Settings:
    """Read the settings, and as root become the data folder's owner before anything in it is opened."""
    settings = load_settings(data_dir=data_dir)
    _user()  # the audit log names the user who started the command, not the owner
    become_owner(settings.data_dir)
    return settings


@contextmanager
def opened_services(settings: Settings, *, new_database: bool = False) -> Iterator[Services]:
    """Open the services for a block; see `open_services`."""
    services = open_services(settings, actor=Actor(ActorKind.CLI, _user()), new_database=new_database)
    try:
        yield services
    finally:
        services.close()


def settings_command(function: Callable[..., R]) -> Callable[..., R]:
    """Add ``--data-dir`` and ``--json`` to a command, and call it with settings and a printer."""

    @data_dir_option
    @json_option
    @functools.wraps(function)
    def command(*, data_dir: Path | None, as_json: bool, **parameters: Any) -> R:
        return function(load_command_settings(data_dir), Printer(as_json=as_json), **parameters)

    return command


def services_command(function: Callable[..., R]) -> Callable[..., R]:
    """Add ``--data-dir`` and ``--json`` to a command, and call it with services and a printer."""

    @settings_command
    @functools.wraps(function)
    def command(settings: Settings, printer: Printer, **parameters: Any) -> R:
        with opened_services(settings) as services:
            return function(services, printer, **parameters)

    return command


def record_change(settings: Settings, action: str, object_: tuple[str, str], **details: Any) -> None:
    """Record a change of the secrets in the audit log; print a warning if the database fails (D-132)."""
    try:
        with opened_services(settings) as services:
            services.audit.record(action, object_, **details)
    except (LicserverError, OSError) as error:
        click.echo(f"warning: done, but not recorded in the audit log: {mask(str(error))}", err=True)


@functools.cache
def _user() -> str:
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container often has a user id without a name
        return "unknown"
    return name if name and is_printable(name) else "unknown"


# --- priorities -------------------------------------------------------------------------------


def lower_priority() -> None:
    """Let the server go first."""
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
    lower_priority()
    with ThreadPoolExecutor(1, "licserver-transaction") as thread:
        thread.submit(int).result()  # started now, because a thread inherits its class
        with contextlib.suppress(AttributeError, OSError):
            if os.getloadavg()[0] < _BUSY * (os.cpu_count() or 1):
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        yield lambda work: thread.submit(work).result()


# --- serving ----------------------------------------------------------------------------------


def port_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add ``--port``."""
    return click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8080,
        show_default=True,
        help="Port; 0 lets the system choose.",
    )(command)


def bind(host: str, port: int) -> list[socket.socket]:
    """Open a listening socket for each address of a host.

    Raises:
        InvalidInputError: if the host is not a valid name.
        OSError: naming the address that cannot be used.
    """
    from licserver.web import server  # noqa: PLC0415 - aiohttp would double the time of every command

    try:
        return server.bind(host, port)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from None
    except UnicodeError:  # an empty or too long label, or bytes that are not text
        raise InvalidInputError(f"--host: {host!r} is not a name or address") from None
