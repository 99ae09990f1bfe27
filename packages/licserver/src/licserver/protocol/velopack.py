"""Velopack's feed of packages, by release channel: `releases.win.json` and what it lists. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from licserver.domain.decisions import Offer
from licserver.domain.records import STABLE, Release
from licserver.domain.text import is_html
from licserver.protocol.feeds import ROOT, name_platform
from licserver.protocol.public_api import ApiResponse, json_response
from licserver.protocol.semantic_versions import to_semantic

PATH: Final = f"{ROOT}/velopack/{{name}}"
_INDEX: Final = re.compile(r"releases\.([a-z0-9._-]{1,60})\.json")
_SYSTEMS: Final = ("win", "osx", "linux")
_MACHINES: Final = ("x64", "x86", "arm64")
_USUAL: Final = {"osx": "arm64"}  # the machine, if neither channel nor client names one; else x64
_FULL: Final = "-full.nupkg"


def read_index(name: str) -> str | None:
    """Return the channel whose feed is asked for; None if the name is not that of a feed."""
    found = _INDEX.fullmatch(name)
    return None if found is None else found[1]


def read_channel(name: str, system: str = "", machine: str = "") -> tuple[str, str]:
    """Return our channel and platform for a channel of Velopack, such as `win`, `osx-arm64-beta` or `beta`.

    A channel may begin with system and machine; what it leaves out is as the client says.
    """
    parts = name.split("-")
    if parts[0] in _SYSTEMS:
        system = parts.pop(0)
        machine = parts.pop(0) if parts and parts[0] in _MACHINES else machine
    platform = name_platform(system, machine.lower() or _USUAL.get(system, "x64")) if system else ""
    return "-".join(parts) or STABLE, platform


def format_feed(offer: Offer | None) -> ApiResponse:
    """Format a feed with the release that is offered; empty if it is no package of Velopack."""
    asset = None if offer is None or not offer.downloadable else _describe(offer.release)
    return json_response(200, {"Assets": [] if asset is None else [asset]})


def _describe(release: Release) -> dict[str, str | int] | None:
    version, name = to_semantic(release.version), release.artifact.file_name
    package, separator, _ = name.partition(f"-{version}-")
    if version is None or not separator or not name.endswith(_FULL):
        return None
    notes = release.changelog
    return {
        "PackageId": package,
        "Version": version,
        "Type": "Full",
        "FileName": name,
        "SHA1": "",  # checked only if there is no SHA-256
        "SHA256": release.artifact.sha256.hex().upper(),
        "Size": release.artifact.size,
        "NotesMarkdown": "" if is_html(notes) else notes,
        "NotesHTML": notes if is_html(notes) else "",
    }


def find_package(releases: Sequence[Release], name: str) -> Release | None:
    """Return the release whose file has this name; the latest, if several have."""
    found = [one for one in releases if one.artifact.file_name == name and one.withdrawn_at is None]
    return found[-1] if found else None
