"""The settings of an app, for the modules that take them."""

from datetime import timedelta
from typing import Any

from licclient._model import Settings
from licclient._settings import ClientSettings, read_settings

USUAL = {
    "product": None,
    "slug": "notes",
    "version": "1.0",
    "domain": None,
    "cache_for": timedelta(hours=24),
    "grace": timedelta(hours=72),
    "check_every": timedelta(hours=12),
    "timeout": 10,
}


def settings(server: str = "https://store.example", **changes: Any) -> Settings:
    """Return what an app gets that sets no more than slug and version, with some changes."""
    return read_settings(ClientSettings(server, **{**USUAL, **changes}))
