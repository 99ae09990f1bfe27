"""The PHP of docs/wordpress.md as it stands there: in a stand-in for a WordPress site, against a server."""

import json
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from harness.world import MovableClock, Server, World, utc
from licserver.artifacts import ArtifactFolder
from licserver.domain.records import EnvironmentPolicy, WordPressFields
from licserver.services.installation import Services

ROOT: Final = Path(__file__).parents[1]
PHP: Final = shutil.which("php") or ""
pytestmark = pytest.mark.skipif(not PHP, reason="PHP is not installed (apt install php-cli)")

PAGE: Final = (ROOT / "docs/wordpress.md").read_text(encoding="utf-8")
UPDATES, PLUGIN, THEME, LICENSED = re.findall(r"^```php\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
NAME: Final = "photo-gallery/photo-gallery.php"
HOME: Final = "https://gallery.example/?a=1&b=%2F#c"  # all that must be encoded
TWELVE_HOURS, HOUR = "43200", "3600"
FIELDS: Final = {
    "requires": "6.1",
    "tested": "6.7",
    "requires_php": "7.4",
    "details_url": "https://example.com/p",
}


class Site:
    """A site with the plugin or the theme of the page, on the server's clock; `main` has its version."""

    def __init__(self, folder: Path, server: Server, clock: MovableClock, files: dict[str, str]) -> None:
        self.folder, self._server, self._clock = folder, server, clock
        self.main = folder / list(files)[-1]
        library = (ROOT / "tests/php/update_checker.php").read_text(encoding="utf-8")
        parent = Path(next(iter(files))).parent
        more = {"updates.php": UPDATES, "plugin-update-checker/plugin-update-checker.php": library}
        for name, text in {**files, **{f"{parent}/{name}": text for name, text in more.items()}}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self("set", "home", json.dumps(HOME))

    def __call__(self, action: str, *arguments: str) -> Any:
        """Do something on the site; returns what comes of it."""
        now = str(int(self._clock().timestamp()))
        done = subprocess.run(
            [PHP, "-n", str(ROOT / "tests/php/site.php"), str(self.folder), now, action, *arguments],
            check=False,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            env={"PHOTO_GALLERY_LICENSES": f"{self._server.url}/api/v1"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    @property
    def version(self) -> str:
        """What is installed."""
        (found,) = re.findall(r"Version: (.+)", self.main.read_text(encoding="utf-8"))
        return str(found)


@pytest.fixture
def clock() -> MovableClock:
    """The clock of server and sites."""
    return MovableClock(utc(2026, 11, 20, 12))


@pytest.fixture
def world(tmp_path: Path, clock: MovableClock) -> Iterator[World]:
    """A vendor with a plugin and a theme."""
    with closing(World(tmp_path / "vendor", clock, trusted_proxies=["127.0.0.0/8"])) as world:
        for slug, name in (("photo-gallery", "Photo Gallery"), ("photo-theme", "Photo Theme")):
            world.services.products.add(slug, name, EnvironmentPolicy.DOMAIN, has_support_policy=True)
        yield world


@pytest.fixture
def server(world: World) -> Iterator[Server]:
    """The vendor's server."""
    with world.serving() as server:
        yield server


@pytest.fixture
def publish(world: World, tmp_path: Path) -> Callable[..., None]:
    """Publish a version; its package is the plugin's main file."""

    def publish(version: str, slug: str = "photo-gallery", **fields: str) -> None:
        file = tmp_path / f"{slug}.zip"
        text = PLUGIN if slug == "photo-gallery" else "/*\nVersion: 1.3.0\n*/\n"
        file.write_text(text.replace("1.3.0", version), encoding="utf-8")
        world.services.releases.publish(
            slug, version, file, wordpress=WordPressFields(**{**FIELDS, **fields})
        )

    return publish


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a site: it has the key and links, and is removed with them."""
    yield tmp_path / "site"
    shutil.rmtree(tmp_path / "site")


@pytest.fixture
def gallery(folder: Path, server: Server, clock: MovableClock) -> Site:
    """A site with the plugin in version 1.3.0."""
    plugin, more = "plugins/photo-gallery", "\nrequire __DIR__ . '/licenses.php';\n"
    files = {f"{plugin}/licenses.php": LICENSED, f"{plugin}/photo-gallery.php": PLUGIN + more}
    return Site(folder, server, clock, files)


@pytest.fixture
def key(gallery: Site, world: World) -> str:
    """A key, entered on the site."""
    key = world.new_key("photo-gallery", support_until="2026-11-30")
    gallery("set", "photo_gallery_license_key", json.dumps(key))
    return key


def test_the_page_of_plugins_shows_the_update_and_installs_it(gallery: Site, key: str, publish: Any) -> None:
    """With what it needs; what was downloaded is compared with its MD5, and then there is nothing newer."""
    assert gallery("check", HOUR) == []
    publish("1.4.0")
    assert gallery("check", HOUR) == []  # it was asked a moment ago
    assert gallery("check", "0")[NAME].items() >= {
        ("new_version", "1.4.0"),
        ("tested", "6.7"),
        ("requires_php", "7.4"),
    }
    assert gallery("upgrade", NAME) == {"installed": "1.4.0", "is_checked": True}
    assert gallery("check", "0") == []
    assert key


def test_cron_installs_hours_later(gallery: Site, key: str, publish: Any, clock: MovableClock) -> None:
    """The link of the offer is over by then, so that a fresh one is used; it may be of a newer version."""
    publish("1.4.0")
    offered = gallery("check", TWELVE_HOURS)[NAME]["package"]
    clock.forward(hours=11)
    assert key not in offered
    assert gallery("download", offered) == {"error": "http_404", "message": "Forbidden"}
    publish("1.4.1")
    assert gallery("check", TWELVE_HOURS)[NAME]["new_version"] == "1.4.0"
    assert gallery("upgrade", NAME) == {"installed": "1.4.1", "is_checked": True}


@pytest.mark.slow
def test_an_outage_keeps_the_known_update(
    gallery: Site, key: str, publish: Any, clock: MovableClock, world: World, server: Server
) -> None:
    """No server, no database, too many requests: it is still shown, and installed when all is well again."""
    publish("1.4.0")
    known = gallery("check", "0")
    database = world.services.settings.data_dir / "licserver.sqlite3"

    def meddle(statement: str) -> None:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute(statement)

    clock.forward(hours=12)
    server.stop()
    assert gallery("check", TWELVE_HOURS) == known
    assert gallery("upgrade", NAME)["error"] == "http_request_failed"
    server.start()
    meddle("ALTER TABLE licenses RENAME TO away")
    assert status_of(server, key) == 503
    assert gallery("check", "0") == known
    meddle("ALTER TABLE away RENAME TO licenses")
    server.stop()
    usual = world.services
    few = usual.settings.model_copy(update={"flood_limit": 1})
    world.services = Services(replace(usual.context, settings=few))
    server.start()
    assert [status_of(server, key) for _ in range(2)] == [200, 429]
    assert gallery("check", "0") == known
    server.stop()
    world.services = usual
    server.start()
    assert gallery("check", "0")[NAME]["package"] != known[NAME]["package"]
    assert gallery("upgrade", NAME)["installed"] == "1.4.0"


def status_of(server: Server, key: str) -> int:
    """Return how an update check is answered."""
    query = {"license_key": key, "slug": "photo-gallery", "current_version": "1.3.0", "domain": "a.example"}
    headers = {"X-Forwarded-For": "198.51.100.7"}  # as of the site
    url = f"{server.url}/api/v1/update-check"
    return httpx.get(url, params=query, headers=headers, timeout=10).status_code


def test_a_revocation_hides_the_update(gallery: Site, key: str, publish: Any, world: World) -> None:
    """Who clicks before the next check downloads nothing; from that check on, nothing is shown."""
    publish("1.4.0")
    gallery("check", "0")
    world.services.licenses.revoke(key)
    assert gallery("upgrade", NAME) == {"error": "no_package"}
    assert NAME in gallery("show")
    assert gallery("check", "0") == []
    assert gallery("upgrade", NAME) == {"error": "up_to_date"}
    assert gallery.version == "1.3.0"


def test_after_support_there_is_no_package(
    gallery: Site, key: str, publish: Any, clock: MovableClock, world: World
) -> None:
    """The version is shown; an offer from before is not used after the last day, and a renewal is at once."""
    publish("1.4.0")
    assert gallery("check", "0")[NAME]["package"]
    clock.forward(days=14)
    assert gallery("upgrade", NAME) == {"error": "no_package"}
    shown = gallery("check", TWELVE_HOURS)[NAME]
    assert (shown["new_version"], shown["package"]) == ("1.4.0", None)
    assert gallery("upgrade", NAME) == {"error": "no_package"}
    world.services.licenses.change(key, support_until=None)
    assert gallery("upgrade", NAME)["installed"] == "1.4.0"


def test_a_withdrawn_version_is_not_installed(gallery: Site, key: str, publish: Any, world: World) -> None:
    """What is offered then is no newer than what is installed."""
    publish("1.2.0")
    publish("1.4.0")
    assert NAME in gallery("check", "0")
    world.services.releases.withdraw("photo-gallery", "1.4.0")
    assert (gallery("upgrade", NAME), gallery.version) == ({"error": "no_package"}, "1.3.0")
    assert key


def test_a_damaged_file_is_not_installed(gallery: Site, key: str, publish: Any, world: World) -> None:
    """Other bytes of the same length are found by `Content-MD5`, which WordPress compares."""
    publish("1.4.0")
    gallery("check", "0")
    artifact = world.services.releases.get("photo-gallery", "1.4.0").artifact
    assert isinstance(world.services.artifacts, ArtifactFolder)
    path = world.services.artifacts.path(artifact)
    path.write_bytes(path.read_bytes().replace(b"1.4.0", b"6.6.6"))
    assert (gallery("upgrade", NAME)["error"], gallery.version) == ("md5_mismatch", "1.3.0")
    assert key


def test_other_plugins_are_left_alone(gallery: Site, key: str, publish: Any) -> None:
    """Their packages, and what is installed anew, are none of this one's business."""
    publish("1.4.0")
    extras: list[Any] = [
        {"plugin": "other/other.php"},
        {"theme": NAME},
        {"type": "plugin", "action": "install"},
        [],
    ]
    for extra in extras:
        options = {"package": "https://example.org/other.zip", "hook_extra": extra}
        assert gallery("options", json.dumps(options)) == options
    assert gallery("options", '{"package": "a"}') == {"package": "a"}
    assert key


@pytest.mark.slow
def test_without_a_key_there_is_no_update(gallery: Site, publish: Any, world: World) -> None:
    """Nor with another product's; a key that is entered later is used by the next check."""
    publish("1.4.0")
    assert gallery("check", "0") == []
    for product, found in (("photo-theme", []), ("photo-gallery", [NAME])):
        gallery("set", "photo_gallery_license_key", json.dumps(world.new_key(product)))
        assert list(gallery("check", "0")) == found


@pytest.mark.slow
def test_a_key_that_was_sold_elsewhere(gallery: Site, publish: Any, world: World) -> None:
    """Whatever is in it arrives: all parameters are percent-encoded."""
    world.services.products.change("photo-gallery", accepts_imported_keys=True)
    key = world.sell("K&slug=other+1#2/%41", "photo-gallery")
    publish("1.4.0")
    gallery("set", "photo_gallery_license_key", json.dumps(key))
    assert NAME in gallery("check", "0")


@pytest.mark.slow
def test_a_theme_needs_the_page_of_its_version(
    folder: Path, world: World, server: Server, clock: MovableClock, publish: Any
) -> None:
    """With `details_url` it is offered, and installed hours later."""
    files = {
        "themes/photo-theme/functions.php": THEME,
        "themes/photo-theme/style.css": "/*\nVersion: 1.3.0\n*/\n",
    }
    site = Site(folder, server, clock, files)
    site("set", "template", '"photo-theme"')
    site("set", "photo_gallery_license_key", json.dumps(world.new_key("photo-theme")))
    publish("1.4.0", "photo-theme", details_url="")
    assert site("check", "0") == []
    world.services.releases.set_wordpress("photo-theme", "1.4.0", details_url="https://example.com/theme")
    shown = site("check", "0")["photo-theme"]
    assert (shown["new_version"], shown["url"]) == ("1.4.0", "https://example.com/theme")
    clock.forward(hours=11)
    assert site("upgrade", "photo-theme") == {"installed": "1.4.0", "is_checked": True}


@pytest.mark.slow
def test_verify_from_a_plugin(gallery: Site, key: str, world: World, server: Server) -> None:
    """One slot for the site; a day without a request, three more in an outage, and then no longer."""

    def is_licensed(*now: str) -> bool:
        return gallery("call", "photo_gallery_is_licensed", *now) is True

    def age(hours: int) -> None:
        known = gallery("get", "photo_gallery_license")
        known |= {name: known[name] - hours * 3600 for name in ("at", "next")}
        gallery("set", "photo_gallery_license", json.dumps(known))

    assert [is_licensed() for _ in range(3)] == [True] * 3
    assert server.verifies == 1
    assert [domain for domain, _ in world.activations(key)] == ["gallery.example"]
    age(24)
    assert is_licensed()
    assert server.verifies == 2
    server.stop()
    for hours, expected in ((95, True), (1, False)):
        age(hours)
        assert is_licensed() is expected
    server.start()
    assert (is_licensed(), is_licensed("true")) == (False, True)  # the next request is in 15 minutes
    for other, expected in ((world.new_key("photo-theme"), False), (key, True)):  # of a key itself, at once
        gallery("set", "photo_gallery_license_key", json.dumps(other))
        assert is_licensed() is expected
    world.services.licenses.revoke(key)
    assert (is_licensed(), is_licensed("true"), is_licensed()) == (True, False, False)
    gallery("set", "photo_gallery_license_key", '""')
    assert not is_licensed("true")


@pytest.mark.slow
def test_what_is_known_ends_with_the_license(gallery: Site, world: World, server: Server) -> None:
    """After its last day a success counts no longer, however long the outage is (D-41)."""
    key = world.new_key("photo-gallery", expires_on="2099-12-31")
    gallery("set", "photo_gallery_license_key", json.dumps(key))
    assert gallery("call", "photo_gallery_is_licensed") is True
    server.stop()
    known = gallery("get", "photo_gallery_license")
    assert gallery("call", "photo_gallery_is_licensed") is True
    gallery("set", "photo_gallery_license", json.dumps({**known, "expiry": "2020-12-31"}))
    assert gallery("call", "photo_gallery_is_licensed") is False
    server.start()
