"""Products, and their versions: upload, changelog as customers see it, withdrawal."""

from typing import Any, Final

from markupsafe import Markup

from licserver.domain.decisions import latest
from licserver.domain.records import EnvironmentPolicy
from licserver.domain.text import is_html, sanitize
from licserver.errors import InvalidInputError
from licserver.services import MAX_PAGE, Services
from licserver.services.products import StagedRelease
from licserver.web.console.pages import (
    Csv,
    Page,
    PageContext,
    Redirect,
    Reply,
    ask,
    do_once,
    in_pages,
    is_confirmed,
)
from licserver.web.console.pages.licenses import licenses_csv
from licserver.web.uploads import Upload

POLICIES: Final = {
    EnvironmentPolicy.DOMAIN: "domain (desktop apps)",
    EnvironmentPolicy.STRICT: "domain and IP address",
    EnvironmentPolicy.EITHER: "domain or IP address",
}
"""What identifies a machine."""


def show_all(context: PageContext) -> Page:
    """Show all products, and the form for a new one."""
    form = {name: context.from_form(name) for name in ("name", "slug", "policy", "support", "imported")}
    form["policy"] = form["policy"] or EnvironmentPolicy.DOMAIN.value
    products = context.services.products.list_all()
    return Page("products.html", {"products": products, "policies": POLICIES, "form": form})


def add(context: PageContext) -> Redirect:
    """Add a product."""
    product = context.services.products.add(
        context.from_form("slug"), context.from_form("name"), **_rules(context)
    )
    return Redirect(f"/console/products/{product.slug}", "product")


def _rules(context: PageContext) -> dict[str, Any]:
    """Return what identifies a machine, how long updates are available, and which keys are valid."""
    try:
        policy = EnvironmentPolicy(context.from_form("policy"))
    except ValueError:
        raise InvalidInputError("choose what identifies a machine") from None
    # Browsers send nothing for a box that is not ticked.
    return {
        "policy": policy,
        "has_support_policy": bool(context.from_form("support")),
        "accepts_imported_keys": bool(context.from_form("imported")),
    }


def show(context: PageContext) -> Page:
    """Show a product with its versions, and the form for a new one."""
    product = context.services.products.get(context.parts["slug"])
    rules = {
        "policy": product.policy.value,
        "support": product.has_support_policy,
        "imported": product.accepts_imported_keys,
    }
    if "policy" in context.form:
        rules = {name: context.from_form(name) for name in rules}
    return Page(
        "product.html",
        {
            "product": product,
            "policy": POLICIES[product.policy],
            "policies": POLICIES,
            "rules": rules,
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
    """Change what identifies a machine, how long updates are available, and which keys are valid."""
    product = context.services.products.change(context.parts["slug"], **_rules(context))
    return Redirect(f"/console/products/{product.slug}", "rules")


def export(context: PageContext) -> Csv:
    """Export all products."""
    rows = [
        (one.slug, one.name, one.policy.value, one.has_support_policy, one.latest and one.latest.version)
        for one in context.services.products.list_all()
    ]
    return Csv("products", ("slug", "name", "environment", "support policy", "latest version"), [rows])


# --- releases ---------------------------------------------------------------------------------


def publish(context: PageContext, upload: Upload) -> Redirect:
    """Publish an uploaded file as a version; the file is stored before the transaction begins."""
    slug, changelog = context.parts["slug"], context.from_form("changelog").replace("\r\n", "\n")

    def stage() -> StagedRelease:
        return context.services.releases.stage(
            slug, context.from_form("version"), upload.path, changelog, file_name=upload.file_name
        )

    def add_staged(tx: Services, staged: StagedRelease) -> Redirect:
        return Redirect(f"/console/products/{slug}/releases/{tx.releases.add(staged).version}", "published")

    return do_once(context, stage, add_staged, upload.file_name, upload.sha256.hex())


def show_release(context: PageContext) -> Page:
    """Show a version."""
    slug = context.parts["slug"]
    product = context.services.products.get(slug)
    release = context.services.releases.get(slug, context.parts["version"])
    is_latest = product.latest is not None and product.latest.id == release.id
    return Page(
        "release.html",
        {
            "product": product,
            "release": release,
            "is_latest": is_latest,
            "holders": context.services.licenses.list_entitled(slug, release.version, limit=10).items,
            "changelog": _render_changelog(release.changelog),
            "here": f"/console/products/{slug}/releases/{release.version}",
        },
    )


def withdraw(context: PageContext) -> Reply:
    """Withdraw a version, once that is confirmed."""
    slug, version = context.parts["slug"], context.parts["version"]
    if not is_confirmed(context):
        product = context.services.products.get(slug)
        action = f"/console/products/{slug}/releases/{version}/withdraw"
        offered = [one for one in context.services.releases.list_all(slug) if one.withdrawn_at is None]
        after = latest([one for one in offered if one.version != version])
        effects = [
            f"{product.name} {version} is no longer offered, and links to its file stop working at once.",
            f"Update checks offer {after.version} from then on."
            if after
            else "Update checks offer nothing then.",
            "This cannot be undone: this version can never be published again.",
        ]
        return ask(context, f"Withdraw {product.name} {version}?", effects, action, f"Withdraw {version}")
    context.services.releases.withdraw(slug, version)
    return Redirect(f"/console/products/{slug}/releases/{version}", "withdrawn")


def export_releases(context: PageContext) -> Csv:
    """Export a product's versions."""
    slug = context.parts["slug"]
    rows = [
        (
            release.version,
            release.artifact.file_name,
            release.artifact.size,
            release.artifact.sha256.hex(),
            release.published_at,
            release.withdrawn_at,
            release.manifest is not None,
        )
        for release in context.services.releases.list_all(slug)
    ]
    columns = ("version", "file", "bytes", "sha256", "published at", "withdrawn at", "signed")
    return Csv(f"releases-{slug}", columns, [rows])


def export_holders(context: PageContext) -> Csv:
    """Export the licenses whose holders may download a version."""
    slug, version = context.parts["slug"], context.parts["version"]
    pages = in_pages(lambda cursor: context.services.licenses.list_entitled(slug, version, cursor, MAX_PAGE))
    return licenses_csv(f"downloads-{slug}", context, pages)


def _render_changelog(text: str) -> Markup:
    """Render a changelog as apps should: as plain text, or as sanitized HTML."""
    if not is_html(text):
        return Markup("<pre>{}</pre>").format(text)
    # Again: not all that is in the database has come through `publish`.
    return Markup(sanitize(text))  # noqa: S704 - sanitized
