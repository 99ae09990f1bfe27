"""Options for what WordPress shows of a version, and the command `release wordpress`."""

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from licserver.cli.common import Printer, services_command
from licserver.services import Services

R = TypeVar("R")

_OPTIONS: Final = {
    "requires": ("VERSION", "The lowest version of WordPress that it needs."),
    "tested": ("VERSION", "The highest version of WordPress with which it was tried."),
    "requires_php": ("VERSION", "The lowest version of PHP that it needs."),
    "details_url": ("URL", "The page that describes it; themes need one."),
}


def wordpress_options(function: Callable[..., R]) -> Callable[..., R]:
    """Add an option for each field to a command, and call it with those that were given."""

    @functools.wraps(function)
    def command(*args: Any, **parameters: Any) -> R:
        given = {name: parameters.pop(name) for name in _OPTIONS}
        fields = {name: text for name, text in given.items() if text is not None}
        return function(*args, fields=fields, **parameters)

    for name, (metavar, help_) in reversed(_OPTIONS.items()):
        add = click.option(f"--{name.replace('_', '-')}", name, metavar=metavar, help=f"WordPress: {help_}")
        command = add(command)
    return command


@services_command("wordpress")
@click.argument("slug")
@click.argument("version")
@wordpress_options
def show_wordpress(
    services: Services, printer: Printer, slug: str, version: str, fields: dict[str, str]
) -> None:
    """Show what WordPress shows of VERSION of the product SLUG, or change it; '' removes a field."""
    if fields:
        release = services.releases.set_wordpress(slug, version, **fields)
    else:
        release = services.releases.get(slug, version)
    printer.details({"version": release.version, **release.wordpress._asdict()})
