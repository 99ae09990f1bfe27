"""What the server's secrets do to license keys before these reach the database.

A database row holds a key twice: as an index (HMAC-SHA-256, cut to 128 bits as RFC 2104 allows), by
which it is found, and sealed (AES-256-GCM), by which the vendor can have it shown. Neither can be
undone without the secrets, which live beside the database (`secrets_file`) and never in it.
"""

import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

from licserver.errors import VaultError
from licserver.protocol.download_links import LinkSecret
from licserver.protocol.ed25519_keys import SigningKey

ID_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_LOCKED: Final = b"licserver locked "
"""Begins every label: longer than the id that a sealed key is bound to, so that neither opens the other."""


@dataclass(frozen=True, slots=True)
class Vault:
    """Indexes and seals license keys; holds the secrets that sign links, and the keys that sign answers.

    Args:
        index_secret: 32 bytes; changes never, for every key would be lost.
        seal_secret: 32 bytes; the same.
        link_secrets: The newest first; `signing` says which one signs, and which are believed (D-30, D-66).
        signing_keys: All that sign answers or have done so; none when answers are not signed (D-60).
        has_database: Whether a database was written with these secrets (D-158).
    """

    index_secret: bytes = field(repr=False)
    seal_secret: bytes = field(repr=False)
    link_secrets: tuple[LinkSecret, ...]
    signing_keys: tuple[SigningKey, ...] = ()
    has_database: bool = False
    _index: hmac.HMAC = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare what is needed for each key."""
        object.__setattr__(self, "_index", hmac.new(self.index_secret, digestmod="sha256"))

    def license_id(self, key: str) -> bytes:
        """Derive a key's index, which is the license's id: 16 bytes that give no key away."""
        mac = self._index.copy()  # takes the secret in once, and half the time
        # surrogatepass: what is no text is simply a key that does not exist
        mac.update(key.encode("utf-8", "surrogatepass"))
        return mac.digest()[:ID_BYTES]

    def pseudonym(self, kind: str, name: str) -> bytes:
        """Name somebody to a database that is not to know who it is: 16 bytes, always the same."""
        mac = self._index.copy()
        mac.update(b"licserver pseudonym %s " % kind.encode() + name.encode("utf-8", "surrogatepass"))
        return mac.digest()[:ID_BYTES]

    def seal(self, key: str) -> bytes:
        """Encrypt a key for the database, bound to its own row."""
        return _encrypt(self.seal_secret, key.encode(), self.license_id(key))

    def open(self, sealed: bytes, license_id: bytes) -> str:
        """Decrypt a key from the database.

        Raises:
            VaultError: when it was sealed with other secrets, altered, or belongs to another row.
        """
        key = _decrypt(self.seal_secret, sealed, license_id)
        if key is None:
            raise VaultError("a license key in the database was altered or sealed with other secrets")
        return key.decode()

    def lock(self, content: bytes, label: bytes) -> bytes:
        """Encrypt what only this vendor is to read again, bound to what it is for.

        Args:
            content: Whatever it is.
            label: Says what for; `unlock` must be told the same. Not secret.
        """
        return _encrypt(self.seal_secret, content, _LOCKED + label)

    def unlock(self, locked: bytes, label: bytes) -> bytes:
        """Decrypt what `lock` made.

        Raises:
            VaultError: when it was made with other secrets, altered, or made for something else.
        """
        content = _decrypt(self.seal_secret, locked, _LOCKED + label)
        if content is None:
            raise VaultError("what was kept in the database was altered or made with other secrets")
        return content

    @property
    def fingerprint(self) -> bytes:
        """A check value for the database to remember whose secrets it was written with."""
        return hmac.digest(self.index_secret, b"licserver vault fingerprint", "sha256") + hmac.digest(
            self.seal_secret, b"licserver vault fingerprint", "sha256"
        )


def _encrypt(secret: bytes, content: bytes, bound_to: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - see `_decrypt`

    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(secret).encrypt(nonce, content, bound_to)


def _decrypt(secret: bytes, sealed: bytes, bound_to: bytes) -> bytes | None:
    """Undo `_encrypt`; None for what it did not make."""
    # Here, because a process that only answers customers needs none of it, and it takes 7 MiB.
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        return AESGCM(secret).decrypt(nonce, ciphertext, bound_to)
    except (InvalidTag, ValueError):  # ValueError: cut so short that not even the nonce is left
        return None
