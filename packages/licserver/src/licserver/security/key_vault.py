"""Index and encrypt license keys before they reach the database.

A row has a key twice: as an index (HMAC-SHA-256, cut to 128 bits as RFC 2104 allows) to find it, and
encrypted (AES-256-GCM) to show it to the vendor. The secrets are in the secrets file, never in the database.
"""

import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

from licserver.errors import SecretsError
from licserver.protocol.downloads import LinkSecret
from licserver.protocol.ed25519_keys import SigningKey

ID_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_LABEL_PREFIX: Final = b"licserver locked "
"""Longer than a license id, so that an encrypted key and other encrypted content never share a label."""


@dataclass(frozen=True, slots=True)
class KeyVault:
    """The installation's secrets; the first two, of 32 bytes each, never change: all keys would be lost.

    `link_secrets` come newest first; `signing_keys` include retired ones. `has_database` is set once a
    database was written with them.
    """

    index_secret: bytes = field(repr=False)
    encryption_secret: bytes = field(repr=False)
    link_secrets: tuple[LinkSecret, ...]
    signing_keys: tuple[SigningKey, ...] = ()
    has_database: bool = False
    _mac: hmac.HMAC = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Process the secret once: this saves half of the time of each index."""
        object.__setattr__(self, "_mac", hmac.new(self.index_secret, digestmod="sha256"))

    def license_id(self, key: str) -> bytes:
        """Return the index of a license key: the license's id of 16 bytes."""
        # surrogatepass: text that is not valid Unicode is a key that does not exist
        mac = self._mac.copy()
        mac.update(key.encode("utf-8", "surrogatepass"))
        return mac.digest()[:ID_BYTES]

    def pseudonym(self, kind: str, name: str) -> bytes:
        """Return 16 bytes that stand for a name in the database, always the same."""
        mac = self._mac.copy()
        mac.update(b"licserver pseudonym %s " % kind.encode() + name.encode("utf-8", "surrogatepass"))
        return mac.digest()[:ID_BYTES]

    def encrypt_key(self, key: str) -> bytes:
        """Encrypt a license key for its own row."""
        return encrypt_bytes(self.encryption_secret, key.encode(), self.license_id(key))

    def decrypt_key(self, encrypted: bytes, license_id: bytes) -> str:
        """Decrypt the license key of a row; a `SecretsError` if it is not this row's, or altered."""
        key = decrypt_bytes(self.encryption_secret, encrypted, license_id)
        if key is None:
            raise SecretsError("a license key in the database was altered or encrypted with other secrets")
        return key.decode()

    def encrypt(self, content: bytes, label: bytes) -> bytes:
        """Encrypt other content; `label` says what it is for, and is not secret."""
        return encrypt_bytes(self.encryption_secret, content, _LABEL_PREFIX + label)

    def decrypt(self, encrypted: bytes, label: bytes) -> bytes:
        """Undo `encrypt`; a `SecretsError` if secrets or label differ, or the content was altered."""
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
        return b"".join(hmac.digest(one, b"licserver vault fingerprint", "sha256") for one in secrets_)


def encrypt_bytes(secret: bytes, content: bytes, label: bytes) -> bytes:
    """Encrypt bytes, bound to a label (AES-256-GCM)."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - see `decrypt_bytes`

    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(secret).encrypt(nonce, content, label)


def decrypt_bytes(secret: bytes, encrypted: bytes, label: bytes) -> bytes | None:
    """Undo `encrypt_bytes`; None for another secret or label, and for what was altered."""
    # Imported here: processes that only answer customers do not need these 7 MiB.
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    nonce, ciphertext = encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:]
    try:
        return AESGCM(secret).decrypt(nonce, ciphertext, label)
    except (InvalidTag, ValueError):  # ValueError: too short to contain a nonce
        return None
