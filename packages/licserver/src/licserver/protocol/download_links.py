"""Signed download links, and which secret signs them when: pure, given the secrets and `now` (D-30)."""

import hmac
import math
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote_plus, urlencode

from licserver.domain.decisions import DownloadRefusal

LINK_LIFETIME: Final = timedelta(hours=1)
"""How long a download link is good, from signing (spec 8)."""

CLOCKS_APART: Final = timedelta(minutes=5)
"""How far the clocks of a vendor's machines may differ when a secret is retired (D-66)."""

_quoted: Final = lru_cache(maxsize=64)(quote_plus)
_CONTEXT: Final = b"licserver download link v1\n"


@dataclass(frozen=True, slots=True)
class LinkSecret:
    """A secret that signs links.

    Args:
        id: The name by which links call it.
        secret: 32 bytes.
        signs_from: From when on it signs; it is believed before that. None: ever since.
    """

    id: str
    secret: bytes = field(repr=False)
    signs_from: datetime | None = None
    mac: hmac.HMAC = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Take the secret in once: each link saves half of its signature's time."""
        object.__setattr__(self, "mac", hmac.new(self.secret, _CONTEXT, "sha256"))


class LinkSubject(NamedTuple):
    """What a link gives: one release's file, to the holder of one license."""

    license_id: bytes
    release_id: int


def signing_secret(secrets: Sequence[LinkSecret], now: datetime) -> LinkSecret:
    """Choose the secret that signs: the newest whose time has come (D-66).

    Args:
        secrets: The newest first; at least one.
        now: The instant of signing.
    """
    due = (one for one in secrets if one.signs_from is None or one.signs_from <= now)
    return next(due, secrets[-1])


def retires_at(secrets: Sequence[LinkSecret], at: int) -> datetime | None:
    """Say when a secret is believed no more: when the last link that it signed has run out (D-66).

    Args:
        secrets: The newest first.
        at: Its place among them.

    Returns:
        The instant, or None for the newest, and for one whose successor signs ever since nobody knows when.
    """
    successor = secrets[at - 1].signs_from if at else None
    return None if successor is None else successor + LINK_LIFETIME + CLOCKS_APART


def believed_secrets(secrets: Sequence[LinkSecret], now: datetime) -> tuple[LinkSecret, ...]:
    """Leave out the secrets that are retired; one that does not sign yet is believed (D-66)."""
    ends = ((one, retires_at(secrets, at)) for at, one in enumerate(secrets))
    return tuple(one for one, end in ends if end is None or now < end)


def sign_link(base: str, subject: LinkSubject, secret: LinkSecret, now: datetime) -> str:
    """Write the address under which a release can be downloaded for one hour (D-30).

    Args:
        base: Everything before the query, ``{base_url}/api/v1/update-download``.
        subject: What the link gives; only opaque ids go into it, never the license key.
        secret: The secret that signs now.
        now: The instant of signing. Part seconds are rounded up: an hour is never shorter.
    """
    expires = math.ceil((now + LINK_LIFETIME).timestamp())
    # Already what `_canonical` makes of it: in order, and nothing in it that a URL would change.
    parameters = (
        f"expires={expires}&key={_quoted(secret.id)}"
        f"&license={subject.license_id.hex()}&release={subject.release_id}"
    )
    return f"{base}?{parameters}&signature={_signature(parameters, secret)}"


def read_link(query: str, secrets: Sequence[LinkSecret], now: datetime) -> LinkSubject | DownloadRefusal:
    """Read a link's query, believing nothing that is not signed (D-30, D-31).

    Args:
        query: The raw query string.
        secrets: All secrets still good, so that a new one can sign while older links live on.
        now: The instant of the call.

    Returns:
        What the link gives, or `INVALID_LINK` for anything changed, added, left out or signed by
        a secret unknown here, or `LINK_EXPIRED` from the instant that its hour is over.
    """
    pairs = parse_qsl(query, keep_blank_values=True) if query.isascii() else []
    values = dict(pairs)
    signature = values.pop("signature", "")
    secret = next((known for known in secrets if known.id == values.get("key")), None)
    if secret is None or len(pairs) != len(values) + 1:  # a repeated parameter is a changed link
        return DownloadRefusal.INVALID_LINK
    if not hmac.compare_digest(_signature(_canonical(values), secret).encode(), signature.encode()):
        return DownloadRefusal.INVALID_LINK
    if now.timestamp() >= int(values["expires"]):
        return DownloadRefusal.LINK_EXPIRED
    return LinkSubject(bytes.fromhex(values["license"]), int(values["release"]))


def _canonical(parameters: Mapping[str, str]) -> str:
    """Write parameters in the one form that is signed, their order set aside."""
    return urlencode(sorted(parameters.items()))


def _signature(parameters: str, secret: LinkSecret) -> str:
    """HMAC-SHA-256 over all parameters."""
    mac = secret.mac.copy()
    mac.update(parameters.encode())
    return urlsafe_b64encode(mac.digest()).rstrip(b"=").decode()
