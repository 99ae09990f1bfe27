"""The shop of the stories: one product, judged by the domain, with two versions."""

from collections.abc import Callable
from typing import Any

from licclient import LicenseClient

SLUG, NAME = "photo-lab", "Photo Lab"
SIZE = 64 << 10
"""Bytes of the newer version: several reads and writes."""

Open = Callable[..., LicenseClient]
"""Opens a client; settings that differ from the stories' are given by name."""

PRODUCT: dict[str, Any] = {
    "slug": SLUG,
    "name": NAME,
    "environment": "domain",
    "support_policy": True,
    "releases": [
        {"version": "1.0.0", "published_at": "2026-11-01T08:30:00Z", "changelog": "The first."},
        {"version": "1.1.0", "published_at": "2026-11-05T08:30:00Z", "changelog": "Export.", "size": SIZE},
    ],
}
