"""Sparkle's appcast: RSS with elements of its own. Pure."""

import re
from collections.abc import Iterable
from email.utils import format_datetime
from typing import Final
from xml.etree import ElementTree as ET

from licserver.domain.feeds import Listed
from licserver.domain.records import STABLE
from licserver.domain.text import is_html
from licserver.protocol.feeds import ROOT
from licserver.protocol.file_signatures import stored_signatures

PATH: Final = f"{ROOT}/appcast.xml"
TYPE: Final = "application/rss+xml"
PLATFORM: Final = "macos"  # if the address names no other: Sparkle does not say on which machine it runs
_NAMESPACE: Final = "http://www.andymatuschak.org/xml-namespaces/sparkle"
_GROUPS: Final = 7  # in which Sparkle divides installations; each interval is the next one's turn
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

ET.register_namespace("sparkle", _NAMESPACE)


def format_appcast(name: str, offered: Iterable[tuple[Listed, str]]) -> bytes:
    """Format an appcast of a product's releases and their links; those that are not signed are left out."""
    rss = ET.Element("rss", {"version": "2.0"})
    channel = ET.SubElement(rss, "channel")
    _add(channel, "title", name)
    for listed, link in offered:
        signatures = stored_signatures(listed.release.file_signatures)
        if signatures is not None:
            _add_item(channel, name, listed, link, signatures.sparkle)
    document: bytes = ET.tostring(rss, encoding="utf-8", xml_declaration=True)
    return document


def _add_item(channel: ET.Element, name: str, listed: Listed, link: str, signature: str) -> None:
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
        _add(item, _sparkle("phasedRolloutInterval"), str(int(span.total_seconds()) // _GROUPS))
    enclosure = {"url": link, "length": str(release.artifact.size), "type": "application/octet-stream"}
    _add(item, "enclosure", "", enclosure | {_sparkle("edSignature"): signature})


def _add(parent: ET.Element, tag: str, text: str, attributes: dict[str, str] | None = None) -> None:
    ET.SubElement(parent, tag, attributes or {}).text = _NOT_XML.sub("\ufffd", text) or None


def _sparkle(name: str) -> str:
    return f"{{{_NAMESPACE}}}{name}"
