"""The command that serves a throwaway installation with sample data."""

import asyncio
import io
import json
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import click

from licserver.cli.common import bind, json_option, port_option
from licserver.clock import system_clock
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.security.private_files import become_owner
from licserver.services import Services, open_services
from licserver.settings import StandaloneSettings, check_names

SLUG = "demo-notes"
_PADDING_BYTES = 1 << 20


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
    check_names()
    if data_dir is not None:
        become_owner(data_dir)
    # Blocked until the server handles it: before that, it would leave the folder behind.
    _block_sigterm(blocked=True)
    try:
        _serve(port, data_dir, as_json=as_json)
    finally:
        _block_sigterm(blocked=False)


def _serve(port: int, data_dir: Path | None, *, as_json: bool) -> None:
    from licserver.web import server  # noqa: PLC0415 - see serve.py
    from licserver.web.logging import set_up_logging  # noqa: PLC0415 - see serve.py

    set_up_logging()
    with (
        bind("127.0.0.1", port)[0] as sock,
        tempfile.TemporaryDirectory(prefix="licserver-demo-", dir=data_dir) as folder,
    ):
        address = server.address_of(sock)
        services = open_services(StandaloneSettings(data_dir=Path(folder), base_url=address))
        try:
            keys = fill(services, Path(folder))

            def announce() -> None:
                _block_sigterm(blocked=False)
                if as_json:
                    click.echo(json.dumps({"listening": address, "product": SLUG, **asdict(keys)}))
                    return
                click.echo(_introduction(address, keys))
                click.echo(f"listening on {address}")

            asyncio.run(server.serve(services, [sock], announce))
        finally:
            services.close()


def _block_sigterm(*, blocked: bool) -> None:
    if hasattr(signal, "pthread_sigmask"):  # Windows has none
        signal.pthread_sigmask(signal.SIG_BLOCK if blocked else signal.SIG_UNBLOCK, {signal.SIGTERM})


def fill(services: Services, folder: Path) -> DemoKeys:
    """Create the sample data; return its license keys."""
    services.products.add(SLUG, "Demo Notes", EnvironmentPolicy.DOMAIN)
    for version, news in (("1.0.0", "The first version."), ("1.1.0", "<ul><li>Export to PDF.</li></ul>")):
        file = folder / f"{SLUG}-{version}.zip"
        file.write_bytes(_make_zip(version))
        services.releases.publish(SLUG, version, file, news)
    today = system_clock().date()
    ((active,),) = services.licenses.issue_batches(
        SLUG, LicenseTerms(slots=3, expires_on=today + timedelta(days=365))
    )
    ((expired,),) = services.licenses.issue_batches(SLUG, LicenseTerms(expires_on=today - timedelta(days=1)))
    ((revoked,),) = services.licenses.issue_batches(SLUG, LicenseTerms(lifetime=True))
    services.licenses.revoke(revoked, "refunded")
    return DemoKeys(active, expired, revoked)


def _make_zip(version: str) -> bytes:
    """Return a zip with a small program and a MiB that does not compress, so that downloads take time."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("demo_notes.py", f'print("Demo Notes {version}")\n')
        archive.writestr("picture.raw", random.Random(version).randbytes(_PADDING_BYTES))  # noqa: S311 - padding
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
