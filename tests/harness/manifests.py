"""Signed releases, read by a library that is not ours; knows neither of the two packages."""

import json
import warnings
from base64 import urlsafe_b64decode
from typing import Any

from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import KeySet, OKPKey


def oracle(*keys: Any) -> KeySet:
    """The same private keys, for that library."""
    return KeySet([OKPKey.import_key(key.to_pem(), {"kid": key.public.id}) for key in keys])


def oracle_reads(document: str, *keys: Any) -> Any:
    """What that library finds to be signed, or its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # it would rather read Ed25519 (RFC 9864) than EdDSA
        found = jws.deserialize_json(json.loads(document), oracle(*keys), algorithms=["EdDSA", "Ed25519"])
    return json.loads(found.payload or b"")


def unpacked(word: str) -> str:
    """The text in a word of base64url, such as the document in a header."""
    return urlsafe_b64decode(word + "=" * (-len(word) % 4)).decode()
