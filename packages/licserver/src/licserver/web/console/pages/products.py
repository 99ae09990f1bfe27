"""Products: all of them, and each with its versions."""

from typing import Final

from licserver.model import EnvironmentPolicy
from licserver.web.console.visit import Csv, Moved, Page, Visit

POLICIES: Final = {
    EnvironmentPolicy.DOMAIN: "a domain, from whatever address (desktop apps)",
    EnvironmentPolicy.STRICT: "a domain together with its address",
    EnvironmentPolicy.EITHER: "a domain or an address, whichever is known",
}
"""What makes a machine known to a key (D-03), for people."""


def show_all(visit: Visit) -> Page:
    """Show all products, and the form for another one."""
    policies = {policy.value: words for policy, words in POLICIES.items()}
    form = {name: visit.given(name) for name in ("name", "slug", "policy", "support")}
    return Page("products.html", {"products": visit.vendor.products(), "policies": policies, "form": form})


def add(visit: Visit) -> Moved:
    """Add a product."""
    try:
        policy = EnvironmentPolicy(visit.given("policy"))
    except ValueError:
        policy = EnvironmentPolicy.DOMAIN
    product = visit.vendor.add_product(
        visit.given("slug"), visit.given("name"), policy, has_support_policy=bool(visit.given("support"))
    )
    return Moved(f"/console/products/{product.slug}", "product")


def show(visit: Visit) -> Page:
    """Show a product with its versions, and the form for another one."""
    product = visit.vendor.product(visit.parts["slug"])
    return Page(
        "product.html",
        {
            "product": product,
            "policy": POLICIES[product.policy],
            "releases": visit.vendor.releases(product.slug)[::-1],
            "here": f"/console/products/{product.slug}",
            "form": {name: visit.form.get(name, "") for name in ("version", "changelog", "name")},
        },
    )


def rename(visit: Visit) -> Moved:
    """Rename a product."""
    product = visit.vendor.rename_product(visit.parts["slug"], visit.given("name"))
    return Moved(f"/console/products/{product.slug}", "renamed")


def export(visit: Visit) -> Csv:
    """Give all products as a file."""
    rows = [
        (
            product.slug,
            product.name,
            product.policy.value,
            product.has_support_policy,
            product.latest and product.latest.version,
        )
        for product in visit.vendor.products()
    ]
    return Csv("products", ("slug", "name", "environment", "support policy", "latest version"), [rows])
