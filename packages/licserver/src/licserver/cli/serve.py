"""The commands that serve an installation, or a throwaway one with sample data."""

import asyncio
import io
import json
import os
import random
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import zipfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import click

from licserver.cli.common import data_dir_option, json_option, load_command_settings, opened_services
from licserver.clock import system_clock
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.errors import InvalidInputError
from licserver.security.private_files import become_owner
from licserver.services import Services, open_services
from licserver.settings import StandaloneSettings, check_names, load_settings

# `licserver.web` is imported by the commands, because aiohttp would double the time of all others.

port_option = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port; 0 lets the system choose.",
)


def _bind(host: str, port: int) -> list[socket.socket]:
    """Open a listening socket for each address of a host; errors name what cannot be used."""
    from licserver.web import server  # noqa: PLC0415

    try:
        return server.bind(host, port)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from None
    except UnicodeError:  # an empty or too long label, or bytes that are not text
        raise InvalidInputError(f"--host: {host!r} is not a name or address") from None


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
    from licserver.web import server  # noqa: PLC0415
    from licserver.web.logging import set_up_logging  # noqa: PLC0415

    notify_supervisor = server.take_supervisor()
    settings = load_settings(data_dir=data_dir)
    set_up_logging(settings.log_format)
    with ExitStack() as stack:
        # Before the data folder is opened, which ends root's right to ports below 1024.
        sockets = [stack.enter_context(sock) for sock in _bind(host, port)]
        addresses = {"listening": server.address_of(sockets[0])}
        admin_sockets = []
        if settings.admin_address is not None:
            admin_sockets = [stack.enter_context(sock) for sock in _bind(*settings.admin_address)]
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
            from licserver.web.workers import serve_with_workers  # noqa: PLC0415 - does not exist on Windows

            serve_with_workers(settings, sockets, workers, announce, admin_sockets)


# --- a throwaway installation -----------------------------------------------------------------

SLUG = "demo-notes"


@dataclass(frozen=True, slots=True, repr=False)
class DemoKeys:
    """The sample license keys; without a repr, because keys are credentials."""

    active: str
    expired: str
    revoked: str


@click.command()
@port_option
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Where to create the throwaway data folder; default: the system's temporary folder.",
)
@json_option
def demo(port: int, data_dir: Path | None, *, as_json: bool) -> None:
    """Serve a throwaway installation with a product, two versions and three keys.

    It listens on 127.0.0.1 only, and deletes everything when it stops (Ctrl-C).
    """
    from licserver.web import server  # noqa: PLC0415
    from licserver.web.logging import set_up_logging  # noqa: PLC0415

    check_names()
    if data_dir is not None:
        become_owner(data_dir)
    set_up_logging()
    with ExitStack() as stack:
        stack.callback(_block_sigterm, blocked=False)
        # Until the server handles it: before that, it would leave the folder behind.
        _block_sigterm(blocked=True)
        sock = stack.enter_context(_bind("127.0.0.1", port)[0])
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="licserver-demo-", dir=data_dir))
        )
        address = server.address_of(sock)
        services = open_services(StandaloneSettings(data_dir=folder, base_url=address))
        stack.callback(services.close)
        keys = _fill(services, folder)

        def announce() -> None:
            _block_sigterm(blocked=False)
            if as_json:
                click.echo(json.dumps({"listening": address, "product": SLUG, **asdict(keys)}))
                return
            click.echo(_introduction(address, keys))
            click.echo(f"listening on {address}")

        asyncio.run(server.serve(services, [sock], announce))


def _block_sigterm(*, blocked: bool) -> None:
    if hasattr(signal, "pthread_sigmask"):  # Windows has none
        signal.pthread_sigmask(signal.SIG_BLOCK if blocked else signal.SIG_UNBLOCK, {signal.SIGTERM})


def _fill(services: Services, folder: Path) -> DemoKeys:
    services.products.add(SLUG, "Demo Notes", EnvironmentPolicy.DOMAIN)
    for version, news in (("1.0.0", "The first version."), ("1.1.0", "<ul><li>Export to PDF.</li></ul>")):
        file = folder / f"{SLUG}-{version}.zip"
        file.write_bytes(_make_zip(version))
        services.releases.publish(SLUG, version, file, news)
    today = system_clock().date()
    terms = (
        LicenseTerms(slots=3, expires_on=today + timedelta(days=365)),
        LicenseTerms(expires_on=today - timedelta(days=1)),
        LicenseTerms(lifetime=True),
    )
    keys = DemoKeys(*(services.licenses.issue(SLUG, one)[1] for one in terms))
    services.licenses.revoke(keys.revoked, "refunded")
    return keys


def _make_zip(version: str) -> bytes:
    """Return a zip with a small program and a MiB that does not compress, so that downloads take time."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("demo_notes.py", f'print("Demo Notes {version}")\n')
        archive.writestr("picture.raw", random.Random(version).randbytes(1 << 20))  # noqa: S311 - padding
    return packed.getvalue()


def _introduction(address: str, keys: DemoKeys) -> str:
    client = f"{_licclient()} --server {address}"
    return f"""\
A throwaway installation, deleted when this stops (Ctrl-C). Run these in another terminal, in this folder:

  a valid license                 {client} verify {keys.active}
  (again, with this stopped:      from the cache)
  an expired one                  {client} verify {keys.expired}
  a revoked one                   {client} verify {keys.revoked}
  is there an update for 1.0.0    {client} check {keys.active} {SLUG} 1.0.0
  download it                     {client} download {keys.active} {SLUG} 1.0.0 --to .
"""


def _licclient() -> str:
    """Return the command that runs licclient from the current folder."""
    beside_us = shutil.which("licclient", path=str(Path(sys.executable).parent))
    if beside_us is None:
        return "licclient"  # pip install licclient
    path = Path(beside_us)
    if path.is_relative_to(Path.cwd()):
        return shlex.quote(os.path.relpath(path))
    return shlex.quote(str(path))
