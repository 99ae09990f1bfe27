"""Requests and feeds of other updaters: Tauri, Sparkle and Velopack. Pure.

Their requests are update checks; a license comes in a header, or in the query.
"""

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from email.utils import format_datetime
from typing import Final
from xml.etree import ElementTree as ET

from licserver.domain.decisions import Offer, is_platform
from licserver.domain.environments import InvalidDomainError, normalise_domain
from licserver.domain.offers import ListedRelease, is_file_kind, parse_channels
from licserver.domain.records import STABLE, Release
from licserver.domain.text import is_html
from licserver.domain.versions import parse_version
from licserver.protocol.file_signatures import stored_signatures, to_semantic
from licserver.protocol.public_api import (
    ApiResponse,
    UpdateRequest,
    error_response,
    format_instant,
    json_response,
    parse_query,
    restore_plus,
)

PREFIX: Final = "/feeds/"
_ROOT: Final = PREFIX + "{slug:[a-z0-9-]{1,100}}"
_AUTHORIZATION: Final = re.compile(r"(bearer|basic) +([!-~]{1,2048}) *", re.IGNORECASE)
_SYSTEMS: Final = {"darwin": "macos", "osx": "macos", "win": "windows"}
_MACHINES: Final = {"aarch64": "arm64", "x64": "x86_64", "i686": "x86"}


def name_platform(system: str, machine: str) -> str:
    """Return a platform's name, such as macos-arm64 for `darwin` and `aarch64`."""
    return f"{_SYSTEMS.get(system, system)}-{_MACHINES.get(machine, machine)}"


def read_license(authorization: str, query: Mapping[str, str]) -> str:
    """Return the license key of a request, or an empty text.

    Sources in their order: a bearer token, the password of Basic, and the parameter `license_key`, which the
    app is more likely to log.
    """
    match = _AUTHORIZATION.fullmatch(authorization)
    if match is None:
        return query.get("license_key", "")
    if match[1].lower() == "bearer":
        return match[2]
    try:
        return b64decode(match[2], validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def parse_call(
    slug: str,
    authorization: str,
    query: str,
    platform: str,
    *,
    version: str = "",
    domain: str = "",
    channel: str = "",
    kind: str = "",
) -> UpdateRequest:
    """Parse a request as an update check; all but the slug may be missing.

    The query takes precedence over these defaults; unusable values are ignored.
    """
    values = parse_query(query)
    platform, kind = values.get("platform", platform), values.get("kind", kind)
    version = restore_plus(values.get("current_version", version))
    try:
        domain = normalise_domain(values.get("domain", domain))
    except InvalidDomainError:
        domain = ""
    return UpdateRequest(
        license_key=read_license(authorization, values),
        slug=slug,
        current_version=version if parse_version(version) else "",
        domain=domain,
        platform=platform if is_platform(platform) else "",
        channels=parse_channels(",".join(filter(None, (values.get("channels"), channel)))),
        is_manual=values.get("manual") == "1",
        kind=kind if is_file_kind(kind) else "",
    )


def license_required_response() -> ApiResponse:
    """Format the response to a request without a license; it does not reveal whether the product exists."""
    return error_response(
        401, "license_required", "Send a license key: this product has no public feed, or does not exist."
    )


# --- Tauri 2, a dynamic update server ---------------------------------------------------------

TAURI_PATH: Final = f"{_ROOT}/tauri/{{target}}/{{arch}}/{{version}}"
"""The endpoint of the app's configuration ends in `{{target}}/{{arch}}/{{current_version}}`."""


def read_tauri_platform(target: str, arch: str) -> str:
    """Return a platform's name; a custom target of an app, with a hyphen, is a name."""
    return target if "-" in target else name_platform(target, arch)


def format_tauri_update(offer: Offer, installed: str, link: str) -> ApiResponse | None:
    """Format an update; None for an unusable release: not newer, not signed, or without a semantic version.

    An invalid installed version counts as older. `critical` is for apps that read the raw response.
    """
    release = offer.release
    version, signatures = to_semantic(release.version), stored_signatures(release.file_signatures)
    if version is None or signatures is None:
        return None
    offered, parsed_installed = parse_version(release.version), parse_version(installed)
    if offered is not None and parsed_installed is not None and offered <= parsed_installed:
        return None
    body = {
        "version": version,
        "notes": release.changelog,
        "pub_date": format_instant(release.published_at),
        "url": link,
        "signature": signatures.tauri,
    }
    return json_response(200, body | ({"critical": True} if offer.is_critical else {}))


# --- Sparkle's appcast: RSS with elements of its own ------------------------------------------

SPARKLE_PATH: Final = f"{_ROOT}/appcast.xml"
SPARKLE_TYPE: Final = "application/rss+xml"
SPARKLE_PLATFORM: Final = "macos"  # the default: Sparkle does not send the machine
WINSPARKLE: Final = "WinSparkle/"  # in its User-Agent
_NAMESPACE: Final = "http://www.andymatuschak.org/xml-namespaces/sparkle"
_SPARKLE_GROUPS: Final = 7  # of installations; Sparkle offers a release to another group in each interval
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

ET.register_namespace("sparkle", _NAMESPACE)


def is_for_all(listed: ListedRelease) -> bool:
    """Return whether an app needs no choice of its own: WinSparkle takes the highest of a list (D-392)."""
    return not listed.is_on_request and listed.span is None


def format_appcast(name: str, offered: Iterable[tuple[ListedRelease, str]]) -> bytes:
    """Format an appcast of a product's releases and their links; omit unsigned releases."""
    rss = ET.Element("rss", {"version": "2.0"})
    channel = ET.SubElement(rss, "channel")
    _add(channel, "title", name)
    for listed, link in offered:
        signatures = stored_signatures(listed.release.file_signatures)
        if signatures is not None:
            _add_item(channel, name, listed, link, signatures.sparkle)
    document: bytes = ET.tostring(rss, encoding="utf-8", xml_declaration=True)
    return document


def _add_item(channel: ET.Element, name: str, listed: ListedRelease, link: str, signature: str) -> None:
    item, release, span = ET.SubElement(channel, "item"), listed.release, listed.span
    _add(item, "title", f"{name} {release.version}")
    _add(item, _sparkle("version"), release.version)
    _add(item, _sparkle("shortVersionString"), release.version)
    begins = release.published_at if span is None or release.rollout is None else release.rollout.started_at
    _add(item, "pubDate", format_datetime(begins))
    if release.changelog:
        form = "html" if is_html(release.changelog) else "plain-text"
        _add(item, "description", release.changelog, {_sparkle("format"): form})
    if listed.is_on_request and release.channel != STABLE:
        _add(item, _sparkle("channel"), release.channel)
    if release.critical_below is not None:
        _add(item, _sparkle("criticalUpdate"), "", {_sparkle("version"): release.critical_below})
    if span is not None:
        _add(item, _sparkle("phasedRolloutInterval"), str(int(span.total_seconds()) // _SPARKLE_GROUPS))
    enclosure = {"url": link, "length": str(release.artifact.size), "type": "application/octet-stream"}
    _add(item, "enclosure", "", enclosure | {_sparkle("edSignature"): signature})


def _add(parent: ET.Element, tag: str, text: str, attributes: dict[str, str] | None = None) -> None:
    ET.SubElement(parent, tag, attributes or {}).text = _NOT_XML.sub("\ufffd", text) or None


def _sparkle(name: str) -> str:
    return f"{{{_NAMESPACE}}}{name}"


# --- Velopack: a feed of packages by release channel, `releases.win.json`, and what it lists ---

# Names of files are of ASCII, or have 200 bytes percent-encoded: decoding longer ones took more than the feed
# (D-299).
VELOPACK_PATH: Final = f"{_ROOT}/velopack/{{name:[^/]{{1,600}}}}"
_FEED_NAME: Final = re.compile(r"releases\.([a-z0-9._-]{1,60})\.json")
_VELOPACK_SYSTEMS: Final = ("win", "osx", "linux")
_VELOPACK_MACHINES: Final = ("x64", "x86", "arm64")
_USUAL_MACHINE: Final = {"osx": "arm64"}  # the machine, if neither channel nor client names one; else x64
_FULL: Final = "-full.nupkg"


def read_velopack_index(name: str) -> str | None:
    """Return the channel of a feed's file name; None for another name."""
    match = _FEED_NAME.fullmatch(name)
    return None if match is None else match[1]


def read_velopack_channel(name: str, system: str = "", machine: str = "") -> tuple[str, str]:
    """Return channel and platform for a channel of Velopack, such as `win`, `osx-arm64-beta` or `beta`.

    A channel may begin with system and machine; the request supplies missing parts.
    """
    parts = name.split("-")
    if parts[0] in _VELOPACK_SYSTEMS:
        system = parts.pop(0)
        machine = parts.pop(0) if parts and parts[0] in _VELOPACK_MACHINES else machine
    platform = name_platform(system, machine.lower() or _USUAL_MACHINE.get(system, "x64")) if system else ""
    return "-".join(parts) or STABLE, platform


def format_velopack_feed(offer: Offer | None) -> ApiResponse:
    """Format a feed with the offered release; empty if it is no package of Velopack."""
    nothing = json_response(200, {"Assets": []})
    if offer is None or not offer.downloadable:
        return nothing
    release, name, notes = offer.release, offer.release.artifact.file_name, offer.release.changelog
    version = to_semantic(release.version)
    package, separator, _ = name.partition(f"-{version}-")
    if version is None or not separator or not name.endswith(_FULL):
        return nothing
    asset = {
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
    return json_response(200, {"Assets": [asset]})


def find_velopack_package(releases: Sequence[Release], name: str) -> Release | None:
    """Return the latest release whose file has this name."""
    matching = [
        release for release in releases if release.artifact.file_name == name and release.withdrawn_at is None
    ]
    return matching[-1] if matching else None


def lowest_of_major(version: str) -> str:
    """Return a version below all others of the same major version; empty if it cannot be parsed."""
    parsed = parse_version(version)
    return "" if parsed is None else f"{parsed.major}.dev0"
