"""Commands on products, and on plans: what licenses of a product are entitled to."""

from collections.abc import Mapping
from typing import Any

import click

from licserver.cli import Commands
from licserver.cli.common import (
    Printer,
    confirm,
    name_argument,
    pick,
    services_command,
    slug_argument,
    yes_option,
)
from licserver.cli.output import echo
from licserver.domain.entitlements import Plan, format_grants, parse_grants
from licserver.domain.records import (
    CUSTOMER_MOVES,
    DEFAULT_POLICY,
    IDLE_DAYS,
    AfterSupport,
    EnvironmentPolicy,
    Product,
)
from licserver.errors import InvalidInputError
from licserver.services.installation import Services
from licserver.services.products import describe_missing_minimum, describe_rename

_POLICIES = click.Choice([policy.value for policy in EnvironmentPolicy])
_after_support_option = click.option(
    "--after-support",
    type=click.Choice([choice.value for choice in AfterSupport]),
    callback=lambda _context, _parameter, value: value and AfterSupport(value),
    help="What a license whose support is over can download: nothing, or the newest version of its period.",
)
_when_full_option = click.option(
    "--when-full",
    type=click.Choice(["refuse", "oldest"]),
    help="A new computer is refused, or gets the slot of the one seen longest ago, once that is idle.",
)
_idle_option = click.option(
    "--idle",
    type=int,
    metavar="DAYS",
    help=f"Days without a sign of life after which a computer is idle; {IDLE_DAYS} if not given.",
)


product_group = Commands("product", help="Add, list, change and rename products.")


@services_command("add", product_group)
@slug_argument
@click.option("--name", required=True, help="The name for customers.")
@click.option(
    "--environment",
    type=_POLICIES,
    default=DEFAULT_POLICY.value,
    show_default=True,
    help="What identifies a machine: the domain (for desktop apps), domain and IP (strict), or either.",
)
@click.option(
    "--support-policy",
    "has_support_policy",
    is_flag=True,
    help="End update downloads with a license's support period.",
)
@click.option(
    "--accept-imported-keys",
    "accepts_imported_keys",
    is_flag=True,
    help="Accept keys that another system sold, in any format (see `licserver import`).",
)
@click.option(
    "--customer-moves",
    type=int,
    default=CUSTOMER_MOVES,
    show_default=True,
    metavar="N",
    help="How many slots of a license its customer may free in 30 days; 0 for none.",
)
@click.option("--trial-days", type=int, default=0, metavar="N", help="How long a trial lasts; 0 for none.")
@click.option("--public-feed", is_flag=True, help="Offer updates to other updaters without a license.")
@_after_support_option
@_when_full_option
@_idle_option
def add_product(
    services: Services,
    printer: Printer,
    slug: str,
    name: str,
    environment: str,
    when_full: str | None,
    idle: int | None,
    **rules: Any,
) -> None:
    """Add the product SLUG."""
    rules["idle_days"] = _read_idle(when_full, idle, 0)
    product = services.products.add(slug, name, EnvironmentPolicy(environment), **rules)
    _print_product(printer, product, "added")


@services_command("list", product_group)
def list_products(services: Services, printer: Printer) -> None:
    """List all products."""
    records = map(_product_record, services.products.list_all())
    printer.table(records, (24, 11, 14, 20, 13, 10, 14, 10, 11, 16, 12, 0), "no products yet")


@services_command("rename", product_group)
@slug_argument
@click.option("--name", required=True, help="The new name; existing keys keep the old one.")
@yes_option
def rename_product(services: Services, printer: Printer, slug: str, name: str, *, yes: bool) -> None:
    """Give the product SLUG another name; ask first.

    An app that passes the old name as its product refuses every license that is issued afterwards.
    """
    _confirm_rename(services, slug, name, yes=yes)
    product = services.products.rename(slug, name)
    _print_product(printer, product, "renamed")


@services_command("change", product_group)
@slug_argument
@click.option("--name", help="The new name; existing keys keep the old one.")
@click.option("--environment", type=_POLICIES, help="What identifies a machine from now on.")
@click.option(
    "--support-policy/--no-support-policy",
    "has_support_policy",
    default=None,
    help="Whether update downloads end with a license's support period.",
)
@click.option(
    "--accept-imported-keys/--no-accept-imported-keys",
    "accepts_imported_keys",
    default=None,
    help="Whether keys that were sold elsewhere are valid.",
)
@click.option(
    "--customer-moves",
    type=int,
    metavar="N",
    help="How many slots of a license its customer may free in 30 days; 0 for none.",
)
@click.option("--trial-days", type=int, metavar="N", help="How long a new trial lasts; 0 for none.")
@click.option(
    "--public-feed/--no-public-feed",
    default=None,
    help="Whether feeds for other updaters (Sparkle, Tauri, Velopack) need no license.",
)
@_after_support_option
@_when_full_option
@_idle_option
@click.option(
    "--minimum-version",
    metavar="VERSION",
    help="The lowest supported version; older apps ask their users to update. '' removes it.",
)
@click.option("--yes", is_flag=True, help="Do not ask before another name.")
def change_product(
    services: Services,
    printer: Printer,
    slug: str,
    environment: str | None,
    when_full: str | None,
    idle: int | None,
    *,
    yes: bool,
    **changes: Any,
) -> None:
    """Change the product SLUG; what is not given stays. Another name has the effects of `product rename`."""
    if (when_full, idle) != (None, None):
        changes["idle_days"] = _read_idle(when_full, idle, services.products.get(slug).idle_days)
    policy = None if environment is None else EnvironmentPolicy(environment)
    if policy is None and set(changes.values()) == {None}:
        raise InvalidInputError("there is nothing to change; see `licserver product change --help`")
    if changes["name"] is not None:
        _confirm_rename(services, slug, changes["name"], yes=yes)
    product = services.products.change(slug, policy=policy, **changes)
    if changes["after_support"] is not None and not product.has_support_policy:
        echo(f"note: updates of {slug} do not end; --support-policy makes them end with support", err=True)
    if changes["minimum_version"] is not None and (effect := describe_missing_minimum(product)):
        echo(f"warning: {effect} Publish it, or correct --minimum-version.", err=True)
    _print_product(printer, product, "changed")


def _read_idle(when_full: str | None, idle: int | None, present: int) -> int:
    """Return the days after which a computer is idle, from the options; 0 for never."""
    is_oldest = bool(present) if when_full is None else when_full == "oldest"
    if idle is not None and not is_oldest:
        raise InvalidInputError("--idle belongs to --when-full oldest")
    if not is_oldest:
        return 0
    if idle == 0:
        raise InvalidInputError("--when-full oldest needs a number of days; --when-full refuse is for none")
    return idle or present or IDLE_DAYS


def _confirm_rename(services: Services, slug: str, name: str, *, yes: bool) -> None:
    """Print the effects of another name, and ask."""
    effects = describe_rename(services.products.get(slug), name)
    for effect in effects:
        echo(effect, err=True)
    if effects and not yes:
        confirm(f"Rename {slug}?", "apps in the field may refuse licenses of the new name")


def _print_product(printer: Printer, product: Product, done: str) -> None:
    printer.result(_product_record(product), f"{done} {product.slug}: {product.name}")


def _product_record(product: Product) -> dict[str, Any]:
    return {
        "slug": product.slug,
        "environment": product.policy.value,
        "support_policy": product.has_support_policy,
        "accept_imported_keys": product.accepts_imported_keys,
        "after_support": product.after_support.value,
        **pick(product, "idle_days", "customer_moves", "trial_days", "public_feed", "minimum_version"),
        "latest": product.latest.version if product.latest else None,
        "name": product.name,
    }


# --- plans ------------------------------------------------------------------------------------

product_argument = click.argument("product")
grant_option = click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="GRANT",
    help="A flag (export), a number (projects=50), a number per period (exports=100/month) or a text "
    "(region=eu); several times.",
)


plan_group = Commands(
    "plan",
    help="""Choose what licenses are entitled to: a license has one plan of its product, or none.

A GRANT is NAME for a flag, or NAME=VALUE. A value in double quotes is always a text.""",
)


@services_command("add", plan_group)
@product_argument
@name_argument
@grant_option
def add_plan(services: Services, printer: Printer, product: str, name: str, grants: tuple[str, ...]) -> None:
    """Add the plan NAME to PRODUCT."""
    plan = services.plans.add(product, name, parse_grants(grants))
    _print_plan(printer, product, plan, f"added the plan {name} of {product}")


@services_command("list", plan_group)
@product_argument
def list_plans(services: Services, printer: Printer, product: str) -> None:
    """List the plans of PRODUCT."""

    def show(grants: Mapping[str, Any]) -> Any:
        return grants if printer.as_json else ", ".join(format_grants(grants))

    plans = services.plans.list_all(product)
    records = ({"name": plan.name, "entitlements": show(plan.entitlements)} for plan in plans)
    printer.table(records, (20, 0), "no plans yet")


@services_command("show", plan_group)
@product_argument
@name_argument
def show_plan(services: Services, printer: Printer, product: str, name: str) -> None:
    """Show what the plan NAME of PRODUCT grants."""
    plan = services.plans.get(product, name)
    _print_plan(printer, product, plan, "\n".join(format_grants(plan.entitlements)) or "nothing")


@services_command("change", plan_group)
@product_argument
@name_argument
@grant_option
def change_plan(
    services: Services, printer: Printer, product: str, name: str, grants: tuple[str, ...]
) -> None:
    """Change what the plan NAME of PRODUCT grants; NAME=none takes an entitlement out of it.

    What is not given stays. Its licenses get the new entitlements with the next answer.
    """
    if not grants:
        raise InvalidInputError("there is nothing to change; see `licserver plan change --help`")
    plan = services.plans.change(product, name, parse_grants(grants))
    _print_plan(printer, product, plan, f"changed the plan {name} of {product}")


@services_command("remove", plan_group)
@product_argument
@name_argument
def remove_plan(services: Services, printer: Printer, product: str, name: str) -> None:
    """Remove the plan NAME of PRODUCT, which no license may have."""
    services.plans.remove(product, name)
    printer.result({"product": product, "name": name}, f"removed the plan {name} of {product}")


def _print_plan(printer: Printer, product: str, plan: Plan, text: str) -> None:
    printer.result({"product": product, **pick(plan, "name", "entitlements")}, text)
