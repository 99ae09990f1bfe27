"""The server's secrets, and what they do to license keys before these reach the database.

A database row holds a key twice: as an index (HMAC-SHA-256, cut to 128 bits as RFC 2104 allows), by
which it is found, and sealed (AES-256-GCM), by which the vendor can have it shown. Neither can be
undone without the secrets, which live beside the database and never in it.
"""

import contextlib
import hmac
import json
import os
import secrets
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from licserver.errors import VaultError
from licserver.settings import Settings
from licserver.signing import LinkSecret

SECRETS_FILE: Final = "secrets.json"
ID_BYTES: Final = 16
_SECRET_BYTES: Final = 32
_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Vault:
    """Indexes and seals license keys; holds the secrets that sign links.

    Args:
        index_secret: 32 bytes; changes never, for every key would be lost.
        seal_secret: 32 bytes; the same.
        link_secrets: The newest first; `signing` says which one signs, and which are believed (D-30, D-66).
    """

    index_secret: bytes = field(repr=False)
    seal_secret: bytes = field(repr=False)
    link_secrets: tuple[LinkSecret, ...]

    def license_id(self, key: str) -> bytes:
        """Derive a key's index, which is the license's id: 16 bytes that give no key away."""
        # surrogatepass: what is no text is simply a key that does not exist
        return hmac.digest(self.index_secret, key.encode("utf-8", "surrogatepass"), "sha256")[:ID_BYTES]

    def seal(self, key: str) -> bytes:
        """Encrypt a key for the database, bound to its own row."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self.seal_secret).encrypt(nonce, key.encode(), self.license_id(key))

    def open(self, sealed: bytes, license_id: bytes) -> str:
        """Decrypt a key from the database.

        Raises:
            VaultError: when it was sealed with other secrets, altered, or belongs to another row.
        """
        nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return AESGCM(self.seal_secret).decrypt(nonce, ciphertext, license_id).decode()
        except (InvalidTag, ValueError):  # ValueError: cut so short that not even the nonce is left
            raise VaultError(
                "a license key in the database was altered or sealed with other secrets"
            ) from None

    @property
    def fingerprint(self) -> bytes:
        """A check value for the database to remember whose secrets it was written with."""
        return hmac.digest(self.index_secret, b"licserver vault fingerprint", "sha256") + hmac.digest(
            self.seal_secret, b"licserver vault fingerprint", "sha256"
        )


def new_secrets() -> dict[str, Any]:
    """Draw a fresh set of secrets, in the shape of the secrets file."""
    return {"index_secret": _draw(), "seal_secret": _draw(), "link_secrets": [new_link_secret()]}


def new_link_secret() -> dict[str, str]:
    """Draw a fresh secret for links, in the shape of the secrets file."""
    return {"id": secrets.token_hex(4), "secret": _draw()}


def _draw() -> str:
    return b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def read_vault(text: str, source: str) -> Vault:
    """Read a secrets file's text.

    Args:
        text: JSON, as `new_secrets` shapes it.
        source: Where it came from, for the message.

    Raises:
        VaultError: naming `source`, never what stands in it.
    """
    try:
        held = json.loads(text)
        vault = Vault(
            index_secret=b64decode(held["index_secret"], validate=True),
            seal_secret=b64decode(held["seal_secret"], validate=True),
            link_secrets=tuple(map(_read_link_secret, held["link_secrets"])),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise VaultError(f"{source} does not hold licserver's secrets; restore it from your backup") from None
    lengths = {
        len(vault.index_secret),
        len(vault.seal_secret),
        *(len(link.secret) for link in vault.link_secrets),
    }
    if lengths != {_SECRET_BYTES} or not vault.link_secrets:
        raise VaultError(
            f"{source} does not hold secrets of {_SECRET_BYTES} bytes; restore it from your backup"
        )
    return vault


def _read_link_secret(held: Mapping[str, Any]) -> LinkSecret:
    from_ = held.get("signs_from")
    signs_from = None if from_ is None else datetime.fromisoformat(from_)
    if signs_from is not None and signs_from.tzinfo is None:
        raise ValueError("an instant without a zone")
    return LinkSecret(held["id"], b64decode(held["secret"], validate=True), signs_from)


def open_vault(settings: Settings) -> Vault:
    """Read the secrets from the environment or the data folder; draw them on the very first use.

    Raises:
        VaultError: when they cannot be read.
    """
    if settings.secrets is not None:
        return read_vault(settings.secrets.get_secret_value(), "LICSERVER_SECRETS")
    path = settings.data_dir / SECRETS_FILE
    if not path.exists():
        _create_secrets(path)
    try:
        return read_vault(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as problem:
        raise VaultError(f"cannot read {path}: {type(problem).__name__}") from None


def _create_secrets(path: Path) -> None:
    """Write fresh secrets, whole and private from the first byte; of two who try at once, one wins."""
    text = json.dumps(new_secrets(), indent=2)
    with written_beside(path, text) as temporary, contextlib.suppress(FileExistsError):
        _link_once(temporary, path)


@contextlib.contextmanager
def written_beside(path: Path, text: str) -> Iterator[Path]:
    """Write a private file beside another, whole and durable; it goes unless it gets a name meanwhile."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".secrets-")  # mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _link_once(temporary: Path, path: Path) -> None:
    """Give the file its name unless the name is taken: `os.replace` would overwrite the winner's."""
    if os.name == "nt":
        temporary.rename(path)  # on Windows a rename never overwrites
    else:
        os.link(temporary, path)
