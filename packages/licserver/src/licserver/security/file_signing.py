"""Sign a file for other updaters; needs the private key, so it runs where releases are signed."""

import hashlib
import mmap
from pathlib import Path

from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.file_signatures import FileSignatures, check_start, sign_digest, trusted_comment
from licserver.protocol.release_manifests import FileSigner, Manifest
from licserver.security.private_files import validate_file


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
    # Imported here: servers do not sign files, and cryptography takes 7 MiB.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    private = Ed25519PrivateKey.from_private_bytes(key.seed)
    with file.open("rb") as source:
        if not file.stat().st_size:  # cannot be mapped
            return private.sign(b"")
        with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as content:
            return private.sign(content)
