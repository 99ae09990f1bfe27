"""Requests of other updaters as update checks, and the documents that they read."""

import json
from base64 import b64encode
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from licserver.domain.decisions import Offer
from licserver.domain.offers import ListedRelease, public_feed_license
from licserver.domain.records import Artifact, Product, Release, Rollout
from licserver.protocol.feeds import (
    format_appcast,
    format_tauri_update,
    format_velopack_feed,
    is_for_all,
    license_required_response,
    lowest_of_major,
    parse_call,
    read_license,
    read_tauri_platform,
    read_velopack_channel,
    read_velopack_index,
)
from licserver.protocol.file_signatures import FileSignatures, stored_signatures

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
SIGNED = json.dumps(asdict(FileSignatures("c3BhcmtsZQ==", "minisign")))
SPARKLE = "{http://www.andymatuschak.org/xml-namespaces/sparkle}"
PASSWORD = b64encode(b"me:CP-X").decode()


def release(version="1.1", file_name="app.zip", **changes: object):
    """Return a signed release."""
    file = Artifact(file_name, 7, b"0" * 32)
    return Release(1, 7, version, "notes", NOON, file, file_signatures=SIGNED)._replace(**changes)


def offer(of=None, **changes: object):
    """Return the offer of a release."""
    product = Product(7, "app", "App")
    return Offer(product, of or release(), public_feed_license(7), downloadable=True)._replace(**changes)


@pytest.mark.parametrize(
    ("authorization", "query", "key"),
    [
        ("", {"license_key": "CP-X"}, "CP-X"),
        ("", {}, ""),
        ("Bearer CP-Y", {"license_key": "CP-X"}, "CP-Y"),
        (f"basic {PASSWORD}", {}, "CP-X"),
        ("Basic !", {}, ""),
        ("Basic /w==", {}, ""),
        ("Digest x", {}, ""),
    ],
)
def test_the_license_of_a_request(authorization, query, key):
    """A header counts before the query."""
    assert read_license(authorization, query) == key


def test_a_request_is_an_update_check():
    """Its query counts before the path; what cannot be used is left out."""
    call = parse_call(
        "app", "", "current_version=1.0&domain=PC1&channels=beta&manual=1", "linux-x86_64", channel="rc"
    )
    assert (call.current_version, call.domain, call.platform) == ("1.0", "pc1", "linux-x86_64")
    assert (sorted(call.channels), call.is_manual) == (["beta", "rc"], True)
    assert parse_call("app", "", "current_version=1.0.0+5", "linux").current_version == "1.0.0+5"
    assert parse_call("app", "", "", "linux", version="1.0.0 5").current_version == "1.0.0+5"
    empty = parse_call("app", "", "platform=/&domain=%00", "linux", version="one")
    assert (empty.current_version, empty.domain, empty.platform, empty.channels) == ("", "", "", ())
    assert license_required_response().status == 401


def test_tauri_is_offered_a_newer_signed_version():
    """With the form of a semantic version; a critical one says so."""
    assert read_tauri_platform("darwin", "aarch64") == "macos-arm64"
    assert read_tauri_platform("steam-deck", "x86_64") == "steam-deck"
    response = format_tauri_update(offer(is_critical=True), "1.0", "https://s.example/x")
    assert response is not None
    body = json.loads(response.content)
    signatures = stored_signatures(SIGNED)
    assert signatures is not None
    assert body == {
        "version": "1.1.0",
        "notes": "notes",
        "pub_date": "2026-06-15T12:00:00Z",
        "url": "https://s.example/x",
        "signature": signatures.tauri,
        "critical": True,
    }
    assert format_tauri_update(offer(), "unreadable", "x") is not None


@pytest.mark.parametrize(
    ("changes", "installed"),
    [({}, "1.1"), ({"file_signatures": None}, "1.0"), ({"version": "1.1.post1"}, "1.0")],
)
def test_tauri_is_not_offered_what_it_cannot_use(changes, installed):
    """Not newer, not signed, or without a semantic version."""
    assert format_tauri_update(offer(release(**changes)), installed, "x") is None


def test_what_winsparkle_may_have_needs_no_choice():
    """Neither of a channel nor of a moment (D-392)."""
    listed = ListedRelease(release())
    assert is_for_all(listed)
    assert not is_for_all(listed._replace(is_on_request=True))
    assert not is_for_all(listed._replace(span=timedelta(days=7)))


def test_an_appcast_lists_signed_releases():
    """With channel, urgency and phases where there are any, and no character that XML has not."""
    started = Rollout("7d", NOON + timedelta(days=1))
    beta = release("2.0b1", changelog="<p>\x00</p>", channel="beta", critical_below="1.0", rollout=started)
    listed = [
        (ListedRelease(release(changelog="")), "a"),
        (ListedRelease(release(file_signatures=None)), "b"),
        (ListedRelease(beta, is_on_request=True, span=timedelta(days=7)), "c"),
    ]
    plain, phased = ET.fromstring(format_appcast("App", listed)).iter("item")  # noqa: S314 - ours
    assert plain.find("description") is None
    assert plain.find(f"{SPARKLE}channel") is None
    assert plain.findtext("pubDate") == "Mon, 15 Jun 2026 12:00:00 +0000"
    assert phased.findtext("pubDate") == "Tue, 16 Jun 2026 12:00:00 +0000"
    assert phased.findtext("description") == "<p>\ufffd</p>"
    assert phased.findtext(f"{SPARKLE}channel") == "beta"
    assert phased.find(f"{SPARKLE}criticalUpdate") is not None
    assert phased.findtext(f"{SPARKLE}phasedRolloutInterval") == str(24 * 60 * 60)


@pytest.mark.parametrize(
    ("name", "machine", "read"),
    [
        ("win", "", ("stable", "windows-x86_64")),
        ("osx", "", ("stable", "macos-arm64")),
        ("osx-x64-beta", "arm64", ("beta", "macos-x86_64")),
        ("linux-beta", "arm64", ("beta", "linux-arm64")),
        ("beta", "", ("beta", "")),
    ],
)
def test_a_channel_of_velopack_has_system_and_machine(name, machine, read):
    """The request supplies what is missing."""
    assert read_velopack_channel(name, machine=machine) == read
    assert read_velopack_index(f"releases.{name}.json") == name
    assert read_velopack_index("assets.json") is None


@pytest.mark.parametrize(
    ("of", "count"),
    [
        (release("1.1", "App-1.1.0-full.nupkg"), 1),
        (release("1.1", "App-1.1.0-delta.nupkg"), 0),
        (release("1.1", "app.zip"), 0),
        (release("1.1.post1", "App-1.1.0-full.nupkg"), 0),
    ],
)
def test_velopack_is_offered_a_whole_package(of, count):
    """And nothing that it could not install or download."""
    response = format_velopack_feed(offer(of))
    assert len(json.loads(response.content)["Assets"]) == count
    assert json.loads(format_velopack_feed(offer(of, downloadable=False)).content) == {"Assets": []}
    assert json.loads(format_velopack_feed(None).content) == {"Assets": []}


@pytest.mark.parametrize(("version", "lowest"), [("1.4.3", "1.dev0"), ("v2", "2.dev0"), ("nightly", "")])
def test_the_lowest_version_of_a_major_version(version, lowest):
    """A package is requested without the installed version, of which only this much is certain."""
    assert lowest_of_major(version) == lowest
