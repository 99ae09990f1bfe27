"""The command line: run the cases of one side, write reports, and exit with 0, 1 or 2."""

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from licconform import __version__
from licconform.cases import Case, Kind, SetupError, printable
from licconform.client.run import CASES as CLIENT_CASES
from licconform.client.run import run_client_cases
from licconform.client.subject import Command
from licconform.report import format_badge, format_html, format_junit, format_summary
from licconform.runner import BAD, Outcome, Result, read_xfails
from licconform.server.run import CASES as SERVER_CASES
from licconform.server.run import run_server_cases
from licconform.server.seeds import STATES, SeedCommand

FAILED, NOT_RUN = 1, 2
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Test a server or client of the license verification and update-check protocol.

    Exit status: 0 if all cases end as expected, 1 if not, 2 if they could not be run.
    """


def report_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that both sides have."""
    for option in (
        click.option("--badge", type=_FILE, help="Write a badge (SVG)."),
        click.option("--html", type=_FILE, help="Write a page for people."),
        click.option("--junit", type=_FILE, help="Write JUnit XML."),
        click.option("--xfails", type=_FILE, help="Expected failures, as NAME: REASON; a pass fails."),
        click.option("--only", multiple=True, metavar="NAME", help="Run this case; repeatable."),
        click.option(
            "--kind",
            "kinds",
            multiple=True,
            type=click.Choice([*(kind.value for kind in Kind), "all"]),
            default=[Kind.LITERAL.value],
            show_default=True,
            help="Which rules; repeatable.",
        ),
    ):
        command = option(command)
    return command


@main.command()
@click.option("--base-url", required=True, help="Address of the server, without /api/v1.")
@click.option("--seed", required=True, metavar="COMMAND", help="Makes states: see `licconform states`.")
@click.option("--public-key", help="Key of signed answers, `ed25519:…`; needs licconform[signed].")
@report_options
def server(base_url: str, seed: str, public_key: str | None, **options: Any) -> None:
    """Test a server."""
    try:
        seeds = SeedCommand(split_command(seed))
    except ValueError as error:
        raise click.UsageError(f"--seed: {error}") from error

    def run(**more: Any) -> list[Result]:
        return run_server_cases(base_url, seeds, public_key=public_key, **more)

    _run(run, SERVER_CASES, f"Server {base_url}", **options)


def split_command(text: str, *, is_windows: bool = os.name == "nt") -> list[str]:
    """Split a command line into its parts; on Windows, where a backslash is one, quotes are around a part.

    Raise `ValueError` for a quote that is not closed.
    """
    if not is_windows:
        return shlex.split(text)
    parts = shlex.split(text, posix=False)
    return [part[1:-1] if part[0] == part[-1] and part[0] in "\"'" else part for part in parts]


@main.command()
@click.option("--clock", "has_clock", is_flag=True, help="The client takes its clock from LICCONFORM_CLOCK.")
@click.option("--jobs", type=click.IntRange(1), help="Cases at once.  [default: two a core]")
@report_options
@click.argument("command", nargs=-1, required=True)
def client(command: tuple[str, ...], jobs: int | None, *, has_clock: bool, **options: Any) -> None:
    """Test a client: COMMAND is run with `verify KEY`, or `check` or `download` and `KEY SLUG VERSION`.

    It finds the service in LICCONFORM_URL, keeps what it remembers in LICCONFORM_STATE, and downloads to
    LICCONFORM_DOWNLOADS. It exits with 0 for yes, 1 for no, 3 if the service gave no answer.
    """

    def run(**more: Any) -> list[Result]:
        return run_client_cases(Command(command), has_clock=has_clock, jobs=jobs, **more)

    _run(run, CLIENT_CASES, f"Client {Path(command[0]).name}", **options)


@main.command()
def states() -> None:
    """List the states that the seed command of a server must create."""
    click.echo("SEED key STATE: make a product and a key in STATE; print it as JSON.\n")
    for name, meaning in STATES.items():
        click.echo(f"  {name:28} {meaning}")
    click.echo("\nSEED revoke KEY: revoke a key.\nSEED release SLUG VERSION: upload a file version.")


@main.command()
@click.argument("side", metavar="SIDE", type=click.Choice(["server", "client"]))
def cases(side: str) -> None:
    """List the cases of a SIDE."""
    catalogue: Iterable[Case[Any]] = SERVER_CASES if side == "server" else CLIENT_CASES
    for case in catalogue:
        click.echo(f"{case.name:32} {case.section:16} {case.rule}")


def _run(
    run: Callable[..., list[Result]],
    catalogue: Iterable[Case[Any]],
    title: str,
    kinds: Sequence[str],
    only: Sequence[str],
    xfails: Path | None,
    **files: Path | None,
) -> None:
    """Run cases, print and write the reports, and exit."""
    names = {case.name for case in catalogue}
    if unknown := set(only) - names:
        raise click.UsageError(f"There is no case {', '.join(sorted(unknown))}; see `licconform cases`.")
    chosen = list(Kind) if "all" in kinds else [Kind(kind) for kind in kinds]
    try:
        expected = read_xfails(xfails, names) if xfails else {}
        results = run(kinds=chosen, only=only, xfails=expected, report=_print)
        click.echo(format_summary(results))
        _write(results, title, **files)
    except (SetupError, OSError) as error:
        click.echo(f"licconform: {printable(str(error))}", err=True)
        sys.exit(NOT_RUN)
    if not any(result.outcome is not Outcome.SKIPPED for result in results):
        sys.exit(NOT_RUN)
    sys.exit(FAILED if any(result.outcome in BAD for result in results) else 0)


def _print(result: Result) -> None:
    if result.outcome is Outcome.PASSED:
        return
    click.echo(f"{result.outcome}: {result.case.name} ({result.case.section}): {result.case.rule}")
    if result.message:
        click.echo("    " + result.message.rstrip().replace("\n", "\n    "))


def _write(
    results: Sequence[Result], title: str, junit: Path | None, html: Path | None, badge: Path | None
) -> None:
    if junit:
        junit.write_bytes(format_junit(title, results))
    if html:
        html.write_text(format_html(title, results), encoding="utf-8")
    if badge:
        badge.write_text(format_badge(results), encoding="utf-8")
