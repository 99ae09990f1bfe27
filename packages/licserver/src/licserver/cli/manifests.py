"""What the commands on releases share: release keys and manifests, read from files."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from licserver.errors import WrongUse
from licserver.protocol import release_manifests
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.release_manifests import Sealer

F = TypeVar("F", bound=Callable[..., Any])

release_key_option = click.option(
    "--release-key",
    "release_keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PEM",
    help="Sign the release with the Ed25519 key in this file; may be given several times.",
)
valid_for_option = click.option(
    "--valid-for",
    type=click.IntRange(1, 3650),
    metavar="DAYS",
    default=release_manifests.VALID_FOR.days,
    show_default=True,
    help="How long clients believe the signed manifest.",
)


def sealing_options(command: F) -> F:
    """Add ``--release-key``, ``--valid-for`` and ``--manifest``; `read_sealer` makes a sealer of them."""
    signed_before = click.option(
        "--manifest",
        "manifest_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The manifest that `licserver release sign` wrote, on a machine that has the key.",
    )
    return release_key_option(valid_for_option(signed_before(command)))


def read_sealer(release_keys: tuple[Path, ...], valid_for: int, manifest_file: Path | None) -> Sealer | None:
    """Make what seals a release, or None for one that is to be unsigned.

    Raises:
        WrongUse: for files that hold no key or no manifest, and for both at once.
    """
    if release_keys and manifest_file is not None:
        raise WrongUse("give --release-key or --manifest, not both")
    if manifest_file is not None:
        return release_manifests.sealed_before(read_text(manifest_file))
    return (
        release_manifests.sealed_by_keys(read_keys(release_keys), timedelta(days=valid_for))
        if release_keys
        else None
    )


def read_keys(paths: tuple[Path, ...]) -> list[PrivateKey]:
    """Read release keys.

    Raises:
        WrongUse: naming the file.
    """
    return [PrivateKey.from_pem(read_bytes(path), str(path)) for path in paths]


def signed_until(document: str | None) -> datetime | None:
    """When a release's manifest runs out; None when it has none."""
    return None if document is None else release_manifests.read(document).manifest.expires_at


def read_bytes(path: Path) -> bytes:
    """Read a file that the vendor named."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise WrongUse(f"cannot read {path}: {problem.strerror}") from None


def read_text(path: Path) -> str:
    """Read a manifest's text."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise WrongUse(f"{path} is no signed release manifest") from None
