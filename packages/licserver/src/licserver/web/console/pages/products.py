"""Products: all of them, and each with its versions."""

from typing import Final

from licserver.domain.records import EnvironmentPolicy
from licserver.errors import WrongUse
from licserver.web.console.page_context import Csv, Page, PageContext, Redirect

POLICIES: Final = {
    EnvironmentPolicy.DOMAIN: "a domain (desktop apps)",
    EnvironmentPolicy.STRICT: "a domain and its address",
    EnvironmentPolicy.EITHER: "a domain or an address",
}
"""What makes a machine known to a key (D-03), for people."""


def show_all(visit: PageContext) -> Page:
    """Show all products, and the form for another one."""
    form = {name: visit.given(name) for name in ("name", "slug", "policy", "support")}
    form["policy"] = form["policy"] or EnvironmentPolicy.DOMAIN.value
    return Page(
        "products.html", {"products": visit.services.products.list_all(), "policies": POLICIES, "form": form}
    )


def add(visit: PageContext) -> Redirect:
    """Add a product."""
    product = visit.services.products.add(
        visit.given("slug"), visit.given("name"), _policy(visit), has_support_policy=_ends_with_support(visit)
    )
    return Redirect(f"/console/products/{product.slug}", "product")


def _policy(visit: PageContext) -> EnvironmentPolicy:
    try:
        return EnvironmentPolicy(visit.given("policy"))
    except ValueError:
        raise WrongUse("choose what a machine is") from None


def _ends_with_support(visit: PageContext) -> bool:
    """A tick that is not there is one that was taken away: browsers send it so."""
    return bool(visit.given("support"))


def show(visit: PageContext) -> Page:
    """Show a product with its versions, and the form for another one."""
    product = visit.services.products.get(visit.parts["slug"])
    is_changed = "policy" in visit.form
    return Page(
        "product.html",
        {
            "product": product,
            "policy": POLICIES[product.policy],
            "policies": POLICIES,
            "rules": {
                "policy": visit.given("policy") if is_changed else product.policy.value,
                "support": _ends_with_support(visit) if is_changed else product.has_support_policy,
            },
            "releases": visit.services.releases.list_all(product.slug)[::-1],
            "here": f"/console/products/{product.slug}",
            "form": {name: visit.form.get(name, "") for name in ("version", "changelog", "name")},
        },
    )


def rename(visit: PageContext) -> Redirect:
    """Rename a product."""
    product = visit.services.products.rename(visit.parts["slug"], visit.given("name"))
    return Redirect(f"/console/products/{product.slug}", "renamed")


def change_rules(visit: PageContext) -> Redirect:
    """Change what a machine is, and how long updates can be had."""
    product = visit.services.products.change(
        visit.parts["slug"], policy=_policy(visit), has_support_policy=_ends_with_support(visit)
    )
    return Redirect(f"/console/products/{product.slug}", "rules")


def export(visit: PageContext) -> Csv:
    """Give all products as a file."""
    rows = [
        (
            product.slug,
            product.name,
            product.policy.value,
            product.has_support_policy,
            product.latest and product.latest.version,
        )
        for product in visit.services.products.list_all()
    ]
    return Csv("products", ("slug", "name", "environment", "support policy", "latest version"), [rows])
