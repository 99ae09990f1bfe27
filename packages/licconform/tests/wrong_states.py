"""What the wrong server stores and compares: licenses, products, states, and small functions."""

import base64
import hashlib
import re
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

TODAY = time.strftime("%Y-%m-%d", time.gmtime())


@dataclass(slots=True)
class Key:
    """A license."""

    key: str
    slug: str
    product: str
    expiry: str | None = "2099-12-31"
    lifetime: bool = False
    revoked: bool = False
    ended: bool = False
    slots: int = 2
    allowed: tuple[str, ...] = ()
    support_until: str | None = None
    entitlements: dict[str, Any] | None = None
    known: set[str] = field(default_factory=set)
    moved: dict[str, str] = field(default_factory=dict)  # the domain that lost its slot → the other one


@dataclass(slots=True)
class Product:
    """A product; a file version is its text, in the order of upload."""

    name: str
    policy: bool = False
    versions: list[str] = field(default_factory=list)
    covered: str | None = None  # the newest version of a support period that is over
    fix: str | None = None  # its security release
    appimage: str | None = None  # its version that is an AppImage


LICENSES: dict[str, dict[str, Any]] = {
    "no-expiry": {"expiry": None},
    "lifetime": {"expiry": None, "lifetime": True},
    "expires-today": {"expiry": TODAY},
    "expired": {"expiry": "2020-01-31"},
    "revoked": {"revoked": True},
    "revoked-expired": {"revoked": True, "expiry": "2020-01-31"},
    "subscription-ended": {"ended": True},
    "lifetime-subscription-ended": {"expiry": None, "lifetime": True, "ended": True},
    "full": {"slots": 0},
    "expired-full": {"slots": 0, "expiry": "2020-01-31"},
    "allowed": {"slots": 0, "allowed": ("allowed.example.org",)},
    "support-active": {"support_until": "2099-12-31"},
    "support-expired": {"support_until": "2020-01-31"},
    "covered": {"expiry": None, "support_until": "2020-01-31"},
    "security": {"expiry": "2020-01-31"},
    "entitled": {"entitlements": {"export": True, "exports": {"limit": 5, "per": "month"}}},
}
"""State → what is unusual about the license."""
RELEASES = {
    "no-versions": [],
    "unordered": ["1.9.0", "1.10.0", "1.9.1"],
    "pre-release": ["1.0.0", "2.0.0rc1"],
    "only-pre-releases": ["1.0.0rc1", "1.0.0rc2"],
    "security": ["1.0.0", "1.0.1", "2.0.0"],
}
"""State → file versions, in the order of upload."""


def is_key(text: str) -> bool:
    """Return whether a text has the shape of a key."""
    return re.fullmatch(r"CP(-[A-Z0-9]{6}){5}", text) is not None


def same_domain(text: str) -> str:
    """Return the host of a domain, as it is compared."""
    text = text.strip().lower()
    host = urlsplit(text if "//" in text else f"//{text}").hostname or text
    host = host.rstrip(".")
    return host.encode("idna").decode() if not host.isascii() else host


def order_of(version: str) -> tuple[Any, ...]:
    """Return what versions are ordered by; good for those of tests."""
    release, _, candidate = version.partition("rc")
    return *(int(part) for part in release.split(".")), int(candidate or 99)


def digest_of(content: bytes) -> str:
    """Return a digest field."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def content_of(slug: str, version: str) -> bytes:
    """Return the file of a version."""
    return f"{slug} {version}\n".encode() * 5
