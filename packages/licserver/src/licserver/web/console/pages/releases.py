"""Versions of a product: upload, changelog as customers see it, withdrawal."""

from markupsafe import Markup

from licserver.domain.records import Product, Release
from licserver.domain.text import is_html, sanitize
from licserver.services import MAX_PAGE, Services
from licserver.services.products import StagedRelease
from licserver.web.console.idempotency import do_once
from licserver.web.console.page_context import Csv, File, Page, PageContext, Redirect, in_pages
from licserver.web.console.pages.licenses import licenses_csv, summarize


def publish(context: PageContext, file: File) -> Redirect:
    """Publish an uploaded file as a version; the file is stored before the transaction begins."""
    slug, changelog = context.parts["slug"], context.from_form("changelog").replace("\r\n", "\n")

    def stage() -> StagedRelease:
        return context.services.releases.stage(
            slug, context.from_form("version"), file.path, changelog, file_name=file.name
        )

    def add(tx: Services, staged: StagedRelease) -> Redirect:
        return Redirect(f"/console/products/{slug}/releases/{tx.releases.add(staged).version}", "published")

    return do_once(context, stage, add, file.name, file.sha256.hex())


def show(context: PageContext) -> Page:
    """Show a version."""
    slug = context.parts["slug"]
    product, release = (
        context.services.products.get(slug),
        context.services.releases.get(slug, context.parts["version"]),
    )
    is_latest = product.latest is not None and product.latest.id == release.id
    return Page(
        "release.html",
        {
            "product": product,
            "release": release,
            "is_latest": is_latest,
            "sentence": _describe_state(product, release, is_latest=is_latest),
            "downloads": describe_downloads(product, release, is_latest=is_latest),
            "holders": [
                summarize(one, context)
                for one in context.services.licenses.list_entitled(slug, release.version, limit=10).items
            ],
            "changelog": render_changelog(release.changelog),
            "here": f"/console/products/{slug}/releases/{release.version}",
        },
    )


def withdraw(context: PageContext) -> Redirect:
    """Withdraw a version."""
    slug, version = context.parts["slug"], context.parts["version"]
    context.services.releases.withdraw(slug, version)
    return Redirect(f"/console/products/{slug}/releases/{version}", "withdrawn")


def export(context: PageContext) -> Csv:
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


def render_changelog(text: str) -> Markup:
    """Render a changelog as apps should: as plain text, or as sanitized HTML (D-65)."""
    if not is_html(text):
        return Markup("<pre>{}</pre>").format(text)
    # Again: not all that is in the database has come through `publish`.
    return Markup(sanitize(text))  # noqa: S704 - sanitized


def _describe_state(product: Product, release: Release, *, is_latest: bool) -> str:
    if release.withdrawn_at is not None:
        return "It is withdrawn: update checks do not offer it, and links to its file do not work."
    if is_latest:
        return "Update checks offer this version."
    offered = product.latest and product.latest.version
    return f"Update checks offer {offered} instead." if offered else "Update checks offer nothing."


def describe_downloads(product: Product, release: Release, *, is_latest: bool) -> list[str]:
    """Describe who gets the file (spec 4.2, D-31, D-33). Pure."""
    if release.withdrawn_at is not None:
        return ["Nobody."]
    until_then = "Anyone who got a link within the last hour, unless the license was revoked since."
    if not is_latest:
        return [until_then, "No new links are made: a later version is offered."]
    support = (
        " and whose support has not ended (no support date means supported)"
        if product.has_support_policy
        else ""
    )
    return [
        f"Anyone with a license for {product.name} that is neither revoked nor expired{support}.",
        until_then,
    ]
