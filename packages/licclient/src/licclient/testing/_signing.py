"""Signs for the fake service what apps with pinned keys demand to be signed (D-62, D-67).

The private halves of pinned keys are the vendor's, so a fake has none of them. While it is there, a pinned
key therefore takes a stand-in of its own, a keyed digest, for its signature. Everything else is as with a
real service: wish, nonce, what is covered, the manifest, and that the app's own code pins what it ships with.
"""

import hmac
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from licclient._model import Settings
from licclient._protocol.requests import Call
from licclient._protocol.responses import MANIFEST_HEADER, Reply
from licclient._signatures.public_keys import PublicKey
from licclient._signatures.releases import TYPE
from licclient._signatures.responses import COMPONENTS, TAG, content_digest, signature_base
from licclient.testing._told import Answer

_SECRET: Final = b"licclient.testing"
_SIGNATURE_LIVES: Final = timedelta(minutes=5)
_NONCE: Final = re.compile(r';nonce="([^"]*)"')


def stand_in(key: PublicKey, message: bytes) -> bytes:
    """Make what the fake's clients take for a signature by a key."""
    return hmac.digest(_SECRET + key.raw, message, "sha512")


def check(key: PublicKey, signature: bytes, message: bytes) -> bool:
    """In the place of `PublicKey.verify`."""
    return hmac.compare_digest(stand_in(key, message), signature)


def signed(answer: Answer, call: Call, settings: Settings, now: datetime) -> Answer:
    """Sign an answer as the client demands it that made the call; nothing for one without pins.

    Args:
        answer: Of the fake; only what is its own word is signed.
        call: As it arrived, with the names of headers in lower case.
        settings: The client's.
        now: By the fake's clock.
    """
    headers = dict(answer.headers)
    if answer.release is not None and settings.release_keys:
        headers[MANIFEST_HEADER] = _manifest(answer.release, settings.release_keys[0])
    nonce = _NONCE.search(call.headers.get("accept-signature", ""))
    if answer.is_own_word and settings.public_keys and nonce is not None:
        headers["Content-Digest"] = content_digest(answer.body)
        created = int(now.timestamp())
        expires = created + int(_SIGNATURE_LIVES.total_seconds())
        key, items = settings.public_keys[0], " ".join(COMPONENTS)
        params = f'({items});created={created};expires={expires};nonce="{nonce[1]}";alg="ed25519"'
        params += f';keyid="{key.id}";tag="{TAG}"'
        told = {name.lower(): value for name, value in headers.items()}
        base = signature_base(call, Reply(answer.status, answer.body, told), items, params)
        headers["Signature-Input"] = f"sig={params}"
        headers["Signature"] = f"sig=:{b64encode(stand_in(key, base)).decode()}:"
    return replace(answer, headers=headers)


def _manifest(release: Mapping[str, Any], key: PublicKey) -> str:
    protected = _word({"alg": "EdDSA", "kid": key.id, "typ": TYPE})
    payload = _word(release)
    signature = _base64url(stand_in(key, f"{protected}.{payload}".encode()))
    return _word({"payload": payload, "signatures": [{"protected": protected, "signature": signature}]})


def _word(document: Mapping[str, Any]) -> str:
    return _base64url(json.dumps(document).encode())


def _base64url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
