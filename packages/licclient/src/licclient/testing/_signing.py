"""Signs for the fake service as licserver does, with keys of its own; and license files (D-62, D-67)."""

import json
import re
from base64 import b32decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from licclient._core.lazy import lazy
from licclient._core.public_keys import PublicKey, encode
from licclient._core.requests import Call
from licclient._core.responses import Reply
from licclient._core.signed_responses import COMPONENTS, TAG, content_digest, signature_base
from licclient._core.typed_key import mask_key
from licclient._offline.license_files import TYPE as FILE_TYPE
from licclient._offline.license_files import key_digest
from licclient._updates.signed_releases import TYPE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ed25519
else:
    ed25519 = lazy("cryptography.hazmat.primitives.asymmetric.ed25519")

_SIGNATURE_LIFETIME: Final = timedelta(minutes=5)
_NONCE: Final = re.compile(r';nonce="([^"]*)"')


class Signer:
    """An Ed25519 key pair, the same for each run of a test; needs the extra `licclient[signed]`."""

    def __init__(self, name: str) -> None:
        self._private = ed25519.Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())
        self.public = PublicKey(self._private.public_key().public_bytes_raw())

    def sign_response(
        self, call: Call, status: int, headers: dict[str, str], body: bytes, now: datetime
    ) -> None:
        """Add the headers of a signature, if the request asks for one."""
        if (nonce := _NONCE.search(call.headers.get("accept-signature", ""))) is None:
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
        text = ".".join(self._sign_json(FILE_TYPE, content))
        return f"-----BEGIN LICENSE FILE-----\n{text}\n-----END LICENSE FILE-----\n".encode()

    def sign_release(self, release: Mapping[str, Any]) -> str:
        """Return the header of a release's manifest."""
        protected, payload, signature = self._sign_json(TYPE, release)
        return _encode_json(
            {"payload": payload, "signatures": [{"protected": protected, "signature": signature}]}
        )

    def _sign_json(self, kind: str, content: Mapping[str, Any]) -> tuple[str, str, str]:
        """Return header, payload and signature of a JWS."""
        protected = _encode_json({"alg": "EdDSA", "kid": self.public.id, "typ": kind})
        payload = _encode_json(content)
        return protected, payload, encode(self._private.sign(f"{protected}.{payload}".encode()))


def _encode_json(document: Mapping[str, Any]) -> str:
    return encode(json.dumps(document).encode())


def file_content(
    license_: Mapping[str, Any], key: str, domain: str, slug: str, days: int, now: datetime
) -> dict[str, Any]:
    """Return the content of a license file; `license_` is the answer to a verify."""
    ends_at = now + timedelta(days=days)
    if license_["expiry"] is not None:
        last = datetime.fromisoformat(license_["expiry"])
        ends_at = min(ends_at, datetime.combine(last + timedelta(days=1), time(), UTC))
    return {
        **license_,
        "slug": slug,
        "license": mask_key(key),
        "key_digest": key_digest(key, domain),
        "domain": domain,
        "issued_at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "ends_at": f"{ends_at:%Y-%m-%dT%H:%M:%SZ}",
    }


def read_file_request(code: str) -> tuple[str, str]:
    """Return the domain and the slug in an app's request for a license file."""
    text = code.removeprefix("REQ").replace("-", "")
    content = b32decode(text + "=" * (-len(text) % 8))[:-3]
    if content[:1] == b"\1":
        return content[1:17].hex(), content[17:].decode().split("\0")[0]
    domain, slug, _ = content[1:].decode().split("\0")
    return domain, slug
