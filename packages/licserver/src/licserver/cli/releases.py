"""Commands on signed releases; those on releases as such stand with the products."""

import os
from datetime import UTC, timedelta
from pathlib import Path

import click

from licserver.cli.common import Printer, services_command
from licserver.cli.manifests import (
    read_keys,
    read_sealer,
    read_text,
    release_key_option,
    sealing_options,
    valid_for_option,
)
from licserver.cli.products import release_group
from licserver.clock import system_clock
from licserver.domain.decisions import has_slug_shape, parse_version
from licserver.errors import WrongUse
from licserver.protocol import release_manifests
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.release_manifests import Manifest
from licserver.security.private_files import checked_file, digest_of
from licserver.services import Services

__all__ = ["release_group"]


@release_group.command("renew")
@click.argument("slug")
@click.argument("version")
@sealing_options
@services_command
def renew(
    services: Services,
    printer: Printer,
    slug: str,
    version: str,
    release_keys: tuple[Path, ...],
    valid_for: int,
    manifest_file: Path | None,
) -> None:
    """Give VERSION of the product SLUG a manifest that is good for longer; its file stays as it is.

    With --release-key the key is needed here; else sign the same file again where the key is, and hand over
    what `release sign` wrote with --manifest.
    """
    seal = read_sealer(release_keys, valid_for, manifest_file)
    if seal is None:
        raise WrongUse("give --release-key or --manifest")
    release = services.releases.renew_manifest(slug, version, seal)
    signed = release_manifests.read(release.manifest or "")
    until = signed.manifest.expires_at
    record = {"version": release.version, "signed_until": until, "signed_by": list(signed.key_ids)}
    printer.one(
        record,
        f"renewed {slug} {release.version}: good until {until:%Y-%m-%d %H:%M:%S} UTC, "
        f"signed by {', '.join(signed.key_ids)}",
    )


# --- commands that need no data folder ----------------------------------------------------------


@release_group.command("new-key")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def new_key(file: Path, *, as_json: bool) -> None:
    """Make a key that signs releases: the private half goes into FILE, the public half is what apps pin.

    Keep FILE away from the server, and a copy of it in another place.
    """
    key = PrivateKey.generate()
    _write_new(file, key.to_pem(), 0o600)
    _show_public(key, as_json=as_json)


@release_group.command("public-key")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def public_key(file: Path, *, as_json: bool) -> None:
    """Print what apps pin of the key in FILE."""
    _show_public(read_keys((file,))[0], as_json=as_json)


def _show_public(key: PrivateKey, *, as_json: bool) -> None:
    record = {"public_key": key.public.text, "id": key.public.id}
    Printer(as_json=as_json).one(record, key.public.text)


@release_group.command("sign")
@click.argument("slug")
@click.argument("version")
@click.argument("file", type=click.Path(path_type=Path))
@release_key_option
@valid_for_option
@click.option(
    "--add-to",
    type=click.Path(path_type=Path),
    metavar="MANIFEST",
    help="Sign what this manifest says, once more; its end stays.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Write the manifest here; else it is printed.")
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

    `release publish --manifest` and `release renew --manifest` take what this writes.
    """
    if not release_keys:
        raise WrongUse("say with --release-key which key signs")
    if not has_slug_shape(slug) or parse_version(version) is None:
        raise WrongUse(f"{slug!r} {version!r} is no slug with a version by PEP 440, like my-product 1.4.0")
    keys = read_keys(release_keys)
    size, sha256 = digest_of(checked_file(file))
    now = system_clock().astimezone(UTC)
    wanted = Manifest(slug, version, size, sha256, published_at=now, expires_at=now)
    if add_to is None:
        signed = release_manifests.sealed_by_keys(keys, timedelta(days=valid_for))(wanted)
    else:
        signed = release_manifests.sealed_before(read_text(add_to))(wanted)
        for key in keys:
            signed = release_manifests.add_signature(signed, key)
    if out is None:
        click.echo(signed.document)
        return
    _write_new(out, signed.document.encode() + b"\n", 0o644)
    until = f"{signed.manifest.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    click.echo(f"signed {slug} {version} until {until} by {', '.join(signed.key_ids)}")


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    except FileExistsError:
        raise WrongUse(f"there is a file {path} already") from None
    with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, for its mode
        file.write(content)
