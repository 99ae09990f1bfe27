"""Commands on the secrets that sign download links."""

from dataclasses import asdict
from datetime import timedelta

import click

from licserver.cli.common import Commands, record_change, settings_command
from licserver.cli.output import Printer
from licserver.clock import system_clock
from licserver.security.rotation import SecretStatus, rotate, secret_statuses
from licserver.security.secrets_file import open_vault
from licserver.settings import Settings


@click.group("secret", cls=Commands)
def secret_group() -> None:
    """List and rotate the secrets that sign download links; the secrets themselves are never shown."""


@secret_group.command("list")
@settings_command
def list_secrets(settings: Settings, printer: Printer) -> None:
    """List the accepted secrets, the newest first."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    _print(printer, secret_statuses(open_vault(settings).link_secrets, system_clock()))


@secret_group.command("rotate")
@click.option(
    "--after",
    type=click.IntRange(1, 7 * 24 * 60),
    metavar="MINUTES",
    default=1,
    show_default=True,
    help="When the new secret starts to sign; until then, copy it to all machines.",
)
@click.option("--leaked", is_flag=True, help="Refuse the old secrets at once: existing links stop working.")
@settings_command
def rotate_secrets(settings: Settings, printer: Printer, after: int, *, leaked: bool) -> None:
    """Generate a new secret for download links; running servers read it within seconds.

    Existing links stay valid for their hour.
    """
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    statuses = rotate(settings, system_clock(), lead=timedelta(minutes=after), leaked=leaked)
    new = statuses[0]
    record_change(settings, "secret.rotate", ("secret", new.id), signs_from=new.signs_from, leaked=leaked)
    _print(printer, statuses)


def _print(printer: Printer, statuses: list[SecretStatus]) -> None:
    printer.table(map(asdict, statuses), (8, 24, 24, 0), "none")
