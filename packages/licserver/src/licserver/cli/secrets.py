"""Commands on the secrets that sign download links."""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click

from licserver.cli.common import Commands, Printer, data_dir_option, load_command_settings, note_done
from licserver.clock import system_clock
from licserver.security.rotation import SecretStatus, rotate, standings
from licserver.security.secrets_file import open_vault


@click.group("secret", cls=Commands)
def secret_group() -> None:
    """List and rotate the secrets that sign download links; the secrets themselves are never shown."""


@secret_group.command("list")
@data_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def list_secrets(data_dir: Path | None, *, as_json: bool) -> None:
    """List the secrets that are believed, the newest first."""
    settings = load_command_settings(data_dir)
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    _show(Printer(as_json=as_json), standings(open_vault(settings).link_secrets, system_clock()))


@secret_group.command("rotate")
@data_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option(
    "--after",
    type=click.IntRange(1, 7 * 24 * 60),
    metavar="MINUTES",
    default=1,
    show_default=True,
    help="How long the new secret is only believed before it signs: until all machines have it.",
)
@click.option("--leaked", is_flag=True, help="Believe no old one any longer: links that are out are dead.")
def rotate_secrets(data_dir: Path | None, after: int, *, as_json: bool, leaked: bool) -> None:
    """Draw a new secret for download links; running servers take it up by themselves.

    Links that are out stay good for their hour.
    """
    settings = load_command_settings(data_dir)
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = rotate(settings, system_clock(), lead=timedelta(minutes=after), leaked=leaked)
    new = found[0]
    note_done(settings, "secret.rotate", ("secret", new.id), signs_from=new.signs_from, leaked=leaked)
    _show(Printer(as_json=as_json), found)


def _show(printer: Printer, found: list[SecretStatus]) -> None:
    printer.rows(map(asdict, found), (8, 24, 24, 0), "none")
