"""HTTP message signatures (RFC 9421) and digests (RFC 9530), as far as signed answers use them."""

import base64
import hashlib
import re

from licconform.cases import SetupError, expect
from licconform.server.subject import Answer


def digest_of(content: bytes) -> str:
    """Return a digest field: `sha-256=:…:`."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def check_signature(answer: Answer, public_key: str, request_body: bytes, nonce: str) -> None:
    """Check that an answer is signed by a key, over this answer and this request."""
    headers, request = answer.response.headers, answer.response.request
    digest = digest_of(answer.response.content)
    expect(headers.get("Content-Digest") == digest, "expected the Content-Digest of the body")
    label, _, parameters = headers.get("Signature-Input", "").partition("=")
    expect(bool(parameters), f"expected a Signature-Input\n{answer}")
    expect(f';nonce="{nonce}"' in parameters, "expected the nonce of the request")
    values = {
        '"@status"': str(answer.status),
        '"content-type"': headers.get("Content-Type", ""),
        '"content-digest"': digest,
        '"@method";req': request.method,
        '"@target-uri";req': str(request.url),
        '"content-digest";req': digest_of(request_body),
    }
    listed = re.match(r"\(([^)]*)\)", parameters)
    covered = listed[1].split(" ") if listed else []
    expect(set(covered) == values.keys(), f"expected six components, not {covered}")
    lines = [*(f"{name}: {values[name]}" for name in covered), f'"@signature-params": {parameters}']
    signature = re.search(rf"(?:^|, ?){re.escape(label)}=:([A-Za-z0-9+/=]+):", headers.get("Signature", ""))
    expect(signature is not None, f"expected a Signature\n{answer}")
    assert signature is not None  # noqa: S101 - as `expect` holds
    right = _verify(public_key, base64.b64decode(signature[1]), "\n".join(lines).encode())
    expect(right, "the signature is not one of this key over this answer and request")


def _verify(public_key: str, signature: bytes, content: bytes) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    except ImportError as error:
        raise SetupError("--public-key needs an extra: pip install 'licconform[signed]'") from error
    text = public_key.removeprefix("ed25519:")
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError as error:
        raise SetupError("--public-key is `ed25519:` and 32 bytes in base64url") from error
    try:
        key.verify(signature, content)
    except InvalidSignature:
        return False
    return True
