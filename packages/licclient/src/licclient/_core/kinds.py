"""Pure: how an app came onto a computer, and which of these ways a published file replaces (D-340)."""

from enum import StrEnum
from typing import Final


class InstallationKind(StrEnum):
    """How this app came onto this computer."""

    FOLDER = "folder"
    APPIMAGE = "appimage"
    NSIS = "nsis"
    INNO = "inno"
    MSI = "msi"
    APP = "app"
    SPARKLE = "sparkle"
    WINSPARKLE = "winsparkle"
    VELOPACK = "velopack"
    STORE = "store"
    FLATPAK = "flatpak"
    SNAP = "snap"
    DPKG = "dpkg"
    RPM = "rpm"
    HOMEBREW = "homebrew"
    WINGET = "winget"
    SCOOP = "scoop"
    PIP = "pip"
    PIPX = "pipx"
    UV = "uv"
    CONDA = "conda"
    SYSTEM_PYTHON = "system-python"
    UNKNOWN = "unknown"


PUBLISHED_KINDS: Final = frozenset(
    {
        InstallationKind.FOLDER,
        InstallationKind.APPIMAGE,
        InstallationKind.NSIS,
        InstallationKind.INNO,
        InstallationKind.MSI,
        InstallationKind.APP,
    }
)
"""Kinds that a published file replaces."""


def read_published_kind(text: object) -> InstallationKind | None:
    """Return the kind of published files that a text names; None for everything else."""
    return InstallationKind(text) if isinstance(text, str) and text in PUBLISHED_KINDS else None
