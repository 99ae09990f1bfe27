"""The settings of an app, for the modules that take them."""

from typing import Any

from licclient._core.model import Settings
from licclient._core.settings import ClientSettings, read_settings


def settings(server: str = "https://store.example", **changes: Any) -> Settings:
    """Return what an app gets that sets no more than slug and version, with some changes."""
    return read_settings(ClientSettings(server, **{"slug": "notes", "version": "1.0", **changes}))
