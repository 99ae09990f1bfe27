"""Signed releases: the options and commands on keys and manifests, which need no data folder."""

import functools
import hashlib
import mmap
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import click

from licserver import libraries
from licserver.cli.common import (
    Function,
    Printer,
    json_option,
    read_file,
    read_text,
    slug_argument,
    write_new,
)
from licserver.cli.output import echo
from licserver.clock import system_clock
from licserver.domain.decisions import is_slug
from licserver.domain.records import FileKind
from licserver.domain.versions import parse_version
from licserver.errors import InvalidInputError
from licserver.protocol import release_manifests
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.file_signatures import (
    PUBLIC_KEY_FORMS,
    FileSignatures,
    check_start,
    sign_digest,
    trusted_comment,
)
from licserver.protocol.release_manifests import FileSigner, Manifest, ManifestSigner
from licserver.security.private_files import digest_file, validate_file
from licserver.services.release_files import inspect_file, name_kind
from licserver.services.releases import check_platform

_PATH = click.Path(path_type=Path)

version_argument = click.argument("version")
file_argument = click.argument("file", type=_PATH)
platform_option = click.option(
    "--platform", default="", metavar="NAME", help="The file for this platform, such as windows-x86_64."
)
new_kind_option = click.option(
    "--kind",
    default="",
    metavar="KIND",
    help=f"How it gets onto a computer: {', '.join(FileKind)}. It is guessed from the file without this.",
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


def signing_options(function: Function) -> Function:
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
    ) -> Any:
        signer = None
        if release_keys and manifest is not None:
            raise InvalidInputError("give --release-key or --manifest, not both")
        if manifest is not None:
            signer = release_manifests.use_signed(read_text(manifest))
        elif release_keys:
            signer = _sign_with(_read_keys(release_keys), valid_for, parameters.get("file"))
        return function(*args, signer=signer, **parameters)

    return command


def _sign_with(keys: list[PrivateKey], valid_for: int, file: Path | None) -> ManifestSigner:
    """Return a signer; of several keys, the first one signs the file for other updaters."""
    sign_file = file_signer(file, keys[0]) if file is not None else None
    return release_manifests.sign_with_keys(keys, timedelta(days=valid_for), sign_file)


def _read_keys(paths: tuple[Path, ...]) -> list[PrivateKey]:
    return [PrivateKey.from_pem(read_file(path), str(path)) for path in paths]


@click.command("new-key")
@file_argument
@json_option
def new_key(file: Path, *, as_json: bool) -> None:
    """Generate a key that signs releases: write the private key to FILE, and print the public one to pin.

    Keep FILE away from the server, and a copy of it in another place.
    """
    key = PrivateKey.generate()
    write_new(file, key.to_pem(), 0o600)
    _print_public(key, as_json=as_json)


@click.command("public-key")
@file_argument
@click.option(
    "--for",
    "updater",
    type=click.Choice(list(PUBLIC_KEY_FORMS)),
    default="licclient",
    show_default=True,
    help="The updater that reads it; formats differ.",
)
@json_option
def public_key(file: Path, updater: str, *, as_json: bool) -> None:
    """Print the public key for apps to pin, of the private key in FILE."""
    _print_public(_read_keys((file,))[0], updater, as_json=as_json)


def _print_public(key: PrivateKey, updater: str = "licclient", *, as_json: bool) -> None:
    text = PUBLIC_KEY_FORMS[updater](key.public)
    Printer(as_json=as_json).result({"public_key": text, "id": key.public.id}, text)


@click.command("sign")
@slug_argument
@version_argument
@file_argument
@release_key_option
@valid_for_option
@click.option(
    "--add-to", type=_PATH, metavar="MANIFEST", help="Add a signature to this manifest; its expiry stays."
)
@platform_option
@new_kind_option
@click.option("--out", type=_PATH, help="Write the manifest to this file; default: print it.")
def sign(
    slug: str,
    version: str,
    file: Path,
    release_keys: tuple[Path, ...],
    valid_for: int,
    add_to: Path | None,
    out: Path | None,
    platform: str,
    kind: str,
) -> None:
    """Sign FILE as VERSION of the product SLUG, on a machine that has the key and no server.

    Pass the result to `release publish --manifest` or `release renew --manifest`, with the same --platform
    and --kind. Both are signed as well: apps that pin the key take no file for another platform.
    """
    if not release_keys:
        raise InvalidInputError("name the signing key with --release-key")
    if not is_slug(slug) or parse_version(version) is None:
        raise InvalidInputError(
            f"{slug!r} {version!r} is not a slug and a version by PEP 440, like my-product 1.4.0"
        )
    check_platform(platform)
    keys = _read_keys(release_keys)
    inspected = inspect_file(file, kind, platform)
    size, sha256 = digest_file(validate_file(file))
    now = system_clock().astimezone(UTC)
    manifest = Manifest(slug, version, size, sha256, now, now, platform, inspected.kind.value)
    if add_to is None:
        signed = _sign_with(keys, valid_for, file)(manifest)
    else:
        signed = release_manifests.use_signed(read_text(add_to))(manifest)
        for key in keys:
            signed = release_manifests.add_signature(signed, key)
    if out is None:
        echo(signed.text)
        return
    write_new(out, signed.text.encode() + b"\n", 0o644)
    until = f"{signed.manifest.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    place = (f" for {platform}" if platform else "") + name_kind(inspected.kind)
    echo(f"signed {slug} {version}{place} until {until} by {', '.join(signed.key_ids)}")


def file_signer(file: Path, key: PrivateKey) -> FileSigner:
    """Return what signs a file as the version that a manifest names."""

    def signer(manifest: Manifest) -> FileSignatures:
        comment = trusted_comment(manifest.published_at, file.name, manifest.version)
        with validate_file(file).open("rb") as source:
            check_start(source.peek(3))
            digest = hashlib.file_digest(source, "blake2b").digest()
        return sign_digest(key, _sign_content(file, key), digest, comment)

    return signer


def _sign_content(file: Path, key: PrivateKey) -> bytes:
    """Sign the bytes of a file; mapped, because OpenSSL wants all at once, and libsodium copies them."""
    private = libraries.ed25519.Ed25519PrivateKey.from_private_bytes(key.seed)
    with file.open("rb") as source:
        if not file.stat().st_size:  # cannot be mapped
            return private.sign(b"")
        with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as content:
            return private.sign(content)
