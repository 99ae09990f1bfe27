"""Signed answers: HTTP message signatures (RFC 9421) with content digests (RFC 9530), in headers only.

Pure, given keys and `now`. A caller asks with ``Accept-Signature``; what is signed is always the same seven
things, so that a signature tells which answer was given to which question::

    "@status", "content-type", "content-digest"                 of the answer
    "@method";req, "@target-uri";req, "content-digest";req      of the request
    created, expires, keyid, nonce, alg, tag                    about the signature itself
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

from licserver.protocol.ed25519_keys import SigningKey

ANSWER_TAG: Final = "licensing-answer"
"""Says what our signatures are for, so that none of them can be passed off as another application's."""

SIGNATURE_LIFETIME: Final = timedelta(minutes=5)
"""From ``created`` to ``expires``: an answer is for the call that asked for it."""

MAX_NONCE: Final = 128
"""Characters of a nonce that is signed along."""

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

# Structured fields (RFC 9651), as far as Accept-Signature goes: a dictionary of lists of strings. The
# quantifiers are possessive: what a caller sends is read in one go, however it is made.
_NAME = r"[a-z*][a-z0-9_.*-]*+"
_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*+"'
_VALUE = rf"(?:{_STRING}|:[A-Za-z0-9+/=]*+:|\?[01]|-?[0-9][0-9.]*+|[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*+)"
_PARAMETER = rf"; *+{_NAME}(?:={_VALUE})?+"
_LIST = rf"\((?: *+{_STRING}(?:{_PARAMETER})*+(?=[ )]))*+ *+\)"
_MEMBER = rf"{_NAME}={_LIST}(?:{_PARAMETER})*+"
_FIELD_SHAPE = re.compile(rf"[ \t]*+{_MEMBER}(?:[ \t]*+,[ \t]*+{_MEMBER})*+[ \t]*+")
_MEMBER_PARTS = re.compile(rf"({_NAME})=({_LIST})((?:{_PARAMETER})*+)")
_ITEMS = re.compile(rf"{_STRING}(?:{_PARAMETER})*+")
_PARAMETER_PARTS = re.compile(rf"; *+({_NAME})(?:=({_VALUE}))?+")

# A nonce as clients draw them; and what stands for any of these, which none of them can be.
_PLAIN_NONCE = re.compile(rf';nonce="([A-Za-z0-9_-]{{1,{MAX_NONCE}}})"')
_MARK: Final = '"!"'
_ANY_NONCE: Final = f";nonce={_MARK}"

MAX_FIELD: Final = 8190
"""Characters of a header field, all of its lines together; a longer one is not parsed (D-161)."""

_LONGEST_CACHED: Final = 512
"""Characters of an ``Accept-Signature`` that is cached: twice what clients send."""

_DIGEST_MEMBER = re.compile(r"([a-z0-9*_.-]+)=:([A-Za-z0-9+/=]*):")
_DIGESTS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "sha-256": lambda content: sha256(content).digest(),
    "sha-512": lambda content: sha512(content).digest(),
}


@dataclass(frozen=True, slots=True)
class SignatureRequest:
    """A signature that was asked for, and that can be made.

    Args:
        label: Under which it is to stand (RFC 9421 section 5).
        nonce: The caller's, as it came, with its quotation marks.
        key: The key that will sign.
    """

    label: str
    nonce: str
    key: SigningKey


@dataclass(frozen=True, slots=True, repr=False)
class SignedRequest:
    """The request, as far as it is signed; no repr: the target of an update check holds a license key.

    Args:
        method: In capitals.
        target_uri: The address that the caller used, from the scheme to the end of the query.
        content_digest: The header, as it came.
    """

    method: str
    target_uri: str
    content_digest: str


class AcceptSignatureReader:
    """Reads ``Accept-Signature``, and what differs in its nonce only from what it has read, at once.

    Args:
        keys: All that the server holds, retired ones included.
    """

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        self._keys = tuple(keys)
        self._known = lru_cache(maxsize=64)(self._read)

    def __call__(self, field: str) -> SignatureRequest | None:
        """Read a header; says what `read_accept_signature` says, for a seventh of the cost."""
        found = _PLAIN_NONCE.search(field) if len(field) <= _LONGEST_CACHED else None
        if found is None or _ANY_NONCE in field:
            return self._read(field)
        wanted = self._known(field.replace(found[0], _ANY_NONCE))
        if wanted is None or wanted.nonce != _MARK:
            return wanted
        return SignatureRequest(wanted.label, f'"{found[1]}"', wanted.key)

    def _read(self, field: str) -> SignatureRequest | None:
        return read_accept_signature(field, self._keys)


def read_accept_signature(field: str, keys: Sequence[SigningKey]) -> SignatureRequest | None:
    """Choose the signature to make (RFC 9421 section 5).

    Args:
        field: The ``Accept-Signature`` header; several lines of it joined by commas.
        keys: All that the server holds, retired ones included.

    Returns:
        The first member for the newest key that can do *all* that one of the members asks for; None when no
        member can be honoured, or when the field is malformed: structured fields take that for absent (D-61).
    """
    if len(field) > MAX_FIELD or _FIELD_SHAPE.fullmatch(field) is None:
        return None
    asked = [wanted for found in _MEMBER_PARTS.finditer(field) if (wanted := _read_member(*found.groups()))]
    for key in newest_first(keys):
        for label, nonce, key_id in asked:
            if key_id is None or key_id == f'"{key.id}"':
                return SignatureRequest(label, nonce, key)
    return None


def newest_first(keys: Sequence[SigningKey]) -> list[SigningKey]:
    """The keys that are live, the one that signs when nobody asks for another first."""
    return sorted((key for key in keys if key.retired_at is None), key=lambda key: key.added_at)[::-1]


def _read_member(label: str, listed: str, parameters: str) -> tuple[str, str, str | None] | None:
    """Read one member: label, nonce, and the id of the key if one is named; None when we cannot do it.

    Whoever honours a member must cover exactly what it lists, and do everything that its parameters ask
    for: so one that we do not know, or with a value that we would not sign, cannot be honoured.
    """
    items = _ITEMS.findall(listed)
    told = dict(_PARAMETER_PARTS.findall(parameters))
    nonce = told.pop("nonce", "")
    key_id = told.pop("keyid", None)
    wishes = {"created": "", "expires": "", "alg": '"ed25519"', "tag": f'"{ANSWER_TAG}"'}
    if (
        sorted(items) != sorted(COMPONENTS)
        or not nonce.startswith('"')
        or not 1 <= len(nonce[1:-1]) <= MAX_NONCE
        or any(wishes.get(name) != value for name, value in told.items())
    ):
        return None
    return label, nonce, key_id


def content_digest(content: bytes) -> str:
    """Write a ``Content-Digest`` (RFC 9530)."""
    return f"sha-256=:{b64encode(sha256(content).digest()).decode()}:"


def fits_digest(field: str, content: bytes) -> bool:
    """Tell whether a request's ``Content-Digest`` is true of its content.

    Without this the signature would vouch for a question that was never judged.

    Returns:
        True when at least one digest is of a kind that we know, and all of those are right.
    """
    if field == content_digest(content):
        return True
    known = False
    for member in field.split(","):
        found = _DIGEST_MEMBER.fullmatch(member.strip(" \t"))
        if found is None:
            return False
        if (digest := _DIGESTS.get(found[1])) is None:
            continue
        if found[2] != b64encode(digest(content)).decode():
            return False
        known = True
    return known


def sign_answer(
    wanted: SignatureRequest,
    question: SignedRequest,
    status: int,
    content_type: str,
    content: bytes,
    now: datetime,
) -> dict[str, str]:
    """Sign an answer.

    Args:
        wanted: From `read_accept_signature`.
        question: What was asked; `fits_digest` holds for it.
        status: Of the answer.
        content_type: The answer's header, as it will be sent.
        content: The answer's body, as it will be sent.
        now: The instant of signing; whole seconds of it count.

    Returns:
        The three headers to send with the answer.
    """
    created = int(now.timestamp())
    expires = created + int(SIGNATURE_LIFETIME.total_seconds())
    digest = content_digest(content)
    parameters = (
        f'{_COVERED};created={created};expires={expires};keyid="{wanted.key.id}"'
        f';nonce={wanted.nonce};alg="ed25519";tag="{ANSWER_TAG}"'
    )
    base = (
        f'"@status": {status}\n'
        f'"content-type": {content_type}\n'
        f'"content-digest": {digest}\n'
        f'"@method";req: {question.method}\n'
        f'"@target-uri";req: {question.target_uri}\n'
        f'"content-digest";req: {question.content_digest}\n'
        f'"@signature-params": {parameters}'
    )
    signature = b64encode(wanted.key.private.sign(base.encode())).decode()
    return {
        "Content-Digest": digest,
        "Signature-Input": f"{wanted.label}={parameters}",
        "Signature": f"{wanted.label}=:{signature}:",
    }


def normal_base(base_url: str) -> str:
    """Write a base URL as clients do that normalise theirs: lower case, without the scheme's own port."""
    parts = urlsplit(base_url)
    host = parts.netloc.lower().removesuffix(_DEFAULT_PORTS[parts.scheme])
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
