"""The real client against the real server: updates and downloads."""

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from harness.flavours import both_flavours, opened
from harness.release_files import KINDS, file_of
from harness.shop import PRODUCT, SIZE, SLUG, Open
from harness.sockets import Cable
from harness.world import MovableClock, Server, World
from licclient import Updates
from licclient._core.kinds import PUBLISHED_KINDS
from licclient.testing import _endpoints
from licserver.domain.records import FileKind


@both_flavours
def test_the_update_arrives(shop: World, open_client: Open, tmp_path: Path) -> None:
    """The file comes whole, under the name that the vendor gave it, and progress says how far."""
    client, key = open_client(), shop.new_key(SLUG)
    update = client.check_for_update(key).update
    assert update is not None
    progress: list[tuple[int, int]] = []
    done = client.download(
        update, tmp_path / "downloads", progress=lambda done, total, _: progress.append((done, total))
    )
    path, content = done.path, shop.files["1.1.0"]
    assert done.version == "1.1.0"
    assert path.name == "photo-lab-1.1.0.zip"
    assert path.read_bytes() == content
    assert progress == sorted(progress)
    assert progress[-1] == (len(content), len(content))
    assert [entry.name for entry in (tmp_path / "downloads").iterdir()] == [path.name]


def test_a_cable_pulled_half_way(
    make_world: Callable[..., World], flavour: str, tmp_path: Path, clock: MovableClock
) -> None:
    """A download cut half way goes on where it stopped, and the file is the vendor's to the last byte."""
    shop = make_world(base_url=None)
    # More than the sockets hold.
    shop.stock(
        {"products": [PRODUCT | {"releases": [PRODUCT["releases"][1] | {"size": 4 << 20}]}], "licenses": []}
    )
    with (
        shop.serving() as server,
        Cable(server.port).plugged() as cable,
        opened(
            flavour, cable.url, slug=SLUG, version="1.0.0", storage=tmp_path / "state", clock=clock
        ) as client,
    ):
        update = client.check_for_update(shop.new_key(SLUG)).update
        assert update is not None
        cable.cut_after = [2 << 20]
        path = client.download(update, tmp_path).path
    content = shop.files["1.1.0"]
    assert path.read_bytes() == content
    assert cable.cuts == 1
    whole, *_, rest = server.ranges  # aiohttp may note the one that was cut twice
    assert whole is None
    assert rest is not None
    assert rest.startswith("bytes=")
    assert 0 < int(rest.removeprefix("bytes=").removesuffix("-")) < len(content)


def test_each_platform_gets_its_file(shop: World, open_client: Open, tmp_path: Path) -> None:
    """A default and two platforms are published; one key serves all, and an unknown platform the default."""
    key, published = shop.new_key(SLUG), "2026-11-20T12:00:00Z"
    for platform in ("", "windows-x86_64", "macos-arm64"):
        shop.publish(SLUG, "2.0", published, platform=platform)
    for platform in ("windows-x86_64", "macos-arm64", "haiku-riscv64"):
        client = open_client(updates=Updates(platform=platform))
        update = client.check_for_update(key, force=True).update
        assert update is not None
        done = client.download(update, tmp_path / platform)
        file = f"2.0 {platform}" if platform != "haiku-riscv64" else "2.0"
        assert (done.version, done.path.read_bytes()) == ("2.0", shop.files[file])


def test_client_and_server_have_the_same_kinds() -> None:
    """The service for tests has them in the server's order."""
    assert {*FileKind} == {*PUBLISHED_KINDS} == {*KINDS}
    assert [*FileKind] == [*_endpoints._KINDS]
    document = json.loads(files("licserver.protocol").joinpath("openapi.json").read_text("utf-8"))
    offer = next(
        schema["properties"]["kind"]
        for schema in document["components"]["schemas"].values()
        if "kind" in schema.get("properties", {})
    )
    assert offer["enum"] == [*FileKind]


def test_each_kind_gets_its_file(shop: World, open_client: Open, tmp_path: Path) -> None:
    """Of one version and platform; a kind without a file is offered nothing, and no kind the folder."""
    key, windows = shop.new_key(SLUG), "windows-x86_64"
    for kind in ("folder", "msi", "nsis"):
        content = file_of(kind, kind.encode() * 1_000)
        (tmp_path / kind).write_bytes(content)
        shop.services.releases.publish(SLUG, "2.0", tmp_path / kind, platform=windows)
    for named, kind in (("msi", "msi"), ("nsis", "nsis"), ("folder", "folder"), (None, "folder")):
        client = open_client(updates=Updates(platform=windows, kind=named))
        update = client.check_for_update(key, force=True).update
        assert update is not None
        assert update.kind == named
        done = client.download(update, tmp_path / f"downloads-{named}", key=key)
        assert done.path.read_bytes() == (tmp_path / kind).read_bytes()
    client = open_client(updates=Updates(platform=windows, kind="app"))
    assert client.check_for_update(key, force=True).update is None


def test_replaced_before_the_download(shop: World, server: Server, open_client: Open, tmp_path: Path) -> None:
    """When a better version took the withdrawn one's place, that is what arrives (D-33, D-48)."""
    client, key = open_client(), shop.new_key(SLUG)
    update = client.check_for_update(key).update
    assert update is not None
    shop.services.releases.withdraw(SLUG, "1.1.0")
    content = shop.publish(SLUG, "1.1.1", "2026-11-20T12:00:00Z")
    done = client.download(update, tmp_path / "downloads", key=key)
    assert (done.path.read_bytes(), done.version) == (content, "1.1.1")
    assert server.downloads == [404, 200]


@pytest.mark.parametrize("world", [{"patch_limit": SIZE}], indirect=True, ids=["patches"])
def test_the_next_update_is_a_patch(shop: World, open_client: Open, tmp_path: Path) -> None:
    """An app that kept its last download gets far fewer bytes; where there is no patch, all of them."""
    client, key, folder = open_client(), shop.new_key(SLUG), tmp_path / "downloads"
    first, totals = dict[str, int](), list[int]()
    for version in ("1.1.0", "1.2.0", "1.3.0"):
        if version != "1.1.0":
            shop.publish(SLUG, version, "2026-11-20T12:00:00Z", size=SIZE)
        if version == "1.2.0":
            shop.services.patches.make(SLUG, version)
        update = client.check_for_update(key, force=True).update
        assert update is not None
        totals.clear()
        done = client.download(update, folder, progress=lambda _, total, __: totals.append(total))
        assert (done.version, done.path.read_bytes()) == (version, shop.files[version])
        first[version] = totals[0]
    assert first["1.2.0"] < SIZE / 4 < first["1.3.0"] == len(shop.files["1.3.0"])
