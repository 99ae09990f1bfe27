"""The command `release rollout`."""

import click

from licserver.cli.common import Printer, services_command
from licserver.errors import InvalidInputError
from licserver.services import Services


def _parse_percent(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    try:
        return None if text is None else float(text.removesuffix("%"))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no share; write it like 50%") from None


@services_command("rollout")
@click.argument("slug")
@click.argument("version")
@click.option(
    "--share",
    metavar="PERCENT",
    callback=_parse_percent,
    help="Let it reach this share, such as 50%, and stay.",
)
@click.option("--pause/--resume", "paused", default=None, help="Let the share stand still, or grow again.")
@click.option("--finish", is_flag=True, help="Let it reach all installations.")
def show_rollout(
    services: Services,
    printer: Printer,
    slug: str,
    version: str,
    share: float | None,
    paused: bool | None,
    finish: bool,
) -> None:
    """Show the rollout of VERSION of the product SLUG, or change it.

    The share never falls: `release withdraw` offers a version to nobody.
    """
    if (share is not None) + (paused is not None) + finish > 1:
        raise InvalidInputError("give one of --share, --pause, --resume and --finish")
    percent = 100.0 if finish else share
    if percent is None and paused is None:
        status = services.rollouts.get(slug, version)
    else:
        status = services.rollouts.change(slug, version, percent=percent, paused=paused)
    plan = status.release.rollout
    printer.details(
        {
            "version": status.release.version,
            "percent": status.percent,
            "plan": plan and plan.plan,
            "started_at": plan and plan.started_at,
            "paused_at": plan and plan.paused_at,
            "critical_below": status.release.critical_below,
            "update_checks": status.checks,
            "update_checks_of_all": status.checks_of_all,
            "rolled_back": status.rolled_back,
        }
    )
