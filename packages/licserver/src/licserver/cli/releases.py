"""Commands on releases, and on the keys and manifests that sign them."""

import functools
from collections.abc import Callable
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from licserver.cli import Commands
from licserver.cli.common import (
    Printer,
    json_option,
    pick,
    read_file,
    services_command,
    with_services,
    write_new,
)
from licserver.cli.rollouts import show_rollout
from licserver.cli.wordpress import show_wordpress, wordpress_options
from licserver.clock import system_clock
from licserver.domain.decisions import is_slug, parse_version
from licserver.domain.records import STABLE, Release, WordPressFields
from licserver.domain.rollout import Reach
from licserver.errors import InvalidInputError
from licserver.protocol import release_manifests
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.file_signatures import PUBLIC_KEY_FORMS
from licserver.protocol.release_manifests import Manifest, ManifestSigner
from licserver.security.file_signing import file_signer
from licserver.security.private_files import digest_file, validate_file
from licserver.services import Services

R = TypeVar("R")

_PATH = click.Path(path_type=Path)

slug_argument = click.argument("slug")
version_argument = click.argument("version")
file_argument = click.argument("file", type=_PATH)
platform_option = click.option(
    "--platform", default="", metavar="NAME", help="The file for this platform, such as windows-x86_64."
)
release_key_option = click.option(
    "--release-key",
    "release_keys",
    multiple=True,
    type=_PATH,
    metavar="PEM",
    help="Sign the release with the Ed25519 key in this file; may be repeated.",
)
valid_for_option = click.option(
    "--valid-for",
    type=click.IntRange(1, 3650),
    metavar="DAYS",
    default=release_manifests.VALID_FOR.days,
    show_default=True,
    help="How long clients accept the signed manifest.",
)


def signing_options(function: Callable[..., R]) -> Callable[..., R]:
    """Add ``--release-key``, ``--valid-for`` and ``--manifest`` to a command, and call it with a signer."""

    @release_key_option
    @valid_for_option
    @click.option(
        "--manifest",
        type=_PATH,
        metavar="FILE",
        help="The manifest that `licserver release sign` wrote, on a machine that has the key.",
    )
    @functools.wraps(function)
    def command(
        *args: Any, release_keys: tuple[Path, ...], valid_for: int, manifest: Path | None, **parameters: Any
    ) -> R:
        signer = _read_signer(release_keys, valid_for, manifest, parameters.get("file"))
        return function(*args, signer=signer, **parameters)

    return command


def _read_signer(
    paths: tuple[Path, ...], valid_for: int, manifest: Path | None, file: Path | None
) -> ManifestSigner | None:
    if paths and manifest is not None:
        raise InvalidInputError("give --release-key or --manifest, not both")
    if manifest is not None:
        return release_manifests.use_signed(_read_text(manifest))
    return _sign_with(_read_keys(paths), valid_for, file) if paths else None


def _sign_with(keys: list[PrivateKey], valid_for: int, file: Path | None) -> ManifestSigner:
    """Return a signer; of several keys, the first one signs the file for other updaters."""
    sign_file = file_signer(file, keys[0]) if file is not None else None
    return release_manifests.sign_with_keys(keys, timedelta(days=valid_for), sign_file)


def _read_text(path: Path) -> str:
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not UTF-8 text") from None


def _read_keys(paths: tuple[Path, ...]) -> list[PrivateKey]:
    return [PrivateKey.from_pem(read_file(path), str(path)) for path in paths]


@click.group("release", cls=Commands)
def release_group() -> None:
    """Publish, sign, list and withdraw versions."""


release_group.add_command(show_rollout)
release_group.add_command(show_wordpress)


@release_group.command("publish")
@slug_argument
@version_argument
@file_argument
@click.option("--changelog", help="What is new, as plain text or basic HTML.")
@click.option("--changelog-file", type=_PATH, help="The changelog in a UTF-8 file.")
@platform_option
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
@wordpress_options
@with_services
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
    platform: str,
    channel: str,
    rollout: str | None,
    critical_below: str | None,
    fields: dict[str, str],
    signer: ManifestSigner | None,
) -> None:
    """Publish FILE as VERSION of the product SLUG, signed with --release-key or --manifest.

    With --platform it is offered to apps on that platform only, and the version may have files for others.
    With --channel it is offered to apps and licenses with that channel only; `release promote` ends that.
    """
    if changelog is not None and changelog_file is not None:
        raise InvalidInputError("give --changelog or --changelog-file, not both")
    if changelog_file is not None:
        changelog = _read_text(changelog_file)
    release = services.releases.publish(
        slug,
        version,
        file,
        changelog or "",
        signer,
        platform=platform,
        channel=channel,
        reach=Reach(rollout, critical_below),
        wordpress=WordPressFields(**fields),
    )
    record = _release_record(release)
    audience = services.releases.describe_audience(slug, release)
    warning = services.releases.describe_order(slug, release)
    for_platform = f" for {platform}" if platform else ""
    is_reduced = bool(changelog) and release.changelog != changelog
    lines = [
        f"published {slug} {release.version}{for_platform}: {release.artifact.size:,} bytes, "
        f"sha256 {record['sha256']}" + ("; the changelog was reduced to basic HTML" if is_reduced else ""),
        *filter(None, [audience, warning]),
    ]
    record |= release.wordpress._asdict()
    printer.result(record | {"audience": audience, "warning": warning}, "\n".join(lines))


@release_group.command("renew")
@slug_argument
@version_argument
@platform_option
@with_services
@signing_options
def renew(
    services: Services,
    printer: Printer,
    slug: str,
    version: str,
    platform: str,
    signer: ManifestSigner | None,
) -> None:
    """Replace the manifest of VERSION of the product SLUG by one with a later expiry; the file stays.

    With --release-key the key is needed here; or sign the same file again on the machine that has the key,
    and pass what `release sign` wrote to --manifest.
    """
    if signer is None:
        raise InvalidInputError("give --release-key or --manifest")
    release = services.releases.renew_manifest(slug, version, signer, platform)
    signed = release_manifests.read(release.manifest or "")
    until = signed.manifest.expires_at
    printer.result(
        {
            "version": release.version,
            "platform": release.platform or None,
            "signed_until": until,
            "signed_by": list(signed.key_ids),
        },
        f"renewed {slug} {release.version}: valid until {until:%Y-%m-%d %H:%M:%S} UTC, "
        f"signed by {', '.join(signed.key_ids)}",
    )


@services_command("list", release_group)
@slug_argument
def list_releases(services: Services, printer: Printer, slug: str) -> None:
    """List the versions of the product SLUG, a line for each file."""
    releases = services.releases.list_all(slug)
    printer.table(map(_release_record, releases), (14, 16, 10, 24, 24, 24, 12, 12, 30, 0), "no versions yet")


@services_command("patches", release_group)
@slug_argument
@version_argument
@platform_option
def make_patches(services: Services, printer: Printer, slug: str, version: str, platform: str) -> None:
    """List the patches to VERSION of the product SLUG, by which apps download less.

    The server makes them in the background after a version is published; those that are missing are made
    now. A patch that saves less than half is not kept.
    """
    whole = services.releases.get(slug, version, platform).artifact.size
    made = services.patches.make(slug, version, platform)
    records = [
        {"from": base.version, "size": patch.size, "percent": round(100 * patch.size / whole, 1)}
        for base, patch in made
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
@click.option("--channel", default=STABLE, show_default=True, metavar="NAME", help="Where it belongs then.")
def promote(services: Services, printer: Printer, slug: str, version: str, channel: str) -> None:
    """Move VERSION of the product SLUG with all its files to another channel."""
    release = services.releases.promote(slug, version, channel)
    printer.result(_release_record(release), f"{slug} {release.version} is in the channel {release.channel}")


@services_command("withdraw", release_group)
@slug_argument
@version_argument
def withdraw(services: Services, printer: Printer, slug: str, version: str) -> None:
    """Withdraw VERSION of the product SLUG with all its files; links to them stop working."""
    release = services.releases.withdraw(slug, version)
    printer.result(_release_record(release), f"withdrew {slug} {release.version}")


def _release_record(release: Release) -> dict[str, Any]:
    manifest = None if release.manifest is None else release_manifests.read(release.manifest).manifest
    return {
        "version": release.version,
        "platform": release.platform or None,
        **pick(release, "channel", "published_at", "withdrawn_at"),
        "signed_until": manifest and manifest.expires_at,
        "for_updaters": release.file_signatures is not None,
        "size": release.artifact.size,
        "file": release.artifact.file_name,
        "sha256": release.artifact.sha256.hex(),
    }


# --- commands without a data folder -----------------------------------------------------------


@release_group.command("new-key")
@file_argument
@json_option
def new_key(file: Path, *, as_json: bool) -> None:
    """Generate a key that signs releases: write the private key to FILE, and print the public one to pin.

    Keep FILE away from the server, and a copy of it in another place.
    """
    key = PrivateKey.generate()
    write_new(file, key.to_pem(), 0o600)
    _print_public(key, as_json=as_json)


@release_group.command("public-key")
@file_argument
@click.option(
    "--for",
    "updater",
    type=click.Choice(list(PUBLIC_KEY_FORMS)),
    default="licclient",
    show_default=True,
    help="Who reads it: each updater has its own form.",
)
@json_option
def public_key(file: Path, updater: str, *, as_json: bool) -> None:
    """Print the public key for apps to pin, of the private key in FILE."""
    _print_public(_read_keys((file,))[0], updater, as_json=as_json)


def _print_public(key: PrivateKey, updater: str = "licclient", *, as_json: bool) -> None:
    text = PUBLIC_KEY_FORMS[updater](key.public)
    Printer(as_json=as_json).result({"public_key": text, "id": key.public.id}, text)


@release_group.command("sign")
@slug_argument
@version_argument
@file_argument
@release_key_option
@valid_for_option
@click.option(
    "--add-to", type=_PATH, metavar="MANIFEST", help="Add a signature to this manifest; its expiry stays."
)
@click.option("--out", type=_PATH, help="Write the manifest to this file; default: print it.")
def sign(
    slug: str,
    version: str,
    file: Path,
    release_keys: tuple[Path, ...],
    valid_for: int,
    add_to: Path | None,
    out: Path | None,
) -> None:
    """Sign FILE as VERSION of the product SLUG, on a machine that has the key and no server.

    Pass the result to `release publish --manifest` or `release renew --manifest`.
    """
    if not release_keys:
        raise InvalidInputError("name the signing key with --release-key")
    if not is_slug(slug) or parse_version(version) is None:
        raise InvalidInputError(
            f"{slug!r} {version!r} is not a slug and a version by PEP 440, like my-product 1.4.0"
        )
    keys = _read_keys(release_keys)
    size, sha256 = digest_file(validate_file(file))
    now = system_clock().astimezone(UTC)
    wanted = Manifest(slug, version, size, sha256, published_at=now, expires_at=now)
    if add_to is None:
        signed = _sign_with(keys, valid_for, file)(wanted)
    else:
        signed = release_manifests.use_signed(_read_text(add_to))(wanted)
        for key in keys:
            signed = release_manifests.add_signature(signed, key)
    if out is None:
        click.echo(signed.text)
        return
    write_new(out, signed.text.encode() + b"\n", 0o644)
    until = f"{signed.manifest.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    click.echo(f"signed {slug} {version} until {until} by {', '.join(signed.key_ids)}")
