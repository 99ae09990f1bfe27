"""Signed releases on their way: published, sent with an update check, renewed; also by command (D-67).

What a manifest is, without a server, is in `test_release_manifests`.
"""

import json
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest

from harness.manifests import oracle_reads, unpacked
from licserver.cli import main
from licserver.database.hot_path.store import BatchStore
from licserver.database.hot_path.updates import UpdateQuery
from licserver.errors import InvalidInputError
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.release_manifests import Manifest, read, sign, sign_with_keys, use_signed
from licserver.services.installation import open_services

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
KEY, OTHER = PrivateKey(b"1" * 32), PrivateKey(b"2" * 32)
FILE = b"zip"
MANIFEST = Manifest("app", "1.0", len(FILE), sha256(FILE).digest(), NOW, NOW + timedelta(days=180))
HEADER = "Release-Manifest"
MANIFEST_PATH = "/api/v1/update-manifest"


@pytest.fixture
def zip_file(tmp_path):
    """What is published."""
    path = tmp_path / "app-1.0.zip"
    path.write_bytes(FILE)
    return path


async def ask(site, key):
    """Check for an update; returns the manifest's document if there is one, and the answer."""
    query = {"license_key": key, "slug": "app", "current_version": "0", "domain": "a.example"}
    status, headers, answer = await site.call("GET", "/api/v1/update-check", params=query)
    assert status == 200
    return headers.get(HEADER) and unpacked(headers[HEADER]), answer


async def test_a_signed_release_is_sent_with_its_manifest(site, world, zip_file):
    """In a header of the update check and at the companion address; the body is the specified one."""
    world.services.releases.publish("app", "1.0", zip_file, "", sign_with_keys([KEY]))
    document, answer = await ask(site, world.key())
    manifest = oracle_reads(document, KEY)
    assert (manifest["slug"], manifest["version"], manifest["size"]) == ("app", "1.0", len(FILE))
    assert manifest["sha256"] == sha256(FILE).hexdigest()
    assert (manifest["published_at"], manifest["expires_at"]) == (
        "2026-06-15T12:00:00Z",
        "2026-12-12T12:00:00Z",
    )
    assert set(answer) == {
        *("name", "slug", "version", "download_url", "sections", "last_updated", "requires", "tested")
    }
    link = answer["download_url"].partition("?")[2]
    status, headers, body = await site.call("GET", f"{MANIFEST_PATH}?{link}")
    assert (status, headers["Content-Type"], body.decode()) == (200, "application/jose+json", document)
    assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")


async def test_an_unsigned_release_is_sent_as_before(site, world):
    """No header; and the companion address says that there is nothing."""
    world.publish("1.0")
    document, answer = await ask(site, world.key())
    assert document is None
    link = answer["download_url"].partition("?")[2]
    status, _, body = await site.call("GET", f"{MANIFEST_PATH}?{link}")
    assert (status, body["error"]) == (404, "not_signed")


@pytest.mark.slow
async def test_the_companion_address_takes_what_a_download_takes(site, world, zip_file, clock):
    """Without a good link nobody finds out which products and versions there are."""
    world.services.releases.publish("app", "1.0", zip_file, "", sign_with_keys([KEY]))
    key = world.key()
    link = (await ask(site, key))[1]["download_url"].partition("?")[2]
    for query, code in [("", "invalid_link"), (link[:-1], "invalid_link"), (link + "&x=1", "invalid_link")]:
        status, _, body = await site.call("GET", f"{MANIFEST_PATH}?{query}")
        assert (status, body["error"]) == (403, code)
    world.services.licenses.revoke(key)
    assert (await site.call("GET", f"{MANIFEST_PATH}?{link}"))[2]["error"] == "license_revoked"
    clock.forward(hours=1)
    assert (await site.call("GET", f"{MANIFEST_PATH}?{link}"))[2]["error"] == "link_expired"
    assert (await site.call("POST", MANIFEST_PATH))[0] == 405


@pytest.mark.slow
async def test_the_very_next_update_check_sends_a_renewed_manifest(site, world, zip_file, clock):
    """A server that has read the release before sees the new manifest at once, whoever renewed it."""
    world.services.releases.publish("app", "1.0", zip_file, "", sign_with_keys([KEY]))
    key = world.key()
    first, _ = await ask(site, key)
    clock.forward(days=100)
    other = open_services(world.settings, clock)  # as the command line has it
    try:
        other.releases.renew_manifest("app", "1.0", sign_with_keys([OTHER]))
    finally:
        other.close()
    second, answer = await ask(site, key)
    assert oracle_reads(first, KEY)["expires_at"] == "2026-12-12T12:00:00Z"
    assert oracle_reads(second, OTHER)["expires_at"] == "2027-03-22T12:00:00Z"
    assert answer["last_updated"] == "2026-06-15 12:00:00"  # the release is the same
    link = answer["download_url"].partition("?")[2]
    assert (await site.call("GET", f"{MANIFEST_PATH}?{link}"))[2].decode() == second


@pytest.mark.slow
async def test_an_unsigned_release_can_be_signed_later(site, world, zip_file):
    """A vendor who begins to sign need not publish everything again."""
    world.services.releases.publish("app", "1.0", zip_file)
    key = world.key()
    assert (await ask(site, key))[0] is None
    world.services.releases.renew_manifest("app", "1.0", sign_with_keys([KEY]))
    assert (await ask(site, key))[0] is not None


@pytest.mark.slow
async def test_each_version_has_its_own_manifest(site, world, zip_file):
    """Publishing and withdrawing change the version and its manifest together."""
    key = world.key()
    for version, signer in (("1.0", KEY), ("1.1", OTHER)):
        world.services.releases.publish("app", version, zip_file, "", sign_with_keys([signer]))
    world.publish("1.2")
    assert (await ask(site, key))[0] is None
    world.services.releases.withdraw("app", "1.2")
    assert oracle_reads((await ask(site, key))[0], OTHER)["version"] == "1.1"
    world.services.releases.withdraw("app", "1.1")
    assert oracle_reads((await ask(site, key))[0], KEY)["version"] == "1.0"
    with pytest.raises(InvalidInputError, match="withdrawn"):
        world.services.releases.renew_manifest("app", "1.1", sign_with_keys([KEY]))


def test_what_was_read_once_is_not_read_again(world, zip_file):
    """A release and its manifest cost one statement each time that one of them is new, and none between."""
    world.services.releases.publish("app", "1.0", zip_file, "", sign_with_keys([KEY]))
    ask_again = UpdateQuery(world.services.vault.license_id(world.key()), "app")
    store = BatchStore(world.services.database)
    try:
        found = [store.find_updates([ask_again])[0][1].latest for _ in range(3)]
        assert found[0] is found[1] is found[2]
        world.services.releases.renew_manifest("app", "1.0", sign_with_keys([OTHER]))
        renewed = store.find_updates([ask_again])[0][1].latest
        assert renewed == found[0]._replace(manifest=renewed.manifest) != found[0]
    finally:
        store.close()


def test_nothing_is_published_with_a_manifest_of_another_file(world, zip_file):
    """Neither books nor artifacts are touched."""
    other = sign(replace(MANIFEST, sha256=bytes(32)), [KEY]).document
    with pytest.raises(InvalidInputError, match="another release"):
        world.services.releases.publish("app", "1.0", zip_file, "", use_signed(other))
    assert world.services.releases.list_all("app") == []
    assert not list((world.settings.data_dir / "artifacts").glob("*"))


def test_a_file_that_changes_while_it_is_published(world, zip_file):
    """What was signed and what was stored are the same bytes, or nothing is published."""

    def meddling(wanted):
        zip_file.write_bytes(b"zap")
        return sign_with_keys([KEY])(wanted)

    with pytest.raises(InvalidInputError, match="changed while it was published"):
        world.services.releases.publish("app", "1.0", zip_file, "", meddling)
    assert world.services.releases.list_all("app") == []


# --- on the command line ------------------------------------------------------------------------


def test_a_key_is_made_shown_and_used(cli, tmp_path, zip_file):
    """From a new key to a signed release, on one machine."""
    pem = tmp_path / "release.pem"
    shown = cli("release", "new-key", str(pem)).strip()
    assert stat.S_IMODE(pem.stat().st_mode) == 0o600
    assert "already" in cli("release", "new-key", str(pem), expect=2)
    assert cli("release", "public-key", str(pem)).strip() == shown
    record = json.loads(cli("release", "public-key", str(pem), "--json"))
    assert record["public_key"] == shown == PrivateKey.from_pem(pem.read_bytes(), "x").public.text
    cli("product", "add", "app", "--name", "App")
    cli("release", "publish", "app", "1.0", str(zip_file), "--release-key", str(pem), "--valid-for", "10")
    [row] = json.loads(cli("release", "list", "app", "--json"))
    signed_for = datetime.fromisoformat(row["signed_until"]) - datetime.fromisoformat(row["published_at"])
    assert timedelta(days=9, hours=23) < signed_for <= timedelta(days=10, seconds=1)
    renewed = json.loads(cli("release", "renew", "app", "1", "--release-key", str(pem), "--json"))
    assert renewed["signed_by"] == [record["id"]]
    assert renewed["signed_until"] > row["signed_until"]
    assert "release renew" in cli("release", "withdraw", "app", "1.0")
    assert "PRIVATE" not in shown + json.dumps(record)


def test_signing_needs_no_server(tmp_path, zip_file, capsys, monkeypatch):
    """Where the key is there is no data folder, and none is made; two keys sign one after the other."""
    monkeypatch.setenv("LICSERVER_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("LICSERVER_DATABASE_URL", "postgresql://nobody@192.0.2.1/nothing")
    for number, key in enumerate((KEY, OTHER)):
        (tmp_path / f"{number}.pem").write_bytes(key.to_pem())

    def run(*arguments: str):
        with pytest.raises(SystemExit) as ended:
            main(["release", "sign", "app", *arguments])
        assert ended.value.code == 0, capsys.readouterr().err
        return capsys.readouterr().out

    first = tmp_path / "first.json"
    key_of = ["--release-key", str(tmp_path / "0.pem")], ["--release-key", str(tmp_path / "1.pem")]
    assert KEY.public.id in run("1.0", str(zip_file), *key_of[0], "--out", str(first))
    both = run("1.0", str(zip_file), *key_of[1], "--add-to", str(first))
    assert read(both).key_ids == (KEY.public.id, OTHER.public.id)
    assert oracle_reads(both, KEY, OTHER)["sha256"] == sha256(FILE).hexdigest()
    assert not (tmp_path / "none").exists()


def test_what_was_signed_elsewhere_is_published_and_renewed(cli, tmp_path, zip_file):
    """The server never sees the key."""
    pem = tmp_path / "release.pem"
    pem.write_bytes(KEY.to_pem())
    cli("product", "add", "app", "--name", "App")
    documents = [tmp_path / "one.json", tmp_path / "two.json"]
    for days, path in zip(("10", "20"), documents, strict=True):
        options = ["--release-key", str(pem), "--valid-for", days, "--out", str(path)]
        cli("release", "sign", "app", "1.0", str(zip_file), *options)
    pem.unlink()
    publish = ["release", "publish", "app"]
    assert "its version is '1.0'" in cli(
        *publish, "1.1", str(zip_file), "--manifest", str(documents[0]), expect=2
    )
    cli(*publish, "1.0", str(zip_file), "--manifest", str(documents[0]))
    [before] = json.loads(cli("release", "list", "app", "--json"))
    cli("release", "renew", "app", "1.0", "--manifest", str(documents[1]))
    [after] = json.loads(cli("release", "list", "app", "--json"))
    assert after["signed_until"] > before["signed_until"]
    assert {**after, "signed_until": 0} == {**before, "signed_until": 0}


def test_platform_and_kind_are_signed(cli, tmp_path, zip_file):
    """What was signed for one platform or kind is published and renewed for no other (D-406)."""
    pem, document, other = (tmp_path / name for name in ("release.pem", "one.json", "two.json"))
    pem.write_bytes(KEY.to_pem())
    sign_, publish = ["release", "sign", "app", "1.0", str(zip_file)], ["release", "publish", "app", "1.0"]
    cli("product", "add", "app", "--name", "App")
    key, on_linux = ("--release-key", str(pem)), ("--platform", "linux-x86_64")
    assert "1.0 for linux-x86_64 until" in cli(*sign_, *key, *on_linux, "--out", str(document))
    cli(*sign_, *key, "--out", str(other))
    said = [oracle_reads(path.read_text(), KEY) for path in (document, other)]
    assert [(each["platform"], each["kind"]) for each in said] == [("linux-x86_64", "folder"), ("", "folder")]
    for path, platform, reason in (
        (document, "linux-arm64", "its platform is 'linux-x86_64', expected 'linux-arm64'"),
        (document, "", "its platform is 'linux-x86_64', expected ''"),
        (other, "linux-x86_64", "its platform is '', expected 'linux-x86_64'"),
    ):
        place = ("--platform", platform, "--manifest", str(path))
        assert reason in cli(*publish, str(zip_file), *place, expect=2)
    cli(*publish, str(zip_file), *on_linux, "--manifest", str(document))
    assert "its platform is ''" in cli(
        "release", "renew", "app", "1.0", *on_linux, "--manifest", str(other), expect=2
    )
    cli(*publish, str(zip_file), *key)
    cli("release", "renew", "app", "1.0", *key)
    assert "is not a valid platform" in cli(*sign_, *key, "--platform", "Linux", expect=2)
    assert "is not a kind of file" in cli(*sign_, *key, "--kind", "exe", expect=2)
    assert "is a file of another kind, not an MSI" in cli(*sign_, *key, "--kind", "msi", expect=2)


WRONG = {
    "both": (["--release-key", "K", "--manifest", "M"], "not both"),
    "a key that is none": (["--release-key", "F"], "is not an unencrypted Ed25519 private key"),
    "a key that is not there": (["--release-key", "gone"], "cannot read"),
    "a manifest that is none": (["--manifest", "F"], "not a signed release manifest"),
    "a manifest that is a key": (["--manifest", "K"], "not a signed release manifest"),
    "no time": (["--release-key", "K", "--valid-for", "0"], "--valid-for"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("options", "expected"), WRONG.values(), ids=WRONG)
def test_wrong_use_is_reported_in_one_line_and_publishes_nothing(cli, tmp_path, zip_file, options, expected):
    """And no message repeats anything of a key."""
    files = {"K": tmp_path / "k.pem", "M": tmp_path / "m.json", "F": zip_file}
    files["K"].write_bytes(KEY.to_pem())
    files["M"].write_text(sign(MANIFEST, [KEY]).document)
    cli("product", "add", "app", "--name", "App")
    given_ = [str(files.get(option, option)) for option in options]
    message = cli("release", "publish", "app", "1.0", str(zip_file), *given_, expect=2)
    assert expected in message
    assert message.count("\n") == 1
    assert files["K"].read_text().splitlines()[1] not in message
    assert json.loads(cli("release", "list", "app", "--json")) == []
    assert "--release-key" in cli("release", "renew", "app", "1.0", expect=2)
    assert "--release-key" in cli("release", "sign", "app", "1.0", str(zip_file), expect=2)
