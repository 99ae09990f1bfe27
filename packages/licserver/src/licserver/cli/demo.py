"""The command that serves a throwaway installation, with what a shop has after some weeks."""

import asyncio
import errno
import io
import json
import os
import random
import secrets
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import click

from licserver.cli.common import json_option
from licserver.cli.output import echo
from licserver.cli.serve import bind
from licserver.clock import system_clock
from licserver.database.repositories.statistics import CountKey, add_counts
from licserver.domain.records import LicenseTerms
from licserver.protocol.license_files import ActivationRow, LicenseRow
from licserver.runtime.logging import set_up_logging
from licserver.security.private_files import become_owner
from licserver.services.installation import Services, open_services
from licserver.serving import server
from licserver.settings import StandaloneSettings, check_names

_PORT = 8080
_USER = "demo"
_SLUG: Final = "demo-notes"
_SLOTS: Final = 3


@dataclass(frozen=True, slots=True, repr=False)
class _DemoKeys:
    """The license keys to try; without a repr, because keys are credentials."""

    active: str
    expired: str
    revoked: str


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
    check_names()
    if data_dir is not None:
        become_owner(data_dir)
    set_up_logging()
    with ExitStack() as stack:
        stack.callback(_block_sigterm, blocked=False)
        # Until the server handles it: before that, it would leave the folder behind.
        _block_sigterm(blocked=True)
        sock = stack.enter_context(_listen(port))
        echo("Preparing products, licenses and statistics: a few seconds", err=True)
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="licserver-demo-", dir=data_dir))
        )
        address = server.address_of(sock)
        settings = StandaloneSettings(
            data_dir=folder, base_url=address, account=True, account_name="Demo Software"
        )
        services = open_services(settings)
        stack.callback(services.close)
        keys = _fill(services, folder)
        password = secrets.token_hex(6)
        services.users.add(_USER, password)

        def announce() -> None:
            _block_sigterm(blocked=False)
            if as_json:
                console = {"console": f"{address}/console", "user": _USER, "password": password}
                account = {"account": f"{address}/account"}
                echo(
                    json.dumps({"listening": address, **console, **account, "product": _SLUG, **asdict(keys)})
                )
                return
            echo(_introduction(address, password, keys))
            echo(f"listening on {address}")

        asyncio.run(server.serve(services, [sock], announce))


def _listen(port: int | None) -> socket.socket:
    """Open the socket, on any free port if the default port is in use and no other was requested."""
    try:
        return bind("127.0.0.1", _PORT if port is None else port)[0]
    except OSError as error:
        if port is not None or error.errno != errno.EADDRINUSE:
            raise
        return bind("127.0.0.1", 0)[0]


def _block_sigterm(*, blocked: bool) -> None:
    if hasattr(signal, "pthread_sigmask"):  # Windows has none
        signal.pthread_sigmask(signal.SIG_BLOCK if blocked else signal.SIG_UNBLOCK, {signal.SIGTERM})


def _introduction(address: str, password: str, keys: _DemoKeys) -> str:
    licclient, licserver = _program("licclient"), _program("licserver")
    client = f"{licclient} --server {address}"
    install = ", after `pip install licclient`" if licclient == "licclient" else ""
    return f"""\
A throwaway installation, deleted when this stops (Ctrl-C).

Open {address}/console
and sign in as {_USER} with the password {password}

Open {address}/account
to see what a customer sees, and sign in with the license key {keys.active}

Run these in another terminal, in this folder{install}:

# a valid license (for {_SLOTS} computers; again after Ctrl-C here, and it is answered from the cache)
{client} verify {keys.active}

# an expired one
{client} verify {keys.expired}

# a revoked one
{client} verify {keys.revoked}

# is there an update for version 1.0.0?
{client} check {keys.active} {_SLUG} 1.0.0

# download it
{client} download {keys.active} {_SLUG} 1.0.0 --to .

In your app, with the valid license key:

{_client_call(address)}

A store of your own begins with these; `{licserver} user add NAME` lets you into its console:

{licserver} product add my-app --name "My App"
{licserver} license issue my-app --slots 3
{licserver} serve
"""


def _client_call(address: str) -> str:
    slug, name, (installed, *_) = _PRODUCTS[0]
    return f'client = LicenseClient("{address}", product="{name}", slug="{slug}", version="{installed}")'


def _program(name: str) -> str:
    """Return what runs a program of ours from the current folder."""
    beside_us = shutil.which(name, path=str(Path(sys.executable).parent))
    if beside_us is None:
        return name
    path = Path(beside_us)
    if path.is_relative_to(Path.cwd()):
        return shlex.quote(os.path.relpath(path))
    return shlex.quote(str(path))


# --- what it shows: two products, three keys to try, and a shop's last weeks, drawn by lot -----

_OTHER: Final = "demo-paint"
_PRODUCTS: Final = ((_SLUG, "Demo Notes", ("1.0.0", "1.1.0")), (_OTHER, "Demo Paint", ("2.3.1",)))
_CHANGELOGS: Final = {"1.1.0": "<ul><li>Export to PDF.</li></ul>"}

_LICENSES: Final = 300
_DAYS: Final = 60
_FIRST_NAMES = ("anna", "ben", "chiara", "dmitri", "elif", "fatou", "george", "hana", "ines", "jun")
_LAST_NAMES = ("abe", "brown", "costa", "diallo", "evans", "fischer", "garcia", "novak", "rossi", "yilmaz")
_LABELS: Final = (None, "MacBook, Berlin office", "Office PC", "Laptop for travel", "Studio PC")
_VERDICTS: Final = {"valid": 1.0, "slots full": 0.04, "expired": 0.06, "revoked": 0.01, "unknown": 0.02}
"""Verdict → its share of the verify calls that succeed."""
_WEEKDAYS: Final = (1.0, 1.1, 1.1, 1.0, 0.9, 0.6, 0.5)


def _fill(services: Services, folder: Path) -> _DemoKeys:
    """Fill an empty installation; files to publish are written into the folder."""
    for slug, name, versions in _PRODUCTS:
        services.products.add(slug, name)
        for version in versions:
            file = folder / f"{slug}-{version}.zip"
            file.write_bytes(_make_zip(name, version))
            services.releases.publish(slug, version, file, _CHANGELOGS.get(version, "The first version."))
    now, lot = system_clock(), random.Random(1)  # noqa: S311 - the same shop every time
    with services.transfer.start_import() as filled:
        filled.read(enumerate(_draw_licenses(lot, now), start=1))
        filled.prepare()
        filled.commit()
    for back in range(_DAYS):
        day = now.date() - timedelta(days=back)
        add_counts(services.database, day, dict(_draw_counts(lot, day, _DAYS - back)))
    today = now.date()
    terms = (
        LicenseTerms(slots=_SLOTS, expires_on=today + timedelta(days=365)),
        LicenseTerms(expires_on=today - timedelta(days=1)),
        LicenseTerms(lifetime=True),
    )
    keys = _DemoKeys(*(services.licenses.issue(_SLUG, term)[1] for term in terms))
    services.licenses.revoke(keys.revoked, "refunded")
    return keys


def _draw_licenses(lot: random.Random, now: datetime) -> Iterator[LicenseRow]:
    """Draw what was sold: older licenses expired, a few of them refunded, most of them in use."""
    ages = sorted((lot.triangular(0, 600, 30) for _ in range(_LICENSES)), reverse=True)
    for order, days in enumerate(ages):
        issued_at = now - timedelta(days=days)
        lifetime, refunded = lot.random() < 0.1, lot.random() < 0.04  # noqa: PLR2004 - shares
        slots = lot.choice((1, 1, 2, 3, 5))
        yield LicenseRow(
            product=_SLUG if lot.random() < 0.7 else _OTHER,  # noqa: PLR2004 - as above
            issued_at=issued_at,
            expires_on=None if lifetime else issued_at.date() + timedelta(days=365),
            lifetime=lifetime,
            slots=slots,
            customer_email=f"{lot.choice(_FIRST_NAMES)}.{lot.choice(_LAST_NAMES)}@example.com",
            note=f"Order {10_000 + order}",
            revoked_at=min(now, issued_at + timedelta(days=3)) if refunded else None,
            revoked_reason="refunded" if refunded else None,
            activations=tuple(_draw_activation(lot, issued_at, now) for _ in range(lot.randint(0, slots))),
        )


def _draw_activation(lot: random.Random, issued_at: datetime, now: datetime) -> ActivationRow:
    activated_at = issued_at + (now - issued_at) * lot.random() ** 4
    return ActivationRow(
        domain=str(UUID(int=lot.getrandbits(128), version=4)),
        ip=f"198.51.100.{lot.randint(1, 254)}",
        activated_at=activated_at,
        last_seen_at=now - (now - activated_at) * lot.random() ** 6,
        label=lot.choice(_LABELS),
    )


def _draw_counts(lot: random.Random, day: date, age: int) -> Iterator[tuple[CountKey, int]]:
    """Draw the counts of a day: more and more customers, fewer of them at weekends."""
    usual, slugs = 60 + 3 * age, [slug for slug, *_ in _PRODUCTS]
    busy = usual * _WEEKDAYS[day.weekday()] * lot.uniform(0.85, 1.15)
    for verdict, share in _VERDICTS.items():
        for slug in [""] if verdict == "unknown" else slugs:
            yield CountKey("verify", slug, verdict), round(busy * share * lot.uniform(0.9, 1.1) / len(slugs))
    for slug in slugs:
        yield CountKey("activation", slug, ""), round(busy * 0.05 * lot.uniform(0.5, 1.5) / len(slugs))
    for slug, _, versions in _PRODUCTS:
        for version in versions:
            yield CountKey("update", slug, version), round(busy * lot.uniform(0.2, 0.5))


def _make_zip(name: str, version: str) -> bytes:
    """Return a zip with a small program and a MiB that does not compress, so that downloads take time."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name.lower().replace(' ', '_')}.py", f'print("{name} {version}")\n')
        archive.writestr("picture.raw", random.Random(version).randbytes(1 << 20))  # noqa: S311 - padding
    return packed.getvalue()
