"""The command that runs the server."""

import asyncio
import json
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from licserver.cli.common import (
    bind,
    data_dir_option,
    json_option,
    load_command_settings,
    opened_services,
    port_option,
)
from licserver.errors import InvalidInputError
from licserver.settings import load_settings


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@port_option
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes.")
@json_option
@data_dir_option
def serve(host: str, port: int, workers: int, data_dir: Path | None, *, as_json: bool) -> None:
    """Answer verify, update check and download until stopped (SIGTERM or Ctrl-C)."""
    if workers > 1 and sys.platform == "win32":
        raise InvalidInputError(
            "--workers needs fork, which Windows does not have; run one worker or several servers"
        )
    # Imported here: aiohttp would double the time of every other command.
    from licserver.web import server  # noqa: PLC0415
    from licserver.web.logging import set_up_logging  # noqa: PLC0415
    from licserver.web.server import take_supervisor  # noqa: PLC0415

    notify_supervisor = take_supervisor()
    settings = load_settings(data_dir=data_dir)
    set_up_logging(settings.log_format)
    with ExitStack() as stack:
        # Before the data folder is opened, which ends root's right to ports below 1024.
        sockets = [stack.enter_context(sock) for sock in bind(host, port)]
        addresses = {"listening": server.address_of(sockets[0])}
        admin_sockets = []
        if settings.admin_address is not None:
            admin_sockets = [stack.enter_context(sock) for sock in bind(*settings.admin_address)]
            addresses["admin"] = server.address_of(admin_sockets[0])

        def announce() -> None:
            notify_supervisor()
            if as_json:
                click.echo(json.dumps(addresses))
                return
            click.echo(f"listening on {addresses['listening']}")
            if "admin" in addresses:
                click.echo(f"admin API on {addresses['admin']}")

        with opened_services(load_command_settings(data_dir)) as services:
            if workers == 1:
                asyncio.run(server.serve(services, sockets, announce, admin_sockets))
                return
            services.close()  # checked and set up; each worker opens its own
            server.serve_with_workers(settings, sockets, workers, announce, admin_sockets)
