"""Versions of a product: uploaded, shown as customers see them, withdrawn."""

from markupsafe import Markup

from licserver.domain.changelogs import clean, is_html
from licserver.domain.records import Product, Release
from licserver.services import MAX_PAGE, Services
from licserver.services.releases import StagedRelease
from licserver.web.console.idempotency import do_once
from licserver.web.console.page_context import Csv, File, Page, PageContext, Redirect, in_pages
from licserver.web.console.pages.licenses import CELLS, draw_row, write_cells


def publish(visit: PageContext, file: File) -> Redirect:
    """Publish an uploaded file as a version; the file is stored before the books are held up."""
    slug, changelog = visit.parts["slug"], visit.given("changelog").replace("\r\n", "\n")

    def stage() -> StagedRelease:
        return visit.services.releases.stage(
            slug, visit.given("version"), file.path, changelog, file_name=file.name
        )

    def add(tx: Services, staged: StagedRelease) -> Redirect:
        return Redirect(f"/console/products/{slug}/releases/{tx.releases.add(staged).version}", "published")

    return do_once(visit, stage, add, file.name, file.sha256.hex())


def show(visit: PageContext) -> Page:
    """Show a version."""
    slug = visit.parts["slug"]
    product, release = (
        visit.services.products.get(slug),
        visit.services.releases.get(slug, visit.parts["version"]),
    )
    is_latest = product.latest is not None and product.latest.id == release.id
    return Page(
        "release.html",
        {
            "product": product,
            "release": release,
            "is_latest": is_latest,
            "sentence": _say_state(product, release, is_latest=is_latest),
            "downloads": say_who_downloads(product, release, is_latest=is_latest),
            "holders": [
                draw_row(one, visit)
                for one in visit.services.licenses.list_entitled(slug, release.version, limit=10).items
            ],
            "changelog": draw_changelog(release.changelog),
            "here": f"/console/products/{slug}/releases/{release.version}",
        },
    )


def withdraw(visit: PageContext) -> Redirect:
    """Take a version back."""
    slug, version = visit.parts["slug"], visit.parts["version"]
    visit.services.releases.withdraw(slug, version)
    return Redirect(f"/console/products/{slug}/releases/{version}", "withdrawn")


def export(visit: PageContext) -> Csv:
    """Give a product's versions as a file."""
    slug = visit.parts["slug"]
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
        for release in visit.services.releases.list_all(slug)
    ]
    columns = ("version", "file", "bytes", "sha256", "published at", "withdrawn at", "signed")
    return Csv(f"releases-{slug}", columns, [rows])


def export_holders(visit: PageContext) -> Csv:
    """Give the licenses whose holders may download a version as a file."""
    slug, version = visit.parts["slug"], visit.parts["version"]
    pages = in_pages(lambda cursor: visit.services.licenses.list_entitled(slug, version, cursor, MAX_PAGE))
    return Csv(f"downloads-{slug}", CELLS, ([write_cells(one, visit) for one in some] for some in pages))


def draw_changelog(text: str) -> Markup:
    """Show a changelog as an app does that keeps the rules: plain text, or the HTML that was kept (D-65)."""
    if not is_html(text):
        return Markup("<pre>{}</pre>").format(text)
    # Cleaned again: what lies in the database need not have come through `publish`.
    return Markup(clean(text))  # noqa: S704 - nothing is left of it that does anything


def _say_state(product: Product, release: Release, *, is_latest: bool) -> str:
    if release.withdrawn_at is not None:
        return "It was withdrawn: update checks do not offer it, and links to its file are dead."
    if is_latest:
        return "Update checks offer this version."
    offered = product.latest and product.latest.version
    return f"Update checks offer {offered} instead." if offered else "Update checks offer nothing."


def say_who_downloads(product: Product, release: Release, *, is_latest: bool) -> list[str]:
    """Say who gets the file (spec 4.2, D-31, D-33). Pure."""
    if release.withdrawn_at is not None:
        return ["Nobody."]
    until_then = "Whoever was given a link within the last hour, unless the license was revoked meanwhile."
    if not is_latest:
        return [until_then, "No new links to it are made: a later version is offered."]
    support = (
        " and whose support has not ended; a license without a support date counts as supported"
        if product.has_support_policy
        else ""
    )
    return [
        f"Whoever has a license for {product.name} that is neither revoked nor expired{support}.",
        until_then,
    ]
