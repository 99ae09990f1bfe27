"""Signed releases: what a vendor says of a file, for a time, and any JWS library reads it (D-67)."""

import json
import stat
import warnings
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.errors import BadSignatureError, SecurityWarning
from joserfc.jwk import KeySet, OKPKey

from licserver.cli import main
from licserver.errors import WrongUse
from licserver.keys import PrivateKey
from licserver.manifest import (
    MAX_DOCUMENT,
    TYPE,
    Manifest,
    add_signature,
    read,
    sealed_before,
    sealed_by_keys,
    sign,
    to_header,
)
from licserver.store import BatchStore, UpdateAsk
from licserver.vendor import Vendor

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
KEY, OTHER = PrivateKey(b"1" * 32), PrivateKey(b"2" * 32)
FILE = b"zip"
SAID = Manifest("app", "1.0", len(FILE), sha256(FILE).digest(), NOW, NOW + timedelta(days=180))
HEADER = "Release-Manifest"
MANIFEST_PATH = "/api/v1/update-manifest"


def oracle(*keys: PrivateKey):
    """The same keys, for a library that is not ours."""
    return KeySet([OKPKey.import_key(key.to_pem(), {"kid": key.public.id}) for key in keys])


def oracle_reads(document, *keys: PrivateKey):
    """What that library finds to be signed, or its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # it would rather read Ed25519 (RFC 9864) than EdDSA
        found = jws.deserialize_json(json.loads(document), oracle(*keys), algorithms=["EdDSA", "Ed25519"])
    return json.loads(found.payload)


def unpacked(header):
    """The document in a header."""
    return urlsafe_b64decode(header + "=" * (-len(header) % 4)).decode()


# --- both ways with another library -------------------------------------------------------------


@given(
    st.builds(
        Manifest,
        slug=st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True),
        version=st.sampled_from(["1.0", "2.0rc1", "1!3.4.post5"]),
        size=st.integers(0, 2**53),
        sha256=st.binary(min_size=32, max_size=32),
        published_at=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
        expires_at=st.just(datetime(2150, 1, 1, tzinfo=UTC)),
    ),
    st.lists(st.sampled_from([KEY, OTHER]), min_size=1, max_size=2, unique_by=lambda key: key.public.id),
)
def test_another_library_reads_what_we_sign(manifest, keys):
    """Every signature of every manifest verifies there, and says the same."""
    signed = sign(manifest, keys)
    assert oracle_reads(signed.document, KEY, OTHER) == {
        "slug": manifest.slug,
        "version": manifest.version,
        "size": manifest.size,
        "sha256": manifest.sha256.hex(),
        "published_at": f"{manifest.published_at:%Y-%m-%dT%H:%M:%SZ}",
        "expires_at": "2150-01-01T00:00:00Z",
    }
    assert signed.key_ids == tuple(key.public.id for key in keys)
    assert read(signed.document) == signed
    assert signed.manifest == replace(manifest, published_at=manifest.published_at.replace(microsecond=0))


@pytest.mark.parametrize("algorithm", ["EdDSA", "Ed25519"])
def test_we_read_what_another_library_signs(algorithm):
    """A vendor may sign with whatever makes a general JWS; the document comes out as ours would."""
    ours = sign(SAID, [KEY, OTHER])
    members = [{"protected": {"alg": algorithm, "kid": key.public.id, "typ": TYPE}} for key in (KEY, OTHER)]
    payload = unpacked(json.loads(ours.document)["payload"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)
        theirs = jws.serialize_json(members, payload, oracle(KEY, OTHER), algorithms=["EdDSA", "Ed25519"])
    found = read(json.dumps({**theirs, "more": 1}, indent=2))
    assert (found.manifest, found.key_ids) == (ours.manifest, ours.key_ids)
    assert (found == ours) == (algorithm == "EdDSA")


def test_another_library_refuses_what_another_key_signed():
    """The oracle does verify."""
    document = json.loads(sign(SAID, [OTHER]).document)
    document["signatures"][0]["protected"] = json.loads(sign(SAID, [KEY]).document)["signatures"][0][
        "protected"
    ]
    with pytest.raises(BadSignatureError):
        oracle_reads(json.dumps(document), KEY)


def test_signatures_are_added_without_touching_what_is_there():
    """One vendor, two keys, two machines; who has signed already does not sign twice."""
    one = sign(SAID, [KEY])
    two = add_signature(one, OTHER)
    assert two.key_ids == (KEY.public.id, OTHER.public.id)
    assert add_signature(two, OTHER) == two
    assert json.loads(two.document)["signatures"][0] == json.loads(one.document)["signatures"][0]
    assert oracle_reads(two.document, KEY, OTHER) == oracle_reads(one.document, KEY)


def test_a_header_stays_small():
    """One signature takes well below a kilobyte; what would trouble a proxy is refused."""
    assert len(to_header(sign(SAID, [KEY]).document)) < 800
    many = [PrivateKey(bytes([number]) * 32) for number in range(5)]
    assert len(to_header(sign(SAID, many).document)) < 2800
    with pytest.raises(WrongUse, match=f"at most {MAX_DOCUMENT}: sign it with fewer keys"):
        sign(SAID, [PrivateKey(bytes([number]) * 32) for number in range(12)])


def changed(**head: object):
    """A document whose signature has another head."""
    document = json.loads(sign(SAID, [KEY]).document)
    kept = {"alg": "EdDSA", "kid": KEY.public.id, "typ": TYPE} | head
    text = json.dumps({name: value for name, value in kept.items() if value is not None})
    document["signatures"][0]["protected"] = urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return json.dumps(document)


def saying(**changes: object):
    """A document that says something else."""
    document = json.loads(sign(SAID, [KEY]).document)
    said = json.loads(unpacked(document["payload"])) | changes
    text = json.dumps({name: value for name, value in said.items() if value is not None})
    document["payload"] = urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return json.dumps(document)


def signed_with(signature: str):
    """A document with another signature."""
    document = json.loads(sign(SAID, [KEY]).document)
    document["signatures"][0]["signature"] = signature
    return json.dumps(document)


FLAWS = {
    "nothing": ("", "no signed release manifest"),
    "no object": ("[]", "no JSON object"),
    "a compact JWS": ("eyJ.eyJ.AAA", "no signed release manifest"),
    "deep": ("[" * 100_000, "no signed release manifest"),
    "no signatures": (
        json.dumps({**json.loads(sign(SAID, [KEY]).document), "signatures": []}),
        "nobody has signed",
    ),
    "signatures of another kind": (json.dumps({"payload": "e30", "signatures": [1]}), "no signed release"),
    "another algorithm": (changed(alg="HS256"), "algorithm must be EdDSA"),
    "another type": (changed(typ="JWT"), "typ must be release-manifest"),
    "no type": (changed(typ=None), "typ must be release-manifest"),
    "no key": (changed(kid=None), "kid is missing"),
    "an extension": (changed(crit=["b64"]), "asks for extensions"),
    "a short signature": (signed_with("AAAA"), "a signature is not one of Ed25519"),
    "padded": (sign(SAID, [KEY]).document.replace('","signatures', '=","signatures'), "no signed release"),
    "no version": (saying(version=None), "must say slug, version"),
    "a size that is none": (saying(size=True), "must say slug, version"),
    "a digest that is none": (saying(sha256="x"), "must say slug, version"),
    "another instant": (saying(expires_at="tomorrow"), "an instant looks like"),
    "no instant": (saying(expires_at="2026-02-30T00:00:00Z"), "no signed release manifest"),
}


@pytest.mark.parametrize(("document", "told"), FLAWS.values(), ids=FLAWS)
def test_what_is_no_manifest_is_refused_with_the_reason(document, told):
    """A slip is found when it is published, not by customers."""
    with pytest.raises(WrongUse, match=told):
        read(document)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"slug": "other"}, "its slug is 'app' and should be 'other'"),
        ({"version": "1.0.0"}, "its version is '1.0' and should be '1.0.0'"),
        ({"size": 4}, "its size is 3 and should be 4"),
        ({"sha256": bytes(32)}, "its sha256 is"),
        ({"published_at": SAID.expires_at}, "expired at 2026-12-12T12:00:00Z"),
    ],
)
def test_a_manifest_of_another_release_is_refused(change, told):
    """What was signed elsewhere must say what is published, and be good still."""
    with pytest.raises(WrongUse, match=told):
        sealed_before(sign(SAID, [KEY]).document)(replace(SAID, **change))


def test_a_manifest_that_is_good_for_no_time_is_not_signed():
    """An end before the beginning would be nobody's update."""
    with pytest.raises(WrongUse, match="some time"):
        sign(replace(SAID, expires_at=NOW), [KEY])


# --- over the wire ------------------------------------------------------------------------------


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


async def test_a_signed_release_is_told_with_its_manifest(site, world, zip_file):
    """In a header of the update check and at the companion address; the body is the specified one."""
    world.vendor.publish("app", "1.0", zip_file, "", sealed_by_keys([KEY]))
    document, answer = await ask(site, world.key())
    said = oracle_reads(document, KEY)
    assert (said["slug"], said["version"], said["size"]) == ("app", "1.0", len(FILE))
    assert said["sha256"] == sha256(FILE).hexdigest()
    assert (said["published_at"], said["expires_at"]) == ("2026-06-15T12:00:00Z", "2026-12-12T12:00:00Z")
    assert set(answer) == {
        *("name", "slug", "version", "download_url", "sections", "last_updated", "requires", "tested")
    }
    link = answer["download_url"].partition("?")[2]
    status, headers, body = await site.call("GET", f"{MANIFEST_PATH}?{link}")
    assert (status, headers["Content-Type"], body.decode()) == (200, "application/jose+json", document)
    assert headers["Cache-Control"] == "no-store"


async def test_an_unsigned_release_is_told_as_ever(site, world):
    """No header; and the companion address says that there is nothing."""
    world.publish("1.0")
    document, answer = await ask(site, world.key())
    assert document is None
    link = answer["download_url"].partition("?")[2]
    status, _, body = await site.call("GET", f"{MANIFEST_PATH}?{link}")
    assert (status, body["error"]) == (404, "not_signed")


async def test_the_companion_address_takes_what_a_download_takes(site, world, zip_file, clock):
    """Without a good link nobody finds out which products and versions there are."""
    world.vendor.publish("app", "1.0", zip_file, "", sealed_by_keys([KEY]))
    key = world.key()
    link = (await ask(site, key))[1]["download_url"].partition("?")[2]
    for query, code in [("", "invalid_link"), (link[:-1], "invalid_link"), (link + "&x=1", "invalid_link")]:
        status, _, body = await site.call("GET", f"{MANIFEST_PATH}?{query}")
        assert (status, body["error"]) == (403, code)
    world.vendor.revoke(key)
    assert (await site.call("GET", f"{MANIFEST_PATH}?{link}"))[2]["error"] == "license_revoked"
    clock.forward(hours=1)
    assert (await site.call("GET", f"{MANIFEST_PATH}?{link}"))[2]["error"] == "link_expired"
    assert (await site.call("POST", MANIFEST_PATH))[0] == 405


async def test_the_very_next_update_check_tells_a_renewed_manifest(site, world, zip_file, clock):
    """A server that has read the release before sees the new manifest at once, whoever renewed it."""
    world.vendor.publish("app", "1.0", zip_file, "", sealed_by_keys([KEY]))
    key = world.key()
    first, _ = await ask(site, key)
    clock.forward(days=100)
    other = Vendor(world.settings, clock)  # as the command line has it
    try:
        other.renew_manifest("app", "1.0", sealed_by_keys([OTHER]))
    finally:
        other.close()
    second, answer = await ask(site, key)
    assert oracle_reads(first, KEY)["expires_at"] == "2026-12-12T12:00:00Z"
    assert oracle_reads(second, OTHER)["expires_at"] == "2027-03-22T12:00:00Z"
    assert answer["last_updated"] == "2026-06-15 12:00:00"  # the release is the same
    link = answer["download_url"].partition("?")[2]
    assert (await site.call("GET", f"{MANIFEST_PATH}?{link}"))[2].decode() == second


async def test_an_unsigned_release_can_be_signed_later(site, world, zip_file):
    """A vendor who begins to sign need not publish everything again."""
    world.vendor.publish("app", "1.0", zip_file)
    key = world.key()
    assert (await ask(site, key))[0] is None
    world.vendor.renew_manifest("app", "1.0", sealed_by_keys([KEY]))
    assert (await ask(site, key))[0] is not None


async def test_each_version_has_its_own_manifest(site, world, zip_file):
    """Publishing and withdrawing change the version and its manifest together."""
    key = world.key()
    for version, signer in (("1.0", KEY), ("1.1", OTHER)):
        world.vendor.publish("app", version, zip_file, "", sealed_by_keys([signer]))
    world.publish("1.2")
    assert (await ask(site, key))[0] is None
    world.vendor.withdraw("app", "1.2")
    assert oracle_reads((await ask(site, key))[0], OTHER)["version"] == "1.1"
    world.vendor.withdraw("app", "1.1")
    assert oracle_reads((await ask(site, key))[0], KEY)["version"] == "1.0"
    with pytest.raises(WrongUse, match="withdrawn"):
        world.vendor.renew_manifest("app", "1.1", sealed_by_keys([KEY]))


def test_what_was_read_once_is_not_read_again(world, zip_file):
    """A release and its manifest cost one statement each time that one of them is new, and none between."""
    world.vendor.publish("app", "1.0", zip_file, "", sealed_by_keys([KEY]))
    ask_again = UpdateAsk(world.vendor.vault.license_id(world.key()), "app")
    store = BatchStore(world.vendor.database)
    try:
        found = [store.look_up_updates([ask_again])[0][1].latest for _ in range(3)]
        assert found[0] is found[1] is found[2]
        world.vendor.renew_manifest("app", "1.0", sealed_by_keys([OTHER]))
        renewed = store.look_up_updates([ask_again])[0][1].latest
        assert renewed == found[0]._replace(manifest=renewed.manifest) != found[0]
    finally:
        store.close()


def test_nothing_is_published_with_a_manifest_of_another_file(world, zip_file):
    """Neither books nor artifacts are touched."""
    other = sign(replace(SAID, sha256=bytes(32)), [KEY]).document
    with pytest.raises(WrongUse, match="another release"):
        world.vendor.publish("app", "1.0", zip_file, "", sealed_before(other))
    assert world.vendor.releases("app") == []
    assert not list((world.settings.data_dir / "artifacts").glob("*"))


def test_a_file_that_changes_while_it_is_published(world, zip_file):
    """What was signed and what was stored are the same bytes, or nothing is published."""

    def meddling(wanted):
        zip_file.write_bytes(b"zap")
        return sealed_by_keys([KEY])(wanted)

    with pytest.raises(WrongUse, match="changed while it was published"):
        world.vendor.publish("app", "1.0", zip_file, "", meddling)
    assert world.vendor.releases("app") == []


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


WRONG = {
    "both": (["--release-key", "K", "--manifest", "M"], "not both"),
    "a key that is none": (["--release-key", "F"], "holds no unencrypted Ed25519 private key"),
    "a key that is not there": (["--release-key", "gone"], "cannot read"),
    "a manifest that is none": (["--manifest", "F"], "no signed release manifest"),
    "a manifest that is a key": (["--manifest", "K"], "no signed release manifest"),
    "no time": (["--release-key", "K", "--valid-for", "0"], "--valid-for"),
}


@pytest.mark.parametrize(("options", "told"), WRONG.values(), ids=WRONG)
def test_wrong_use_is_said_in_one_line_and_publishes_nothing(cli, tmp_path, zip_file, options, told):
    """And no message repeats anything of a key."""
    files = {"K": tmp_path / "k.pem", "M": tmp_path / "m.json", "F": zip_file}
    files["K"].write_bytes(KEY.to_pem())
    files["M"].write_text(sign(SAID, [KEY]).document)
    cli("product", "add", "app", "--name", "App")
    given_ = [str(files.get(option, option)) for option in options]
    message = cli("release", "publish", "app", "1.0", str(zip_file), *given_, expect=2)
    assert told in message
    assert message.count("\n") == 1
    assert files["K"].read_text().splitlines()[1] not in message
    assert json.loads(cli("release", "list", "app", "--json")) == []
    assert "--release-key" in cli("release", "renew", "app", "1.0", expect=2)
    assert "--release-key" in cli("release", "sign", "app", "1.0", str(zip_file), expect=2)
