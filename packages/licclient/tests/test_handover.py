"""Updates that a framework within the app installs: Sparkle, WinSparkle, Velopack (D-390, D-391)."""

import contextlib
import io
import json
import pickle
import shutil
import struct
import sys
import time
import tracemalloc
import zipfile
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from stage.archives import downloaded
from stage.scripts import digest

from harness.feeds import velopack_locator, velopack_package
from licclient import AsyncLicenseClient, LicenseClient, Updates, explain
from licclient._core.kinds import InstallationKind
from licclient._core.model import InstallObstacle
from licclient.errors import InstallationError, NotActivatedError, UntrustedResponseError
from licclient.install import DetectedInstallation, Sparkle, UpdateFeed, WinSparkle, _velopack

both = pytest.mark.parametrize("flavour", [LicenseClient, AsyncLicenseClient], indirect=True)
ZIP = b"PK\x03\x04"
SPARKLE, WINSPARKLE, VELOPACK = (
    InstallationKind.SPARKLE,
    InstallationKind.WINSPARKLE,
    InstallationKind.VELOPACK,
)


class Library:
    """Stands for WinSparkle.dll: notes what is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values: self.calls.append((name.removeprefix("win_sparkle_"), *values))


@pytest.fixture(autouse=True)
def on_windows(monkeypatch):
    """Pretend to be on Windows."""
    monkeypatch.setattr("licclient.install._flow._SYSTEM", "win32")


@pytest.fixture
def here(tmp_path):
    """An app with WinSparkle, as `detect` returns it."""
    folder = tmp_path / "Photo Lab"
    folder.mkdir()
    return DetectedInstallation(
        WINSPARKLE,
        folder,
        folder / "photo-lab.exe",
        True,  # noqa: FBT003
        "WinSparkle",
        None,
        True,  # noqa: FBT003
    )


@pytest.fixture
def update_of(store, key):
    """Publish a file, and return the update that a client is offered."""

    async def publish(client, content: bytes = ZIP):
        store.content, store.digest = content, digest(content)
        return (await client.check_for_update(key)).update

    return publish


# --- by a feed ------------------------------------------------------------------------------------


@both
async def test_winsparkle_gets_the_feed_of_this_license(make_client, store, update_of, here, key):
    """Its address is that of this computer's update check; the license is in a header, and nowhere else."""
    library = Library()
    updates = Updates(
        platform="windows-x86_64", kind="nsis", channels=["beta", "next"], hand_over=WinSparkle(library)
    )
    client = make_client(updates=updates)
    update = await update_of(client)
    plan = await client.plan_update(installation=here)
    assert (plan.is_possible, plan.updater, plan.has_to_quit) == (True, "WinSparkle", False)
    assert explain(plan, "en") == "WinSparkle updates this app."
    before = len(store.service.requests)
    done = await client.install_update(update, key=key, installation=here)
    assert (done.version, done.kind) == ("2.0", WINSPARKLE)
    assert (done.has_to_quit, done.is_reopened) == (False, False), "WinSparkle asks for that itself"
    assert len(store.service.requests) == before, "WinSparkle downloads it"
    header, (address, url), check = library.calls
    assert header == ("set_http_header", b"Authorization", f"Bearer {key}".encode())
    assert (address, check) == ("set_appcast_url", ("check_update_with_ui",))
    parts = urlsplit(url.decode())
    assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{store.service.url}/feeds/notes/appcast.xml"
    sent = {name: value for name, [value] in parse_qs(parts.query).items()}
    assert sent.pop("domain")
    assert sent == {
        "platform": "windows-x86_64",
        "kind": "nsis",
        "channels": "beta,next",
        "current_version": "1.0",
        "manual": "1",
    }
    assert key not in url.decode()
    assert await client.installation_receipt() is None, "a person may still decline in its window"


async def test_sparkle_gets_the_license_and_shows_its_window(make_client, update_of, here, key, monkeypatch):
    """Its address is in the app's Info.plist: one that is set later is stored, and outlives the key."""
    calls = []
    updater = SimpleNamespace(setHttpHeaders_=calls.append, checkForUpdates=lambda: calls.append("shown"))
    monkeypatch.setattr("licclient.install._flow._SYSTEM", "darwin")
    client = make_client(updates=Updates(hand_over=Sparkle(updater)))
    await client.install_update(
        await update_of(client), key=key, installation=replace(here, kind=SPARKLE, updater="Sparkle")
    )
    assert calls == [{"Authorization": f"Bearer {key}"}, "shown"]


async def test_an_app_hands_over_in_its_own_way(make_client, update_of, here, key):
    """By a function, whose error reaches the app; the feed has no key in what is printed."""
    feeds = []
    client = make_client(updates=Updates(hand_over=feeds.append))
    await client.install_update(await update_of(client), key=key, installation=here)
    [feed] = feeds
    assert isinstance(feed, UpdateFeed)
    assert (feed.version, feed.headers) == ("2.0", {"Authorization": f"Bearer {key}"})
    assert key not in repr(feed)
    assert "platform=&" not in feed.url
    assert pickle.loads(pickle.dumps(feed)) == feed  # noqa: S301 - ours

    def fail(_feed):
        raise OSError("the library is missing")

    client = make_client(updates=Updates(hand_over=fail, platform=None))
    with pytest.raises(OSError, match="the library is missing"):
        await client.install_update(await update_of(client), key=key, installation=here)


async def test_without_a_platform_the_file_for_all_is_meant(make_client, update_of, here, key):
    """And not the one of macOS, which the feed has for Sparkle."""
    feeds = []
    client = make_client(updates=Updates(hand_over=feeds.append, platform=None))
    await client.install_update(await update_of(client), key=key, installation=here)
    assert parse_qs(urlsplit(feeds[0].url).query, keep_blank_values=True)["platform"] == [""]


async def test_a_framework_that_the_app_cannot_call_is_named(client, store, update_of, here, key):
    """As until now: nothing is downloaded."""
    update = await update_of(client)
    before = len(store.service.requests)
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=here)
    assert (caught.value.obstacle, caught.value.updater) == (InstallObstacle.OTHER_UPDATER, "WinSparkle")
    assert len(store.service.requests) == before


@pytest.mark.parametrize(
    "change",
    [{"kind": SPARKLE}, {"is_certain": False}, {"kind": InstallationKind.SNAP}],
    ids=["of another system", "unsure", "of a store"],
)
async def test_nothing_is_handed_over_on_an_unsure_sign(make_client, update_of, here, key, change):
    """A framework of another system, or a package of a store that brings the library along."""
    feeds = []
    client = make_client(updates=Updates(hand_over=feeds.append))
    with pytest.raises(InstallationError):
        await client.install_update(await update_of(client), key=key, installation=replace(here, **change))
    assert feeds == []


async def test_a_key_of_any_letters_fits_into_a_header(make_client, update_of, here):
    """One that was sold elsewhere; nothing of it can end the header."""
    feeds = []
    client = make_client(updates=Updates(hand_over=feeds.append))
    update = await update_of(client)
    for key in ("Schl\u00fcssel", "a\r\nX-Other: b"):
        await client.install_update(update, key=key, installation=here)
    sent = [feed.headers["Authorization"] for feed in feeds]
    assert b64decode(sent[0].removeprefix("Basic ")) == "license:Schl\u00fcssel".encode()
    assert sent[1] == "Bearer aX-Other:b"


async def test_without_a_key_nothing_is_handed_over(make_client, update_of, here):
    """The feed would refuse it."""
    feeds = []
    client = make_client(updates=Updates(hand_over=feeds.append))
    with pytest.raises(NotActivatedError):
        await client.install_update(await update_of(client), installation=here)
    assert feeds == []


@pytest.mark.parametrize("value", ["WinSparkle", 1, object()])
def test_what_is_called_is_callable(make_client, value):
    """Else it would be noticed by the first update."""
    with pytest.raises(TypeError, match="hand_over must be callable"):
        make_client(updates=Updates(hand_over=value))


# --- Velopack -------------------------------------------------------------------------------------


@pytest.fixture
def velopack(tmp_path, here, monkeypatch):
    """An app that Velopack has installed, its own package, and a stand-in for its updater."""
    module = pytest.importorskip("velopack", reason="the wheel velopack is not installed")
    locator, updater = velopack_locator(tmp_path / "root")
    notes = tmp_path / "updater.txt"
    updater.write_text(f'#!/bin/sh\necho "$@" > "{notes}.part" && mv "{notes}.part" "{notes}"\n')
    updater.chmod(0o755)
    monkeypatch.setattr(module, "UpdateManager", partial(module.UpdateManager, locator=locator))
    return SimpleNamespace(
        here=replace(here, kind=VELOPACK, updater="Velopack"), packages=locator.PackagesDir, notes=notes
    )


def read_notes(velopack):
    """Return the arguments of the updater that Velopack has started."""
    deadline = time.monotonic() + 20
    while not velopack.notes.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return velopack.notes.read_text().split()


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script of a shell")
@both
async def test_velopack_installs_what_was_verified(client, store, update_of, velopack, key, tmp_path):
    """Its own package takes and checks the file, and starts its updater, which waits for the app's end."""
    package, seen = velopack_package("2.0.0"), []
    update = await update_of(client, package)
    plan = await client.plan_update(installation=velopack.here)
    assert (plan.is_possible, plan.has_to_quit) == (True, True)
    assert explain(plan, "en") == "The app closes to install the update, and opens again."
    done = await client.install_update(
        update, lambda *numbers: seen.append(numbers), key=key, installation=velopack.here
    )
    assert (done.version, done.kind, done.has_to_quit, done.is_reopened) == ("2.0", VELOPACK, True, True)
    assert seen
    arguments = read_notes(velopack)
    [file] = velopack.packages.glob("*.nupkg")
    assert arguments[:3] == ["apply", "--package", str(file)]
    assert "--norestart" not in arguments
    assert file.read_bytes() == package
    assert not list((tmp_path / "state" / "updates").glob("attempt-*"))
    receipt = await client.installation_receipt()
    assert (receipt.is_installed, receipt.kind) == (False, VELOPACK), "it is not, until the app has ended"
    assert not await client.check_for_update(key), "no loop"


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script of a shell")
async def test_velopack_opens_the_app_only_if_it_shall(client, update_of, velopack, key):
    """As for all other kinds."""
    update = await update_of(client, velopack_package("2.0.0"))
    done = await client.install_update(update, key=key, installation=velopack.here, restart=False)
    assert (done.has_to_quit, done.is_reopened) == (True, False)
    assert "--norestart" in read_notes(velopack)


@pytest.mark.parametrize(
    "content",
    [b"MZ a set-up", ZIP, velopack_package("0.9.0"), velopack_package("not a version")],
    ids=["a set-up", "no archive", "an older version", "no version"],
)
async def test_velopack_gets_nothing_but_newer_packages(client, update_of, velopack, key, content, tmp_path):
    """Nothing is started, and nothing is left or remembered."""
    update = await update_of(client, content)
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=velopack.here)
    assert caught.value.obstacle is InstallObstacle.WRONG_FILE
    assert not list((tmp_path / "state" / "updates").glob("attempt-*"))
    assert await client.installation_receipt() is None
    assert not velopack.notes.exists()


async def test_a_package_that_was_exchanged_is_not_installed(velopack, tmp_path):
    """The bytes that Velopack gets are hashed once more."""
    package = velopack_package("2.0.0")
    file = downloaded(tmp_path, package)
    file.path.write_bytes(package[:-1] + b"?")
    with pytest.raises(UntrustedResponseError):
        _velopack.prepare(file, tmp_path)
    assert not velopack.notes.exists()


async def test_an_app_that_velopack_does_not_know_is_left_alone(client, update_of, here, key, tmp_path):
    """Such as one that was copied out of its folder; Velopack's own words have the reason."""
    pytest.importorskip("velopack", reason="the wheel velopack is not installed")
    update = await update_of(client, velopack_package("2.0.0"))
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=replace(here, kind=VELOPACK))
    assert caught.value.obstacle is InstallObstacle.FAILED
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert await client.installation_receipt() is None
    assert not list((tmp_path / "state" / "updates").glob("attempt-*"))


async def test_velopack_without_its_package_is_named(client, store, update_of, here, key, monkeypatch):
    """As in an app of another language that runs Python."""
    monkeypatch.setitem(sys.modules, "velopack", None)
    update, installation = await update_of(client), replace(here, kind=VELOPACK, updater="Velopack")
    with pytest.raises(InstallationError) as caught:
        await client.install_update(update, key=key, installation=installation)
    assert (caught.value.obstacle, caught.value.updater) == (InstallObstacle.OTHER_UPDATER, "Velopack")


def packed() -> bytes:
    """Return a package as `vpk pack` makes it: compressed."""
    written = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(velopack_package("2.0.0"))) as package,
        zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in package.namelist():
            archive.writestr(name, package.read(name))
    return written.getvalue()


def directory_of(content: bytes) -> int:
    """Return where the directory of a zip begins."""
    return content.index(b"PK\1\2")


DAMAGES = {
    "the manifest": (lambda content: content.index(b".nuspec") + 8, b"\xff" * 6),
    "its place": (lambda content: directory_of(content) + 42, b"\xff" * 4),
    "its method": (lambda content: directory_of(content) + 10, b"\x0e"),  # LZMA, which may ask for gigabytes
    "its version": (lambda content: directory_of(content) + 6, b"\x63"),
}


@pytest.mark.parametrize(("find", "value"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_package_is_a_wrong_file(tmp_path, find, value):
    """Not an error of `zlib`; it was published so, as its digest is the verified one."""
    content = packed()
    place = find(content)
    with pytest.raises(InstallationError) as caught:
        prepare(tmp_path, content[:place] + value + content[place + len(value) :])
    assert caught.value.obstacle is InstallObstacle.WRONG_FILE


ENTRY = packed()[directory_of(packed()) : -22]
"""The directory of a small package: two entries."""


@pytest.mark.parametrize("directory", [ENTRY * 100_000, bytes(20 << 20)], ids=["many", "long"])
def test_the_list_of_a_package_takes_little_memory(tmp_path, directory):
    """As that of a zip: an entry takes several times its size."""
    content = directory + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(directory), 0, 0)
    tracemalloc.start()
    try:
        with pytest.raises(InstallationError) as caught:
            prepare(tmp_path, content)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.obstacle is InstallObstacle.WRONG_FILE


def prepare(tmp_path, content: bytes) -> None:
    """Make a new folder the source of a package."""
    folder = tmp_path / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _velopack.prepare(downloaded(tmp_path, content), folder)


@pytest.mark.slow  # a thousand packages
@pytest.mark.parametrize("value", [b"", b"\0", b"\xff", b"\xff" * 4, b"\xff" * 8], ids=bytes.hex)
def test_a_package_that_is_damaged_anywhere_is_a_wrong_file(tmp_path, value):
    """Each of its bytes changed, or the package cut off there."""
    content = packed()
    for place in range(len(content)):
        rest = content[place + len(value) :] if value else b""
        with contextlib.suppress(InstallationError):
            prepare(tmp_path, content[:place] + value + rest)


def test_the_feed_that_velopack_reads(tmp_path):
    """It lists the one package, by the name and the number that are in it."""
    package = velopack_package("2.0.0")
    folder = tmp_path / "feed"
    folder.mkdir()
    _velopack.prepare(downloaded(tmp_path, package), folder)
    [index] = folder.glob("releases.*.json")
    [asset] = json.loads(index.read_text())["Assets"]
    assert (asset["PackageId"], asset["Version"], asset["Type"]) == ("PhotoLab", "2.0.0", "Full")
    assert (folder / asset["FileName"]).read_bytes() == package
    assert (asset["Size"], asset["SHA256"]) == (len(package), sha256(package).hexdigest().upper())
