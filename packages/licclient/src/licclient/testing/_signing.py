"""Signs for the fake service as licserver does, with keys of its own (D-62, D-67)."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from licclient._protocol.requests import Call
from licclient._protocol.responses import Reply
from licclient._signatures.license_files import TYPE as FILE_TYPE
from licclient._signatures.public_keys import PublicKey, encode
from licclient._signatures.releases import TYPE
from licclient._signatures.responses import COMPONENTS, TAG, content_digest, signature_base

_SIGNATURE_LIFETIME: Final = timedelta(minutes=5)
_NONCE: Final = re.compile(r';nonce="([^"]*)"')


class Signer:
    """An Ed25519 key pair, the same for each run of a test; needs the extra `licclient[signed]`."""

    def __init__(self, name: str) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

        self._private = Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())
        self.public = PublicKey(self._private.public_key().public_bytes_raw())

    def sign_response(
        self, call: Call, status: int, headers: dict[str, str], body: bytes, now: datetime
    ) -> None:
        """Add the headers of a signature, if the request asks for one."""
        nonce = _NONCE.search(call.headers.get("accept-signature", ""))
        if nonce is None:
            return
        headers["Content-Digest"] = content_digest(body)
        created, expires = (int(at.timestamp()) for at in (now, now + _SIGNATURE_LIFETIME))
        items = " ".join(COMPONENTS)
        params = f'({items});created={created};expires={expires};nonce="{nonce[1]}";alg="ed25519"'
        params += f';keyid="{self.public.id}";tag="{TAG}"'
        lower = {name.lower(): value for name, value in headers.items()}
        base = signature_base(call, Reply(status, body, lower), items, params)
        headers["Signature-Input"] = f"sig={params}"
        headers["Signature"] = f"sig=:{b64encode(self._private.sign(base)).decode()}:"

    def sign_file(self, content: Mapping[str, Any]) -> bytes:
        """Return a license file."""
        header = {"alg": "EdDSA", "kid": self.public.id, "typ": FILE_TYPE}
        signed = f"{_encode_json(header)}.{_encode_json(content)}"
        text = f"{signed}.{encode(self._private.sign(signed.encode()))}"
        return f"-----BEGIN LICENSE FILE-----\n{text}\n-----END LICENSE FILE-----\n".encode()

    def sign_release(self, release: Mapping[str, Any]) -> str:
        """Return the header of a release's manifest."""
        protected = _encode_json({"alg": "EdDSA", "kid": self.public.id, "typ": TYPE})
        payload = _encode_json(release)
        signature = encode(self._private.sign(f"{protected}.{payload}".encode()))
        return _encode_json(
            {"payload": payload, "signatures": [{"protected": protected, "signature": signature}]}
        )


def _encode_json(document: Mapping[str, Any]) -> str:
    return encode(json.dumps(document).encode())
