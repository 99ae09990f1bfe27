"""The command that prints all settings."""

import textwrap

import click

from licserver.cli.common import Printer, json_option
from licserver.cli.output import echo
from licserver.settings import SettingDescription, describe_settings

_WIDTH = 110


@click.command("settings")
@json_option
def settings(*, as_json: bool) -> None:
    """Show all settings, as a file of environment variables in which each is commented out.

    Values come from the environment only: write this into a file, and remove the # of what you change.
    """
    described = describe_settings()
    if as_json:
        Printer(as_json=True).table([setting._asdict() for setting in described], [], "")
    else:
        echo(
            "\n\n".join(
                format_setting(setting, f"# {setting.variable}={setting.default}") for setting in described
            )
        )


def format_setting(setting: SettingDescription, line: str) -> str:
    """Return the description of a setting as comments, above its line in a file of variables."""
    text = setting.text.replace("`", "")
    return "\n".join([*textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# "), line])
