"""Each kind of published file through each path: offer, link, feed, pages, API, backup, patch, manifest.

The kinds are those of `FileKind`, so that a new one is tried on each path (D-187, D-370).
"""

import csv
import io
import json
import random
from contextlib import closing

import pytest
from alembic import command

from harness.admin import form
from harness.engines import both_engines
from harness.feeds import read_appcast
from harness.release_files import PLATFORMS, file_of
from licserver.database import migrate
from licserver.database.engine import connect
from licserver.domain.decisions import Offer
from licserver.domain.records import FileKind
from licserver.errors import InvalidInputError, NotFoundError
from licserver.jobs.patches import LEASE
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.public_api import DOWNLOAD_PATH, MANIFEST_HEADER, update_response
from licserver.protocol.release_manifests import read, sign_with_keys
from licserver.services.backup import write_backup
from licserver.services.installation import open_services
from licserver.services.release_files import NAMES
from licserver.services.releases import PATCHES
from licserver.services.restore import restore_backup
from licserver.services.self_check import check_installation
from licserver.settings import Settings

KEY = PrivateKey(b"1" * 32)
each_kind = pytest.mark.parametrize("kind", FileKind)


@pytest.fixture
def settings():
    """Settings that differ from the defaults."""
    return {}


@pytest.fixture
def world(make_world, settings):
    """A vendor with these settings."""
    return make_world(**settings)


@pytest.fixture
def publish_all(publish):
    """Publish a version with a file of each kind for its own system; return the contents by kind."""

    def publish_all(version="1.0"):
        contents = {kind: file_of(kind, f"{kind} {version} ".encode() * 1_000) for kind in FileKind}
        for kind, content in contents.items():
            name = f"app-{version}-{kind}.bin"
            release = publish(version, name=name, content=content, platform=PLATFORMS[kind])
            assert (release.kind, release.platform) == (kind, PLATFORMS[kind])
        return contents

    return publish_all


def path_of(link):
    """Return the path and query of a link."""
    return link[link.index("/api/") :]


@both_engines
async def test_each_installation_is_offered_the_file_of_its_kind(world, site, publish_all):
    """By an update check that names it, with the file's own manifest; the response repeats the kind."""
    contents, key = publish_all(), world.key()
    publish_all("1.1")
    for kind in FileKind:
        world.services.releases.renew_manifest("app", "1.1", sign_with_keys([KEY]), PLATFORMS[kind], kind)
    contents = {kind: file_of(kind, f"{kind} 1.1 ".encode() * 1_000) for kind in FileKind}
    for kind, content in contents.items():
        query = {"license_key": key, "slug": "app", "current_version": "1.0", "domain": "a.example"}
        query |= {"platform": PLATFORMS[kind], "kind": kind}
        status, headers, answer = await site.call("GET", "/api/v1/update-check", params=query)
        assert (status, answer["version"], answer["kind"]) == (200, "1.1", kind)
        release = world.services.releases.get("app", "1.1", PLATFORMS[kind], kind)
        manifest = read(release.manifest).manifest
        assert (manifest.size, manifest.sha256) == (len(content), release.artifact.sha256)
        assert (manifest.platform, manifest.kind) == (PLATFORMS[kind], kind)
        assert headers[MANIFEST_HEADER]
        assert (await site.call("GET", path_of(answer["download_url"])))[2] == content


async def check(site, key, **query: str):
    """Check for an update; return the version and the kind of the answer, or the error."""
    query = {"license_key": key, "slug": "app", "current_version": "1.0", "domain": "a.example", **query}
    _, _, answer = await site.call("GET", "/api/v1/update-check", params=query)
    return answer.get("version", answer.get("error")), answer.get("kind")


@both_engines
async def test_an_app_that_names_no_kind_gets_the_first(world, site, publish):
    """Its answer has no kind, and a kind that no version has is offered nothing; case counts."""
    key = world.key()
    windows = PLATFORMS["msi"]
    for version, kind in (
        ("1.0", "folder"),
        ("1.1", "msi"),
        ("1.1", "inno"),
        ("1.2", "folder"),
        ("1.2", "nsis"),
    ):
        publish(version, content=file_of(kind), platform=windows)
    for kind, expected in [
        (None, ("1.2", None)),
        ("", ("1.2", None)),
        ("exe", ("1.2", None)),
        ("MSI", ("1.2", None)),
        ("folder", ("1.2", "folder")),
        ("nsis", ("1.2", "nsis")),
        ("msi", ("1.1", "msi")),
        ("app", ("no_versions", None)),
    ]:
        query = {"platform": windows, **({} if kind is None else {"kind": kind})}
        assert await check(site, key, **query) == expected, kind
    world.services.releases.withdraw("app", "1.2")
    assert await check(site, key, platform=windows) == ("1.1", None)
    assert await check(site, key, platform=windows, kind="nsis") == ("no_versions", None)


def test_an_answer_without_a_kind_is_byte_for_byte_as_before(world, publish):
    """Whatever kind is offered: the field is only in answers to requests that have it."""
    publish("1.0", content=file_of("msi"))
    release = world.services.releases.get("app", "1.0")
    offer = Offer(
        world.services.products.get("app"),
        release,
        world.services.licenses.get(world.key()).snapshot(),
        downloadable=True,
    )
    plain = update_response(offer, "https://x.example/1", "0.9").content
    assert b"kind" not in plain
    named = update_response(offer, "https://x.example/1", "0.9", "msi").content
    assert named == plain[:-1] + b',"kind":"msi"}'


@each_kind
@both_engines
def test_a_version_has_one_file_of_each_kind_and_platform(world, publish, kind):
    """A second one is refused with its name; another kind, another platform and any spelling are compared."""
    platform = PLATFORMS[kind]
    publish("1.0", content=file_of(kind), platform=platform)
    publish("1.0", content=file_of(kind))
    for spelling, where in (("1.0", platform), ("1.0.0", platform), ("1.0", "")):
        with pytest.raises(InvalidInputError, match=f"already.*{NAMES[kind]}; a published version never"):
            publish(spelling, content=file_of(kind, b"other"), platform=where)
    others = [other for other in FileKind if other is not kind]
    for other in others:
        publish("1.0", content=file_of(other), platform=platform)
    files = world.services.releases.list_files("app", "1.0")
    assert [(file.platform, file.kind) for file in files] == [
        ("", kind),
        *((platform, other) for other in FileKind),
    ]
    assert world.services.releases.get("app", "1.0", platform).kind is FileKind.FOLDER
    assert world.services.releases.get("app", "1.0", platform, kind).kind is kind
    publish("2.0", content=file_of(kind))
    with pytest.raises(NotFoundError, match=f"has no file of the kind '{others[0]}'"):
        world.services.releases.get("app", "2.0", kind=others[0])


async def test_a_feed_has_the_kind_of_its_address(world, site, publish_all):
    """Sparkle's and Tauri's; without one the first kind. Velopack's packages are files, and no set-ups."""
    publish_all("1.1")
    world.services.products.change("app", public_feed=True)
    for kind in FileKind:
        query = {"kind": kind, "platform": PLATFORMS[kind]}
        _, _, feed = await site.call("GET", "/feeds/app/appcast.xml", params=query)
        _, (item,) = read_appcast(feed)
        _, headers, _ = await site.call("GET", path_of(item.url))
        assert f"app-1.1-{kind}.bin" in headers["Content-Disposition"]
        _, _, answer = await site.call("GET", "/feeds/app/tauri/any/any/1.0", params=query)
        _, headers, _ = await site.call("GET", path_of(answer["url"]))
        assert f"app-1.1-{kind}.bin" in headers["Content-Disposition"]


async def test_velopack_is_offered_packages_alone(world, site, publish):
    """A set-up of a later version is not what its feed has."""
    world.services.products.change("app", public_feed=True)
    windows = PLATFORMS["msi"]
    publish("1.0", name="App-1.0.0-full.nupkg", content=file_of("folder"), platform=windows)
    publish("1.0", name="App-win-Setup.exe", content=file_of("nsis"), platform=windows)
    publish("1.1", name="App-1.1.0-setup.exe", content=file_of("nsis"), platform=windows)
    _, _, feed = await site.call("GET", "/feeds/app/velopack/releases.win.json")
    (asset,) = feed["Assets"]
    assert asset["FileName"] == "App-1.0.0-full.nupkg"
    status, headers, _ = await site.call(
        "GET", f"/feeds/app/velopack/{asset['FileName']}", allow_redirects=False
    )
    assert (status, DOWNLOAD_PATH in headers["Location"]) == (307, True)


@pytest.fixture
def page(open_browser):
    """The customer's page of a key."""

    async def open_page(key):
        browser = await open_browser()
        await browser.get("/account")
        await browser.post("/account/sign-in", csrf="", key=key)
        return browser

    return open_page


@pytest.mark.parametrize("settings", [{"account": True, "account_name": "Acme"}])
async def test_a_customer_downloads_the_file_of_each_kind(world, page, publish_all):
    """Each has a link with a name that people know; the link without a kind is for a folder, or the first."""
    publish_all()
    key = world.key()
    customer = await page(key)
    address = f"/account/download/{world.services.licenses.get(key).id.hex()}"
    shown = customer.text
    for kind in FileKind:
        names = ", ".join(filter(None, (PLATFORMS[kind], NAMES[kind])))
        assert f"({names})" in shown
        query = f"platform={PLATFORMS[kind]}" + ("" if kind is FileKind.FOLDER else f"&amp;kind={kind}")
        assert f'href="{address}?{query}"' in shown
        await customer.get(f"{address}?platform={PLATFORMS[kind]}&kind={kind}")
        assert customer.status == 200
    await customer.get(f"{address}?platform={PLATFORMS['app']}")
    assert customer.status == 200
    await customer.get(f"{address}?platform={PLATFORMS['app']}&kind=msi")
    assert customer.status == 404


async def test_the_console_publishes_and_shows_each_kind(world, alice):
    """By its content or as chosen; a wrong choice is refused, and the form keeps it."""
    path = "/console/products/app/releases"
    for kind in FileKind:
        await alice.get("/console/products/app")
        sent = {"csrf": alice.csrf, "version": "1.0", "changelog": "", "platform": PLATFORMS[kind]}
        sent |= {"kind": kind} if kind in ("folder", "msi") else {}
        await alice.upload(path, sent, content=file_of(kind))
        assert f"{NAMES[kind] or 'File'} for {PLATFORMS[kind]}</h2>" in alice.text
    await alice.get("/console/products/app")
    assert alice.text.count('<span class="state good">latest</span>') == len(FileKind)
    for name in filter(None, NAMES.values()):
        assert f", {name}, " in alice.text
    sent = {"csrf": alice.csrf, "version": "1.2", "changelog": "", "platform": "macos-arm64"}
    await alice.upload(path, sent, content=file_of("nsis"))
    assert "The version is published. The kind is for another system" in alice.notice
    await alice.get("/console/products/app")
    sent = {"csrf": alice.csrf, "version": "1.1", "changelog": "", "kind": "msi"}
    await alice.upload(path, sent, content=file_of("nsis"))
    assert (alice.status, "not an MSI" in alice.alert) == (422, True)
    assert '<option value="msi" selected>' in alice.text
    rows = csv.DictReader(io.StringIO((await alice.get(f"{path}.csv")).lstrip("\ufeff")))
    assert {row["kind"] for row in rows} == {*FileKind}


async def test_the_admin_api_publishes_and_finds_each_kind(api):
    """The field of the form, the parameter of the address, the list, and what is wrong with a file."""
    path = "/products/app/releases"
    for kind in FileKind:
        sent = form(version="1.0", platform=PLATFORMS[kind], file=("app.bin", file_of(kind)))
        status, release = await api("POST", path, **sent)
        assert (status, release["kind"], release["warning"]) == (201, kind, None)
        _, release = await api("GET", f"{path}/1.0", params={"platform": PLATFORMS[kind], "kind": kind.value})
        assert release["kind"] == kind
    assert (await api("GET", f"{path}/1.0", params={"kind": "exe"}))[0] == 422
    sent = form(version="1.1", kind="msi", file=("app.bin", file_of("nsis")))
    status, refusal = await api("POST", path, **sent)
    assert (status, "not an MSI" in refusal["detail"]) == (422, True)
    _, release = await api(
        "POST", path, **form(version="1.1", kind="folder", file=("app.bin", file_of("nsis")))
    )
    assert release["kind"] == "folder"
    sent = form(version="1.1", platform="macos-arm64", file=("app.bin", file_of("nsis")))
    assert "another system" in (await api("POST", path, **sent))[1]["warning"]
    damaged = file_of("msi")[:40]
    assert (await api("POST", path, **form(version="1.2", kind="msi", file=("app.msi", damaged))))[0] == 422
    _, release = await api("POST", path, **form(version="1.2", file=("app.msi", damaged)))
    assert (release["kind"], release["warning"]) == ("folder", None)
    listed, cursor = [], {}
    while cursor is not None:
        _, page_ = await api("GET", path, params={"limit": "1", **cursor})
        listed += [item["kind"] for item in page_["items"]]
        cursor = {"cursor": page_["next"]} if page_["next"] else None
    assert sorted(listed) == sorted([*FileKind, "folder", "nsis", "folder"])


@pytest.mark.slow
def test_the_command_line_publishes_each_kind(cli, tmp_path):
    """It says what it has guessed; the list has a column, and other commands an option."""
    cli("product", "add", "app", "--name", "App")
    for kind in FileKind:
        file = tmp_path / f"app-{kind}"
        file.write_bytes(file_of(kind))
        shown = cli("release", "publish", "app", "1.0", str(file), "--platform", PLATFORMS[kind])
        assert f"The kind {kind} is a guess" in shown if kind != "folder" else "guess" not in shown
        assert NAMES[kind] in shown
    listed = json.loads(cli("release", "list", "app", "--json"))
    assert {release["kind"] for release in listed} == {*FileKind}
    shown = cli("release", "publish", "app", "1.0", str(tmp_path / "app-msi"), "--kind", "msi")
    assert "guess" not in shown
    refused = cli("release", "publish", "app", "1.1", str(tmp_path / "app-nsis"), "--kind", "msi", expect=2)
    assert "the file is a set-up by NSIS, not an MSI" in refused
    assert "no patch" in cli("release", "patches", "app", "1.0", "--kind", "msi")
    cli("release", "patches", "app", "1.0", "--kind", "exe", expect=2)


@pytest.mark.parametrize(
    ("number", "name", "head", "platform", "warning"),
    [
        ("0.5", "app.zip", b"", "windows-x86_64", "No app is offered 0.5, as 1.0 is higher"),
        ("2.0", "app.zip", b"", "windows-amd64", "sends the platform windows-x86_64, not windows-amd64."),
        ("2.0", "app.zip", b"", "steamdeck", None),
        ("2.0", "photo-lab", b"\x7fELF", "linux-x86_64", "no zip, which no app in a folder can install"),
        ("2.0", "app.py", b"", "linux-x86_64", "no zip, which no app in a folder can install"),
        ("2.0", "plugin.dat", b"", "", None),
    ],
)
def test_publishing_warns_of_what_no_app_gets(cli, tmp_path, number, name, head, platform, warning):
    """A number, a name of a platform, and a program in place of the zip of its folder (D-410)."""
    cli("product", "add", "app", "--name", "App")
    content = file_of("folder") if name == "app.zip" else head + b"content"
    (tmp_path / name).write_bytes(content)
    (tmp_path / "first.zip").write_bytes(file_of("folder"))
    cli("release", "publish", "app", "1.0", str(tmp_path / "first.zip"), "--platform", "windows-x86_64")
    options = ("--platform", platform) if platform else ()
    shown = json.loads(cli("release", "publish", "app", number, str(tmp_path / name), *options, "--json"))
    assert (shown["warning"] is None) if warning is None else (warning in shown["warning"])


def test_publishing_warns_of_a_set_up_for_all_systems(cli, tmp_path):
    """An app on Windows that names no kind is offered an AppImage."""
    cli("product", "add", "app", "--name", "App")
    file = tmp_path / "app.AppImage"
    file.write_bytes(file_of("appimage"))
    assert "offered on every system" in cli("release", "publish", "app", "1.0", str(file))


def test_each_event_and_audit_line_has_the_kind(world, publish_all):
    """Those of a folder are as before there were kinds."""
    publish_all()
    lines = [line for line in world.services.audit.list_page().items if line.action == "release.publish"]
    assert sorted(line.details.get("kind", "folder") for line in lines) == sorted(FileKind)
    assert sum("kind" not in line.details for line in lines) == 1


@both_engines
def test_a_patch_begins_with_a_file_of_its_kind(make_world, tmp_path):
    """A set-up is never patched from a folder, however alike; the job of a folder names no kind."""
    world = make_world(patch_limit=1 << 20)
    for version in ("1.0", "1.1"):
        for kind in FileKind:
            file = tmp_path / f"app-{version}-{kind}"
            file.write_bytes(file_of(kind, random.Random(1).randbytes(50_000) + version.encode()))
            world.services.releases.publish("app", version, file, platform=PLATFORMS[kind])
    for kind in FileKind:
        ((base, patch),) = world.services.patches.make("app", "1.1", PLATFORMS[kind], kind)
        assert (base.version, base.kind, patch.size < 5_000) == ("1.0", kind, True)
    jobs = world.repositories.queue.claim(PATCHES, world.clock(), LEASE, 50)
    assert sorted(job.payload.get("kind", "") for job in jobs) == sorted(
        2 * ["", *(kind for kind in FileKind if kind is not FileKind.FOLDER)]
    )
    for job in jobs:
        assert world.services.patches.list_missing(**job.payload) == []


@pytest.mark.slow
@both_engines
def test_a_backup_keeps_each_kind(world, publish_all, tmp_path):
    """The files of a version are the same after a restore, into SQLite."""
    publish_all()
    held, settings = io.BytesIO(), Settings(data_dir=tmp_path / "anew")
    write_backup(world.services, held, world.clock())
    held.seek(0)
    restore_backup(held, settings)
    with closing(open_services(settings, world.clock)) as restored:
        before, after = (services.releases.list_all("app") for services in (world.services, restored))
        assert before == after
        assert {release.kind for release in after} == {*FileKind}


def test_the_check_names_the_kind_of_a_file(world, publish_all):
    """Both of a lost file, and of a manifest that runs out; its advice is the command for this file."""
    publish_all()
    release = world.services.releases.get("app", "1.0", PLATFORMS["msi"], "msi")
    world.services.artifacts.path(release.artifact).unlink()
    world.clock.forward(days=170)
    found = list(check_installation(world.settings, world.clock(), reach=False))
    (files,) = [finding for finding in found if finding.about == "files"]
    assert "1.0 for windows-x86_64 as MSI" in files.message
    advice = {finding.advice for finding in found if finding.about == "manifests"}
    assert "licserver release renew app 1.0 --platform windows-x86_64 --kind msi" in advice
    assert "licserver release renew app 1.0 --platform windows-x86_64" in advice


@pytest.mark.slow
@both_engines
def test_a_step_back_loses_no_file(world, publish_all):
    """Of the files for a platform the first stays; the others get a platform that no app names."""
    publish_all()
    publish_all("1.1")
    url = world.services.context.settings.database
    world.services.releases.withdraw("app", "1.1")
    own = connect(url)
    migrate.migrate(own, lambda config: command.downgrade(config, "0041"))
    with own.reading() as connection:
        rows = connection.exec_driver_sql(
            "SELECT version, platform, file_name FROM releases ORDER BY id"
        ).all()
    assert [(version, platform) for version, platform, _ in rows] == [
        (version, platform)
        for version in ("1.0", "1.1")
        for platform in (
            "windows-x86_64",
            "linux-x86_64",
            "nsis.windows-x86_64",
            "inno.windows-x86_64",
            "msi.windows-x86_64",
            "macos-arm64",
        )
    ]
    migrate.upgrade(own)
    assert migrate.differences(own) == []
    own.close()
    assert {file.kind for file in world.services.releases.list_all("app")} == {FileKind.FOLDER}
