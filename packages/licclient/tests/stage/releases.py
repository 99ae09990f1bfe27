"""A vendor that signs its releases."""

import json
import random
from base64 import urlsafe_b64encode
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from licclient._core.public_keys import PREFIX, read_public_key

CONTENT = random.Random(2).randbytes(50_000)
OTHER = random.Random(3).randbytes(50_000)
TYPE = "release-manifest+json"


def word(raw):
    """Write base64url without padding."""
    return (
        urlsafe_b64encode(raw if isinstance(raw, bytes) else json.dumps(raw).encode()).rstrip(b"=").decode()
    )


class Signer:
    """A vendor's release key."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.pin = PREFIX + word(self._key.public_key().public_bytes_raw())
        self.id = read_public_key(self.pin).id

    def sign(self, payload, **head: object):
        """Sign a payload as one signature of a general JWS."""
        protected = word({"alg": "EdDSA", "kid": self.id, "typ": TYPE} | head)
        signature = word(self._key.sign(f"{protected}.{payload}".encode()))
        return {"protected": protected, "signature": signature}


ALICE, BOB, EVE = (Signer(bytes([number]) * 32) for number in (1, 2, 3))


def manifest_payload(content=CONTENT, **changes: object):
    """Return the payload of a manifest."""
    payload = {"slug": "notes", "version": "2.0", "size": len(content), "sha256": sha256(content).hexdigest()}
    instants = {"published_at": "2026-11-20T10:00:00Z", "expires_at": "2027-05-20T10:00:00Z"}
    return payload | instants | changes


def document(*signers: Signer, payload=None, **changes: object):
    """A signed manifest, as a JSON object."""
    payload = word(payload if payload is not None else manifest_payload(**changes))
    return {"payload": payload, "signatures": [signer.sign(payload) for signer in signers or (ALICE,)]}


def named(folder):
    """The files that have got a name."""
    return (
        [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.exists() else []
    )
