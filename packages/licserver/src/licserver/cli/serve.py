"""The command that answers customers."""

import asyncio
import json
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from licserver.cli.common import bind, data_dir_option, opened
from licserver.errors import WrongUse
from licserver.settings import load_settings


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port; 0 lets the system choose.",
)
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@data_dir_option
def serve(host: str, port: int, workers: int, data_dir: Path | None, *, as_json: bool) -> None:
    """Answer verify, update check and download until stopped (SIGTERM or Ctrl-C)."""
    if workers > 1 and sys.platform == "win32":
        raise WrongUse(
            "--workers needs fork, which Windows does not have; run one worker, or several servers"
        )
    # Here, not at the top: they take half of the time that every other command needs.
    from licserver.web import server  # noqa: PLC0415
    from licserver.web.logging import set_up_logging  # noqa: PLC0415
    from licserver.web.systemd import take_supervisor  # noqa: PLC0415

    tell_supervisor = take_supervisor()
    settings = load_settings(data_dir=data_dir)
    set_up_logging(settings.log_format)
    # The sockets first: ports below 1024 are root's, which ends with the opening of the data folder.
    with ExitStack() as stack:
        socks = [stack.enter_context(sock) for sock in bind(host, port)]
        where = {"listening": server.address_of(socks[0])}
        admin_socks = []
        if settings.admin_address is not None:
            admin_socks = [stack.enter_context(sock) for sock in bind(*settings.admin_address)]
            where["admin"] = server.address_of(admin_socks[0])

        def announce() -> None:
            tell_supervisor()
            if as_json:
                click.echo(json.dumps(where))
                return
            click.echo(f"listening on {where['listening']}")
            if "admin" in where:
                click.echo(f"admin API on {where['admin']}")

        with opened(data_dir) as services:
            if workers == 1:
                asyncio.run(server.serve(services, socks, announce, admin_socks))
                return
            services.close()  # checked and set up; each worker opens it for itself
            server.serve_with_workers(settings, socks, workers, announce, admin_socks)
