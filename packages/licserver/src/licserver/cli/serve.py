"""The command that serves an installation."""

import asyncio
import errno
import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import click

from licserver.cli.common import data_dir_option, json_option, load_command_settings
from licserver.cli.output import echo
from licserver.errors import InvalidInputError, StoreUnavailableError
from licserver.runtime.logging import set_up_logging
from licserver.services.installation import Services, open_services
from licserver.services.self_check import Finding, Level, check_idle_days, check_products, check_settings
from licserver.serving import server, waiting
from licserver.settings import Settings, load_settings

if sys.platform != "win32":  # workers need fork
    from licserver.serving.workers import serve_with_workers

_log = logging.getLogger("licserver.serving")
_ADMIN_IS_TAKEN: Final = (
    "customers are served there, or another server runs there: choose another LICSERVER_ADMIN_LISTEN"
)


def bind(
    host: str, port: int, if_taken: str = "another server runs there: stop it, or choose another --port"
) -> list[socket.socket]:
    """Open a listening socket for each address of a host; errors name what cannot be used, and what to do."""
    try:
        return server.bind(host, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        is_taken = error.errno == errno.EADDRINUSE
        advice = f"; {if_taken}" if is_taken else ""
        if isinstance(error, socket.gaierror):
            advice = "; write a name or an address of this machine, without scheme and port"
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {reason}{advice}") from None
    except UnicodeError:  # an empty or too long label, or bytes that are not text
        raise InvalidInputError(f"--host: {host!r} is not a name or address") from None


def is_loopback(sock: socket.socket) -> bool:
    """Return whether only this machine reaches a listening socket."""
    return ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback


def _open(settings: Settings, socks: Sequence[socket.socket], notify: Callable[[str], None]) -> Services:
    """Open the services; wait for a PostgreSQL that is away, and respond 503 meanwhile (D-246)."""
    try:
        return open_services(settings)  # what it does by itself is nobody's at the command line
    except StoreUnavailableError as problem:
        if settings.database_url is None or not waiting.may_return(problem):
            raise
    open_ = partial(open_services, settings)
    return asyncio.run(waiting.open_when_possible(open_, socks, settings, notify))


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; `::` for each.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port; 0 for any."
)
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes.")
@json_option
@data_dir_option
def serve(host: str, port: int, workers: int, data_dir: Path | None, *, as_json: bool) -> None:
    """Answer verify, update check and download until stopped (SIGTERM or Ctrl-C)."""
    if workers > 1 and sys.platform == "win32":
        raise InvalidInputError(
            "--workers needs fork, which Windows does not have; run one worker or several servers"
        )
    notify_supervisor = server.take_supervisor()
    settings = load_settings(data_dir=data_dir)
    set_up_logging(settings.log_format, settings.log_limit)
    with ExitStack() as stack:
        # Before the data folder is opened, which ends root's right to ports below 1024.
        sockets = [stack.enter_context(sock) for sock in bind(host, port)]
        listens_openly = not all(is_loopback(sock) for sock in sockets)
        addresses = {"listening": server.address_of(sockets[0])}
        admin_sockets = []
        if settings.admin_address is not None:
            admin_sockets = [
                stack.enter_context(sock) for sock in bind(*settings.admin_address, _ADMIN_IS_TAKEN)
            ]
            addresses["admin"] = server.address_of(admin_sockets[0])

        def announce() -> None:
            notify_supervisor("READY=1")
            console = f"{addresses.get('admin', addresses['listening'])}/console"
            if as_json:
                echo(json.dumps({**addresses, "console": console, "data_dir": str(settings.data_dir)}))
            else:
                echo(f"listening on {addresses['listening']}")
                if "admin" in addresses:
                    echo(f"admin API on {addresses['admin']}")
                echo(f"console at {console}")
                echo(f"data folder {settings.data_dir}")
            for finding in (*check_settings(settings, listens_openly=listens_openly), *findings):
                if finding.level is not Level.OK:
                    _log.warning("%s; %s", finding.message, finding.advice)

        owned, findings = load_command_settings(data_dir), list[Finding]()
        with closing(_open(owned, [*sockets, *admin_sockets], notify_supervisor)) as services:
            findings += check_idle_days(settings, services.repositories)
            findings += check_products(settings, services.repositories)
            if workers == 1:
                asyncio.run(server.serve(services, sockets, announce, admin_sockets))
                return
            services.close()  # checked and set up; each worker opens its own
            serve_with_workers(settings, sockets, workers, announce, admin_sockets)
