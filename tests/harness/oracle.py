"""RFC 9421 by people who have nothing to do with us: signs and verifies, to compare ours with.

Knows neither of the two packages. A signature of this protocol is written down here once more, in the
oracle's words, from `docs/protocol.md`.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import http_sf
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from http_message_signatures import (
    HTTPMessageSigner,
    HTTPMessageVerifier,
    MappingKeyResolver,
    VerifyResult,
    algorithms,
)

TAG = "licensing-answer"
COVERED = (
    '"@status"',
    '"content-type"',
    '"content-digest"',
    '"@method";req',
    '"@target-uri";req',
    '"content-digest";req',
)


@dataclass
class HttpRequest:
    """A request."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class HttpResponse:
    """The answer to it."""

    request: HttpRequest
    status_code: int
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class Signer:
    """A service's key, in the oracle's hands; signs as the protocol says by default."""

    private: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def raw(self) -> bytes:
        """The public key's 32 bytes."""
        return self.private.public_key().public_bytes_raw()

    @property
    def text(self) -> str:
        """The public key as an app pins it."""
        return f"ed25519:{_base64url(self.raw)}"

    @property
    def id(self) -> str:
        """Its thumbprint (RFC 7638)."""
        jwk = f'{{"crv":"Ed25519","kty":"OKP","x":"{_base64url(self.raw)}"}}'
        return _base64url(sha256(jwk.encode()).digest())

    def find_requested(self, headers: Mapping[str, str]) -> tuple[str, str] | None:
        """Label and nonce under which a request asks for a signature by this key."""
        members: Any = http_sf.parse(headers["accept-signature"].encode(), tltype="dictionary")
        for label, (_, parameters) in members.items():
            if parameters["keyid"] == self.id:
                return label, parameters["nonce"]
        return None

    def sign(
        self,
        answered: HttpResponse,
        nonce: str,
        created: datetime,
        *,
        label: str = "sig",
        tag: str | None = TAG,
        lifetime: timedelta = timedelta(minutes=5),
        covered: tuple[str, ...] = COVERED,
        key_id: str | None = None,
        **more: Any,
    ) -> None:
        """Put digest and signature into an answer's headers; what the protocol demands can be bent."""
        answered.headers.setdefault("Content-Digest", digest(answered.body))
        name = key_id or self.id
        signer = HTTPMessageSigner(
            signature_algorithm=algorithms.ED25519,
            key_resolver=MappingKeyResolver(public_keys={}, private_keys={name: self.private}),
        )
        signer.sign(
            answered,
            key_id=name,
            created=created,
            expires=created + lifetime,
            nonce=nonce,
            label=label,
            tag=tag,
            covered_component_ids=covered,
            use_existing_digest=True,
            **more,
        )


def digest(content: bytes) -> str:
    """Write a Content-Digest."""
    return f"sha-256=:{b64encode(sha256(content).digest()).decode()}:"


def accept_signature(nonce: str, **changes: str) -> str:
    """Return the value of an `Accept-Signature` header, as http_sf writes it."""
    listed: Any = [http_sf.parse(item.encode(), tltype="item") for item in COVERED]
    parameters: Any = {
        "created": True,
        "expires": True,
        "nonce": nonce,
        "alg": "ed25519",
        "tag": TAG,
        **changes,
    }
    members: Any = {"sig": (listed, parameters)}
    return str(http_sf.ser(members))


def verify(answered: HttpResponse, public: Mapping[str, bytes], now: datetime) -> VerifyResult:
    """Verify the one signature of an answer and its digest; raise `InvalidSignature` if none holds."""

    class Verifier(HTTPMessageVerifier):
        def validate_created_and_expires(self, sig_input: Any, max_age: timedelta | None = None) -> None:
            """Judge by the test's clock."""
            created, expires = (
                datetime.fromtimestamp(sig_input.params[name], UTC) for name in ("created", "expires")
            )
            assert created <= now <= expires

    resolver = MappingKeyResolver(
        public_keys={name: Ed25519PublicKey.from_public_bytes(raw) for name, raw in public.items()},
        private_keys={},
    )
    verifier = Verifier(signature_algorithm=algorithms.ED25519, key_resolver=resolver)
    (result,) = verifier.verify(answered, expect_tag=TAG, require_components=COVERED, body=answered.body)
    return result


def _base64url(raw: bytes) -> str:
    return b64encode(raw, b"-_").rstrip(b"=").decode()
