"""The command that says whether all is well."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from licserver.cli.common import Printer, data_dir_option, load_command_settings
from licserver.clock import system_clock
from licserver.errors import SettingsError
from licserver.services.self_check import Finding, Level, check_installation

_SIGNS = {Level.OK: "ok  ", Level.WARNING: "WARN", Level.FAILED: "FAIL"}


@click.command("check")
@data_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option(
    "--reach", is_flag=True, help="Ask LICSERVER_BASE_URL over the network as well, for five seconds."
)
def check(data_dir: Path | None, *, as_json: bool, reach: bool) -> None:
    """Look at settings, permissions, clock, database, files and keys, and change nothing.

    Exit code 0 when nothing has failed; what is only odd does not count.
    """
    try:
        settings = load_command_settings(data_dir)
    except SettingsError as problem:
        found = [Finding("settings", Level.FAILED, str(problem), "mend the variable that it names")]
    else:
        found = list(check_installation(settings, system_clock(), reach=reach))
    failed = [one for one in found if one.level is Level.FAILED]
    if as_json:
        Printer(as_json=True).one({"ok": not failed, "findings": list(map(asdict, found))}, "")
    else:
        for one in found:
            click.echo(f"{_SIGNS[one.level]}  {one.about}: {one.said}")
            if one.advice:
                click.echo(f"      → {one.advice}")
    if failed:
        sys.exit(1)
