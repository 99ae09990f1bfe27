"""The real client against the real server: updates and downloads."""

from collections.abc import Callable
from pathlib import Path

from harness.flavours import both_flavours, opened
from harness.shop import MIB, PRODUCT, SLUG, Open
from harness.sockets import Cable
from harness.world import MovableClock, Server, World


@both_flavours
def test_the_update_arrives(shop: World, open_client: Open, tmp_path: Path) -> None:
    """The file comes whole, under the name that the vendor gave it, and progress says how far."""
    client, key = open_client(), shop.new_key(SLUG)
    update = client.check_for_update(key)
    assert update is not None
    told: list[tuple[int, int]] = []
    done = client.download(
        update, tmp_path / "downloads", progress=lambda done, total, _: told.append((done, total))
    )
    path, content = done.path, shop.files["1.1.0"]
    assert done.version == "1.1.0"
    assert path.name == "photo-lab-1.1.0.zip"
    assert path.read_bytes() == content
    assert told == sorted(told)
    assert told[-1] == (len(content), len(content))
    assert [entry.name for entry in (tmp_path / "downloads").iterdir()] == [path.name]


def test_a_cable_pulled_half_way(
    make_world: Callable[..., World], flavour: str, tmp_path: Path, clock: MovableClock
) -> None:
    """A download cut half way goes on where it stopped, and the file is the vendor's to the last byte."""
    shop = make_world(base_url=None)
    shop.stock({"products": [PRODUCT], "licenses": []})
    with (
        shop.serving() as server,
        Cable(server.port).plugged() as cable,
        opened(
            flavour, cable.url, slug=SLUG, version="1.0.0", state_dir=tmp_path / "state", clock=clock
        ) as client,
    ):
        update = client.check_for_update(shop.new_key(SLUG))
        assert update is not None
        cable.cut_after = [2 * MIB]
        path = client.download(update, tmp_path).path
    content = shop.files["1.1.0"]
    assert path.read_bytes() == content
    assert cable.cuts == 1
    whole, *_, rest = server.ranges  # aiohttp may note the one that was cut twice
    assert whole is None
    assert rest is not None
    assert rest.startswith("bytes=")
    assert 0 < int(rest.removeprefix("bytes=").removesuffix("-")) < len(content)


def test_replaced_before_the_download(shop: World, server: Server, open_client: Open, tmp_path: Path) -> None:
    """When a better version took the withdrawn one's place, that is what arrives (D-33, D-48)."""
    client, key = open_client(), shop.new_key(SLUG)
    update = client.check_for_update(key)
    assert update is not None
    shop.services.releases.withdraw(SLUG, "1.1.0")
    content = shop.publish(SLUG, "1.1.1", "2026-11-20T12:00:00Z")
    done = client.download(update, tmp_path / "downloads")
    assert (done.path.read_bytes(), done.version) == (content, "1.1.1")
    assert server.downloads == [404, 200]
