"""The real client hands an update over by a feed of the real server (D-390)."""

from collections.abc import Mapping
from pathlib import Path
from urllib import error, request

import pytest

from harness.feeds import read_appcast
from harness.release_files import file_of
from harness.shop import SLUG, Open
from harness.world import World
from licclient import Updates
from licclient.install import DetectedInstallation, InstallationKind, UpdateFeed
from licserver.cli.signing import file_signer
from licserver.domain.records import FileKind
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.release_manifests import sign_with_keys

KEY = PrivateKey(bytes([1]) * 32)
WINDOWS = "windows-x86_64"


@pytest.fixture
def contents(shop: World, tmp_path: Path) -> dict[FileKind, bytes]:
    """A version with two set-ups, one of them in a channel's later version."""
    contents = {kind: file_of(kind, b"2.0" * 1_000) for kind in (FileKind.NSIS, FileKind.MSI)}
    for version, channel in (("2.0", "stable"), ("2.1", "beta")):
        for kind, content in contents.items():
            file = tmp_path / f"photo-lab-{version}.{kind}"
            file.write_bytes(content)
            seal = sign_with_keys([KEY], sign_file=file_signer(file, KEY))
            publish = shop.services.releases.publish
            publish(SLUG, version, file, "New.", seal, platform=WINDOWS, kind=kind, channel=channel)
    return contents


@pytest.mark.parametrize(("channels", "version"), [([], "2.0"), (["beta"], "2.1")])
def test_a_framework_finds_what_was_offered(
    shop: World,
    open_client: Open,
    contents: dict[FileKind, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    channels: list[str],
    version: str,
) -> None:
    """The version of this license, as the set-up that fits, by an address without the key."""
    monkeypatch.setattr("licclient.install._flow._SYSTEM", "win32")
    feeds: list[UpdateFeed] = []
    updates = Updates(platform=WINDOWS, kind="msi", channels=channels, hand_over=feeds.append)
    client, key = open_client(updates=updates), shop.new_key(SLUG)
    update = client.check_for_update(key, force=True).update
    assert update is not None
    assert update.version == version
    program = tmp_path / "photo-lab.exe"
    here = DetectedInstallation(
        InstallationKind.WINSPARKLE,
        tmp_path,
        program,
        is_writable=True,
        updater="WinSparkle",
        command=None,
        is_certain=True,
    )
    client.install_update(update, key=key, installation=here)
    [feed] = feeds
    agent = {"User-Agent": "Photo Lab/1.0.0 WinSparkle/0.9.3 (Win64)"}
    _, [item] = read_appcast(read(feed.url, {**feed.headers, **agent}))
    assert item.version == version
    assert read(item.url, feed.headers) == contents[FileKind.MSI]
    with pytest.raises(error.HTTPError, match="401"):
        read(feed.url, {})


def read(url: str, headers: Mapping[str, str]) -> bytes:
    """Request an address as a framework does."""
    with request.urlopen(request.Request(url, headers=dict(headers))) as answer:  # noqa: S310 - ours
        content: bytes = answer.read()
        return content
