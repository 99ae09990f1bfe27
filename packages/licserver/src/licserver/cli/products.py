"""Commands on products."""

from typing import Any

import click

from licserver.cli.common import Commands, services_command
from licserver.cli.output import Printer
from licserver.domain.records import EnvironmentPolicy, Product
from licserver.errors import InvalidInputError
from licserver.services import Services

_POLICIES = [policy.value for policy in EnvironmentPolicy]


@click.group("product", cls=Commands)
def product_group() -> None:
    """Add, list, change and rename products."""


@product_group.command("add")
@click.argument("slug")
@click.option("--name", required=True, help="The name for customers.")
@click.option(
    "--environment",
    type=click.Choice(_POLICIES),
    default=EnvironmentPolicy.STRICT.value,
    show_default=True,
    help="What identifies a machine: domain and IP, the domain (for desktop apps), or either.",
)
@click.option("--support-policy", is_flag=True, help="End update downloads with a license's support period.")
@services_command
def add(
    services: Services, printer: Printer, slug: str, name: str, environment: str, *, support_policy: bool
) -> None:
    """Add the product SLUG."""
    policy = EnvironmentPolicy(environment)
    product = services.products.add(slug, name, policy, has_support_policy=support_policy)
    printer.result(_record(product), f"added {product.slug}: {product.name}")


@product_group.command("list")
@services_command
def list_products(services: Services, printer: Printer) -> None:
    """List all products."""
    printer.table(map(_record, services.products.list_all()), (24, 11, 14, 12, 0), "no products yet")


@product_group.command("rename")
@click.argument("slug")
@click.option("--name", required=True, help="The new name; existing keys keep the old one.")
@services_command
def rename(services: Services, printer: Printer, slug: str, name: str) -> None:
    """Give the product SLUG another name."""
    product = services.products.rename(slug, name)
    printer.result(_record(product), f"renamed {product.slug}: {product.name}")


@product_group.command("change")
@click.argument("slug")
@click.option("--name", help="The new name; existing keys keep the old one.")
@click.option("--environment", type=click.Choice(_POLICIES), help="What identifies a machine from now on.")
@click.option(
    "--support-policy/--no-support-policy",
    default=None,
    help="Whether update downloads end with a license's support period.",
)
@services_command
def change(
    services: Services,
    printer: Printer,
    slug: str,
    name: str | None,
    environment: str | None,
    *,
    support_policy: bool | None,
) -> None:
    """Change the product SLUG; what is not given stays."""
    if name is None and environment is None and support_policy is None:
        raise InvalidInputError("there is nothing to change; see `licserver product change --help`")
    policy = None if environment is None else EnvironmentPolicy(environment)
    product = services.products.change(slug, name=name, policy=policy, has_support_policy=support_policy)
    printer.result(_record(product), f"changed {product.slug}: {product.name}")


def _record(product: Product) -> dict[str, Any]:
    return {
        "slug": product.slug,
        "environment": product.policy.value,
        "support_policy": product.has_support_policy,
        "latest": product.latest.version if product.latest else None,
        "name": product.name,
    }
