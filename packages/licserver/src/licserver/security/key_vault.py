"""Index and encrypt license keys before they reach the database.

A row stores a key as an index (HMAC-SHA-256, truncated to 128 bits as RFC 2104 allows) for searches, and
encrypted (AES-256-GCM) for the vendor. The secrets are in the secrets file, never in the database.
"""

import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

from licserver import libraries
from licserver.errors import SecretsError
from licserver.protocol.downloads import LinkSecret
from licserver.protocol.ed25519_keys import SigningKey
from licserver.protocol.prepared_hmac import PreparedHmac

ID_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_LABEL_PREFIX: Final = b"licserver locked "
"""Longer than a license id, so that an encrypted key and other encrypted content never share a label."""


@dataclass(frozen=True, slots=True)
class KeyVault:
    """The secrets of an installation, with which license keys are indexed and encrypted.

    The workflow:

    1. `secrets_file.open_vault` reads or creates the secrets.
    2. `license_id` computes the index of a key, `encrypt_key` its encrypted form; both are stored.
    3. `decrypt_key` returns the key of a row for the vendor.

    >>> vault = open_vault(settings)
    >>> vault.decrypt_key(vault.encrypt_key(key), vault.license_id(key)) == key
    True

    `decrypt_key` and `decrypt` raise `SecretsError` for altered content, and for other secrets.

    The first two secrets, of 32 bytes each, never change: all keys would be lost. `link_secrets` are ordered
    from the newest; `signing_keys` include retired keys. `has_database` is true once a database was written
    with the secrets.
    """

    index_secret: bytes = field(repr=False)
    encryption_secret: bytes = field(repr=False)
    link_secrets: tuple[LinkSecret, ...]
    signing_keys: tuple[SigningKey, ...] = ()
    has_database: bool = False
    _mac: PreparedHmac = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the HMAC of each index."""
        object.__setattr__(self, "_mac", PreparedHmac(self.index_secret))

    def license_id(self, key: str) -> bytes:
        """Return the index of a license key: the license's id of 16 bytes."""
        # surrogatepass: text that is not valid Unicode is a key that does not exist
        return self._mac.digest(key.encode("utf-8", "surrogatepass"))[:ID_BYTES]

    def pseudonym(self, kind: str, name: str) -> bytes:
        """Return a keyed digest of 16 bytes of a name."""
        message = b"licserver pseudonym %s " % kind.encode() + name.encode("utf-8", "surrogatepass")
        return self._mac.digest(message)[:ID_BYTES]

    def encrypt_key(self, key: str) -> bytes:
        """Encrypt a license key for its own row."""
        return encrypt_bytes(self.encryption_secret, key.encode(), self.license_id(key))

    def decrypt_key(self, encrypted: bytes, license_id: bytes) -> str:
        """Decrypt the license key of a row; raise `SecretsError` if it is another row's, or altered."""
        key = decrypt_bytes(self.encryption_secret, encrypted, license_id)
        if key is None:
            raise SecretsError("a license key in the database was altered or encrypted with other secrets")
        return key.decode()

    def encrypt(self, content: bytes, label: bytes) -> bytes:
        """Encrypt other content; `label` names its purpose, and is not secret."""
        return encrypt_bytes(self.encryption_secret, content, _LABEL_PREFIX + label)

    def decrypt(self, encrypted: bytes, label: bytes) -> bytes:
        """Undo `encrypt`; raise `SecretsError` if secrets or label differ, or the content was altered."""
        content = decrypt_bytes(self.encryption_secret, encrypted, _LABEL_PREFIX + label)
        if content is None:
            raise SecretsError(
                "encrypted content in the database was altered or encrypted with other secrets"
            )
        return content

    @property
    def fingerprint(self) -> bytes:
        """A check value by which the database recognises its secrets."""
        secrets_ = (self.index_secret, self.encryption_secret)
        return b"".join(hmac.digest(secret, b"licserver vault fingerprint", "sha256") for secret in secrets_)


def encrypt_bytes(secret: bytes, content: bytes, label: bytes) -> bytes:
    """Encrypt bytes, bound to a label (AES-256-GCM)."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + libraries.aead.AESGCM(secret).encrypt(nonce, content, label)


def decrypt_bytes(secret: bytes, encrypted: bytes, label: bytes) -> bytes | None:
    """Undo `encrypt_bytes`; None for another secret or label, and for altered content."""
    nonce, ciphertext = encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:]
    try:
        return libraries.aead.AESGCM(secret).decrypt(nonce, ciphertext, label)
    except (
        libraries.cryptography_exceptions.InvalidTag,
        ValueError,
    ):  # too short for a nonce
        return None
