"""The command that checks an installation."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from licserver.cli.common import data_dir_option, json_option, load_command_settings
from licserver.cli.output import Printer
from licserver.clock import system_clock
from licserver.errors import SettingsError
from licserver.services.self_check import Finding, Level, check_installation

_SIGNS = {Level.OK: "ok  ", Level.WARNING: "WARN", Level.FAILED: "FAIL"}


@click.command("check")
@data_dir_option
@json_option
@click.option("--reach", is_flag=True, help="Also request LICSERVER_BASE_URL over the network, within 5 s.")
def check(data_dir: Path | None, *, as_json: bool, reach: bool) -> None:
    """Check settings, permissions, clock, database, files and keys; change nothing.

    The exit code is 1 if a check has failed; warnings do not count.
    """
    try:
        settings = load_command_settings(data_dir)
    except SettingsError as error:
        findings = [Finding("settings", Level.FAILED, str(error), "correct the variable that it names")]
    else:
        findings = list(check_installation(settings, system_clock(), reach=reach))
    failed = [one for one in findings if one.level is Level.FAILED]
    if as_json:
        Printer(as_json=True).result({"ok": not failed, "findings": list(map(asdict, findings))}, "")
    else:
        for one in findings:
            click.echo(f"{_SIGNS[one.level]}  {one.about}: {one.said}")
            if one.advice:
                click.echo(f"      → {one.advice}")
    if failed:
        sys.exit(1)
