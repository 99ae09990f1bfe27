"""What people reported of updaters that took the installer of another kind, as they met it."""

from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest

from harness.release_files import file_of
from harness.shop import SLUG, Open
from harness.world import World
from licclient import Update, Updates

WINDOWS = "windows-x86_64"
Publish = Callable[[str, str], None]


@pytest.fixture
def publish(shop: World, tmp_path: Path) -> Publish:
    """Publish a set-up of a kind as a version for Windows; the server recognises it."""

    def publish(version: str, kind: str) -> None:
        file = tmp_path / f"{kind}-{version}"
        file.write_bytes(file_of(kind, version.encode()))
        assert shop.services.releases.publish(SLUG, version, file, platform=WINDOWS).kind == kind

    return publish


def check(open_client: Open, key: str, kind: str | None) -> Update | None:
    """Return the update of an app that was installed in a way."""
    client = open_client(updates=Updates(platform=WINDOWS, kind=kind))
    return client.check_for_update(key, force=True).update


@pytest.mark.parametrize("kind", ["msi", "nsis"])
def test_electron_userland_electron_builder_4384(
    shop: World, open_client: Open, publish: Publish, tmp_path: Path, kind: str
) -> None:
    """Both are published, and the app was set up by one: it gets no second installation by the other.

    The same: electron-userland/electron-builder#6683, tauri-apps/tauri-action#1027.
    """
    key = shop.new_key(SLUG)
    for each in ("nsis", "msi"):
        publish("2.0", each)
    client = open_client(updates=Updates(platform=WINDOWS, kind=kind))
    update = client.check_for_update(key, force=True).update
    assert update is not None
    assert update.kind == kind
    downloaded = client.download(update, tmp_path / "downloads", key=key)
    assert downloaded.path.read_bytes() == file_of(kind, b"2.0")


def test_electron_userland_electron_builder_4212(shop: World, open_client: Open, publish: Publish) -> None:
    """The MSI, for administrators, is published later or never: its apps are not offered the other one."""
    key = shop.new_key(SLUG)
    publish("2.0", "nsis")
    assert check(open_client, key, "msi") is None
    publish("2.0", "msi")
    publish("2.1", "nsis")
    update = check(open_client, key, "msi")
    assert update is not None
    assert update.version == "2.0"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("order", [*permutations(["nsis", "msi", "inno"])], ids="-".join)
def test_electron_userland_electron_builder_2588(
    shop: World, open_client: Open, publish: Publish, tmp_path: Path, order: tuple[str, ...]
) -> None:
    """Which of several an app that names none gets does not depend on which was published last."""
    key = shop.new_key(SLUG)
    for each in order:
        publish("2.0", each)
    client = open_client(updates=Updates(platform=WINDOWS))
    update = client.check_for_update(key, force=True).update
    assert update is not None
    assert update.kind is None
    downloaded = client.download(update, tmp_path / "downloads", key=key)
    assert downloaded.path.read_bytes() == file_of("nsis", b"2.0")
