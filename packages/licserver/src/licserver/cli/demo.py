"""The command that serves a throwaway installation, with what a shop has after some weeks."""

import asyncio
import errno
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click

from licserver.cli.common import json_option
from licserver.cli.demo_data import SLUG, DemoKeys, fill
from licserver.cli.serve import bind
from licserver.security.private_files import become_owner
from licserver.services import open_services
from licserver.settings import StandaloneSettings, check_names

_PORT = 8080
_USER = "demo"


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"Port; 0 lets the system choose.  [default: {_PORT}, or another one if that is taken]",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Where to create the throwaway data folder; default: the system's temporary folder.",
)
@json_option
def demo(port: int | None, data_dir: Path | None, *, as_json: bool) -> None:
    """Serve a throwaway installation with products, versions, licenses and some weeks of statistics.

    It listens on 127.0.0.1 only, and deletes everything when it stops (Ctrl-C).
    """
    from licserver.web import server  # noqa: PLC0415 - aiohttp would double the time of all other commands
    from licserver.web.logging import set_up_logging  # noqa: PLC0415 - as above

    check_names()
    if data_dir is not None:
        become_owner(data_dir)
    set_up_logging()
    with ExitStack() as stack:
        stack.callback(_block_sigterm, blocked=False)
        # Until the server handles it: before that, it would leave the folder behind.
        _block_sigterm(blocked=True)
        sock = stack.enter_context(_listen(port))
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="licserver-demo-", dir=data_dir))
        )
        address = server.address_of(sock)
        settings = StandaloneSettings(
            data_dir=folder, base_url=address, account=True, account_name="Demo Software"
        )
        services = open_services(settings)
        stack.callback(services.close)
        keys = fill(services, folder)
        password = secrets.token_hex(6)
        services.users.add(_USER, password)

        def announce() -> None:
            _block_sigterm(blocked=False)
            if as_json:
                console = {"console": f"{address}/console", "user": _USER, "password": password}
                account = {"account": f"{address}/account"}
                click.echo(
                    json.dumps({"listening": address, **console, **account, "product": SLUG, **asdict(keys)})
                )
                return
            click.echo(_introduction(address, password, keys))
            click.echo(f"listening on {address}")

        asyncio.run(server.serve(services, [sock], announce))


def _listen(port: int | None) -> socket.socket:
    """Open the socket; where nobody asked for a port, and the usual one is taken, on any that is free."""
    try:
        return bind("127.0.0.1", _PORT if port is None else port)[0]
    except OSError as error:
        if port is not None or error.errno != errno.EADDRINUSE:
            raise
        return bind("127.0.0.1", 0)[0]


def _block_sigterm(*, blocked: bool) -> None:
    if hasattr(signal, "pthread_sigmask"):  # Windows has none
        signal.pthread_sigmask(signal.SIG_BLOCK if blocked else signal.SIG_UNBLOCK, {signal.SIGTERM})


def _introduction(address: str, password: str, keys: DemoKeys) -> str:
    client, licserver = f"{_program('licclient')} --server {address}", _program("licserver")
    return f"""\
A throwaway installation, deleted when this stops (Ctrl-C).

Open {address}/console
and sign in as {_USER} with the password {password}

Open {address}/account
to see what a customer sees, and sign in with the license key {keys.active}

Run these in another terminal, in this folder:

# a valid license (again after Ctrl-C here, and it is answered from the cache)
{client} verify {keys.active}

# an expired one
{client} verify {keys.expired}

# a revoked one
{client} verify {keys.revoked}

# is there an update for version 1.0.0?
{client} check {keys.active} {SLUG} 1.0.0

# download it
{client} download {keys.active} {SLUG} 1.0.0 --to .

A store of your own begins with these; `{licserver} user add NAME` lets you into its console:

{licserver} product add my-app --name "My App" --environment domain
{licserver} license issue my-app --slots 3
{licserver} serve
"""


def _program(name: str) -> str:
    """Return what runs a program of ours from the current folder."""
    beside_us = shutil.which(name, path=str(Path(sys.executable).parent))
    if beside_us is None:
        return name  # such as licclient: pip install licclient
    path = Path(beside_us)
    if path.is_relative_to(Path.cwd()):
        return shlex.quote(os.path.relpath(path))
    return shlex.quote(str(path))
