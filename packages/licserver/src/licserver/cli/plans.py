"""Commands on plans: what licenses of a product are entitled to."""

import click

from licserver.cli import Commands
from licserver.cli.common import Printer, pick, services_command
from licserver.domain.entitlements import Plan, format_grants, parse_grants
from licserver.errors import InvalidInputError
from licserver.services import Services

product_argument = click.argument("product", metavar="PRODUCT")
name_argument = click.argument("name")
grant_option = click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="GRANT",
    help="A flag (export), a number (projects=50), a number per period (exports=100/month) or a text "
    "(region=eu); several times.",
)


@click.group("plan", cls=Commands)
def plan_group() -> None:
    """Choose what licenses are entitled to: a license has one plan of its product, or none.

    A GRANT is NAME for a flag, or NAME=VALUE. A value in double quotes is a text, whatever it looks like.
    """


@services_command("add", plan_group)
@product_argument
@name_argument
@grant_option
def add_plan(services: Services, printer: Printer, product: str, name: str, grants: tuple[str, ...]) -> None:
    """Add the plan NAME to PRODUCT."""
    plan = services.plans.add(product, name, parse_grants(grants))
    _print(printer, product, plan, f"added the plan {name} of {product}")


@services_command("list", plan_group)
@product_argument
def list_plans(services: Services, printer: Printer, product: str) -> None:
    """List the plans of PRODUCT."""
    plans = services.plans.list_all(product)
    if printer.as_json:
        records = (pick(one, "name", "entitlements") for one in plans)
    else:
        records = (
            {"name": one.name, "entitlements": ", ".join(format_grants(one.entitlements))} for one in plans
        )
    printer.table(records, (20, 0), "no plans yet")


@services_command("show", plan_group)
@product_argument
@name_argument
def show_plan(services: Services, printer: Printer, product: str, name: str) -> None:
    """Show what the plan NAME of PRODUCT grants."""
    plan = services.plans.get(product, name)
    _print(printer, product, plan, "\n".join(format_grants(plan.entitlements)) or "nothing")


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
    _print(printer, product, plan, f"changed the plan {name} of {product}")


@services_command("remove", plan_group)
@product_argument
@name_argument
def remove_plan(services: Services, printer: Printer, product: str, name: str) -> None:
    """Remove the plan NAME of PRODUCT, which no license may have."""
    services.plans.remove(product, name)
    printer.result({"product": product, "name": name}, f"removed the plan {name} of {product}")


def _print(printer: Printer, product: str, plan: Plan, text: str) -> None:
    printer.result({"product": product, **pick(plan, "name", "entitlements")}, text)
