"""Commands on products and their releases."""

from pathlib import Path
from typing import Any

import click

from licserver.cli.common import Commands, Printer, services_command
from licserver.cli.manifests import read_sealer, sealing_options, signed_until
from licserver.domain.records import EnvironmentPolicy, Product, Release
from licserver.errors import WrongUse
from licserver.services import Services

_POLICIES = [policy.value for policy in EnvironmentPolicy]


@click.group("product", cls=Commands)
def product_group() -> None:
    """Add, list, change and rename products."""


@product_group.command("add")
@click.argument("slug")
@click.option("--name", required=True, help="What customers read.")
@click.option(
    "--environment",
    type=click.Choice(_POLICIES),
    default=EnvironmentPolicy.STRICT.value,
    show_default=True,
    help="What makes a machine known to a key: domain and IP, the domain alone (desktop apps), or either.",
)
@click.option("--support-policy", is_flag=True, help="End update downloads with a license's support period.")
@services_command
def add(
    services: Services, printer: Printer, slug: str, name: str, environment: str, *, support_policy: bool
) -> None:
    """Add the product SLUG."""
    product = services.products.add(
        slug, name, EnvironmentPolicy(environment), has_support_policy=support_policy
    )
    printer.one(_product(product), f"added {product.slug}: {product.name}")


@product_group.command("list")
@services_command
def list_products(services: Services, printer: Printer) -> None:
    """List all products."""
    printer.rows(map(_product, services.products.list_all()), (24, 11, 14, 12, 0), "no products yet")


@product_group.command("rename")
@click.argument("slug")
@click.option("--name", required=True, help="The new name; keys issued before keep the old one.")
@services_command
def rename(services: Services, printer: Printer, slug: str, name: str) -> None:
    """Give the product SLUG another name."""
    product = services.products.rename(slug, name)
    printer.one(_product(product), f"renamed {product.slug}: {product.name}")


@product_group.command("change")
@click.argument("slug")
@click.option("--name", help="The new name; keys issued before keep the old one.")
@click.option(
    "--environment", type=click.Choice(_POLICIES), help="What makes a machine known to a key, from now on."
)
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
    """Change what is said of the product SLUG; what is not named stays."""
    if name is None and environment is None and support_policy is None:
        raise WrongUse("say what is to change; `licserver product change --help` shows what can")
    product = services.products.change(
        slug,
        name=name,
        policy=None if environment is None else EnvironmentPolicy(environment),
        has_support_policy=support_policy,
    )
    printer.one(_product(product), f"changed {product.slug}: {product.name}")


@click.group("release", cls=Commands)
def release_group() -> None:
    """Publish, sign, list and withdraw versions."""


@release_group.command("publish")
@click.argument("slug")
@click.argument("version")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--changelog", help="What is new, as plain text or basic HTML.")
@click.option("--changelog-file", type=click.Path(path_type=Path), help="The same, from a UTF-8 file.")
@sealing_options
@services_command
def publish(
    services: Services,
    printer: Printer,
    slug: str,
    version: str,
    file: Path,
    changelog: str | None,
    changelog_file: Path | None,
    release_keys: tuple[Path, ...],
    valid_for: int,
    manifest_file: Path | None,
) -> None:
    """Publish FILE as VERSION of the product SLUG; with --release-key or --manifest, signed."""
    if changelog is not None and changelog_file is not None:
        raise WrongUse("give --changelog or --changelog-file, not both")
    if changelog_file is not None:
        changelog = _read_text(changelog_file)
    seal = read_sealer(release_keys, valid_for, manifest_file)
    release = services.releases.publish(slug, version, file, changelog or "", seal)
    record = _release(release)
    printer.one(
        record,
        f"published {slug} {release.version}: {release.artifact.size:,} bytes, sha256 {record['sha256']}"
        + ("" if release.changelog == (changelog or "") else "; of the changelog, basic HTML was kept"),
    )


@release_group.command("list")
@click.argument("slug")
@services_command
def list_releases(services: Services, printer: Printer, slug: str) -> None:
    """List the versions of the product SLUG."""
    printer.rows(
        map(_release, services.releases.list_all(slug)), (14, 24, 24, 24, 12, 30, 0), "no versions yet"
    )


@release_group.command("changelog")
@click.argument("slug")
@click.argument("version")
@services_command
def show_changelog(services: Services, printer: Printer, slug: str, version: str) -> None:
    """Show what customers read of VERSION of the product SLUG."""
    release = services.releases.get(slug, version)
    printer.one({"version": release.version, "changelog": release.changelog}, release.changelog)


@release_group.command("withdraw")
@click.argument("slug")
@click.argument("version")
@services_command
def withdraw(services: Services, printer: Printer, slug: str, version: str) -> None:
    """Take VERSION of the product SLUG back; links to it stop working."""
    release = services.releases.withdraw(slug, version)
    printer.one(_release(release), f"withdrew {slug} {release.version}")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # editors on Windows write the mark
    except UnicodeDecodeError:
        raise WrongUse(f"{path} is not UTF-8 text") from None
    except OSError as problem:
        raise WrongUse(f"cannot read {path}: {problem.strerror}") from None


def _product(product: Product) -> dict[str, Any]:
    return {
        "slug": product.slug,
        "environment": product.policy.value,
        "support_policy": product.has_support_policy,
        "latest": product.latest.version if product.latest else None,
        "name": product.name,
    }


def _release(release: Release) -> dict[str, Any]:
    return {
        "version": release.version,
        "published_at": release.published_at,
        "withdrawn_at": release.withdrawn_at,
        "signed_until": signed_until(release.manifest),
        "size": release.artifact.size,
        "file": release.artifact.file_name,
        "sha256": release.artifact.sha256.hex(),
    }
