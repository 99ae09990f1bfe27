"""Products: the list, and each with its versions."""

from typing import Final

from licserver.domain.records import EnvironmentPolicy
from licserver.errors import InvalidInputError
from licserver.web.console.page_context import Csv, Page, PageContext, Redirect

POLICIES: Final = {
    EnvironmentPolicy.DOMAIN: "domain (desktop apps)",
    EnvironmentPolicy.STRICT: "domain and IP address",
    EnvironmentPolicy.EITHER: "domain or IP address",
}
"""What identifies a machine (D-03)."""


def show_all(context: PageContext) -> Page:
    """Show all products, and the form for a new one."""
    form = {name: context.from_form(name) for name in ("name", "slug", "policy", "support")}
    form["policy"] = form["policy"] or EnvironmentPolicy.DOMAIN.value
    return Page(
        "products.html",
        {"products": context.services.products.list_all(), "policies": POLICIES, "form": form},
    )


def add(context: PageContext) -> Redirect:
    """Add a product."""
    product = context.services.products.add(
        context.from_form("slug"),
        context.from_form("name"),
        _policy(context),
        has_support_policy=_ends_with_support(context),
    )
    return Redirect(f"/console/products/{product.slug}", "product")


def _policy(context: PageContext) -> EnvironmentPolicy:
    try:
        return EnvironmentPolicy(context.from_form("policy"))
    except ValueError:
        raise InvalidInputError("choose what identifies a machine") from None


def _ends_with_support(context: PageContext) -> bool:
    """Return whether the box is ticked: browsers send nothing for one that is not."""
    return bool(context.from_form("support"))


def show(context: PageContext) -> Page:
    """Show a product with its versions, and the form for a new one."""
    product = context.services.products.get(context.parts["slug"])
    is_changed = "policy" in context.form
    return Page(
        "product.html",
        {
            "product": product,
            "policy": POLICIES[product.policy],
            "policies": POLICIES,
            "rules": {
                "policy": context.from_form("policy") if is_changed else product.policy.value,
                "support": _ends_with_support(context) if is_changed else product.has_support_policy,
            },
            "releases": context.services.releases.list_all(product.slug)[::-1],
            "here": f"/console/products/{product.slug}",
            "form": {name: context.form.get(name, "") for name in ("version", "changelog", "name")},
        },
    )


def rename(context: PageContext) -> Redirect:
    """Rename a product."""
    product = context.services.products.rename(context.parts["slug"], context.from_form("name"))
    return Redirect(f"/console/products/{product.slug}", "renamed")


def change_rules(context: PageContext) -> Redirect:
    """Change what identifies a machine, and how long updates are available."""
    product = context.services.products.change(
        context.parts["slug"], policy=_policy(context), has_support_policy=_ends_with_support(context)
    )
    return Redirect(f"/console/products/{product.slug}", "rules")


def export(context: PageContext) -> Csv:
    """Export all products."""
    rows = [
        (
            product.slug,
            product.name,
            product.policy.value,
            product.has_support_policy,
            product.latest and product.latest.version,
        )
        for product in context.services.products.list_all()
    ]
    return Csv("products", ("slug", "name", "environment", "support policy", "latest version"), [rows])
