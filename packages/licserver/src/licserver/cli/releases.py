"""Commands on releases: published, renewed, moved between channels, rolled out, withdrawn."""

from datetime import date
from pathlib import Path
from typing import Any, Final

import click

from licserver.cli import Commands
from licserver.cli.common import (
    Function,
    Printer,
    parse_day,
    pick,
    read_text,
    services_command,
    slug_argument,
)
from licserver.cli.signing import (
    file_argument,
    new_key,
    new_kind_option,
    platform_option,
    public_key,
    sign,
    signing_options,
    version_argument,
)
from licserver.domain.offers import RolloutOptions
from licserver.domain.records import STABLE, FileKind, Release, WordPressFields
from licserver.domain.security_notices import read_notice
from licserver.errors import InvalidInputError
from licserver.protocol import release_manifests
from licserver.protocol.release_manifests import ManifestSigner
from licserver.services.installation import Services
from licserver.services.release_files import name_kind

_WORDPRESS: Final = {
    "requires": ("VERSION", "The lowest version of WordPress that it needs."),
    "tested": ("VERSION", "The highest version of WordPress with which it was tried."),
    "requires_php": ("VERSION", "The lowest version of PHP that it needs."),
    "details_url": ("URL", "The page that describes it; themes need one."),
}

kind_option = click.option(
    "--kind", default="", metavar="KIND", help=f"The file of this kind: {', '.join(FileKind)}."
)
release_group = Commands("release", help="Publish, sign, list and withdraw versions.")


for _command in (new_key, public_key, sign):
    release_group.add_command(_command)


def _wordpress_options(function: Function) -> Function:
    """Add an option for each field to a command."""
    for name, (metavar, help_) in reversed(_WORDPRESS.items()):
        option = f"--{name.replace('_', '-')}"
        function = click.option(option, metavar=metavar, help=f"WordPress: {help_}")(function)
    return function


@services_command("publish", release_group)
@slug_argument
@version_argument
@file_argument
@click.option("--changelog", help="What is new, as plain text or basic HTML.")
@click.option("--changelog-file", type=click.Path(path_type=Path), help="The changelog in a UTF-8 file.")
@platform_option
@new_kind_option
@click.option("--channel", default="", metavar="NAME", help="Offer it to this channel only, such as beta.")
@click.option(
    "--rollout",
    metavar="PLAN",
    help="Offer it to a growing share of installations: 7d or 36h, or steps such as 10%,50%@2d,100%@5d.",
)
@click.option(
    "--critical-below",
    metavar="VERSION",
    help="Offer it to installations below VERSION at once, as important.",
)
@click.option(
    "--published-on",
    type=parse_day,
    metavar="YYYY-MM-DD",
    help="When it was published elsewhere, for a shop that moves in; today without it.",
)
@click.option("--security", "is_security", is_flag=True, help="Offer it to each key that was ever valid.")
@click.option("--advisory", default="", metavar="URL", help="With --security: the page about what it fixes.")
@click.option("--cve", "cves", multiple=True, metavar="ID", help="With --security: CVE-2026-1234; several.")
@_wordpress_options
@signing_options
def publish(
    services: Services,
    printer: Printer,
    slug: str,
    version: str,
    file: Path,
    *,
    changelog: str | None,
    changelog_file: Path | None,
    rollout: str | None,
    critical_below: str | None,
    is_security: bool,
    published_on: date | None,
    advisory: str,
    cves: tuple[str, ...],
    signer: ManifestSigner | None,
    **texts: str,
) -> None:
    """Publish FILE as VERSION of the product SLUG, signed with --release-key or --manifest.

    With --platform it is offered to apps on that platform only, and the version may have files for others.
    A version may have a file of each kind: apps that a set-up installed are offered a set-up of this kind.
    With --channel it is offered to apps and licenses with that channel only; `release promote` ends that.
    With --security it is offered to apps below it whatever their license covers, unless that is revoked.
    """
    security = read_notice(advisory, cves, is_security=is_security)
    if changelog is not None and changelog_file is not None:
        raise InvalidInputError("give --changelog or --changelog-file, not both")
    if changelog_file is not None:
        changelog = read_text(changelog_file)
    wordpress = WordPressFields(**{name: texts.pop(name) for name in _WORDPRESS})
    reach = RolloutOptions(rollout, critical_below)
    staged = services.releases.stage(
        slug,
        version,
        file,
        changelog or "",
        signer,
        reach=reach,
        wordpress=wordpress,
        security=security,
        published_on=published_on,
        **texts,
    )
    release = services.releases.add(staged)
    record = _release_record(release)
    audience = services.releases.describe_audience(slug, release)
    warning = services.releases.describe_warnings(slug, staged, release)
    for_platform = (f" for {release.platform}" if release.platform else "") + name_kind(release.kind)
    is_reduced = (release.changelog or "").split() != (changelog or "").split()
    done = (
        f"published {slug} {release.version}{for_platform}: {release.artifact.size:,} bytes, "
        f"sha256 {record['sha256']}" + ("; the changelog was reduced to basic HTML" if is_reduced else "")
    )
    if staged.inspected.is_guessed and release.kind is not FileKind.FOLDER:
        done += f"\nThe kind {release.kind} is a guess from the file's content."
    record |= {**release.wordpress._asdict(), "audience": audience, "warning": warning}
    printer.result(record, "\n".join(filter(None, [done, audience, warning])))


@services_command("renew", release_group)
@slug_argument
@version_argument
@platform_option
@kind_option
@signing_options
def renew(services: Services, printer: Printer, signer: ManifestSigner | None, **which: str) -> None:
    """Replace the manifest of VERSION of the product SLUG by one with a later expiry; the file stays.

    With --release-key the key is needed here; or sign the same file again on the machine that has the key,
    and pass what `release sign` wrote to --manifest.
    """
    if signer is None:
        raise InvalidInputError("give --release-key or --manifest")
    release = services.releases.renew_manifest(sign=signer, **which)
    signed = release_manifests.read(release.manifest or "")
    until, ids = signed.manifest.expires_at, [*signed.key_ids]
    record = {"version": release.version, "platform": release.platform or None, "kind": release.kind}
    printer.result(
        {**record, "signed_until": until, "signed_by": ids},
        f"renewed {which['slug']} {release.version}: valid until {until:%Y-%m-%d %H:%M:%S} UTC, "
        f"signed by {', '.join(ids)}",
    )


@services_command("list", release_group)
@slug_argument
def list_releases(services: Services, printer: Printer, slug: str) -> None:
    """List the versions of the product SLUG, a line for each file."""
    releases = services.releases.list_all(slug)
    printer.table(
        map(_release_record, releases), (14, 16, 10, 10, 24, 24, 24, 12, 8, 12, 30, 0), "no versions yet"
    )


@services_command("audience", release_group)
@slug_argument
@version_argument
@click.option("--reported", is_flag=True, help="Leave out those that have reported no version.")
def show_audience(services: Services, printer: Printer, slug: str, version: str, *, reported: bool) -> None:
    """List the installations of the product SLUG that may run a version below VERSION.

    For the notice of a security release: whose computer, and the e-mail address of the license. An app that
    sends no label reports no version either, so any of its versions may run there.
    """
    records = (
        {
            "license": license_.id.hex(),
            "app_version": activation.app_version,
            "last_seen_at": activation.last_seen_at,
            "customer_email": license_.customer_email,
            "computer": activation.label or activation.environment.domain,
        }
        for license_, activation in services.licenses.list_below(slug, version, reported_only=reported)
    )
    nobody = f"no app has reported a version below {version}"
    nobody += "" if reported else ", and each that has a slot has reported its version"
    printer.table(records, (34, 14, 24, 30, 0), nobody)


@services_command("patches", release_group)
@slug_argument
@version_argument
@platform_option
@kind_option
def make_patches(services: Services, printer: Printer, **which: str) -> None:
    """List the patches to VERSION of the product SLUG, by which apps download less.

    The server makes them in the background after a version is published; those that are missing are made
    now. A patch that saves less than half is not kept.
    """
    whole = services.releases.get(**which).artifact.size
    patches = services.patches.make(**which)
    records = [
        {"from": base.version, "size": patch.size, "percent": round(100 * patch.size / whole, 1)}
        for base, patch in patches
    ]
    printer.table(records, (16, 14, 0), "no patch saves half of the download")


@services_command("changelog", release_group)
@slug_argument
@version_argument
def show_changelog(services: Services, printer: Printer, slug: str, version: str) -> None:
    """Show the changelog of VERSION of the product SLUG, as customers read it."""
    release = services.releases.get(slug, version)
    printer.result({"version": release.version, "changelog": release.changelog}, release.changelog)


@services_command("promote", release_group)
@slug_argument
@version_argument
@click.option(
    "--channel", default=STABLE, show_default=True, metavar="NAME", help="The channel to move it to."
)
def promote(services: Services, printer: Printer, slug: str, version: str, channel: str) -> None:
    """Move VERSION of the product SLUG with all its files to another channel."""
    release = services.releases.promote(slug, version, channel)
    printer.result(_release_record(release), f"{slug} {release.version} is in the channel {release.channel}")


@services_command("withdraw", release_group)
@slug_argument
@version_argument
@click.option("--force", is_flag=True, help="Also if installations are offered no security fix any more.")
def withdraw(services: Services, printer: Printer, slug: str, version: str, *, force: bool) -> None:
    """Withdraw VERSION of the product SLUG with all its files; links to them stop working."""
    warning = services.releases.describe_withdrawal(slug, services.releases.get(slug, version))
    if warning is not None and not force:
        raise InvalidInputError(f"{warning} Publish a higher one first, or give --force")
    release = services.releases.withdraw(slug, version)
    text = f"withdrew {slug} {release.version}"
    if release.manifest is not None:
        text += (
            "\nApps that have seen it take the version before only if that is signed again:"
            " see `licserver release renew --help`, or publish a higher one."
        )
    printer.result(_release_record(release), text)


def _release_record(release: Release) -> dict[str, Any]:
    manifest = None if release.manifest is None else release_manifests.read(release.manifest).manifest
    return {
        "version": release.version,
        "platform": release.platform or None,
        "kind": release.kind,
        **pick(release, "channel", "published_at", "withdrawn_at"),
        "signed_until": manifest and manifest.expires_at,
        "for_updaters": release.file_signatures is not None,
        "security": release.security is not None,
        "size": release.artifact.size,
        "file": release.artifact.file_name,
        "sha256": release.artifact.sha256.hex(),
    }


def _parse_percent(text: str) -> float:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a valid share; write it like 50%") from None


@services_command("rollout", release_group)
@slug_argument
@version_argument
@click.option(
    "--share", type=_parse_percent, metavar="PERCENT", help="Set the share, such as 50%, and keep it."
)
@click.option(
    "--pause/--resume",
    "paused",
    default=None,
    help="Pause or resume the growth of the share.",
)
@click.option("--finish", is_flag=True, help="Offer it to all installations.")
def show_rollout(
    services: Services, printer: Printer, share: float | None, paused: bool | None, finish: bool, **which: str
) -> None:
    """Show the rollout of VERSION of the product SLUG, or change it.

    The share never decreases. To stop offering a version, use `release withdraw`.
    """
    if (share is not None) + (paused is not None) + finish > 1:
        raise InvalidInputError("give one of --share, --pause, --resume and --finish")
    percent = 100.0 if finish else share
    if percent is None and paused is None:
        status = services.rollouts.get(**which)
    else:
        status = services.rollouts.change(**which, percent=percent, paused=paused)
    plan = status.release.rollout
    printer.details(
        {
            "version": status.release.version,
            "percent": status.percent,
            "plan": plan and plan.plan,
            "started_at": plan and plan.started_at,
            "paused_at": plan and plan.paused_at,
            "critical_below": status.release.critical_below,
            "update_checks": status.checks,
            "update_checks_of_all": status.checks_of_all,
            "rolled_back": status.rolled_back,
            "exit_codes": status.exit_codes
            if printer.as_json
            else [f"{code} ({count})" for code, count in status.exit_codes.items()],
        }
    )


@services_command("security", release_group)
@slug_argument
@version_argument
@click.option("--advisory", metavar="URL", help="The page about what it fixes; '' removes it.")
@click.option("--cve", "cves", multiple=True, metavar="ID", help="CVE-2026-1234; several. Replaces all.")
@click.option("--set/--unset", "is_security", default=None, help="Make it a security release, or end that.")
def show_security(
    services: Services,
    printer: Printer,
    slug: str,
    version: str,
    *,
    advisory: str | None,
    cves: tuple[str, ...],
    is_security: bool | None,
) -> None:
    """Show whether VERSION of the product SLUG is a security release, or change it.

    A security release is offered to apps below it whatever their license covers, unless that is revoked.
    """
    release = services.releases.get(slug, version)
    if is_security is None and (advisory is not None or cves):
        is_security = True
    if is_security is not None:
        before = release.security if is_security else None
        notice = read_notice(
            advisory if advisory is not None else (before and before.advisory) or "",
            cves or (before.cves if before else ()),
            is_security=is_security,
        )
        release = services.releases.set_security(slug, version, notice)
    notice = release.security
    printer.details(
        {
            "version": release.version,
            "security": notice is not None,
            "advisory": notice and notice.advisory,
            "cves": list(notice.cves) if notice else [],
        }
    )


@services_command("wordpress", release_group)
@slug_argument
@version_argument
@_wordpress_options
def show_wordpress(
    services: Services, printer: Printer, slug: str, version: str, **texts: str | None
) -> None:
    """Show what WordPress shows of VERSION of the product SLUG, or change it; '' removes a field."""
    fields = {name: text for name, text in texts.items() if text is not None}
    releases = services.releases
    release = releases.set_wordpress(slug, version, **fields) if fields else releases.get(slug, version)
    printer.details({"version": release.version, **release.wordpress._asdict()})
