"""The feed of Velopack, read by its own client (D-221)."""

import asyncio
import uuid
from datetime import date
from hashlib import sha256
from urllib.parse import quote

import pytest

from harness.feeds import bearer, velopack_app, velopack_package
from licserver.database.hot_path.store import BatchStore
from licserver.protocol.feeds import read_velopack_channel


async def velopack(site, key=None, name="releases.linux.json", **query: str):
    """Read a feed as Velopack does; returns versions and channels' files."""
    headers = {} if key is None else bearer(key)
    status, _, answer = await site.call("GET", f"/feeds/app/velopack/{name}", headers=headers, params=query)
    return [(asset["Version"], asset["FileName"]) for asset in answer["Assets"]] if status == 200 else status


async def test_an_app_with_velopack_updates_itself(site, world, publish, tmp_path):
    """Its own client finds the update, downloads it by a signed link, and checks size and digest."""
    key = world.key()
    package = velopack_package("1.4.0")
    publish(
        "1.4.0", name="PhotoLab-1.4.0-linux-full.nupkg", content=package, is_signed=False, changelog="Faster"
    )
    app = velopack_app(tmp_path, f"http://license:{key}@127.0.0.1:{site.port}/feeds/app/velopack")
    update = await asyncio.to_thread(app.check_for_updates)
    found = update.TargetFullRelease
    assert (found.PackageId, found.Version, found.Type, found.NotesMarkdown) == (
        "PhotoLab",
        "1.4.0",
        "Full",
        "Faster",
    )
    assert sha256(package).hexdigest().upper() == found.SHA256  # the client for C# compares exactly
    await asyncio.to_thread(app.download_updates, update)
    assert (tmp_path / "app-linux" / "packages" / found.FileName).read_bytes() == package
    assert app.get_update_pending_restart().Version == "1.4.0"
    world.services.licenses.revoke(key)
    with pytest.raises(RuntimeError, match="401"):
        await asyncio.to_thread(app.check_for_updates)


@pytest.mark.slow
async def test_velopack_without_a_license(site, world, publish, tmp_path):
    """By a public feed, in the channel that was chosen when the app was packed; and nothing newer is none."""
    publish(
        "1.4.0", name="PhotoLab-1.4.0-linux-full.nupkg", content=velopack_package("1.4.0"), is_signed=False
    )
    beta = velopack_package("1.5.0-beta.1", "linux-beta")
    name = "PhotoLab-1.5.0-beta.1-linux-beta-full.nupkg"
    publish("1.5.0-beta.1", name=name, content=beta, channel="beta", is_signed=False, changelog="<p>New</p>")
    world.services.products.change("app", public_feed=True)
    address = f"{site.url}/feeds/app/velopack"
    app = velopack_app(tmp_path, address, "linux-beta")
    update = await asyncio.to_thread(app.check_for_updates)
    assert (update.TargetFullRelease.FileName, update.TargetFullRelease.NotesHtml) == (name, "<p>New</p>")
    await asyncio.to_thread(app.download_updates, update)
    assert (tmp_path / "app-linux-beta" / "packages" / name).read_bytes() == beta
    current = velopack_app(tmp_path / "current", address, version="1.4.0")
    assert await asyncio.to_thread(current.check_for_updates) is None


@pytest.mark.slow
async def test_a_rollout_reaches_apps_with_velopack(site, world, publish):
    """By the id that its client draws for each installation, also without a license."""
    world.services.products.change("app", public_feed=True)
    for version, rollout in (("1.4.0", None), ("1.5.0", "50%")):
        publish(version, name=f"PhotoLab-{version}-full.nupkg", rollout=rollout)
    ids = [str(uuid.UUID(int=number)) for number in range(20)]
    found = [await velopack(site, stagingId=id_, localVersion="1.0.0") for id_ in ids]
    assert {asset[0][0] for asset in found} == {"1.4.0", "1.5.0"}
    assert [await velopack(site, stagingId=id_) for id_ in ids] == found
    assert await velopack(site) == [("1.4.0", "PhotoLab-1.4.0-full.nupkg")]


@pytest.mark.slow
async def test_what_is_no_package_is_not_in_the_feed(site, world, publish):
    """A setup program, a delta, a version that Velopack does not know; and after support nothing."""
    key = world.key()
    assert await velopack(site, key) == []
    versions = {"1.1.0": "Setup.exe", "1.2.0": "A-1.2.0-delta.nupkg", "1.3.post1": "A-1.3.post1-full.nupkg"}
    for version, name in versions.items():
        publish(version, name=name)
        assert await velopack(site, key) == [], name
    publish("1.4.0", name="A-1.4.0-full.nupkg")
    assert await velopack(site, key) == [("1.4.0", "A-1.4.0-full.nupkg")]
    world.services.products.change("app", has_support_policy=True)
    late = world.key(support_until=date(2026, 1, 1))
    assert await velopack(site, late) == []
    package = "/feeds/app/velopack/A-1.4.0-full.nupkg"
    assert (await site.call("GET", package, headers=bearer(late)))[0] == 404


@pytest.mark.slow
async def test_a_package_is_for_those_who_have_the_feed(site, world, publish, new_key):
    """The redirect leads to a signed link, of the last file with this name; withdrawn ones are gone."""
    for version, content in (("1.4.0", b"one"), ("1.4.1", b"two")):
        publish(version, name="A-full.nupkg", content=content, platform="linux-x86_64")
    path, key = "/feeds/app/velopack/A-full.nupkg", world.key()
    status, headers, _ = await site.call("GET", path, headers=bearer(key), allow_redirects=False)
    assert (status, "/api/v1/update-download?" in headers["Location"]) == (307, True)
    assert (await site.call("GET", path, headers=bearer(key)))[2] == b"two"
    world.services.releases.withdraw("app", "1.4.1")
    assert (await site.call("GET", path, headers=bearer(key)))[2] == b"one"
    statuses = {"": 401, new_key(): 401, world.key(): 200}
    for sent, status in statuses.items():
        assert (await site.call("GET", path, headers=bearer(sent) if sent else {}))[0] == status
    assert (await site.call("GET", "/feeds/app/velopack/B-full.nupkg", headers=bearer(key)))[0] == 404
    assert (await site.call("GET", "/feeds/none/velopack/A-full.nupkg"))[0] == 401


async def test_a_request_for_a_package_reads_no_releases_before_the_license_is_judged(
    site, world, publish, new_key, monkeypatch
):
    """A caller without a license costs one lookup, whatever the name of the file (D-299)."""
    publish("1.4.0", name="A-full.nupkg", platform="linux-x86_64")
    key, read, find = world.key(), [], BatchStore.find_releases
    monkeypatch.setattr(BatchStore, "find_releases", lambda self, slug: read.append(slug) or find(self, slug))
    for name in ("A-full.nupkg", quote("\N{MIDDLE DOT}" * 90), "a" * 600):
        path = f"/feeds/app/velopack/{name}"
        assert (await site.call("GET", path, headers=bearer(new_key())))[0] == 401
        assert read == []
    assert (await site.call("GET", path, headers=bearer(key)))[0] == 404
    assert read == ["app"]


@pytest.mark.parametrize(
    ("name", "sent", "expected"),
    [
        ("win", ("", ""), ("stable", "windows-x86_64")),
        ("linux", ("linux", "arm64"), ("stable", "linux-arm64")),
        ("osx", ("", ""), ("stable", "macos-arm64")),
        ("osx-x64", ("", ""), ("stable", "macos-x86_64")),
        ("win-arm64-beta", ("win", "x64"), ("beta", "windows-arm64")),
        ("win-x86-stable", ("", ""), ("stable", "windows-x86")),
        ("linux-early-access", ("", ""), ("early-access", "linux-x86_64")),
        ("beta", ("win", "X64"), ("beta", "windows-x86_64")),
        ("beta", ("", ""), ("beta", "")),
    ],
)
def test_a_channel_of_velopack_names_a_platform_too(name, sent, expected):
    """What it leaves out is as the client says, or as usual."""
    assert read_velopack_channel(name, *sent) == expected


@pytest.mark.slow
async def test_a_feed_that_is_as_it_was_is_not_sent_again(site, world, publish):
    """Until a version is added."""
    world.services.products.change("app", public_feed=True)
    content = velopack_package("1.4.0")
    publish("1.4.0", name="PhotoLab-1.4.0-linux-full.nupkg", content=content, is_signed=False)
    path = "/feeds/app/velopack/releases.linux.json"
    status, headers, _ = await site.call("GET", path)
    tag = headers["ETag"]
    assert status == 200
    status, headers, body = await site.call("GET", path, headers={"If-None-Match": tag})
    assert (status, headers["ETag"], body) == (304, tag, b"")
    status, headers, body = await site.call("GET", path, headers={"If-None-Match": '"another"'})
    assert (status, headers["ETag"]) == (200, tag)
