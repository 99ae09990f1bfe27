"""What other updaters read, as their own tools and documents have it; knows neither of the two packages."""

import io
import re
import shutil
import subprocess
import zipfile
from base64 import b64decode
from collections.abc import Container
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import pytest
from packaging.version import Version


def minisign_verifies(folder: Path, content: bytes, signature: str, public_key: str) -> str:
    """Return the trusted comment that minisign itself prints; empty if it refuses the signature.

    Args:
        signature: The text of a `.minisig` file.
        public_key: What follows `-P`.
    """
    if shutil.which("minisign") is None:
        pytest.skip("minisign is not installed (apt install minisign)")
    file, beside = folder / "signed", folder / "signed.minisig"
    file.write_bytes(content)
    beside.write_text(signature)
    command = ["minisign", "-V", "-H", "-m", str(file), "-x", str(beside), "-P", public_key]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return ""
    return result.stdout.partition("Trusted comment: ")[2].strip()


def tauri_verifies(folder: Path, content: bytes, signature: str, public_key: str) -> dict[str, str]:
    """Do as Tauri's updater does with the signature of its answer and the key of its configuration.

    Both are base64 of whole files. Returns the fields of the trusted comment.
    """
    lines = b64decode(public_key, validate=True).decode().splitlines()
    assert (len(lines), lines[0].startswith("untrusted comment: ")) == (2, True)
    text = b64decode(signature, validate=True).decode()
    comment = minisign_verifies(folder, content, text, lines[1])
    return dict(field.split(":", 1) for field in comment.split("\t") if field)


# --- Sparkle: https://sparkle-project.org/documentation/publishing and SUAppcastItem.m ---------

SPARKLE = "{http://www.andymatuschak.org/xml-namespaces/sparkle}"
GROUPS = 7  # in which Sparkle divides installations
_ITEM = {
    *("title", "pubDate", "enclosure", "description"),
    *(SPARKLE + name for name in ("version", "shortVersionString", "channel")),
    *(SPARKLE + name for name in ("criticalUpdate", "phasedRolloutInterval")),
}
_NEEDED = {"title", "pubDate", "enclosure", f"{SPARKLE}version"}
_CHANNEL = re.compile(r"[A-Za-z0-9._-]+")


class AppcastItem(NamedTuple):
    """An item of an appcast, as Sparkle reads it."""

    version: str
    url: str
    length: int
    signature: bytes
    published: datetime
    channel: str | None
    critical_below: str | None
    interval: int | None
    notes: tuple[str, str] | None
    title: str


def read_appcast(document: bytes) -> tuple[str, list[AppcastItem]]:
    """Read an appcast; a failed assertion for all that Sparkle does not know, or would warn of."""
    assert document.startswith(b"<?xml ")
    rss = ET.fromstring(document)  # noqa: S314 - our own
    assert (rss.tag, rss.attrib, [element.tag for element in rss]) == ("rss", {"version": "2.0"}, ["channel"])
    title, *items = rss[0]
    assert (title.tag, {element.tag for element in items} <= {"item"}) == ("title", True)
    return title.text or "", [_read_item(element) for element in items]


def _read_item(item: ET.Element) -> AppcastItem:
    tags = [element.tag for element in item]
    assert len(tags) == len(set(tags))
    assert set(tags) >= _NEEDED
    assert set(tags) <= _ITEM
    enclosure = item.find("enclosure")
    critical, notes = item.find(f"{SPARKLE}criticalUpdate"), item.find("description")
    assert enclosure is not None
    found = dict(enclosure.attrib)
    signature = b64decode(found.pop(f"{SPARKLE}edSignature"), validate=True)
    url, length = urlsplit(found.pop("url")), int(found.pop("length"))
    assert found == {"type": "application/octet-stream"}
    assert (url.scheme in {"http", "https"}, length > 0, len(signature)) == (True, True, 64)
    channel, interval = item.findtext(f"{SPARKLE}channel"), item.findtext(f"{SPARKLE}phasedRolloutInterval")
    assert channel is None or _CHANNEL.fullmatch(channel)
    if notes is not None:
        assert notes.get(f"{SPARKLE}format") in {"html", "plain-text"}
    return AppcastItem(
        item.findtext(f"{SPARKLE}version") or "",
        url.geturl(),
        length,
        signature,
        parsedate_to_datetime(item.findtext("pubDate") or ""),
        channel,
        None if critical is None else critical.attrib[f"{SPARKLE}version"],
        None if interval is None else int(interval),
        None if notes is None else (notes.get(f"{SPARKLE}format") or "", notes.text or ""),
        item.findtext("title") or "",
    )


def sparkle_chooses(
    items: list[AppcastItem], now: datetime, group: int, installed: str = "1.0", channels: Container[str] = ()
) -> str | None:
    """Return the version that Sparkle offers in the background, as SUAppcastDriver.m chooses it.

    Args:
        group: That of the installation, from 0 to 6.
        channels: What the app's `allowedChannels` returns.
    """

    def is_due(offered: AppcastItem) -> bool:
        is_critical = offered.critical_below is not None and Version(installed) < Version(
            offered.critical_below
        )
        waits = timedelta(seconds=(offered.interval or 0) * group)
        return is_critical or now - offered.published >= waits

    allowed = [offered for offered in items if offered.channel is None or offered.channel in channels]
    best = max((Version(release.version) for release in allowed if is_due(release)), default=None)
    return str(best) if best is not None and best > Version(installed) else None


# --- Velopack ---------------------------------------------------------------------------------

_NUSPEC = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://schemas.microsoft.com/packaging/2010/07/nuspec.xsd"><metadata>
<id>PhotoLab</id><version>{version}</version><title>Photo Lab</title><authors>Me</authors>
<description>Photos</description><channel>{channel}</channel><mainExe>app</mainExe><os>linux</os>
<rid>linux-x64</rid></metadata></package>"""


def velopack_package(version: str, channel: str = "linux") -> bytes:
    """Return a package as `vpk pack` makes it, with as little as its client reads."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as package:
        package.writestr("PhotoLab.nuspec", _NUSPEC.format(version=version, channel=channel))
        package.writestr("lib/app/app", "app")
    return written.getvalue()


def velopack_app(folder: Path, address: str, channel: str = "linux", version: str = "1.0.0") -> Any:
    """Return the update manager of an installed app, by the wheel of Velopack itself."""
    velopack = pytest.importorskip("velopack", reason="the wheel velopack is not installed")
    locator, _ = velopack_locator(folder, channel, version)
    return velopack.UpdateManager(address, None, locator)


def velopack_locator(folder: Path, channel: str = "linux", version: str = "1.0.0") -> tuple[Any, Path]:
    """Return where Velopack finds the parts of an installed app, and the path of its empty updater."""
    velopack = pytest.importorskip("velopack", reason="the wheel velopack is not installed")
    root, updater = folder / f"app-{channel}", folder / "UpdateNix"
    (root / "packages").mkdir(parents=True, exist_ok=True)
    manifest = root / "sq.version"
    manifest.write_text(_NUSPEC.format(version=version, channel=channel))
    updater.touch()  # it applies updates; only its path is looked at
    locator = velopack.VelopackLocatorConfig(
        RootAppDir=root,
        UpdateExePath=updater,
        PackagesDir=root / "packages",
        ManifestPath=manifest,
        CurrentBinaryDir=root,
        IsPortable=True,
    )
    return locator, updater


def bearer(key: str) -> dict[str, str]:
    """Return the header in which an app sends its license."""
    return {"Authorization": f"Bearer {key}"}
