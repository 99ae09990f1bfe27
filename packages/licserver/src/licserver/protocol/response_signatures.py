"""Signed responses (D-60): HTTP message signatures (RFC 9421) and content digests (RFC 9530). Pure.

A client sends ``Accept-Signature``. Each signature covers the same components, which bind a response to its
request::

    "@status", "content-type", "content-digest"                 of the response
    "@method";req, "@target-uri";req, "content-digest";req      of the request
    created, expires, keyid, nonce, alg, tag                    of the signature itself
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256, sha512
from typing import Final
from urllib.parse import urlsplit

from licserver.limits import MAX_FIELD_CHARS
from licserver.protocol.ed25519_keys import SigningKey

ANSWER_TAG: Final = "licensing-answer"
"""The purpose of the signature, so that other applications do not accept it."""

SIGNATURE_LIFETIME: Final = timedelta(minutes=5)  # from ``created`` to ``expires``
MAX_NONCE: Final = 128  # characters of a nonce
COMPONENTS: Final = (
    '"@status"',
    '"content-type"',
    '"content-digest"',
    '"@method";req',
    '"@target-uri";req',
    '"content-digest";req',
)
_COVERED: Final = f"({' '.join(COMPONENTS)})"
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}

# Structured fields (RFC 9651) as far as Accept-Signature needs them: a dictionary of lists of strings. No
# quantifier of a group is possessive: before 3.11.5 Python leaves what the last attempt has read. Each group
# begins with another character than what may follow it, so that the time is linear. http-sf was measured:
# 49 µs instead of 41 for what clients send, and 9 to 12 ms in the event loop instead of 1.5 for 8 KiB that an
# attacker chooses.
_NAME = r"[a-z*][a-z0-9_.*-]*+"
_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
_VALUE = rf"(?:{_STRING}|:[A-Za-z0-9+/=]*+:|\?[01]|-?[0-9][0-9.]*+|[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*+)"
_PARAMETER = rf"; *+{_NAME}(?:={_VALUE})?"
_LIST = rf"\((?: *+{_STRING}(?:{_PARAMETER})*(?=[ )]))* *+\)"
_MEMBER = rf"{_NAME}={_LIST}(?:{_PARAMETER})*"
_FIELD = re.compile(rf"[ \t]*+{_MEMBER}(?:[ \t]*+,[ \t]*+{_MEMBER})*[ \t]*+")
_MEMBER_PARTS = re.compile(rf"({_NAME})=({_LIST})((?:{_PARAMETER})*)")
_ITEMS = re.compile(rf"{_STRING}(?:{_PARAMETER})*")
_PARAMETER_PARTS = re.compile(rf"; *+({_NAME})(?:=({_VALUE}))?")

# The format of clients' nonces, and a placeholder that differs from all of them.
_PLAIN_NONCE = re.compile(rf';nonce="([A-Za-z0-9_-]{{1,{MAX_NONCE}}})"')
_PLACEHOLDER: Final = '"!"'
_ANY_NONCE: Final = f";nonce={_PLACEHOLDER}"

_MAX_CACHED: Final = 512  # characters of a cached ``Accept-Signature``: twice what clients send
_DIGEST_MEMBER = re.compile(r"([a-z0-9*_.-]+)=:([A-Za-z0-9+/=]*):")
_DIGESTS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "sha-256": lambda content: sha256(content).digest(),
    "sha-512": lambda content: sha512(content).digest(),
}


@dataclass(frozen=True, slots=True)
class SignatureRequest:
    """A requested signature: the label of its fields, the nonce in quotation marks, our key."""

    label: str
    nonce: str
    key: SigningKey


@dataclass(frozen=True, slots=True, repr=False)
class SignedRequest:
    """The signed parts of a request; without a repr, because the query may hold a license key."""

    method: str
    target_uri: str
    content_digest: str


class AcceptSignatureReader:
    """Parser of ``Accept-Signature`` with a cache.

    - A field without a nonce in the usual format is parsed by `parse_accept_signature`.
    - Otherwise the nonce is replaced by a placeholder, and the rest is cached: a field that differs only in
      its nonce takes a seventh of the time.

    >>> read = AcceptSignatureReader(keys)
    >>> read('sig1=("@status" …);nonce="…"')
    SignatureRequest(label='sig1', …)

    Nothing is raised: the result is None for a malformed field, and if no key can sign.
    """

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        self._keys = tuple(keys)
        self._cached = lru_cache(maxsize=64)(self._parse)

    def __call__(self, field: str) -> SignatureRequest | None:
        """Parse a field as `parse_accept_signature` does."""
        nonce_match = _PLAIN_NONCE.search(field) if len(field) <= _MAX_CACHED else None
        if nonce_match is None or _ANY_NONCE in field:
            return self._parse(field)
        request = self._cached(field.replace(nonce_match[0], _ANY_NONCE))
        if request is None or request.nonce != _PLACEHOLDER:
            return request
        return SignatureRequest(request.label, f'"{nonce_match[1]}"', request.key)

    def _parse(self, field: str) -> SignatureRequest | None:
        return parse_accept_signature(field, self._keys)


def parse_accept_signature(field: str, keys: Sequence[SigningKey]) -> SignatureRequest | None:
    """Choose the signature to make (RFC 9421 section 5), of all keys including retired ones.

    Several lines of the header ``Accept-Signature`` are joined by commas. Return the first member that the
    newest possible key can sign; None for a malformed field, too (D-61).
    """
    if len(field) > MAX_FIELD_CHARS or _FIELD.fullmatch(field) is None:
        return None
    members = [_parse_member(*match.groups()) for match in _MEMBER_PARTS.finditer(field)]
    for key in live_keys(keys):
        for label, nonce, key_id in filter(None, members):
            if key_id is None or key_id == f'"{key.id}"':
                return SignatureRequest(label, nonce, key)
    return None


def live_keys(keys: Sequence[SigningKey]) -> list[SigningKey]:
    """Return the keys that are not retired, the newest first."""
    return sorted((key for key in keys if key.retired_at is None), key=lambda key: key.added_at)[::-1]


def _parse_member(label: str, listed: str, parameters: str) -> tuple[str, str, str | None] | None:
    """Return label, nonce and requested key id of a member; None for other components or parameters."""
    requested = dict(_PARAMETER_PARTS.findall(parameters))
    nonce = requested.pop("nonce", "")
    key_id = requested.pop("keyid", None)
    allowed = {"created": "", "expires": "", "alg": '"ed25519"', "tag": f'"{ANSWER_TAG}"'}
    if (
        sorted(_ITEMS.findall(listed)) != sorted(COMPONENTS)
        or not nonce.startswith('"')
        or not 1 <= len(nonce[1:-1]) <= MAX_NONCE
        or any(allowed.get(name) != value for name, value in requested.items())
    ):
        return None
    return label, nonce, key_id


def content_digest(content: bytes) -> str:
    """Format a ``Content-Digest`` (RFC 9530)."""
    return f"sha-256=:{b64encode(sha256(content).digest()).decode()}:"


def matches_digest(field: str, content: bytes) -> bool:
    """Return whether a ``Content-Digest`` has a known algorithm, and all known digests match.

    Otherwise the signature would cover a request that was never evaluated.
    """
    if field == content_digest(content):
        return True
    has_known_algorithm = False
    for member in field.split(","):
        match = _DIGEST_MEMBER.fullmatch(member.strip(" \t"))
        if match is None:
            return False
        if (digest := _DIGESTS.get(match[1])) is None:
            continue
        if match[2] != b64encode(digest(content)).decode():
            return False
        has_known_algorithm = True
    return has_known_algorithm


def sign_response(
    signature_request: SignatureRequest,
    request: SignedRequest,
    status: int,
    content_type: str,
    content: bytes,
    now: datetime,
) -> dict[str, str]:
    """Return the three headers that sign a response; its parts must be exactly as sent.

    `signature_request` is from `parse_accept_signature`; the request's digest was checked with
    `matches_digest`. `now` is truncated to whole seconds.
    """
    created = int(now.timestamp())
    expires = created + int(SIGNATURE_LIFETIME.total_seconds())
    digest = content_digest(content)
    parameters = (
        f'{_COVERED};created={created};expires={expires};keyid="{signature_request.key.id}"'
        f';nonce={signature_request.nonce};alg="ed25519";tag="{ANSWER_TAG}"'
    )
    base = (
        f'"@status": {status}\n'
        f'"content-type": {content_type}\n'
        f'"content-digest": {digest}\n'
        f'"@method";req: {request.method}\n'
        f'"@target-uri";req: {request.target_uri}\n'
        f'"content-digest";req: {request.content_digest}\n'
        f'"@signature-params": {parameters}'
    )
    signature = b64encode(signature_request.key.private.sign(base.encode())).decode()
    return {
        "Content-Digest": digest,
        "Signature-Input": f"{signature_request.label}={parameters}",
        "Signature": f"{signature_request.label}=:{signature}:",
    }


def normalise_base_url(base_url: str) -> str:
    """Normalise a base URL as clients do: lower case, without the scheme's default port."""
    parts = urlsplit(base_url)
    host = parts.netloc.lower().removesuffix(_DEFAULT_PORTS[parts.scheme])
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
