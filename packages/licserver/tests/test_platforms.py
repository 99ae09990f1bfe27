"""Files for platforms: each platform gets its own file of a version, and the rest the default (D-187)."""

import json

import pytest

from harness import engines
from harness.admin import form
from licserver.database.hot_path.store import BatchStore
from licserver.database.hot_path.updates import UpdateQuery
from licserver.errors import InvalidInputError, NotFoundError
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.release_manifests import read, sign_with_keys
from licserver.services.self_check import check_installation

engine_name = engines.engine_name
WINDOWS, MACOS = "windows-x86_64", "macos-arm64"
KEY = PrivateKey(bytes(range(32)))


@pytest.fixture
def publish(world, tmp_path):
    """Publish a file whose bytes name its platform, signed."""

    def publish(version, platform="", changelog=""):
        file = tmp_path / f"app-{platform or 'any'}.zip"
        file.write_bytes(platform.encode())
        sign = sign_with_keys([KEY])
        return world.services.releases.publish("app", version, file, changelog, sign, platform=platform)

    return publish


def offers(world, platforms):
    """What update checks of these platforms find, each a file and what was signed about it."""
    key_id, store = world.services.vault.license_id(world.key()), BatchStore(world.services.database)
    try:
        found = store.find_updates([UpdateQuery(key_id, "app", platform) for platform in platforms])
    finally:
        store.close()
    latest = [product.latest for _, product in found]
    return [
        release and (release.version, release.platform, read(release.manifest).manifest.size)
        for release in latest
    ]


def test_each_platform_finds_its_own_file_with_its_manifest(world, publish):
    """In one batch; an unknown platform finds the default, and withdrawing takes all files of a version."""
    for version, platform in [("1.0", ""), ("1.0", WINDOWS), ("1.1", ""), ("1.1.0", MACOS)]:
        publish(version, platform)
    assert offers(world, ["", WINDOWS, MACOS, "haiku"]) == [
        ("1.1", "", 0),
        ("1.1", "", 0),
        ("1.1", MACOS, len(MACOS)),
        ("1.1", "", 0),
    ]
    publish("1.1", WINDOWS)
    assert offers(world, [WINDOWS]) == [("1.1", WINDOWS, len(WINDOWS))]
    world.services.releases.withdraw("app", "1.1")
    assert offers(world, ["", WINDOWS, MACOS]) == [
        ("1.0", "", 0),
        ("1.0", WINDOWS, len(WINDOWS)),
        ("1.0", "", 0),
    ]


def test_a_platform_without_any_file_finds_nothing(world, publish):
    """Where there is no default; the product is listed with the version that its platforms have."""
    publish("1.0", WINDOWS)
    assert offers(world, ["", MACOS, WINDOWS]) == [None, None, ("1.0", WINDOWS, len(WINDOWS))]
    assert world.services.products.get("app").latest.version == "1.0"


def test_a_renewed_manifest_of_a_platform_is_found_at_once(world, publish):
    """It is the file's own."""
    publish("1.0")
    first = publish("1.0", WINDOWS)
    world.clock.forward(days=1)
    renewed = world.services.releases.renew_manifest("app", "1.0", sign_with_keys([KEY]), WINDOWS)
    assert read(renewed.manifest).manifest.expires_at > read(first.manifest).manifest.expires_at
    assert offers(world, [WINDOWS]) == [("1.0", WINDOWS, len(WINDOWS))]


def test_a_further_file_has_the_changelog_of_its_version(world, publish):
    """What does not fit is refused: the same platform, another changelog, a withdrawn version, no name."""
    publish("1.0", changelog="New.")
    assert [
        publish("1.0", name, changelog=text).changelog for name, text in [(WINDOWS, ""), (MACOS, "New.")]
    ] == [
        "New.",
        "New.",
    ]
    for platform, changelog, match in [
        (WINDOWS, "", f"already for {WINDOWS}"),
        ("linux", "Other.", "another changelog"),
        ("Linux 64", "", "is not a valid platform"),
    ]:
        with pytest.raises(InvalidInputError, match=match):
            publish("1.0", platform, changelog=changelog)
    world.services.releases.withdraw("app", "1.0")
    with pytest.raises(InvalidInputError, match="is withdrawn"):
        publish("1.0", "linux")
    with pytest.raises(NotFoundError, match="has no file for 'linux'"):
        world.services.releases.get("app", "1.0", "linux")


@engines.sqlite_only
def test_the_check_looks_at_each_file_that_is_offered(world, publish):
    """A lost file of a platform is named with it."""
    publish("1.0")
    world.services.artifacts.path(publish("1.0", WINDOWS).artifact).unlink()
    found = check_installation(world.settings, world.clock(), reach=False)
    (files,) = [finding for finding in found if finding.about == "files"]
    assert f"lacks the file of app 1.0 for {WINDOWS}" in files.message


@pytest.mark.slow
@engines.sqlite_only
def test_the_command_line_publishes_for_platforms(cli, tmp_path):
    """A file each; the list has a line each, and a pre-release says who is offered it."""
    file = tmp_path / "app.zip"
    file.write_bytes(b"zip")
    cli("product", "add", "app", "--name", "App")
    cli("release", "publish", "app", "1.0", str(file))
    assert f"for {WINDOWS}" in cli("release", "publish", "app", "1.0", str(file), "--platform", WINDOWS)
    assert "no installation is offered it" in cli("release", "publish", "app", "1.1rc1", str(file))
    listed = json.loads(cli("release", "list", "app", "--json"))
    assert [(release["version"], release["platform"]) for release in listed] == [
        ("1.0", None),
        ("1.0", WINDOWS),
        ("1.1rc1", None),
    ]
    assert "is not a valid platform" in cli(
        "release", "publish", "app", "1.0", str(file), "--platform", "Mac OS", expect=2
    )


@pytest.mark.slow
@engines.sqlite_only
async def test_the_admin_api_publishes_for_platforms(api):
    """The field of the form, the parameter of the address, and the pages of the list know platforms."""
    path = "/products/app/releases"
    for more in ({}, {"platform": WINDOWS}):
        sent = form(version="1.0", **more, file=("app.zip", b"zip"))
        status, release = await api("POST", path, **sent)
        assert (status, release["platform"], release["audience"]) == (201, more.get("platform"), None)
    _, release = await api("POST", path, **form(version="2.0rc1", file=("app.zip", b"zip")))
    assert "no installation is offered it" in release["audience"]
    await api("POST", f"{path}/2.0rc1/withdraw")
    assert (await api("GET", f"{path}/1.0", params={"platform": WINDOWS}))[1]["platform"] == WINDOWS
    assert (await api("GET", f"{path}/1.0", params={"platform": MACOS}))[0] == 404
    _, first = await api("GET", path, params={"limit": "1"})
    _, rest = await api("GET", path, params={"cursor": first["next"]})
    listed = [(release_["version"], release_["platform"]) for release_ in first["items"] + rest["items"]]
    assert listed == [("2.0rc1", None), ("1.0", WINDOWS), ("1.0", None)]


@pytest.mark.slow
@engines.sqlite_only
async def test_the_console_publishes_for_platforms(world, alice):
    """The form suggests names; the page of a version shows its files, and who is offered a pre-release."""
    world.publish("1.0")
    await alice.get("/console/products/app")
    assert f"<option>{MACOS}</option>" in alice.text
    path = "/console/products/app/releases"
    await alice.upload(path, {"csrf": alice.csrf, "version": "1.0", "changelog": "", "platform": WINDOWS})
    assert f"File for {WINDOWS}" in alice.text
    await alice.get("/console/products/app")
    await alice.upload(path, {"csrf": alice.csrf, "version": "2.0rc1", "changelog": "", "platform": "Mac OS"})
    assert (alice.status, "is not a valid platform" in alice.alert, 'value="Mac OS"' in alice.text) == (
        422,
        True,
        True,
    )
    await alice.upload(path, {"csrf": alice.csrf, "version": "2.0rc1", "changelog": "", "platform": ""})
    assert "no installation is offered it, because 1.0 is offered instead" in alice.text
